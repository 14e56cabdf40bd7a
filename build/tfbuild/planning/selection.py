"""Which kernels of a library take the place of the stock ones, and what was measured of each.

The selection is made elsewhere, by timing candidates against the stock kernels, and comes as a
file; here it decides what is registered.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from tfbuild.cpus.targets import Target, parse_target
from tfbuild.errors import RecordError
from tfbuild.records import load, read

SCHEMA = 1
_VECTORS = frozenset({"avx", "avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"})
"""What decides how wide Eigen's packets are, and how they are computed with."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Choice:
    """A registration: an op, and the types that it is limited to as native/registration.h writes
    them, such as T=1 or T=1|2,Tidx=3 (numbers of types.proto), empty for none."""

    op: str
    types: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One kernel at one place of a profile: seconds per execution of the stock kernel and of ours.

    `shapes` are the inputs' as the profiler writes them, float[128,512];float[], `attributes` those
    of the op that matter; `share` is that of the place in the profile's time. `ratio` is stock over
    tuned, above 1 where ours is faster, with its interval; `p` the probability of so much gain
    where there is none. `confirmed` is the interval (value, low, high) of a fresh run, None where
    there was none. `kept` is what became of the registration, `reason` why it was not.
    """

    op: str
    types: str
    attributes: str
    shapes: str
    threads: int
    share: float
    stock_s: float
    tuned_s: float
    ratio: float
    low: float
    high: float
    p: float
    confirmed: tuple[float, float, float] | None = None
    kept: bool = False
    reason: str = ""

    @property
    def choice(self) -> Choice:
        return Choice(op=self.op, types=self.types)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What was measured of the wheel of which plan, on which CPU, and what is kept of it.

    `kernels` are the units that the kept ones are in, `flags` what some of their sources (paths in
    the release's tree) are compiled with beside the target's. `rate` is the false discovery rate
    that was allowed.
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
    kept: tuple[Choice, ...]
    rows: tuple[Row, ...]


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


def _vectors(selection: Selection) -> frozenset[str]:
    return parse_target(selection.target).features & _VECTORS


@functools.cache
def _recorded() -> tuple[Selection, ...]:
    folder = resources.files("tfbuild.planning").joinpath("selections")
    texts = (each.read_text("utf-8") for each in folder.iterdir() if each.name.endswith(".json"))
    return tuple(read(Selection, json.loads(text)) for text in sorted(texts))


def read_selection(path: Path) -> Selection:
    """Raises RecordError for a file that is none."""
    try:
        return read(Selection, load(path, schema=SCHEMA))
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"{path} is no selection ({error})") from error
