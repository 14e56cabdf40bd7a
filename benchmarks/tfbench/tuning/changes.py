"""The changes that a search makes to a workload's settings, and the arm of a set of changes.

Pure, except for the search for memory allocators.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tfbench.arms.arm import Arm
from tfbench.arms.lever_table import LEVERS, SEARCHED, WHEEL
from tfbench.arms.levers import Pairs, find_malloc, find_widest_tolerance, resolve_lever
from tfcore.records import hash_record

_LONGEST_NAME = 64
_MARK = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A change of one lever of SEARCHED."""

    lever: str
    value: str

    @property
    def is_advice(self) -> bool:
        """Return whether only the script can make the change: no variable of a user's shell can."""
        return bool(SEARCHED[self.lever].argument)

    def __str__(self) -> str:
        return f"{self.lever}={self.value}"


Setup: TypeAlias = tuple[Change, ...]
"""Changes made together, each of another lever. The empty setup is the baseline."""


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
    return dataclasses.replace(
        wheel,
        name=format_arm_name(setup, baseline, wheels),
        label=" ".join((wheel.label, *(str(change) for change in setup if change.lever != WHEEL))),
        env=(*list_variables(setup), *program),
        tolerance=find_widest_tolerance(
            (SEARCHED[change.lever] for change in setup), wheel.tolerance
        ),
    )


def list_variables(setup: Setup) -> Pairs:
    """List the environment variables of the changes; for advice, those that the worker follows."""
    return tuple(pair for change in setup for pair in _resolve_change(change))


def _resolve_change(change: Change) -> Pairs:
    if change.lever in LEVERS:
        return resolve_lever(change.lever, change.value, find_malloc)
    return tuple((name, change.value) for name in SEARCHED[change.lever].variables)
