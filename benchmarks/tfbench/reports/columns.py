"""The columns of a comparison's rows in every output: names, and what they show of a row. Pure.

TERMINAL, SPEEDUPS and REASONS are tables of text, the last two of the document (Markdown and HTML).
A heading begins with `#` for numbers and with `!` for verdicts, and may contain the terms of
`format_headings`. CSV has numbers in full precision; None is an empty field.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tfbench.inside.phases import AUGMENT, FIT, INFER, TRAIN, VALIDATE
from tfbench.inside.workloads import format_label
from tfbench.reports import wording
from tfbench.reports.document import Table, TextColumns, read_rows, tabulate
from tfbench.reports.findings import Row, explain, list_rows
from tfcore.comparisons.comparison import ArmTimes, Comparison, Speedup
from tfcore.comparisons.interval import Interval

Value: TypeAlias = str | int | float | None
CsvColumns: TypeAlias = dict[str, Callable[[Row], Value]]

_SHORT = 12
"""The longest name of an arm, in characters, that fits in a heading of the terminal."""


def format_headings(columns: Iterable[str], comparison: Comparison) -> tuple[str, ...]:
    """Format the headings of columns, with the terms of the comparison."""
    base = comparison.baseline
    asks = any(cell.is_inference for cell in comparison.cells)
    terms = {
        "base": base,
        "short": base if len(base) <= _SHORT else "baseline",
        "level": f"{comparison.level:.0%}",
        "p99": "\n(p99)" if asks else "",
        "step": "request (99th percentile)" if asks else "step",
    }
    return tuple(heading.format(**terms) for heading in columns)


def build_table(caption: str, columns: TextColumns[Row], comparison: Comparison) -> Table:
    """Build a table of the document with all rows of the comparison."""
    names = format_headings(columns, comparison)
    return tabulate(caption, names, read_rows(columns, list_rows(comparison)))


# --- text -----------------------------------------------------------------------------------------


def _format_step(times: ArmTimes | None) -> str:
    """Format the milliseconds per step; for requests add the 99th percentile."""
    if times is None:
        return ""
    mean, p99 = wording.format_milliseconds(times.step_ms), times.latency and times.latency.p99_ms
    return f"{mean} ({wording.format_milliseconds(p99)})" if p99 else mean


def _format_baseline_step(row: Row) -> str:
    return _format_step(row.cell.get_result(row.comparison.baseline).times)


def _format_arm_step(row: Row) -> str:
    return _format_step(row.result.times)


def _describe_speedup(describe: Callable[[Speedup], str]) -> Callable[[Row], str]:
    """Describe a row by its speedup; empty if it has none that counts."""
    return lambda row: describe(row.speedup) if row.speedup else ""


_PLACE: TextColumns[Row] = {
    "workload": lambda row: format_label(row.cell.workload),
    "#vCPUs": lambda row: str(row.cell.vcpus),
    "arm": lambda row: row.decision.arm,
}
_VERDICT: TextColumns[Row] = {"!verdict": lambda row: row.decision.outcome}
_NOISE: TextColumns[Row] = {
    "#A/A": lambda row: wording.format_span(row.cell.noise) if row.cell.noise else ""
}

TERMINAL: TextColumns[Row] = {
    **_PLACE,
    "#{short} ms{p99}": _format_baseline_step,
    "#arm ms{p99}": _format_arm_step,
    "#speedup": _describe_speedup(lambda speedup: wording.format_factor(speedup.interval.value)),
    "#{level} interval": _describe_speedup(lambda speedup: wording.format_span(speedup.interval)),
    **_NOISE,
    **_VERDICT,
}
SPEEDUPS: TextColumns[Row] = {
    **_PLACE,
    **_VERDICT,
    "#speedup ({level} interval)": _describe_speedup(
        lambda speedup: wording.format_factor_span(speedup.interval)
    ),
    **_NOISE,
    "#{base} ms per {step}": _format_baseline_step,
    "#arm ms per {step}": _format_arm_step,
}
REASONS: TextColumns[Row] = {
    **_PLACE,
    **_VERDICT,
    "reason": explain,
    "#confidence": _describe_speedup(lambda speedup: wording.format_level(speedup.confidence)),
    "#medians of blocks": _describe_speedup(
        lambda speedup: wording.format_factor_span(speedup.medians) if speedup.medians else ""
    ),
}


# --- CSV ------------------------------------------------------------------------------------------


def _read(path: str) -> Callable[[Row], Any]:
    """Read an attribute of a row by its path. It is None if a record on the path is."""

    def read(row: Row) -> Any:  # noqa: ANN401  (the attribute's own type)
        return functools.reduce(_get_field, path.split("."), row)

    return read


def _get_field(record: object, name: str) -> Any:  # noqa: ANN401
    return None if record is None else getattr(record, name)


def _split(name: str, read: Callable[[Row], Interval | None]) -> CsvColumns:
    """Make three columns of an interval, which may be None."""

    def read_end(end: str) -> Callable[[Row], Value]:
        return lambda row: _get_field(read(row), end)

    return {
        name: read_end("value"),
        f"{name}_low": read_end("low"),
        f"{name}_high": read_end("high"),
    }


def _split_phase(phase: str) -> CsvColumns:
    return _split(f"{phase}_ms", lambda row: _find_step_ms(row, phase))


def _find_step_ms(row: Row, phase: str) -> Interval | None:
    phases = row.result.times.phases if row.result.times else ()
    return next((timed.step_ms for timed in phases if timed.phase == phase), None)


CSV: CsvColumns = {
    "made": _read("comparison.made"),
    "cpu": _read("comparison.host.cpu.name"),
    "workload": _read("cell.workload"),
    "vcpus": _read("cell.vcpus"),
    "batch": _read("cell.batch"),
    "steps": _read("cell.steps"),
    "launches": _read("cell.launches"),
    "blocks": _read("cell.blocks"),
    "seconds": _read("cell.seconds"),
    "stopped_by": _read("cell.stopped_by"),
    "unsteady": _read("cell.unsteady"),
    "dropped": _read("cell.gates.dropped"),
    "others": _read("cell.others"),
    "arm": _read("decision.arm"),
    "baseline": _read("comparison.baseline"),
    "label": _read("facts.label"),
    "wheel_sha256": _read("facts.wheel_sha256"),
    "tensorflow": _read("facts.tensorflow"),
    "git_version": _read("facts.git_version"),
    "compiler_version": _read("facts.compiler_version"),
    "python": _read("facts.python"),
    "numpy": _read("facts.numpy"),
    "threading": _read("facts.threading"),
    "raised_kernels": _read("facts.raised_kernels"),
    "kernel_library": _read("facts.kernel_library"),
    "env": lambda row: (
        " ".join(f"{name}={value}" for name, value in row.facts.env) if row.facts else None
    ),
    "cpu_ms": _read("result.times.cpu_ms"),
    "idle_share": _read("result.times.idle_share"),
    "peak_mb": _read("result.times.peak_mb"),
    "import_s": _read("result.times.import_s"),
    "build_s": _read("result.times.build_s"),
    "first_steps_s": _read("result.times.first_steps_s"),
    "losses": lambda row: (
        " ".join(map(repr, row.result.times.losses)) if row.result.times else None
    ),
    "coverage": _read("result.times.coverage.share"),
    "loss_difference": _read("result.agreement.losses_apart"),
    "prediction_difference": _read("result.agreement.predictions_apart"),
    "tolerance": _read("result.agreement.tolerance"),
    "agrees": lambda row: (
        str(row.result.agreement.agrees).lower() if row.result.agreement else None
    ),
    "verdict": _read("decision.verdict"),
    "confidence": _read("result.speedup.confidence"),
    "failure": _read("result.failure.reason"),
    **_split_phase(TRAIN),
    **_split_phase(VALIDATE),
    **_split_phase(AUGMENT),
    **_split_phase(INFER),
    **_split_phase(FIT),
    **_split("median_ms", _read("result.times.latency.median_ms")),
    **_split("p99_ms", _read("result.times.latency.p99_ms")),
    **_split("run_s", _read("result.times.run_s")),
    **_split("speedup", _read("result.speedup.interval")),
    **_split("speedup_medians", _read("result.speedup.medians")),
    **_split("speedup_run", _read("result.speedup.run")),
    **_split("noise", _read("cell.noise")),
}
"""`*_ms` are per step, `median_ms` and `p99_ms` of single requests, `run_s` is a composed training
run, `env` holds the arm's environment variables; `noise` is the cell's A/A interval, `dropped`
counts the blocks that gates dropped, `others` is the share of CPU time that other processes and
the hypervisor used."""
