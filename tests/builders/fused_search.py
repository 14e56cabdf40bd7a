"""Random programs with fused ops that are compiled for the test, in a stock TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.builders.compiled_kernels import compiled

from tfbuild.commands import Request
from tfbuild.kernelbuild.random_trials import FAMILIES, FamilyCount, SearchRequest, search_results
from tfbuild.tools.environment import Environment
from tfcore.settings import Paths

PARTS = ("updates", "loops", "products", "grouped", "chains")


def compiled_parts(
    paths: Paths, copts: Sequence[str] = (), linkopts: Sequence[str] = ()
) -> tuple[Path, ...]:
    """The libraries of all fused ops."""
    units = tuple(f"fused/{name}" for name in PARTS)
    by_unit = compiled(Request(kernels=",".join(units)), paths, copts, linkopts)
    return tuple(by_unit[unit] for unit in units)


def searched(
    arm: Environment,
    libraries: tuple[Path, ...],
    folder: Path,
    *,
    seed: int,
    programs: int,
    **env: str,
) -> Mapping[str, FamilyCount]:
    """The counts of so many programs of each family, of which none is wrong or crashes."""
    counts = search_results(
        SearchRequest(
            python=arm.python,
            folder=folder,
            env={**os.environ, **env},
            seed=seed,
            seconds=3600,
            programs=programs,
            libraries=libraries,
            threads=2,
        )
    )
    assert {name: (row.found, row.crashed) for name, row in counts.items()} == dict.fromkeys(
        FAMILIES, ((), ())
    )
    return counts
