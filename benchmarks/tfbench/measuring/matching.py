"""Fields that must be equal before two measurements are merged, and those that differ. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from tfcore.comparisons.comparison import ArmFacts
from tfcore.comparisons.host import Host
from tfcore.cpus.cpu import Cpu

MAY_DIFFER = frozenset({"vcpus", "affinity", "cores", "nodes", "memory_bytes"})
"""Fields of a host that may differ: its size, and the part of it that a run may use."""
ARM_FIELDS = ("wheel_sha256", "env", "tensorflow", "git_version", "python", "numpy")


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldDifference:
    """A field that differs, with both values."""

    what: str
    one: str
    other: str

    def __str__(self) -> str:
        return f"{self.what} ({self.one} vs. {self.other})"


def compare_hosts(host: Host, other_host: Host) -> tuple[FieldDifference, ...]:
    """List the fields in which two hosts differ in kind; their sizes may differ (see
    MAY_DIFFER).
    """
    names = [field.name for field in dataclasses.fields(Host)]
    return (
        *_compare_cpus(host.cpu, other_host.cpu),
        *_compare_fields(
            host, other_host, [name for name in names if name not in {"cpu", *MAY_DIFFER}]
        ),
    )


def compare_arms(arm: ArmFacts, other_arm: ArmFacts) -> tuple[FieldDifference, ...]:
    """List the fields in which two arms of one name differ; their locations on disk may differ."""
    return _compare_fields(arm, other_arm, ARM_FIELDS, prefix=f"{arm.name}: ")


def _compare_cpus(cpu: Cpu, other_cpu: Cpu) -> tuple[FieldDifference, ...]:
    """List the fields in which two CPUs differ; of their features, those that only one has."""
    names = [field.name for field in dataclasses.fields(Cpu) if field.name != "features"]
    differing = _compare_fields(cpu, other_cpu, names, prefix="CPU ")
    if cpu.features == other_cpu.features:
        return differing
    extra, missing = cpu.features - other_cpu.features, other_cpu.features - cpu.features
    features = FieldDifference(
        what="CPU features on one machine only",
        one=_format_value(extra),
        other=_format_value(missing),
    )
    return (*differing, features)


def _compare_fields(
    record: object, other_record: object, names: Sequence[str], *, prefix: str = ""
) -> tuple[FieldDifference, ...]:
    pairs = ((name, getattr(record, name), getattr(other_record, name)) for name in names)
    return tuple(
        FieldDifference(what=prefix + name, one=_format_value(value), other=_format_value(another))
        for name, value, another in pairs
        if value != another
    )


def _format_value(value: object) -> str:
    match value:
        case frozenset():
            return " ".join(sorted(map(str, value))) or "none"
        case tuple():
            return " ".join(f"{name}={setting}" for name, setting in value) or "none"
        case None:
            return "unknown"
        case _:
            return str(value) or "unknown"
