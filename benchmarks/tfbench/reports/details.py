"""Build the detail sections of a report: how it was measured, what was compared. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tfbench.inside import bins
from tfbench.inside.phases import AUGMENT, TRAIN, VALIDATE
from tfbench.inside.workload_name import parse_name
from tfbench.inside.workloads import find_schedule, format_label
from tfbench.kernels.table import format_row, sort_rows
from tfbench.reports import columns, findings, wording
from tfbench.reports.document import (
    Section,
    Table,
    TextColumns,
    build_table_section,
    read_rows,
    tabulate,
)
from tfcore import console
from tfcore.comparisons.comparison import (
    SENSITIVITY,
    Agreement,
    ArmFacts,
    ArmTimes,
    ComparedCell,
    Comparison,
)
from tfcore.comparisons.effort import Stop
from tfcore.comparisons.host import Host
from tfcore.comparisons.interval import Interval
from tfcore.comparisons.kernels import KernelTable
from tfcore.console import format_duration, format_size

SAMPLES = "samples"


def build_warnings(comparison: Comparison) -> Section:
    """Build the section that lists, cell by cell, the warnings that summarise several cells."""
    rows = (
        (kind, *findings.format_cell(caveat.cell), caveat.what)
        for kind, caveats in findings.group_caveats(comparison).items()
        for caveat in caveats
        if len(caveats) > 1 and caveat.what != kind
    )
    names = ("warning", "workload", "#vCPUs", "details")
    return build_table_section("doubts", "Warnings by cell", "Warnings by cell", names, rows)


def build_verdicts(comparison: Comparison) -> Section:
    return Section(
        key="verdicts",
        heading="Reasons for the verdicts",
        blocks=(
            (
                "The interval over launches decides the verdict. “Confidence” is the largest level "
                "at which this interval excludes 1. The speedup by medians of blocks, with each "
                "arm's own variance, is a second estimate."
            ),
            columns.build_table("Verdicts and their reasons", columns.REASONS, comparison),
            tabulate(
                "Half-width of the widest interval, at interim analyses and at the end",
                ("workload", "#vCPUs", "#launches", "#time", "#half-width"),
                (
                    (
                        *(
                            *findings.format_cell(cell),
                            str(look.launches),
                            format_duration(look.seconds),
                        ),
                        f"{look.half_width:.2%}",
                    )
                    for cell in comparison.cells
                    for look in cell.looks
                    if look.launches in comparison.effort.looks or look == cell.looks[-1]
                ),
            ),
        ),
    )


def build_samples(comparison: Comparison) -> Section:
    return build_table_section(
        SAMPLES,
        "Samples over time",
        "Samples per cell",
        _SAMPLES,
        read_rows(_SAMPLES, comparison.cells),
        "The HTML report shows every sample, and a cross for each block that a gate dropped. "
        "Samples that took much longer than the rest are at the upper edge. The intervals use the "
        "“counted” blocks: all blocks, if gates leave too few. “Other processes” is the share of "
        "CPU time that other processes and the hypervisor used.",
    )


_SAMPLES: TextColumns[ComparedCell] = {
    "workload": lambda cell: format_label(cell.workload),
    "#vCPUs": lambda cell: str(cell.vcpus),
    "#batch": lambda cell: str(cell.batch),
    "#steps per sample": lambda cell: str(cell.steps),
    "#launches": lambda cell: str(cell.launches),
    "#blocks": lambda cell: str(cell.blocks),
    "#dropped": lambda cell: str(cell.gates.dropped),
    "reasons": findings.format_gates,
    "#counted": lambda cell: (
        "not recorded" if cell.gates.counting is None else str(cell.gates.counting)
    ),
    "#other processes": lambda cell: wording.format_share(cell.others),
    "#unsteady launches": lambda cell: str(cell.unsteady),
    "#time": lambda cell: format_duration(cell.seconds),
    "stop reason": lambda cell: (
        findings.STOPS[Stop(cell.stopped_by)] if cell.stopped_by else "nothing was timed"
    ),
}


def build_agreement(comparison: Comparison) -> Section:
    return build_table_section(
        "agreement",
        "Agreement of the arms",
        "Differences from the baseline",
        (
            *("workload", "#vCPUs", "arm", "#losses", "#predictions", "#tolerance"),
            *("#losses by rounding", "#predictions by rounding", "!agrees"),
        ),
        (
            (*findings.format_cell(cell), arm_agreement.arm, *_format_differences(arm_agreement))
            for cell in comparison.cells
            for arm_agreement in cell.agreements
        ),
        "The largest differences from the baseline over all launches: relative for the first "
        "losses, absolute for the predictions after them. The baseline's second worker starts from "
        "parameters that are one rounding away. If a program amplifies rounding, it explains "
        f"differences beyond the tolerance up to {SENSITIVITY} times those between the baseline's "
        "two workers. Explained differences show neither that an arm computes the same nor that "
        "it does not.",
    )


def _format_differences(agreement: Agreement) -> tuple[str, ...]:
    return (
        *map(_format_difference, (agreement.losses, agreement.predictions)),
        f"{agreement.tolerance:.0e}" if agreement.held else "any",
        *map(_format_difference, (agreement.losses_by_rounding, agreement.predictions_by_rounding)),
        "yes" if agreement.agrees else "no",
    )


def _format_difference(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.1e}" if value else "0"


def build_latency(comparison: Comparison) -> Section:
    """Build the section on latency of single requests; it is empty for training."""
    rows = (
        (
            *(*findings.format_cell(cell), times.arm, _format_spread_ms(times.latency.median_ms)),
            _format_spread_ms(times.latency.p99_ms) or "too few requests",
        )
        for cell in comparison.cells
        for times in cell.arms
        if times.latency
    )
    text = (
        "Milliseconds from a request until its result can be read: quantiles of each launch's "
        f"requests, with Student's t intervals at {comparison.level:.0%} over launches. Times are "
        f"counted in bins that are {bins.WIDTH:.0%} wide. In the name of a workload, 32 is the "
        "number of examples per request, and 32x2 means two requests at once, of which one waits."
    )
    names = ("workload", "#vCPUs", "arm", "#median ms", "#99th percentile ms")
    return build_table_section("latency", "Latency", "Latency of requests", names, rows, text)


def build_phases(comparison: Comparison) -> Section:
    """Build the section on phases of training; it is empty if all cells are inference."""
    only_requests = all(cell.is_inference for cell in comparison.cells)
    return build_table_section(
        "phases",
        "Phases and training runs",
        "Phases per batch and runs",
        (
            *("workload", "#vCPUs", "arm", "#train ms", "#validate ms", "#augment ms"),
            *("batches of a run", "#run s", f"#speedup over {comparison.baseline}"),
        ),
        ()
        if only_requests
        else (_format_phases(cell, times) for cell in comparison.cells for times in cell.arms),
        "Milliseconds per batch. The time of a run is computed from its phases, not measured as a "
        "whole: the article's epochs of training batches, augmented if the article did so, and a "
        "validation pass after each epoch. It does not include start-up.",
    )


def _format_phases(cell: ComparedCell, times: ArmTimes) -> tuple[str, ...]:
    phases = {phase_times.phase: phase_times.step_ms for phase_times in times.phases}
    speedup = cell.get_result(times.arm).speedup
    return (
        *findings.format_cell(cell),
        times.arm,
        *(_format_spread_ms(phases.get(phase)) for phase in (TRAIN, VALIDATE, AUGMENT)),
        _format_schedule(cell.workload) if times.run_s else "not all phases were timed",
        wording.format_seconds(times.run_s) if times.run_s else "",
        wording.format_factor_span(speedup.run) if speedup and speedup.run else "",
    )


def _format_spread_ms(interval: Interval | None) -> str:
    return "" if interval is None else wording.format_spread(interval, "{:.2f}".format)


def _format_schedule(workload: str) -> str:
    if parse_name(workload).own:
        return ""
    schedule = find_schedule(workload)
    validation = f" + {schedule.validation}" if schedule.validation else ""
    return f"{schedule.epochs} epochs of {schedule.steps}{validation}"


def build_startup(comparison: Comparison) -> Section:
    return build_table_section(
        "starting",
        "Start-up, CPU time and memory",
        "Start-up, CPU time and memory",
        (
            *("workload", "#vCPUs", "arm", "#import s", "#build s", "#first steps s"),
            *("#CPU ms per step", "#idle", "#peak MB"),
        ),
        (
            (*findings.format_cell(cell), times.arm, *_format_startup(times))
            for cell in comparison.cells
            for times in cell.arms
        ),
        "Steps do not include start-up. CPU time is the sum over all threads. “Idle” is the share "
        "of the other arms' time in which an arm used the CPU.",
    )


def _format_startup(times: ArmTimes) -> tuple[str, ...]:
    return (
        *(f"{value:.2f}" for value in (times.import_s, times.build_s, times.first_steps_s)),
        *(
            wording.format_optional(times.cpu_ms, ".2f"),
            wording.format_optional(times.idle_share, ".1%"),
        ),
        f"{times.peak_mb:.0f}",
    )


# --- what was compared --------------------------------------------------------------------------


def build_arms(comparison: Comparison) -> Section:
    return Section(
        key="arms",
        heading="What was compared",
        blocks=(
            tabulate("Arms", _ARMS, read_rows(_ARMS, comparison.arms)),
            tabulate(
                "Environment variables of the workers",
                ("arm", "#vCPUs", "variables"),
                _list_environments(comparison),
            ),
        ),
    )


_ARMS: TextColumns[ArmFacts] = {
    "arm": lambda arm: arm.name,
    "wheel": lambda arm: arm.label,
    "TensorFlow": lambda arm: f"{arm.tensorflow} ({arm.git_version})",
    "compiler": lambda arm: arm.compiler_version,
    "threads": lambda arm: arm.threading,
    "kernels": lambda arm: (
        f"{findings.describe_kernels(arm)}, {arm.raised_kernels} above priority 0"
    ),
    "conformance test": lambda arm: (
        arm.admission or ("not recorded" if arm.kernel_library else "no tuned kernels")
    ),
    "Python": lambda arm: arm.python,
    "NumPy": lambda arm: arm.numpy,
    "environment": lambda arm: wording.format_settings(arm.env) or "none",
    "#tolerance": lambda arm: f"{arm.tolerance:g}",
    "wheel SHA-256": lambda arm: arm.wheel_sha256 or "not recorded",
}


def build_kernels(comparison: Comparison) -> Section:
    """Build the section with the kernel tables of all arms whose kernels were selected by
    measurement.
    """
    tables = [(arm.name, arm.kernel_table) for arm in comparison.arms if arm.kernel_table]
    blocks = [block for name, table in tables for block in _build_kernel_table(name, table)]
    return Section(key="kernels", heading="Kernel selection", blocks=tuple(blocks))


def _build_kernel_table(arm: str, table: KernelTable) -> tuple[str, Table]:
    kept_choices = {row.choice for row in table.rows if row.kept}
    tested = console.format_count(len({row.choice for row in table.rows}), "kernel")
    return (
        (
            f"{arm}: {len(kept_choices)} of {tested} replace stock kernels. Measured on "
            f"{table.measured_on}, one op at a time, with the inputs of a profile. “Share” is the "
            "share of the profile's op time."
        ),
        tabulate(
            f"Kernels of {arm} against stock kernels",
            (
                *("op", "inputs", "#threads", "#share", "#stock us", "#tuned us", "#ratio"),
                *("#95% interval", "#in a new run", "kept"),
            ),
            ((op, *cells) for op, _, *cells in map(format_row, sort_rows(table.rows))),
        ),
    )


def _list_environments(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    """Yield the environment variables of each arm's first cell at each number of vCPUs; its
    other cells have the same.
    """
    listed: set[tuple[int, str]] = set()
    for cell in comparison.cells:
        for times in cell.arms:
            if (cell.vcpus, times.arm) not in listed:
                listed.add((cell.vcpus, times.arm))
                yield times.arm, str(cell.vcpus), wording.format_settings(times.environment)


def build_machine(comparison: Comparison) -> Section:
    sources = (("merged from", ", ".join(comparison.parts)),) if comparison.parts else ()
    rows = (
        *_list_host_facts(comparison.host),
        *sources,
        ("measured", wording.format_time(comparison.made)),
        ("duration", format_duration(comparison.seconds)),
    )
    return build_table_section("machine", "The machine", "The machine", ("property", "value"), rows)


def _list_host_facts(host: Host) -> tuple[tuple[str, str], ...]:
    """List the properties of the host that matter when comparisons are merged."""
    cpu, vcpus, unknown = host.cpu, host.vcpus, "unknown"
    model = f"{cpu.vendor} family {cpu.family}, model {cpu.model}, stepping {cpu.stepping}"
    virtual = {True: "yes", False: "no", None: unknown}
    quota = "none" if vcpus.quota is None else f"{vcpus.quota:g} CPUs"
    return (
        ("CPU", f"{cpu.name} ({cpu.architecture})"),
        ("model", model),
        ("microcode", cpu.microcode or unknown),
        ("virtual machine", virtual[cpu.hypervisor]),
        ("vCPUs", f"{vcpus.usable} usable of {vcpus.machine}"),
        ("affinity", ", ".join(map(str, host.affinity))),
        ("quota", quota),
        ("memory", format_size(host.memory_bytes)),
        ("kernel", f"Linux {host.kernel}"),
        ("transparent huge pages", host.hugepages or unknown),
        ("clock source", host.clocksource or unknown),
        ("frequency governor", host.governor or unknown),
        ("CPU features", " ".join(sorted(cpu.features))),
    )
