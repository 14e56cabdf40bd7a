"""A comparison as CSV, for spreadsheets: one row per cell and arm. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from tfbench.inside.phases import AUGMENT, FIT, INFER, TRAIN, VALIDATE
from tfbuild.comparisons.comparison import ArmTimes, ComparedCell, Comparison, Speedup
from tfbuild.comparisons.interval import Interval

Value: TypeAlias = str | int | float | None
"""None is written as an empty field."""

_CELL = (
    *("workload", "vcpus", "batch", "steps", "launches", "blocks", "seconds", "stopped_by"),
    *("unsteady",),
)
_FACTS = (
    *("label", "wheel_sha256", "tensorflow", "git_version", "compiler_version", "python", "numpy"),
    *("threading", "raised_kernels", "kernel_library"),
)
_TIMES = ("cpu_ms", "idle_share", "peak_mb", "import_s", "build_s", "first_steps_s")
_PHASES = {
    TRAIN: "train_ms",
    VALIDATE: "validate_ms",
    AUGMENT: "augment_ms",
    INFER: "infer_ms",
    FIT: "fit_ms",
}
_INTERVALS = (
    *_PHASES.values(),
    *("median_ms", "p99_ms"),
    *("run_s", "speedup", "speedup_medians", "speedup_run", "noise"),
)
_ENDS = ("", "_low", "_high")

HEADER = (
    *("made", "cpu", *_CELL, "dropped", "others", "arm", "baseline", *_FACTS, "env", *_TIMES),
    *("losses", "coverage", "loss_difference", "prediction_difference", "tolerance", "agrees"),
    *("verdict", "confidence", "failure"),
    *(f"{name}{end}" for name in _INTERVALS for end in _ENDS),
)
"""The same for every comparison. `*_ms` are per step, `median_ms` and `p99_ms` of single requests,
`run_s` is a composed training run, `env` holds the arm's environment variables; `noise` is the
cell's A/A interval, `dropped` counts the blocks that gates dropped, `others` is the share of CPU
time that other processes and the hypervisor used."""


def format_csv(comparison: Comparison) -> str:
    """Format a comparison as CSV: HEADER and a line per arm and cell, with numbers in full
    precision.
    """
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, HEADER, lineterminator="\n")
    writer.writeheader()
    writer.writerows(list_rows(comparison))
    return buffer.getvalue()


def list_rows(comparison: Comparison) -> Iterator[dict[str, Value]]:
    """Yield the rows by cell, then by arm. An arm that failed in a cell has the reason, but
    no numbers.
    """
    for cell in comparison.cells:
        for arm in comparison.arms:
            yield {
                "made": comparison.made,
                "cpu": comparison.host.cpu.name,
                **_read_fields(_CELL, cell),
                "dropped": cell.gates.dropped,
                "others": cell.others,
                "arm": arm.name,
                "baseline": comparison.baseline,
                **_read_fields(_FACTS, arm),
                "env": " ".join(f"{name}={value}" for name, value in arm.env),
                **_collect_figures(cell, arm.name),
            }


def _collect_figures(cell: ComparedCell, arm: str) -> dict[str, Value]:
    result = cell.get_result(arm)
    times, speedup, agreement = result.times, result.speedup, result.agreement
    return {
        **_read_fields(_TIMES, times),
        "losses": " ".join(map(repr, times.losses)) if times else None,
        "coverage": times.coverage.share if times and times.coverage else None,
        "loss_difference": agreement.losses_apart if agreement else None,
        "prediction_difference": agreement.predictions_apart if agreement else None,
        "tolerance": agreement.tolerance if agreement else None,
        "agrees": str(agreement.agrees).lower() if agreement else None,
        **_read_fields(("verdict", "confidence"), speedup),
        "failure": result.failure.reason if result.failure else None,
        **{
            f"{name}{end}": value
            for name, interval in _collect_intervals(cell, times, speedup).items()
            for end, value in zip(_ENDS, _split_interval(interval), strict=True)
        },
    }


def _collect_intervals(
    cell: ComparedCell, times: ArmTimes | None, speedup: Speedup | None
) -> dict[str, Interval | None]:
    phases = (
        {phase_times.phase: phase_times.step_ms for phase_times in times.phases} if times else {}
    )
    latency = times.latency if times else None
    return {
        **{column: phases.get(phase) for phase, column in _PHASES.items()},
        "median_ms": latency.median_ms if latency else None,
        "p99_ms": latency.p99_ms if latency else None,
        "run_s": times.run_s if times else None,
        "speedup": speedup.interval if speedup else None,
        "speedup_medians": speedup.medians if speedup else None,
        "speedup_run": speedup.run if speedup else None,
        "noise": cell.noise,
    }


def _split_interval(interval: Interval | None) -> tuple[Value, Value, Value]:
    return (interval.value, interval.low, interval.high) if interval else (None, None, None)


def _read_fields(names: Sequence[str], record: object) -> dict[str, Value]:
    return {name: None if record is None else getattr(record, name) for name in names}
