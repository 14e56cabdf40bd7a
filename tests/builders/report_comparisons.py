"""Comparisons, bills and samples made up for tests of the report: all that may occur."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from tests.builders import comparisons
from tests.builders.comparisons import host, spread, with_interval
from tests.builders.prices import price

from tfbench.costs import article, catalog
from tfbench.costs.bill import Bill, Build, compute_bill, compute_bill_from_totals
from tfbench.measuring.samples import Sample
from tfbench.measuring.statistics import Thresholds, choose_verdict
from tfbench.reports import chapters, cost_section, page, report
from tfcore.comparisons.comparison import (
    Agreement,
    ArmFacts,
    ArmFailure,
    ArmTimes,
    ComparedCell,
    Comparison,
    Coverage,
    Gates,
    InterimAnalysis,
    OpShare,
    Overall,
    PhaseTime,
    Speedup,
)
from tfcore.comparisons.effort import Effort, Stop
from tfcore.comparisons.interval import Interval

THRESHOLD = 0.01
NOISE = 0.006
"""Half the width of a cell's A/A interval."""
LIBRARY = "/arms/tuned/tensorflow/core/kernels/tensorwright/skylake.so"
# Milliseconds per step of the baseline on 1 and 2 vCPUs.
PACES = {"mnist_mlp": (8.2, 5.1), "mnist_cnn": (96.0, 52.0), "lstm_text": (48.0, 29.3)}
GAINS = {
    "mnist_mlp": {"control": 0.999, "tuned": 1.031},
    "mnist_cnn": {"control": 0.981, "tuned": 1.214},
    "lstm_text": {"control": 1.004, "tuned": 1.002},
}
RUNGS = {"compiled": 1.0, "gemm": 1.21, "onednn": 1.79}


def arm(name: str, *, library: str | None = None, env: Mapping[str, str] | None = None) -> ArmFacts:
    return comparisons.arm(
        name,
        label=f"tensorflow-cpu 2.14.1, the {name} wheel",
        wheel_sha256=f"{sum(map(ord, name)):064x}",
        env=tuple((env or {}).items()),
        kernel_library=library,
    )


def times(name: str, step_ms: float, *, vcpus: int = 2) -> ArmTimes:
    return comparisons.times(
        name,
        spread(step_ms * 9.4, 0.005),
        phases=(
            PhaseTime(phase="train", step_ms=spread(step_ms, 0.004)),
            PhaseTime(phase="validate", step_ms=spread(step_ms / 3, 0.01)),
        ),
        cpu_ms=step_ms * 0.9 * vcpus,
        environment=(("OMP_NUM_THREADS", str(vcpus)), ("TF_NUM_INTRAOP_THREADS", str(vcpus))),
    )


def confidence(interval: Interval) -> float:
    """As a normal distribution has it."""
    return math.erf(abs(math.log(interval.value)) / interval.half_width * 1.96 / math.sqrt(2))


def speedup(name: str, interval: Interval, noise: Interval, *, fair: bool = True) -> Speedup:
    thresholds = Thresholds(floor=noise.reach, threshold=THRESHOLD)
    return Speedup(
        arm=name,
        interval=interval,
        verdict=choose_verdict(with_interval(interval), thresholds, fair=fair),
        confidence=confidence(interval) if fair else 0.0,
        medians=spread(interval.value * 1.001, interval.half_width * 1.2),
        run=spread(interval.value, interval.half_width * 1.1),
    )


def cell(
    workload: str,
    vcpus: int,
    gains: Mapping[str, float],
    *,
    baseline: str = "stock",
    width: float = 0.008,
    paces: Mapping[str, tuple[float, float]] = PACES,
) -> ComparedCell:
    """A cell that was measured in full. More vCPUs make gains smaller here."""
    pace, noise = paces[workload][vcpus - 1], spread(1.0, NOISE)
    pace_factors = {name: 1 + (gain - 1) / vcpus**0.5 for name, gain in gains.items()}
    return comparisons.cell(
        workload,
        vcpus,
        speedups=[speedup(name, spread(gain, width), noise) for name, gain in pace_factors.items()],
        steps=max(1, round(250 / pace)),
        launches=10,
        blocks=40,
        seconds=251.0,
        stopped_by=Stop.PRECISION,
        looks=(
            InterimAnalysis(launches=4, seconds=98.0, half_width=width * 4.1),
            InterimAnalysis(launches=6, seconds=140.5, half_width=width * 2.4),
            InterimAnalysis(launches=10, seconds=251.0, half_width=width),
        ),
        gates=Gates(dropped=3, reasons=(("throttled", 2), ("clock", 1))),
        others=0.034,
        arms=(
            times(baseline, pace, vcpus=vcpus),
            *(times(name, pace / gain, vcpus=vcpus) for name, gain in pace_factors.items()),
        ),
        agreements=tuple(
            Agreement(arm=name, losses=2.1e-7, predictions=3e-6, tolerance=1e-3)
            for name in pace_factors
        ),
        noise=noise,
    )


def overall(cells: tuple[ComparedCell, ...]) -> tuple[Overall, ...]:
    """Of what the cells say, as wide as the mean of their intervals."""
    actual = []
    for vcpus in dict.fromkeys(compared_cell.vcpus for compared_cell in cells):
        row = [compared_cell for compared_cell in cells if compared_cell.vcpus == vcpus]
        for name in dict.fromkeys(s.arm for compared_cell in row for s in compared_cell.speedups):
            intervals = [
                s.interval for compared_cell in row for s in compared_cell.speedups if s.arm == name
            ]
            mean = math.exp(
                sum(math.log(interval.value) for interval in intervals) / len(intervals)
            )
            noise = spread(1.0, NOISE / len(intervals) ** 0.5)
            width = sum(interval.half_width for interval in intervals) / len(intervals) ** 1.5
            means = speedup(name, spread(mean, width), noise)
            actual.append(
                Overall(vcpus=vcpus, workloads=len(intervals), speedup=means, noise=noise)
            )
    return tuple(actual)


def comparison(*cells: ComparedCell, arms: tuple[ArmFacts, ...] = ()) -> Comparison:
    return comparisons.comparison(
        *cells,
        seconds=1575.0,
        effort=Effort(blocks=4, precision=0.015, budget_s=300.0, phase_blocks=2),
        host=host(clocksource="kvm-clock"),
        arms=arms or (arm("stock"), arm("control", library=LIBRARY), arm("tuned", library=LIBRARY)),
        overall=overall(cells),
    )


def two_arms() -> tuple[ArmFacts, ArmFacts]:
    return arm("stock"), arm("tuned", library=LIBRARY)


def single(interval: Interval, noise: Interval | None = None) -> Comparison:
    """One cell, stock against tuned, with exactly this speedup."""
    compared_cell = cell("mnist_mlp", 2, {"tuned": 1.0})
    floor = noise or spread(1.0, NOISE)
    arm_speedup = speedup("tuned", interval, floor)
    return comparison(
        dataclasses.replace(compared_cell, noise=floor, speedups=(arm_speedup,)), arms=two_arms()
    )


def sound() -> Comparison:
    """Three workloads on 1 and 2 vCPUs, stock against control and tuned, nothing to warn of."""
    cells = [cell(name, vcpus, GAINS[name]) for vcpus in (1, 2) for name in PACES]
    return comparison(*(covered(compared_cell, "tuned", 0.6) for compared_cell in cells))


def covered(
    compared_cell: ComparedCell, name: str, share: float, fused: Mapping[str, int] | None = None
) -> ComparedCell:
    """The cell with tuned kernels of that share of op time in one arm, and what was fused there."""
    coverage = Coverage(
        share=share,
        ops=(
            OpShare(op="Tanh", share=share * 0.75, runs_per_step=40.0),
            OpShare(op="TanhGrad", share=share * 0.25, runs_per_step=40.0),
            OpShare(op="Neg", share=0.0001, runs_per_step=1.0),
        ),
        fused=tuple((fused or {}).items()),
    )
    arms = tuple(
        dataclasses.replace(arm_times, coverage=coverage) if arm_times.arm == name else arm_times
        for arm_times in compared_cell.arms
    )
    return dataclasses.replace(compared_cell, arms=arms)


def without(compared_cell: ComparedCell, name: str) -> ComparedCell:
    """The cell as if the arm had given no answer."""
    return dataclasses.replace(
        compared_cell,
        arms=tuple(arm_times for arm_times in compared_cell.arms if arm_times.arm != name),
        agreements=tuple(
            agreement for agreement in compared_cell.agreements if agreement.arm != name
        ),
        speedups=tuple(
            arm_speedup for arm_speedup in compared_cell.speedups if arm_speedup.arm != name
        ),
    )


def failed(compared_cell: ComparedCell, name: str, reason: str) -> ComparedCell:
    other_cell = without(compared_cell, name)
    return dataclasses.replace(other_cell, failures=(ArmFailure(arm=name, reason=reason),))


def disagreeing(compared_cell: ComparedCell, name: str, predictions: float | None) -> ComparedCell:
    wrong = Agreement(arm=name, losses=0.05, predictions=predictions, tolerance=1e-3)
    other_cell = without(compared_cell, name)
    return dataclasses.replace(other_cell, agreements=(*other_cell.agreements, wrong))


def dropped(compared_cell: ComparedCell) -> ComparedCell:
    """The cell with too many blocks dropped for a verdict."""
    noise = compared_cell.noise or spread(1.0, NOISE)
    return dataclasses.replace(
        compared_cell,
        stopped_by=Stop.BUDGET,
        gates=Gates(dropped=17, reasons=(("run delay", 15), ("speed changed", 6))),
        unsteady=3,
        speedups=tuple(
            speedup(arm_speedup.arm, arm_speedup.interval, noise, fair=False)
            for arm_speedup in compared_cell.speedups
        ),
    )


def baseline_failed(compared_cell: ComparedCell) -> ComparedCell:
    return dataclasses.replace(
        compared_cell,
        steps=0,
        launches=0,
        blocks=0,
        stopped_by="",
        looks=(),
        gates=Gates(dropped=0, reasons=()),
        arms=(),
        agreements=(),
        noise=None,
        speedups=(),
        failures=(ArmFailure(arm="stock", reason="the worker of arm stock hangs: 600 s"),),
    )


def troubled() -> Comparison:
    """Everything that may go wrong, and an OpenMP build that spins, beside good cells."""
    gains = {name: {**gain, "mkl": 0.93} for name, gain in GAINS.items()}
    cells = [cell(name, vcpus, gains[name]) for vcpus in (1, 2) for name in PACES]
    cells[0] = failed(cells[0], "mkl", "the worker of arm mkl was killed (signal 9): no memory?")
    cells[1] = disagreeing(cells[1], "tuned", None)
    cells[2] = baseline_failed(cells[2])
    cells[3] = dropped(cells[3])
    cells[4] = spinning(covered(cells[4], "tuned", 0.005), "mkl")
    mkl = dataclasses.replace(
        arm("mkl", env={"KMP_BLOCKTIME": "0"}), threading="OpenMP", numpy="1.26.0"
    )
    measured_comparison = comparison(
        *cells, arms=(arm("stock"), arm("control"), arm("tuned", library=LIBRARY), mkl)
    )
    return dataclasses.replace(measured_comparison, complete=False)


def spinning(compared_cell: ComparedCell, name: str) -> ComparedCell:
    arms = tuple(
        dataclasses.replace(arm_times, idle_share=0.41) if arm_times.arm == name else arm_times
        for arm_times in compared_cell.arms
    )
    return dataclasses.replace(compared_cell, arms=arms)


def climbed() -> Comparison:
    """A ladder: two wheels on three rungs."""
    names = [f"{wheel}-{rung}" for rung in RUNGS for wheel in ("stock", "tuned")]
    gains = {
        f"{wheel}-{rung}": gain * (1.12 if wheel == "tuned" else 1.0)
        for rung, gain in RUNGS.items()
        for wheel in ("stock", "tuned")
    }
    del gains[names[0]]
    cells = [cell(pace, 2, gains, baseline=names[0]) for pace in PACES]
    arms = tuple(arm(name, library=LIBRARY if name.startswith("tuned") else None) for name in names)
    return comparison(*cells, arms=arms)


def samples(
    measured_comparison: Comparison, *, launches: int = 4, blocks: int = 4
) -> tuple[Sample, ...]:
    """Of every cell, from a machine that slows down, with every seventh block disturbed."""
    chance = np.random.default_rng(7)
    names = [arm.name for arm in measured_comparison.arms]
    order = [names[0], f"{names[0]} again", *names[1:]]
    actual = []
    for compared_cell in measured_comparison.cells:
        paces = {times.arm: times.step_ms.value for times in compared_cell.arms if times.step_ms}
        paces[order[1]] = paces.get(names[0], 0)
        timed = [name for name in order if paces.get(name)]
        for launch in range(launches if timed else 0):
            at = 6.0
            for block in range(blocks):
                bad = (launch * blocks + block) % 7 == 6
                for position, name in enumerate([*timed, *timed[::-1]]):
                    slower = chance.lognormal(0.002 * at, 0.02)
                    wall_s = paces[name] / 1000 * compared_cell.steps * slower
                    wall_s *= 1.4 if bad and position == 2 else 1.0
                    at += wall_s
                    actual.append(
                        comparisons.sample(
                            name,
                            wall_s,
                            workload=compared_cell.workload,
                            vcpus=compared_cell.vcpus,
                            launch=launch,
                            block=block,
                            position=position,
                            steps=compared_cell.steps,
                            at_s=at,
                            cpu_s=wall_s * 0.9 * compared_cell.vcpus,
                            busy_s=wall_s * 0.9 * compared_cell.vcpus,
                            throttled_s=0.3 * wall_s if bad else 0.0,
                        )
                    )
    return tuple(actual)


def priced(measured_comparison: Comparison) -> Bill:
    """On machines that are dearer by the vCPU, with a build of 0.2 USD to pay back."""
    machines = {1: price("small-1", 0.031, vcpus=1), 2: price("large-2", 0.07, vcpus=2)}
    book = catalog.find_book(article.PRICES)
    return compute_bill(
        measured_comparison, book, machines, build=Build(usd=0.2, runs_per_day=24.0)
    )


def article_bill() -> Bill:
    book = catalog.find_book(article.PRICES)
    return compute_bill_from_totals(article.read_totals(book), book)


def html(
    measured_comparison: Comparison,
    templates: Path,
    *,
    bill: Bill | None = None,
    samples: Iterable[Sample] = (),
) -> str:
    figures = page.draw_comparison_figures(measured_comparison, bill, samples)
    return page.render_html(
        chapters.build_document(measured_comparison, templates, bill), figures, templates
    )


def markdown(measured_comparison: Comparison, templates: Path, bill: Bill | None = None) -> str:
    return report.render_markdown(
        chapters.build_document(measured_comparison, templates, bill), templates
    )


def article_html(bill: Bill, templates: Path, *, shipped: bool = False) -> str:
    document = cost_section.build_totals_document(bill, shipped=shipped)
    return page.render_html(document, page.draw_bill_figures(bill), templates)


def article_markdown(bill: Bill, templates: Path, *, shipped: bool = False) -> str:
    return report.render_markdown(
        cost_section.build_totals_document(bill, shipped=shipped), templates
    )


SOUND, TROUBLED = sound(), troubled()

BILL, ARTICLE = priced(SOUND), article_bill()
