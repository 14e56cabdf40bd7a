"""What must be equal before two measurements are put together, and what of it is not. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from tfbuild.cpus.cpu import Cpu
from tfbuild.measured.comparison import ArmFacts
from tfbuild.measured.host import Host

MAY_DIFFER = frozenset({"vcpus", "affinity", "memory_bytes"})
"""Of a host: how much there is of it, and how much of that is ours."""
ARM_FIELDS = ("wheel_sha256", "env", "tensorflow", "git_version", "python", "numpy")


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldDifference:
    """A field, and what it is on either side."""

    what: str
    one: str
    other: str

    def __str__(self) -> str:
        return f"{self.what} is {self.one} and {self.other}"


def differences(host: Host, other: Host) -> tuple[FieldDifference, ...]:
    """Where two hosts are not of one kind; their sizes may differ (see MAY_DIFFER)."""
    names = [field.name for field in dataclasses.fields(Host)]
    return (
        *_cpu_differences(host.cpu, other.cpu),
        *_differences(host, other, [name for name in names if name not in {"cpu", *MAY_DIFFER}]),
    )


def arm_differences(arm: ArmFacts, other: ArmFacts) -> tuple[FieldDifference, ...]:
    """Where two arms of one name are not the same; their places on disk may differ."""
    return _differences(arm, other, ARM_FIELDS, prefix=f"{arm.name}: ")


def _cpu_differences(cpu: Cpu, other: Cpu) -> tuple[FieldDifference, ...]:
    """Of the features, which are many, only those that one of the two lacks."""
    names = [field.name for field in dataclasses.fields(Cpu) if field.name != "features"]
    found = _differences(cpu, other, names, prefix="CPU ")
    if cpu.features == other.features:
        return found
    extra, others = cpu.features - other.features, other.features - cpu.features
    features = FieldDifference(
        what="CPU features that the other lacks", one=_shown(extra), other=_shown(others)
    )
    return (*found, features)


def _differences(
    one: object, other: object, names: Sequence[str], *, prefix: str = ""
) -> tuple[FieldDifference, ...]:
    pairs = ((name, getattr(one, name), getattr(other, name)) for name in names)
    return tuple(
        FieldDifference(what=prefix + name, one=_shown(value), other=_shown(another))
        for name, value, another in pairs
        if value != another
    )


def _shown(value: object) -> str:
    match value:
        case frozenset():
            return " ".join(sorted(map(str, value))) or "none"
        case tuple():
            return " ".join(f"{name}={setting}" for name, setting in value) or "none"
        case None:
            return "unknown"
        case _:
            return str(value) or "unknown"
