"""A comparison for people: a table for the terminal, a Markdown page from a template. Pure."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.console import Console
from rich.table import Table

from tfbench.results import ArmFacts, ArmTimes, Cell, Comparison, Coverage, Overall
from tfbench.statistics import Interval, Verdict
from tfbuild.talk import duration

TEMPLATE = "report.md.j2"
DIFFERENT = "not timed: losses differ"
FEW_LAUNCHES = 5
SHOWN = 0.001
STYLES = {
    Verdict.FASTER: "green",
    Verdict.SLOWER: "red",
    Verdict.WITHIN_NOISE: "",
    Verdict.INCONCLUSIVE: "yellow",
    DIFFERENT: "bold red",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One arm in one cell, as text."""

    workload: str
    vcpus: str
    arm: str
    baseline_ms: str
    arm_ms: str
    speedup: str
    interval: str
    verdict: str


def table(comparison: Comparison, *, colour: bool, width: int = 110) -> str:
    """The verdict, the table and what to know about it. `colour` only for a terminal."""
    sink = io.StringIO()
    console = Console(
        file=sink, width=width, force_terminal=colour, no_color=not colour, highlight=False
    )
    grid = Table(title=title(comparison), title_justify="left", show_edge=False, pad_edge=False)
    base = comparison.baseline.name
    for heading in ("workload", "vCPUs", "arm", f"{base} ms/step", "arm ms/step", "speedup"):
        grid.add_column(heading, justify="left" if heading in {"workload", "arm"} else "right")
    grid.add_column(f"{comparison.level:.0%} interval")
    grid.add_column("verdict")
    for row in rows(comparison):
        grid.add_row(
            *(row.workload, row.vcpus, row.arm, row.baseline_ms, row.arm_ms),
            *(row.speedup, row.interval),
            f"[{style}]{row.verdict}[/]" if (style := STYLES[row.verdict]) else row.verdict,
        )
    console.print(grid)
    console.print()
    for line in (*headlines(comparison), *covered(comparison), *warnings(comparison)):
        console.print(line, markup=False, soft_wrap=True)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()) + "\n"


def markdown(comparison: Comparison, templates: Path) -> str:
    """The report page. A name that the template uses and nobody gives is an error."""
    environment = Environment(
        loader=FileSystemLoader(templates),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  (Markdown, not HTML)
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE).render(
        title=title(comparison),
        headlines=tuple(headlines(comparison)),
        covered=tuple(covered(comparison)),
        warnings=tuple(warnings(comparison)),
        rows=tuple(rows(comparison)),
        kernels={arm.name: kernels(arm) for arm in comparison.arms},
        took=duration(comparison.seconds),
        comparison=comparison,
    )


def title(comparison: Comparison) -> str:
    others = ", ".join(arm.name for arm in comparison.arms[1:])
    return f"{others} against {comparison.baseline.name} on {comparison.host.cpu.name}"


def rows(comparison: Comparison) -> Iterator[Row]:
    for cell in comparison.cells:
        for arm in cell.arms[1:]:
            yield _row(cell, arm)


def headlines(comparison: Comparison) -> Iterator[str]:
    """The answer in one sentence per arm and number of vCPUs."""
    for each in comparison.overall:
        yield _headline(comparison.baseline.name, each, comparison.margin)


def warnings(comparison: Comparison) -> Iterator[str]:
    """What a reader must know before the figures are used."""
    if not any(arm.kernel_library for arm in comparison.arms):
        yield "No arm loaded tuned kernels: this compares stock kernels with stock kernels."
    for cell in comparison.cells:
        for each in cell.agreements:
            if not each.agrees:
                yield (
                    f"{cell.workload}: {each.arm} does not compute what "
                    f"{comparison.baseline.name} computes. Do not use it."
                )
        yield from (f"{cell.workload}: {line}" for line in _unexplained(cell))
    if comparison.effort.launches < FEW_LAUNCHES:
        yield (
            f"A quick look: {_count(comparison.effort.launches, 'launch', 'launches')} of a model "
            f"hardly show how two starts of it differ. {FEW_LAUNCHES} or more do."
        )


def _unexplained(cell: Cell) -> Iterator[str]:
    """Gains beyond what kernels of that share could give if they took no time (Amdahl's law)."""
    shares = {arm.arm: arm.coverage.share for arm in cell.arms if arm.coverage is not None}
    for each in cell.speedups:
        share = shares.get(each.arm)
        if share is not None and each.interval.low * (1 - share) > 1:
            yield (
                f"{each.interval.value:.3f}x cannot come from {each.arm} kernels, which cover "
                f"{share:.1%} of the op time. Take it for noise of this machine."
            )


def covered(comparison: Comparison) -> Iterator[str]:
    """How much of each workload's time tuned kernels can change at all."""
    for cell in comparison.cells:
        for arm in cell.arms:
            if arm.coverage is not None:
                where = f"{cell.workload} on {_count(cell.vcpus, 'vCPU', 'vCPUs')}"
                yield f"{where}: {arm.arm} kernels cover {_covered(arm.coverage)}."


def _covered(coverage: Coverage) -> str:
    ops = ", ".join(f"{row.op} {row.share:.1%}" for row in coverage.ops if row.share >= SHOWN)
    return f"{coverage.share:.1%} of the op time" + (f" ({ops})" if ops else "")


def kernels(arm: ArmFacts) -> str:
    if arm.kernel_library is None:
        return "stock kernels"
    return f"tuned kernels from {Path(arm.kernel_library).name}"


def _headline(baseline: str, each: Overall, margin: float) -> str:
    speedup = each.speedup
    arm, factor = speedup.arm, f"{speedup.interval.value:.3f}x"
    workloads = _count(each.workloads, "workload", "workloads")
    vcpus = _count(each.vcpus, "vCPU", "vCPUs")
    span = f"{_span(speedup.interval)}; geometric mean of {workloads} on {vcpus}"
    match speedup.verdict:
        case Verdict.FASTER:
            return f"{arm} is faster than {baseline}: {factor} ({span})."
        case Verdict.SLOWER:
            return f"{arm} is slower than {baseline}: {factor} ({span}). Do not use it here."
        case Verdict.WITHIN_NOISE:
            return f"No gain: {arm} takes as long as {baseline}, within {margin:.0%} ({span})."
        case Verdict.INCONCLUSIVE:
            return f"No gain shown: {factor} ({span}). Measure longer for an answer."


def _row(cell: Cell, arm: ArmTimes) -> Row:
    speedup = next((each for each in cell.speedups if each.arm == arm.arm), None)
    return Row(
        workload=cell.workload,
        vcpus=str(cell.vcpus),
        arm=arm.arm,
        baseline_ms=_milliseconds(cell.arms[0]),
        arm_ms=_milliseconds(arm),
        speedup=f"{speedup.interval.value:.3f}x" if speedup else "",
        interval=_span(speedup.interval) if speedup else "",
        verdict=speedup.verdict if speedup else DIFFERENT,
    )


def _milliseconds(arm: ArmTimes) -> str:
    return f"{arm.step_ms.value:.2f}" if arm.step_ms else ""


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _span(interval: Interval) -> str:
    return f"{interval.low:.3f} to {interval.high:.3f}"
