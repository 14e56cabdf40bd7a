"""Identical workloads on each arm: the run from a question to `comparison.json`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import numpy as np

from tfbench.arms import Arm, check_arms
from tfbench.host import Host, read_host
from tfbench.measurement import Launch, Limits, Measured, Question, measure_launch
from tfbench.results import SCHEMA, Cell, Comparison, Effort, load, save
from tfbench.samples import Sample, journal
from tfbench.statistics import LEVEL, MARGIN
from tfbench.summary import agreements, arm_facts, cell, overall
from tfbench.workloads import WORKLOADS
from tfbuild.errors import AgreementError, UsageError

__all__ = ["COMPARISON", "QUICK", "SAMPLES", "THOROUGH", "Comparison", "Effort", "compare", "load"]

QUICK = Effort(launches=2, blocks=20, budget_s=35.0)
THOROUGH = Effort(launches=5, blocks=20)
SAMPLES, COMPARISON = "samples.jsonl", "comparison.json"

Progress = Callable[[int, int, str], None]
"""Told how many launches are done, of how many, and what is running."""


def compare(
    arms: Sequence[Arm],
    workloads: Sequence[str],
    *,
    vcpus: Sequence[int],
    out: Path,
    effort: Effort,
    seed: int,
    on_progress: Progress | None = None,
) -> Comparison:
    """Measure every workload at every number of vCPUs; the first arm is the baseline.

    `out` gets samples.jsonl as samples come, comparison.json after each cell, and logs. Raises
    UsageError for arms, workloads or vCPUs that cannot be, WorkerError, SampleError, and, when all
    the rest is measured and written, AgreementError for arms whose losses differ.
    """
    host = read_host()
    run = Run(
        questions=questions(arms, workloads, vcpus, host, seed),
        effort=effort,
        out=out,
        host=host,
        began=time.monotonic(),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        on_progress=on_progress or _silent,
    )
    run.measure(seed)
    comparison = load(out / COMPARISON)
    check_agreement(comparison)
    return comparison


def questions(
    arms: Sequence[Arm], workloads: Sequence[str], vcpus: Sequence[int], host: Host, seed: int
) -> tuple[Question, ...]:
    """Every cell of the comparison. Raises UsageError."""
    check_arms(arms)
    check_cells(workloads, vcpus, host.vcpus.usable)
    return tuple(
        Question(workload=name, vcpus=host.affinity[:count], arms=tuple(arms), seed=seed)
        for count in dict.fromkeys(vcpus)
        for name in dict.fromkeys(workloads)
    )


def check_cells(workloads: Sequence[str], vcpus: Sequence[int], usable: int) -> None:
    """Raises UsageError for a workload or a number of vCPUs that cannot be measured here."""
    unknown = [name for name in workloads if name not in WORKLOADS]
    if unknown:
        raise UsageError(f"unknown workload {unknown[0]}", hint=f"Known: {', '.join(WORKLOADS)}")
    if not workloads or not vcpus:
        raise UsageError("nothing to compare: no workload or no number of vCPUs was given")
    wrong = [count for count in vcpus if not 1 <= count <= usable]
    if wrong:
        raise UsageError(
            f"{wrong[0]} vCPUs cannot be measured here, {usable} are usable",
            hint=f"Ask for 1 to {usable}, or run the comparison on a machine that has them",
        )


def check_agreement(comparison: Comparison) -> None:
    """Raises AgreementError that lists both arms' losses for every cell where they differ."""
    lines = [line for each in comparison.cells for line in _disagreements(each)]
    if lines:
        raise AgreementError(
            "the arms do not compute the same: " + "; ".join(lines),
            hint="A wheel that fails here must not be used; the other cells were measured",
        )


def _disagreements(each: Cell) -> Iterator[str]:
    losses = {arm.arm: arm.losses for arm in each.arms}
    baseline = each.arms[0].arm
    for agreement in each.agreements:
        if not agreement.agrees:
            yield (
                f"{each.workload}, first losses of {baseline} {_shown(losses[baseline])}, "
                f"of {agreement.arm} {_shown(losses[agreement.arm])}, "
                f"tolerance {agreement.tolerance:g} relative"
            )


def _shown(losses: Sequence[float]) -> str:
    return " ".join(f"{loss:.6g}" for loss in losses)


def _silent(done: int, total: int, detail: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A comparison under way: everything that does not change while it is measured."""

    questions: tuple[Question, ...]
    effort: Effort
    out: Path
    host: Host
    began: float
    made: str
    on_progress: Progress

    def measure(self, seed: int) -> None:
        """Write all cells; what is finished is on disk before the next begins."""
        chance = Random(seed)  # noqa: S311  (a schedule, not a secret)
        done: list[Measured] = []
        with journal(self.out / SAMPLES) as keep:
            for question in self.questions:
                done.append(self._measured(question, len(done), chance, keep))
                save(self.out / COMPARISON, self._comparison(done, seed))

    def _measured(
        self, question: Question, before: int, chance: Random, keep: Callable[[Sample], None]
    ) -> Measured:
        launches: list[Launch] = []
        began = time.monotonic()
        for number in range(self.effort.launches):
            finished = before * self.effort.launches + number
            self._say(question, finished)
            first = launches[0].samples[0].steps if launches else None
            launch = measure_launch(
                question,
                number,
                Limits(
                    steps=first, blocks=self.effort.blocks, deadline=self._deadline(began, number)
                ),
                chance=chance,
                logs=self.out / "logs",
                may_time=lambda starts: all(each.agrees for each in agreements([starts])),
                keep=keep,
            )
            launches.append(launch)
            if not launch.samples:
                break
        return Measured(question=question, launches=tuple(launches))

    def _deadline(self, began: float, number: int) -> float:
        """What is left of the cell's budget is shared by the launches that are left."""
        if self.effort.budget_s is None:
            return float("inf")
        now = time.monotonic()
        return now + (began + self.effort.budget_s - now) / (self.effort.launches - number)

    def _say(self, question: Question, finished: int) -> None:
        detail = f"{question.workload} on {len(question.vcpus)} vCPUs"
        self.on_progress(finished, len(self.questions) * self.effort.launches, detail)

    def _comparison(self, done: Sequence[Measured], seed: int) -> Comparison:
        generator = np.random.default_rng(seed)
        return Comparison(
            schema=SCHEMA,
            made=self.made,
            seconds=time.monotonic() - self.began,
            seed=seed,
            effort=self.effort,
            margin=MARGIN,
            level=LEVEL,
            host=self.host,
            arms=arm_facts(done[0].question.arms, done[0].launches[0].starts),
            cells=tuple(cell(each, generator) for each in done),
            overall=overall(done, generator),
        )
