"""Selections: the kernels of a library that replace stock kernels, and their measurements.

`invoke select` times candidates against the stock kernels and writes a selection to a file. A build
with a selection registers only its kernels.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from tfbuild.upstream.fused_ops import load_fused_groups
from tfbuild.upstream.kernels import KernelUnit, find_fused_registrations
from tfcore.comparisons.kernels import KernelRow, TypedOp
from tfcore.cpus.targets import Target, parse_target
from tfcore.errors import RecordError, UsageError
from tfcore.records import decode_record, load

SCHEMA = 1
_VECTORS = frozenset({"avx", "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"})
"""The features that decide the width of Eigen's packets and the instructions for them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The kernels selected from the measurements of one plan's wheel on one CPU.

    `kept` are the selected kernels, and `kernels` the kernel groups that contain them. `flags`
    are additional compile flags of some sources (paths in the release's tree). `sources` are the
    sources that the selected kernels need: nothing else in them is compiled. If there are none,
    kernel groups are compiled whole. `rate` is the allowed false discovery rate. `own` are fused
    ops that are added whole, beside those that are the default for the target.
    """

    schema: int = SCHEMA
    made: str
    cpu: str
    release: str
    target: str
    plan_key: str
    rate: float
    kernels: tuple[str, ...]
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    kept: tuple[TypedOp, ...]
    rows: tuple[KernelRow, ...]
    own: tuple[str, ...] = ()


def find_recorded_selection(release: str, target: Target) -> Selection | None:
    """Return the recorded selection for this kind of CPU; None if there is none.

    Among the selections whose vector features the target has, it is the one with the most of
    them.

    The code was timed on one newer CPU that runs all of it (`cpu` of the selection), so
    another CPU may rank kernels differently: `invoke select` measures there.
    """
    fitting = (
        selection
        for selection in load_recorded_selections()
        if selection.release == release and _has_vectors_of(target, selection.target)
    )
    return max(fitting, key=lambda fit: len(_list_vector_features(fit.target)), default=None)


def find_fused_ops(target: Target) -> tuple[str, ...]:
    """Return the fused ops that are added to any selection for a target.

    They are the same for every release: they replace no kernel of TensorFlow, and the
    conformance test checks them with each.
    """
    return tuple(
        group.name
        for group in load_fused_groups().values()
        if any(_has_vectors_of(target, default) for default in group.default_targets)
    )


def add_fused_ops(selection: Selection, units: Iterable[KernelUnit]) -> Selection:
    """Return the selection with those of the kernel groups that are fused ops, whole.

    They replace no kernel, so their kernels cannot be measured against one.
    """
    fused = [unit for unit in units if find_fused_registrations(unit.name)]
    sources = (source for unit in fused for source in unit.sources)
    return dataclasses.replace(
        selection,
        kernels=(*selection.kernels, *(unit.name for unit in fused)),
        kept=tuple(sorted((*selection.kept, *list_fused_kernels(fused)))),
        sources=(*selection.sources, *sources) if selection.sources else (),
    )


def list_fused_kernels(units: Iterable[KernelUnit]) -> tuple[TypedOp, ...]:
    """List all registrations of those kernel groups that are fused ops."""
    registrations = (
        registration for unit in units for registration in find_fused_registrations(unit.name)
    )
    return tuple(TypedOp(op=op, types=types) for op, types in registrations)


def _has_vectors_of(target: Target, other: str) -> bool:
    """Return whether a target has all vector features of another."""
    return _list_vector_features(other) <= target.features


def _list_vector_features(target: str) -> frozenset[str]:
    return parse_target(target).features & _VECTORS


@functools.cache
def load_recorded_selections() -> tuple[Selection, ...]:
    folder = resources.files("tfbuild.planning").joinpath("selections")
    texts = (file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".json"))
    return tuple(decode_record(Selection, json.loads(text)) for text in sorted(texts))


def read_selection(path: Path) -> Selection:
    """Read a selection from its file.

    Raises RecordError if the file is not a selection.
    """
    try:
        return decode_record(Selection, load(path, schema=SCHEMA))
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"{path} is not a selection ({error})") from error


def read_fitting_selection(paths: Iterable[Path], release: str, target: Target) -> Selection:
    """Return the one selection of the files that is for this release and target.

    Raises UsageError if not exactly one fits, RecordError for a file that is no selection.
    """
    selections = [read_selection(path) for path in paths]
    fitting = [
        selection
        for selection in selections
        if (selection.release, selection.target) == (release, target.spec)
    ]
    if len(fitting) != 1:
        available = ", ".join(
            f"{selection.release} for {selection.target}" for selection in selections
        )
        raise UsageError(
            f"--selection has {len(fitting)} selections of {release} for {target.spec} "
            f"instead of one; the files contain {available}",
            hint="Run invoke select to make one",
        )
    return fitting[0]
