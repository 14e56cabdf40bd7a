"""The settings of a workload that a search may change, and the arm of a set of changes.

Pure, except for the search for memory allocators.
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
from tfbench.measuring.stopping import TARGET_S
from tfbuild.errors import UsageError
from tfbuild.records import hash_record

WHEEL, BF16 = "wheel", "bf16"
STEPS, COMPILED = "steps_per_execution", "jit_compile"
SCRIPT = (STEPS, COMPILED)
"""Arguments of Keras's compile(): no environment variable sets them, so they are advice."""
BATCHES = 8
"""Steps per execution to try, if a sample contains at least FEWEST_CALLS executions."""
FEWEST_CALLS = 2
KINDS = (WHEEL, "onednn", "intra", "inter", "malloc", BF16, *SCRIPT)
"""All levers of a search. bf16 changes results, so it is tried only if it is allowed."""
_LONGEST_NAME = 64
_MARK = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A change of one lever: one of `levers.LEVERS`, WHEEL, or one of SCRIPT."""

    lever: str
    value: str

    @property
    def is_advice(self) -> bool:
        return self.lever in SCRIPT

    def __str__(self) -> str:
        return f"{self.lever}={self.value}"


Setup: TypeAlias = tuple[Change, ...]
"""Changes made together, each of another lever. The empty setup is the baseline."""


def list_settings(vcpus: int, *, onednn: bool | None) -> Iterator[Change]:
    """Yield each run-time setting that differs from the default on this many vCPUs.

    `onednn` is whether its operations are on by default; None if that is not known.
    """
    words = {True: ("off",), False: ("on",), None: ("on", "off")}[onednn]
    yield from (Change(lever="onednn", value=word) for word in words)
    fewer = dict.fromkeys(threads for threads in (1, vcpus // 2) if 0 < threads < vcpus)
    yield from (Change(lever="intra", value=str(threads)) for threads in fewer)
    if vcpus > 1:
        yield Change(lever="inter", value="1")
    yield from (
        Change(lever="malloc", value=name) for name in levers.MALLOCS if _is_installed(name)
    )
    yield Change(lever=BF16, value="on")


def list_advice(step_s: float | None) -> Iterator[Change]:
    """Yield what the script may change for steps of `step_s` seconds; None if that is not known."""
    if step_s is None or TARGET_S / step_s >= FEWEST_CALLS * BATCHES:
        yield Change(lever=STEPS, value=str(BATCHES))
    yield Change(lever=COMPILED, value="True")


def format_arm_name(setup: Setup, baseline: Arm, wheels: Mapping[str, Arm]) -> str:
    """Format the arm's name from that of another wheel and the settings.

    A name that is too long ends in a hash, so that no two setups share a name.
    """
    full_name = "+".join(_format_change(change, wheels) for change in setup) or baseline.name
    if len(full_name) <= _LONGEST_NAME:
        return full_name
    suffix = f"-{hash_record(full_name)[:_MARK]}"
    return full_name[: _LONGEST_NAME - len(suffix)] + suffix


def _format_change(change: Change, wheels: Mapping[str, Arm]) -> str:
    return wheels[change.value].name if change.lever == WHEEL else str(change)


def create_arm(setup: Setup, wheels: Mapping[str, Arm], program: Pairs) -> Arm:
    """Create the arm of a setup.

    `wheels` are the installed ones by their text, the baseline first; `program` names the
    user's own workload to the worker. Raises UsageError if a library is not installed.
    """
    baseline = next(iter(wheels.values()))
    wheel = next((wheels[change.value] for change in setup if change.lever == WHEEL), baseline)
    changed = ["xla" if change.lever == COMPILED else change.lever for change in setup]
    return dataclasses.replace(
        wheel,
        name=format_arm_name(setup, baseline, wheels),
        label=" ".join((wheel.label, *(str(change) for change in setup if change.lever != WHEEL))),
        env=(*list_variables(setup), *list_advice_variables(setup), *program),
        tolerance=levers.find_widest_tolerance(levers.LEVERS.keys() & changed, wheel.tolerance),
    )


def list_variables(setup: Sequence[Change]) -> Pairs:
    """List the environment variables of the settings."""
    groups = (
        levers.resolve_lever(change.lever, change.value, levers.find_malloc)
        for change in setup
        if change.lever in levers.LEVERS
    )
    return tuple(pair for pairs in groups for pair in pairs)


def list_advice_variables(setup: Sequence[Change]) -> Pairs:
    """List the variables that make the worker follow the advice for the script."""
    names = {STEPS: TOGETHER, COMPILED: JIT}
    return tuple((names[change.lever], change.value) for change in setup if change.is_advice)


def _is_installed(malloc: str) -> bool:
    try:
        levers.find_malloc(malloc)
    except UsageError:
        return False
    return True
