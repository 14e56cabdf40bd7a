"""Build the report of a comparison, and the sections with its results. Pure."""

from __future__ import annotations

from pathlib import Path

from tfbench.costs.bill import Bill
from tfbench.reports import columns, details, findings, method, scaling, wording
from tfbench.reports.cost_section import build_costs
from tfbench.reports.document import (
    LADDER,
    SCALING,
    SPEEDUPS,
    Answer,
    Document,
    Section,
    build_list,
    build_table_section,
)
from tfbench.reports.ladder import Ladder, find_ladder
from tfcore import console
from tfcore.comparisons.comparison import Comparison, Overall
from tfcore.comparisons.deciding import find_mean_decision


def build_document(comparison: Comparison, templates: Path, bill: Bill | None = None) -> Document:
    """Build the report of a comparison. With a bill the costs follow the speedups."""
    ladder = find_ladder([arm.name for arm in comparison.arms])
    sections = (
        _build_speedups(comparison),
        _build_scaling(comparison),
        scaling.build_section(comparison),
        *((_build_ladder(comparison, ladder),) if ladder else ()),
        *((build_costs(bill),) if bill else ()),
        _build_coverage(comparison),
        _build_fused_ops(comparison),
        details.build_warnings(comparison),
        details.build_verdicts(comparison),
        details.build_samples(comparison),
        details.build_latency(comparison),
        details.build_agreement(comparison),
        details.build_phases(comparison),
        details.build_startup(comparison),
        details.build_arms(comparison),
        details.build_kernels(comparison),
        details.build_machine(comparison),
        method.build_method(comparison, templates),
        method.build_limits(comparison),
    )
    return Document(
        title=findings.format_title(comparison),
        subject=_format_subject(comparison),
        answers=tuple(_build_answer(comparison, overall) for overall in comparison.overall),
        notes=tuple(findings.list_unanswered(comparison)),
        warnings=tuple(findings.list_warnings(comparison)),
        sections=tuple(section for section in sections if section.blocks),
    )


def _format_subject(comparison: Comparison) -> str:
    vcpus = dict.fromkeys(str(cell.vcpus) for cell in comparison.cells)
    workloads = dict.fromkeys(cell.workload for cell in comparison.cells)
    models = console.format_count(len(workloads), wording.describe_workload(comparison))
    return (
        f"{models} on {wording.join_words(list(vcpus))} vCPUs of {comparison.host.cpu.name}, "
        f"measured {wording.format_time(comparison.made)} "
        f"in {console.format_duration(comparison.seconds)}"
    )


def _build_answer(comparison: Comparison, overall: Overall) -> Answer:
    interval = overall.speedup.interval
    models = console.format_count(overall.workloads, wording.describe_workload(comparison))
    return Answer(
        label=f"{overall.speedup.arm}, {console.format_vcpus(overall.vcpus)}",
        figure=wording.format_factor(interval.value),
        detail=(
            f"{wording.format_span(interval)}, geometric mean of {models}; A/A "
            f"{wording.format_span(overall.noise)}"
        ),
        verdict=find_mean_decision(comparison, overall).outcome,
        sentence=findings.format_headline(comparison, overall),
    )


# --- results ------------------------------------------------------------------------------------


def _build_speedups(comparison: Comparison) -> Section:
    base = comparison.baseline
    step = wording.describe_step(comparison)
    return Section(
        key=SPEEDUPS,
        heading=f"Speedup of {step}",
        blocks=(
            (
                f"Speedup is the time of {base} divided by the time of the arm for {step}: above 1 "
                f"the arm is faster. A/A is the interval of {base} compared with a second worker "
                "of itself in the same blocks; it shows the noise of this machine."
            ),
            columns.build_table("Every arm in every cell", columns.SPEEDUPS, comparison),
            *build_list(findings.list_failures(comparison)),
        ),
    )


def _build_scaling(comparison: Comparison) -> Section:
    rows = (
        (
            *(
                overall.speedup.arm,
                str(overall.vcpus),
                find_mean_decision(comparison, overall).outcome,
            ),
            *(
                wording.format_factor_span(overall.speedup.interval),
                wording.format_span(overall.noise),
            ),
            str(overall.workloads),
        )
        for overall in comparison.overall
    )
    names = (
        *("arm", "#vCPUs", "!verdict", f"#geometric mean ({comparison.level:.0%} interval)"),
        *("#A/A", "#workloads"),
    )
    return build_table_section(SCALING, "By number of vCPUs", "Geometric means", names, rows)


def _build_ladder(comparison: Comparison, ladder: Ladder) -> Section:
    """Build the section of geometric means: a row per rung, a column per wheel."""
    means = {
        (overall.vcpus, overall.speedup.arm): overall.speedup.interval
        for overall in comparison.overall
    }

    def format_cell(vcpus: int, arm: str) -> str:
        if arm == comparison.baseline:
            return "1, the baseline"
        interval = means.get((vcpus, arm))
        return wording.format_factor_span(interval) if interval else ""

    return build_table_section(
        LADDER,
        "Where a gain comes from",
        "Geometric means by rung and wheel",
        ("rung", "#vCPUs", *(f"#{wheel}" for wheel in ladder.wheels)),
        (
            (
                rung,
                str(vcpus),
                *(format_cell(vcpus, ladder.find_arm(rung, wheel)) for wheel in ladder.wheels),
            )
            for vcpus in dict.fromkeys(cell.vcpus for cell in comparison.cells)
            for rung in ladder.rungs
        ),
        "Each rung adds one setting to the rung above, for every wheel. The difference between two "
        "rungs is the effect of this setting, the difference between two wheels on one rung the "
        f"effect of compiling. All values are speedups over {comparison.baseline}.",
    )


def _build_coverage(comparison: Comparison) -> Section:
    return build_table_section(
        "coverage",
        "Coverage of tuned kernels",
        "Share of op time in tuned kernels",
        ("workload", "#vCPUs", "arm", "#share", "ops"),
        findings.list_coverage(comparison),
        "TensorFlow's profiler measures the op time of each arm in a few steps after the timing. "
        "An op is covered if the library's counters show that its tuned kernels ran; ops with at "
        "least 0.1% of the time are listed. MatMul and Conv run in oneDNN, which generates code "
        "for the CPU in any wheel.",
    )


def _build_fused_ops(comparison: Comparison) -> Section:
    return build_table_section(
        "fused",
        "Fused ops",
        "Ops that the kernel library fused and did not fuse",
        ("workload", "#vCPUs", "arm", "fused", "not fused", "ran as stock ops"),
        findings.list_fused_ops(comparison),
        "Counts of the kernel library in one launch. Fused updates of variables, the ops that they "
        "replace, loops, and ops that were not fused (by reason) are counted once for each graph "
        "that TensorFlow prepares. Executions are counted every time.",
    )
