"""Records of conformance tests."""

from __future__ import annotations

from tfbuild.packing.conformance import (
    ConformanceRecord,
    ConformanceTrial,
    UnitOutcome,
)

SHA = "a" * 64

UNIT = "cwise_op_tanh"

GOOD = UnitOutcome(cases=12, ulps={"Tanh": 2.0})


def trial(outcome: UnitOutcome = GOOD, cpu: str = "A CPU") -> ConformanceTrial:
    return ConformanceTrial(cpu=cpu, kind="k", judge="j", units={UNIT: outcome})


def record(sha256: str = SHA, **targets: ConformanceTrial) -> ConformanceRecord:
    return ConformanceRecord(wheel="a.whl", wheel_sha256=sha256, targets=targets)
