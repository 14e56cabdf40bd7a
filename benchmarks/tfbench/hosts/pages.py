"""The report of a fleet: tables for the terminal and for a page, and a CSV file. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from packaging.utils import parse_wheel_filename

from tfbench.hosts.results import HostOutcome, HostResult, HostSpeedup
from tfbench.hosts.summary import (
    STOCK,
    Choice,
    CpuKind,
    FleetResult,
    KindSpeedup,
    list_targets,
)
from tfbench.reports import wording
from tfbench.reports.document import Document, Section, build_list, build_table_section
from tfbench.result_table import ResultTable
from tfcore.console import format_count, format_vcpus

_KINDS = ("CPU", "target", "#hosts", "#vCPUs", "wheel", "#speedup", "interval", "verdict")
_COSTS = (
    "CPU",
    "machine",
    "#USD a month",
    "best wheel",
    "#same work",
    "#saved",
    "#run",
    "#best run",
)
_HOSTS = ("host", "CPU", "target", "#vCPUs", "wheel", "#speedup", "interval", "verdict")
_CSV = (
    *("host", "count", "cpu", "target", "machine", "status", "reason", "vcpus", "arm"),
    *("speedup", "low", "high", "verdict"),
)
_METHOD = (
    "Each row is the geometric mean over all workloads and over the hosts with this CPU: stock's "
    "time over the wheel's, with its 95 % interval. A wheel is the best if it is faster on every "
    "host of the kind; if none is, the best is stock. Each host's own report has the details."
)
_PRICED = (
    "USD a month is the price of all hosts with the machine. The same work is that price over "
    "their speedup at their largest number of vCPUs. A run trains each workload once."
)


def build_table(result: FleetResult) -> ResultTable:
    return ResultTable(
        title=f"{format_count(len(result.hosts), 'host')}, "
        f"{format_count(len(result.wheels), 'wheel')}",
        headings=_KINDS,
        rows=tuple(_list_kind_rows(result)),
        lines=tuple(list_lines(result)),
    )


def build_document(result: FleetResult) -> Document:
    return Document(
        title="Tuned wheels on a fleet",
        subject=f"{format_count(len(result.hosts), 'host')}, {result.made}",
        notes=tuple(_list_advice(result)),
        warnings=tuple(_list_missing(result)),
        sections=(
            build_table_section(
                *("kinds", "Kinds of CPU", "speedups by kind of CPU", _KINDS),
                _list_kind_rows(result),
                _METHOD,
            ),
            build_table_section(
                *("costs", "Costs", "costs by kind of CPU", _COSTS),
                _list_cost_rows(result),
                f"Prices: {result.book}. {_PRICED}",
            ),
            build_table_section(
                *("hosts", "Hosts", "speedups by host", _HOSTS), _list_host_rows(result)
            ),
            Section(
                key="wheels",
                heading="Wheels",
                blocks=build_list(
                    f"{wheel.name}: {wheel.file} (SHA-256 {wheel.sha256})"
                    for wheel in result.wheels
                ),
            ),
        ),
    )


def _list_kind_rows(result: FleetResult) -> Iterator[tuple[str, ...]]:
    for kind in result.kinds:
        start = (kind.cpu, kind.target, str(kind.count))
        if not kind.speedups:
            yield (*start, "", STOCK, "", "", "no wheel could be measured")
        best = {(choice.vcpus, choice.arm) for choice in kind.choices}
        for row in kind.speedups:
            mark = " (best)" if (row.vcpus, row.arm) in best else ""
            yield (*start, str(row.vcpus), row.arm + mark, *_format_speedup(row))


def _format_speedup(row: KindSpeedup | HostSpeedup) -> tuple[str, str, str]:
    return (
        wording.format_factor(row.interval.value),
        wording.format_span(row.interval),
        str(row.verdict or "computes something else, or failed"),
    )


def _list_cost_rows(result: FleetResult) -> Iterator[tuple[str, ...]]:
    for kind in result.kinds:
        for cost in kind.costs:
            saved = 1 - cost.best_usd.value / cost.usd
            yield (
                *(kind.cpu, cost.machine, f"{cost.usd:,.2f}", cost.arm),
                *(f"{cost.best_usd.value:,.2f}", wording.format_share(saved)),
                *(
                    wording.format_optional(each, ".4f")
                    for each in (cost.run_usd, cost.best_run_usd)
                ),
            )


def _list_host_rows(result: FleetResult) -> Iterator[tuple[str, ...]]:
    for host in result.hosts:
        outcome = host.outcome
        start = (host.name, outcome.cpu, outcome.target)
        for row in host.speedups:
            yield (*start, str(row.vcpus), row.arm, *_format_speedup(row))
        for name, reason in outcome.refused:
            yield (*start, "", name, "", "", reason)


def describe_failure(outcome: HostOutcome) -> str:
    return f"{outcome.step} failed: {outcome.reason.removeprefix('error: ')}"


def list_lines(result: FleetResult) -> Iterator[str]:
    """Yield what to do: the wheel for the whole fleet, and the hosts to look after."""
    yield from _list_advice(result)
    yield from _list_missing(result)
    if result.missing:
        yield "Call invoke fleet again to continue: hosts with a result are not measured again"


def _list_missing(result: FleetResult) -> Iterator[str]:
    for name, reason in result.missing:
        yield f"{name} has no result: {reason}"


def _list_advice(result: FleetResult) -> Iterator[str]:
    for kind in result.kinds:
        yield f"{kind.cpu} ({kind.target}): {_recommend(kind)}"
    targets = list_targets(result.kinds)
    if targets:
        _, version, *_ = parse_wheel_filename(result.wheels[0].file)
        yield (
            "one wheel for all of them: invoke build "
            f"--release {version.base_version} --arch {','.join(targets)}"
        )


def _recommend(kind: CpuKind) -> str:
    if not kind.choices:
        return "no wheel could be measured, keep stock"
    return "; ".join(map(_describe_choice, kind.choices))


def _describe_choice(choice: Choice) -> str:
    where = f"on {format_vcpus(choice.vcpus)}"
    if choice.speedup is None:
        return f"{where} keep stock: no wheel is faster on every host"
    return f"{where} {choice.arm} is {wording.format_factor_span(choice.speedup)} as fast as stock"


def format_csv(result: FleetResult) -> str:
    """Format the hosts as CSV: a line per host, number of vCPUs and wheel, in full precision."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_CSV)
    for host in result.hosts:
        writer.writerows(_list_csv_rows(host))
    for name, reason in result.missing:
        writer.writerow((name, "", "", "", "", "missing", reason, "", "", "", "", "", ""))
    return buffer.getvalue()


def _list_csv_rows(host: HostResult) -> Iterator[tuple[object, ...]]:
    outcome = host.outcome
    start = (host.name, host.count, outcome.cpu, outcome.target, host.machine)
    for row in host.speedups:
        numbers = (row.interval.value, row.interval.low, row.interval.high, row.verdict or "")
        yield (*start, "done", "", row.vcpus, row.arm, *numbers)
    for name, reason in outcome.refused:
        yield (*start, "refused", reason, "", name, "", "", "", "")
