"""A comparison as a document, and the sections of its results. Pure."""

from __future__ import annotations

from pathlib import Path

from tfbench.costs.bill import Bill
from tfbench.reports import details, findings, method, wording
from tfbench.reports.document import (
    LADDER,
    SCALING,
    SPEEDUPS,
    Answer,
    Document,
    Section,
    points,
    tabled,
    tabulate,
)
from tfbench.reports.ladder import Ladder, find_ladder
from tfbench.reports.spending import costs
from tfbuild import console
from tfbuild.measured.comparison import Comparison, Overall


def document(comparison: Comparison, templates: Path, bill: Bill | None = None) -> Document:
    """A bill is put behind the speedups."""
    found = find_ladder([arm.name for arm in comparison.arms])
    sections = (
        _speedups(comparison),
        _scaling(comparison),
        *((_ladder(comparison, found),) if found else ()),
        *((costs(bill),) if bill else ()),
        _coverage(comparison),
        _fused(comparison),
        details.doubts(comparison),
        details.verdicts(comparison),
        details.samples(comparison),
        details.latency(comparison),
        details.agreement(comparison),
        details.phases(comparison),
        details.starting(comparison),
        details.arms(comparison),
        details.kernels(comparison),
        details.machine(comparison),
        method.method(comparison, templates),
        method.limits(comparison),
    )
    return Document(
        title=findings.title(comparison),
        subject=_subject(comparison),
        answers=tuple(_answer(comparison, each) for each in comparison.overall),
        notes=tuple(findings.unanswered(comparison)),
        warnings=tuple(findings.warnings(comparison)),
        sections=tuple(section for section in sections if section.blocks),
    )


def _subject(comparison: Comparison) -> str:
    vcpus = dict.fromkeys(str(cell.vcpus) for cell in comparison.cells)
    workloads = dict.fromkeys(cell.workload for cell in comparison.cells)
    models = console.format_count(len(workloads), wording.model(comparison))
    return (
        f"{models} on {wording.listed(list(vcpus))} vCPUs of {comparison.host.cpu.name}, measured "
        f"{wording.moment(comparison.made)} in {console.format_duration(comparison.seconds)}"
    )


def _answer(comparison: Comparison, each: Overall) -> Answer:
    interval = each.speedup.interval
    models = console.format_count(each.workloads, wording.model(comparison))
    return Answer(
        label=f"{each.speedup.arm}, {console.format_vcpus(each.vcpus)}",
        figure=wording.factor(interval.value),
        detail=(
            f"{wording.span(interval)}, geometric mean of {models}; A/A {wording.span(each.noise)}"
        ),
        verdict=findings.outcome(comparison, each),
        sentence=findings.headline(comparison, each),
    )


# --- results ------------------------------------------------------------------------------------


def _speedups(comparison: Comparison) -> Section:
    base, level = comparison.baseline, f"{comparison.level:.0%}"
    asks = any(cell.is_inference for cell in comparison.cells)
    unit = "request (99th percentile)" if asks else "step"
    step = wording.step(comparison)
    return Section(
        key=SPEEDUPS,
        heading=f"Speedup of {step}",
        blocks=(
            (
                f"Speedup is {base}'s time over the arm's time for {step}: above 1 the arm is "
                f"faster. “{base} again” is a second worker of the baseline in the same blocks: "
                "what no difference looks like here."
            ),
            tabulate(
                "Every arm in every cell",
                (
                    *("workload", "#vCPUs", "arm", "!verdict", f"#speedup ({level} interval)"),
                    *(f"#{base} again", f"#{base} ms per {unit}", f"#arm ms per {unit}"),
                ),
                (
                    (
                        *(row.workload, row.vcpus, row.arm, row.verdict, row.known),
                        *(row.noise, row.baseline_ms, row.arm_ms),
                    )
                    for row in findings.rows(comparison)
                ),
            ),
            *points(findings.failed(comparison)),
        ),
    )


def _scaling(comparison: Comparison) -> Section:
    rows = (
        (
            *(each.speedup.arm, str(each.vcpus), findings.outcome(comparison, each)),
            *(wording.factor_span(each.speedup.interval), wording.span(each.noise)),
            str(each.workloads),
        )
        for each in comparison.overall
    )
    names = (
        *("arm", "#vCPUs", "!verdict", f"#geometric mean ({comparison.level:.0%} interval)"),
        *(f"#{comparison.baseline} again", "#workloads"),
    )
    return tabled(SCALING, "By number of vCPUs", "Geometric means", names, rows)


def _ladder(comparison: Comparison, found: Ladder) -> Section:
    """The geometric means, a row for each rung and a column for each wheel."""
    means = {(each.vcpus, each.speedup.arm): each.speedup.interval for each in comparison.overall}

    def shown(vcpus: int, arm: str) -> str:
        if arm == comparison.baseline:
            return "1, the baseline"
        interval = means.get((vcpus, arm))
        return wording.factor_span(interval) if interval else ""

    return tabled(
        LADDER,
        "Where a gain comes from",
        "Geometric means by rung and wheel",
        ("rung", "#vCPUs", *(f"#{wheel}" for wheel in found.wheels)),
        (
            (rung, str(vcpus), *(shown(vcpus, found.arm(rung, wheel)) for wheel in found.wheels))
            for vcpus in dict.fromkeys(cell.vcpus for cell in comparison.cells)
            for rung in found.rungs
        ),
        "Each rung adds one thing to the one above it, for every wheel. Between rungs stands what "
        "was added, between wheels on one rung what compiling gives there. All figures are "
        f"speedups over {comparison.baseline}.",
    )


def _coverage(comparison: Comparison) -> Section:
    return tabled(
        "coverage",
        "What tuned kernels cover",
        "Op time in ops whose tuned kernels ran",
        ("workload", "#vCPUs", "arm", "#share", "ops"),
        findings.covered(comparison),
        "Op time is what TensorFlow's profiler saw of the arm in a few steps after the timing. An "
        "op counts as covered when the library's own counters say that its tuned kernels ran; "
        "those of a thousandth of the time and more are named. MatMul and Conv are oneDNN's, whose "
        "code is generated for the CPU in any wheel.",
    )


def _fused(comparison: Comparison) -> Section:
    return tabled(
        "fused",
        "What was fused",
        "What the kernel library fused and left alone",
        ("workload", "#vCPUs", "arm", "fused", "left alone", "ran as before"),
        findings.fused(comparison),
        "The library's own counts in one launch. Fused updates of variables, the ops that they "
        "took the place of, and loops are counted for each graph that TensorFlow prepares, so is "
        "what was left alone, by its reason; executions each time.",
    )
