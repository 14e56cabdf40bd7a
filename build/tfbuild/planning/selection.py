"""Which kernels of a library take the place of the stock ones, and what was measured of each.

The selection is made elsewhere, by timing candidates against the stock kernels, and comes as a
file; here it decides what is registered.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from tfbuild.cpus.targets import Target, parse_target
from tfbuild.errors import RecordError
from tfbuild.measured.kernels import KernelRow, TypedOp
from tfbuild.records import decode_record, load
from tfbuild.upstream.kernels import RELEASE, KernelUnit, find_fused_registrations

SCHEMA = 1
_VECTORS = frozenset({"avx", "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"})
"""What decides how wide Eigen's packets are, and how they are computed with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What was measured of the wheel of which plan, on which CPU, and what is kept of it.

    `kernels` are the units that the kept ones are in, `flags` what some of their sources (paths in
    the release's tree) are compiled with beside the target's. `sources` are those that the kept
    ones need: of these sources nothing else is compiled. Where that was not looked at there are
    none, and units are compiled whole. `rate` is the false discovery rate that was allowed. `own`
    are units of ours that come beside them, whole: with them whole models were faster
    (docs/verified.md).
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


def recorded(release: str, target: Target) -> Selection | None:
    """What this project measured with code for CPUs of this kind: of the recorded selections whose
    target's vector instructions this one has, the one with most. None where there is none.

    The code was timed on one newer CPU that runs all of it (`cpu` of the selection), so another one
    may rank kernels otherwise: `invoke select` measures there.
    """
    fitting = (
        each
        for each in _recorded()
        if each.release == release and _vectors(each) <= target.features
    )
    return max(fitting, key=lambda each: len(_vectors(each)), default=None)


def own_for(release: str, target: Target) -> tuple[str, ...]:
    """The units of ours that come beside whatever is selected for a target. Of a release for which
    nothing was recorded they are those of RELEASE: they replace no kernel of TensorFlow's, and
    admission says whether they do there what they should."""
    found = recorded(release, target) or recorded(RELEASE, target)
    return found.own if found else ()


def with_own(selection: Selection, units: Iterable[KernelUnit]) -> Selection:
    """The selection and, whole, those of the units that are ours: they replace no kernel, so that
    none of theirs could have been measured against one."""
    ours = [unit for unit in units if find_fused_registrations(unit.name)]
    sources = (source for unit in ours for source in unit.sources)
    return dataclasses.replace(
        selection,
        kernels=(*selection.kernels, *(unit.name for unit in ours)),
        kept=tuple(sorted((*selection.kept, *own_kept(ours)))),
        sources=(*selection.sources, *sources) if selection.sources else (),
    )


def own_kept(units: Iterable[KernelUnit]) -> tuple[TypedOp, ...]:
    """All that those of the units register that are ours."""
    every = (each for unit in units for each in find_fused_registrations(unit.name))
    return tuple(TypedOp(op=op, types=types) for op, types in every)


def _vectors(selection: Selection) -> frozenset[str]:
    return parse_target(selection.target).features & _VECTORS


@functools.cache
def _recorded() -> tuple[Selection, ...]:
    folder = resources.files("tfbuild.planning").joinpath("selections")
    texts = (each.read_text("utf-8") for each in folder.iterdir() if each.name.endswith(".json"))
    return tuple(decode_record(Selection, json.loads(text)) for text in sorted(texts))


def read_selection(path: Path) -> Selection:
    """A selection from its file. Raises RecordError for a file that is none."""
    try:
        return decode_record(Selection, load(path, schema=SCHEMA))
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"{path} is no selection ({error})") from error
