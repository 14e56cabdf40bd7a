"""What may be changed about how a workload runs, and the arm that a set of changes makes.

Pure but for the search for memory allocators.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfbench.arms import levers
from tfbench.arms.arm import Arm
from tfbench.arms.levers import Pairs
from tfbench.inside.worker import JIT, TOGETHER
from tfbench.measuring.effort import TARGET_S
from tfbuild.errors import UsageError
from tfbuild.records import hash_record

WHEEL, BF16 = "wheel", "bf16"
STEPS, COMPILED = "steps_per_execution", "jit_compile"
SCRIPT = (STEPS, COMPILED)
"""Arguments of Keras's compile(): no environment sets them, so they are advice."""
BATCHES = 8
"""Of one execution, where a sample holds FEWEST_CALLS of them."""
FEWEST_CALLS = 2
KINDS = (WHEEL, "onednn", "intra", "inter", "malloc", BF16, *SCRIPT)
"""All that is searched. bf16 changes results, so it is tried only when it is allowed."""
_LONGEST_NAME = 64
_MARK = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """`lever` is one of `levers.LEVERS`, WHEEL, or one of SCRIPT."""

    lever: str
    value: str

    @property
    def is_advice(self) -> bool:
        return self.lever in SCRIPT

    def __str__(self) -> str:
        return f"{self.lever}={self.value}"


Setup: TypeAlias = tuple[Change, ...]
"""Changes that are made together, each of another lever. None is the baseline."""


def settings(vcpus: int, *, onednn: bool | None) -> Iterator[Change]:
    """Each run-time setting that differs from the default on so many vCPUs.

    `onednn` is whether its operations are on by default; None where that is not known.
    """
    words = {True: ("off",), False: ("on",), None: ("on", "off")}[onednn]
    yield from (Change(lever="onednn", value=word) for word in words)
    fewer = dict.fromkeys(each for each in (1, vcpus // 2) if 0 < each < vcpus)
    yield from (Change(lever="intra", value=str(each)) for each in fewer)
    if vcpus > 1:
        yield Change(lever="inter", value="1")
    yield from (Change(lever="malloc", value=name) for name in levers.MALLOCS if _is_here(name))
    yield Change(lever=BF16, value="on")


def advice(step_s: float | None) -> Iterator[Change]:
    """What the script may change, where a step takes so long; None where that is not known."""
    if step_s is None or TARGET_S / step_s >= FEWEST_CALLS * BATCHES:
        yield Change(lever=STEPS, value=str(BATCHES))
    yield Change(lever=COMPILED, value="True")


def name_of(setup: Setup, baseline: Arm, wheels: Mapping[str, Arm]) -> str:
    """The arm's name: that of another wheel, and the settings. One that is too long ends in a hash,
    so that no two setups share a name."""
    whole = "+".join(_word(change, wheels) for change in setup) or baseline.name
    if len(whole) <= _LONGEST_NAME:
        return whole
    mark = f"-{hash_record(whole)[:_MARK]}"
    return whole[: _LONGEST_NAME - len(mark)] + mark


def _word(change: Change, wheels: Mapping[str, Arm]) -> str:
    return wheels[change.value].name if change.lever == WHEEL else str(change)


def arm_of(setup: Setup, wheels: Mapping[str, Arm], program: Pairs) -> Arm:
    """`wheels` are the installed ones by their text, the baseline first; `program` is what names
    the user's own workload to the worker. Raises UsageError for a library that is not here."""
    baseline = next(iter(wheels.values()))
    wheel = next((wheels[each.value] for each in setup if each.lever == WHEEL), baseline)
    changed = ["xla" if each.lever == COMPILED else each.lever for each in setup]
    return dataclasses.replace(
        wheel,
        name=name_of(setup, baseline, wheels),
        label=" ".join((wheel.label, *(str(each) for each in setup if each.lever != WHEEL))),
        env=(*variables(setup), *advised(setup), *program),
        tolerance=levers.find_widest_tolerance(levers.LEVERS.keys() & changed, wheel.tolerance),
    )


def variables(setup: Sequence[Change]) -> Pairs:
    """The environment variables of the settings."""
    found = (
        levers.resolve_lever(each.lever, each.value, levers.find_malloc)
        for each in setup
        if each.lever in levers.LEVERS
    )
    return tuple(pair for pairs in found for pair in pairs)


def advised(setup: Sequence[Change]) -> Pairs:
    """What tells the worker to do as the script should."""
    names = {STEPS: TOGETHER, COMPILED: JIT}
    return tuple((names[each.lever], each.value) for each in setup if each.is_advice)


def _is_here(malloc: str) -> bool:
    try:
        levers.find_malloc(malloc)
    except UsageError:
        return False
    return True
