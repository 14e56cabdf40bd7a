"""The records of a comparison, and their file."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tfcore.comparisons.decision import Decision
from tfcore.comparisons.effort import Effort
from tfcore.comparisons.host import Host
from tfcore.comparisons.interval import Interval, Verdict
from tfcore.comparisons.kernels import KernelTable
from tfcore.errors import RecordError, UsageError
from tfcore.records import decode_record
from tfcore.records import load as load_fields
from tfcore.records import save as save_record

FILE = "comparison.json"
SCHEMA = 3
MOST_DROPPED = 0.30
"""If gates drop more blocks, the rest does not represent the machine."""
_MOST = 1e100
"""A larger ratio is invalid."""
_CLIENTS = ":clients="
"""Part of the names of workloads whose steps are requests (inference)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmFacts:
    """The facts of an arm, as its workers reported them.

    `raised_kernels` counts CPU kernels above priority 0: tuned wheels have many, the stock
    wheel has the few of tf.data.
    """

    name: str
    label: str
    wheel_sha256: str
    env: tuple[tuple[str, str], ...]
    """The arm's settings. Each cell records the environment that its workers saw."""
    tolerance: float
    """Largest accepted difference from the baseline's losses and predictions."""
    tensorflow: str
    tensorflow_file: str
    git_version: str
    compiler_version: str
    python: str
    numpy: str
    threading: str
    """The thread pool of the kernels: "Eigen", or "OpenMP" in an MKL build. For another runtime its
    name and version."""
    raised_kernels: int
    kernel_library: str | None
    """The library of tuned kernels in the worker's memory; None if none was loaded."""
    whole: bool = False
    """True for a full build."""
    kernel_table: KernelTable | None = None
    """The measurements behind the selected kernels of `kernel_library`."""
    admission: str = ""
    """The conformance test of the kernels for this CPU; empty for other wheels, and in older
    comparisons, which did not record it."""
    keras: int = 2
    """The major version of Keras."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpShare:
    """An op's share of the time of all ops, and how often its tuned kernels ran per step."""

    op: str
    share: float
    runs_per_step: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """The share of the arm's op time that is spent in ops whose tuned kernels ran.

    `fused` are the counters of fused ops in one launch: graphs that were fused, graphs that
    were not, and executions (native/graph/events.h).
    """

    share: float
    ops: tuple[OpShare, ...]
    fused: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """Milliseconds of single requests, each with its interval over launches.

    `p99_ms` is the 99th percentile, None if launches have too few requests.
    """

    median_ms: Interval
    p99_ms: Interval | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseTime:
    """Milliseconds per step of "train", "validate", "augment" or "infer".

    A step is one batch or one request. Its time is the total time over the number of steps,
    also if several requests ran at once.
    """

    phase: str
    step_ms: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmTimes:
    """The times of one arm in one cell.

    Start-up seconds are medians over launches and not part of a step.
    """

    arm: str
    phases: tuple[PhaseTime, ...]
    """The phase of the verdict comes first; empty if nothing was timed."""
    run_s: Interval | None
    """The article's training run, composed from the phases; None if not all were timed."""
    cpu_ms: float | None
    """CPU time per training step, of all threads."""
    idle_share: float | None
    """CPU time of the arm's threads while another arm ran, as a share of that time: threads that
    spin disturb other arms."""
    peak_mb: float
    losses: tuple[float | None, ...]
    """The first losses; None for one that is not finite."""
    import_s: float
    build_s: float
    first_steps_s: float
    """The five checked steps, with the tracing of the first."""
    environment: tuple[tuple[str, str], ...]
    """Variables of TensorFlow, OpenMP, oneDNN and malloc in the worker."""
    coverage: Coverage | None = None
    """None for an arm without tuned kernels."""
    latency: Latency | None = None
    """None for training."""

    @property
    def step_ms(self) -> Interval | None:
        return self.phases[0].step_ms if self.phases else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Speedup:
    """Baseline time over the arm's time: above 1 the arm is faster."""

    arm: str
    interval: Interval
    """Computed from the levels of the launches, see `statistics.compute_contrast`."""
    verdict: Verdict
    confidence: float
    """The largest level at which the interval excludes 1: at least 0.95 for a verdict, 0 if gates
    left too few blocks."""
    medians: Interval | None = None
    """A second estimate for a cell: medians of blocks, with each arm's own variance."""
    run: Interval | None = None
    """The ratio of the composed training runs; None if one was not composed."""


SENSITIVITY = 10
"""Rounding explains differences up to this multiple of the effect that rounding the parameters once
has on the baseline. Programs amplify rounding errors, some without limit within a few steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """An arm's largest differences from the baseline in losses and predictions.

    Differences of the first losses are relative, those of the predictions after them absolute;
    None if a value is not finite. Differences beyond the tolerance that rounding explains are
    stored separately: they prove no error. `held` is False if the tolerance does not apply
    because the arm has another major version of Keras, whose dropout and updates differ.
    """

    arm: str
    losses: float | None
    predictions: float | None
    tolerance: float
    held: bool = True
    losses_by_rounding: float = 0.0
    predictions_by_rounding: float = 0.0

    @property
    def agrees(self) -> bool:
        return self.is_within(self.tolerance if self.held else math.inf)

    def is_within(self, tolerance: float) -> bool:
        both = (self.losses, self.predictions)
        return all(difference is not None and difference <= tolerance for difference in both)

    @property
    def losses_apart(self) -> float | None:
        """Return the largest difference of losses, rounding included."""
        unexplained = self.losses
        return None if unexplained is None else max(unexplained, self.losses_by_rounding)

    @property
    def predictions_apart(self) -> float | None:
        """Return the largest difference of predictions, rounding included."""
        unexplained = self.predictions
        return None if unexplained is None else max(unexplained, self.predictions_by_rounding)

    @property
    def is_excused(self) -> bool:
        """Return True if some of the differences are explained by rounding alone."""
        return self.held and max(self.losses_by_rounding, self.predictions_by_rounding) > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmFailure:
    """An arm that failed in a cell, and the reason.

    If the baseline fails, the cell fails. The wheel and the settings of the arm are recorded here,
    too, because an arm that fails in every cell has no ArmFacts. Older comparisons do not have
    them.
    """

    arm: str
    reason: str
    wheel_sha256: str = ""
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmResult:
    """The results of one arm in a cell; None for missing ones."""

    times: ArmTimes | None
    speedup: Speedup | None
    agreement: Agreement | None
    failure: ArmFailure | None


_Said = TypeVar("_Said", ArmTimes, Speedup, Agreement, ArmFailure)


def _find_arm(arm: str, results: Iterable[_Said]) -> _Said | None:
    return next((result for result in results if result.arm == arm), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class InterimAnalysis:
    """An interim analysis of a cell, with half the width of its widest interval."""

    launches: int
    seconds: float
    half_width: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Gates:
    """Blocks that gates dropped as invalid, by reason; a block may have several reasons."""

    dropped: int
    reasons: tuple[tuple[str, int], ...]
    counting: int | None = None
    """Blocks in the intervals: all blocks if gates left too few. None in older comparisons, which
    did not record it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedCell:
    """One workload at one number of vCPUs.

    If the arms do not agree, nothing is timed.
    """

    workload: str
    vcpus: int
    batch: int
    steps: int
    """Steps, or requests, per sample."""
    launches: int
    blocks: int
    seconds: float
    stopped_by: str
    """One of effort.Stop; empty if nothing was timed."""
    looks: tuple[InterimAnalysis, ...]
    gates: Gates
    others: float
    """The share of the CPU time that other processes and the hypervisor took."""
    unsteady: int
    """Launches whose warm-up still had a trend at its time limit."""
    arms: tuple[ArmTimes, ...]
    """The baseline comes first. Arms that failed are missing."""
    agreements: tuple[Agreement, ...]
    noise: Interval | None
    """The baseline against a second worker of itself (A/A): the noise."""
    speedups: tuple[Speedup, ...]
    failures: tuple[ArmFailure, ...] = ()
    decisions: tuple[Decision, ...] = ()
    """Empty in older comparisons, see `deciding.find_decision`."""

    def get_result(self, arm: str) -> ArmResult:
        return ArmResult(
            times=_find_arm(arm, self.arms),
            speedup=_find_arm(arm, self.speedups),
            agreement=_find_arm(arm, self.agreements),
            failure=_find_arm(arm, self.failures),
        )

    @property
    def agrees(self) -> bool:
        return all(agreement.agrees for agreement in self.agreements)

    @property
    def is_inference(self) -> bool:
        """Return True if its steps are requests to a model, not training."""
        return _CLIENTS in self.workload

    @property
    def is_over_gated(self) -> bool:
        """Return True if gates left so few blocks that all blocks count and there is no verdict."""
        if self.gates.counting is None:
            return self.gates.dropped > MOST_DROPPED * self.blocks
        return self.gates.dropped > 0 and self.gates.counting == self.blocks


@dataclass(frozen=True, kw_only=True, slots=True)
class Overall:
    """An arm's geometric mean over all cells with the same number of vCPUs, and that of A/A."""

    vcpus: int
    workloads: int
    speedup: Speedup
    noise: Interval
    decision: Decision | None = None
    """None in older comparisons, see `deciding.find_mean_decision`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A comparison of arms, of which the first is the baseline.

    `margin` and `level` are those of the verdicts. `parts` names the comparisons that a merged
    one consists of; `seconds` is then their sum.
    """

    schema: int
    made: str
    seconds: float
    seed: int
    effort: Effort
    margin: float
    threshold: float
    """The smallest relevant change; 0.01 is 1 %."""
    level: float
    host: Host
    arms: tuple[ArmFacts, ...]
    cells: tuple[ComparedCell, ...]
    overall: tuple[Overall, ...]
    complete: bool
    parts: tuple[str, ...] = ()

    @property
    def baseline(self) -> str:
        """Return the name of the baseline.

        If the baseline did not start, its name is not known.
        """
        return self.arms[0].name if self.arms else "the baseline"

    @property
    def candidates(self) -> tuple[str, ...]:
        """Return all arms except the baseline and its repeat, including arms that never started."""
        failed = (failure.arm for cell in self.cells for failure in cell.failures)
        names = dict.fromkeys([*(arm.name for arm in self.arms[1:]), *failed])
        return tuple(
            name for name in names if name not in {self.baseline, f"{self.baseline} again"}
        )

    @property
    def margin_level(self) -> float:
        """Return the level of the interval of two one-sided tests, each at 1 - level.

        An interval within the margin shows equivalence.
        """
        return 2 * self.level - 1


def save(path: Path, comparison: Comparison) -> None:
    save_record(path, comparison)


def load(path: Path) -> Comparison:
    """Load a comparison.

    Raises RecordError if the file is missing, truncated, of another schema, or contradicts itself.
    """
    fields = load_fields(path, schema=SCHEMA)
    try:
        comparison = decode_record(Comparison, fields)
        for cell in comparison.cells:
            _check_cell(cell)
        for overall in comparison.overall:
            _check_overall(overall)
    except (TypeError, ValueError, KeyError, UsageError) as error:
        raise RecordError(f"{path} is not a comparison ({error})") from error
    return comparison


def _check_cell(cell: ComparedCell) -> None:
    """Raise ValueError for an invalid interval, an arm with two results, or a decision with
    another verdict than its speedup.
    """
    verdicts = {speedup.arm: speedup.verdict for speedup in cell.speedups}
    if len(verdicts) < len(cell.speedups):
        raise ValueError(f"{cell.workload} has two speedups of one arm")
    _check_ratios(cell.noise, *(speedup.interval for speedup in cell.speedups))
    for decision in cell.decisions:
        if decision.verdict != verdicts.get(decision.arm):
            raise ValueError(f"{cell.workload} has two verdicts on {decision.arm}")


def _check_overall(overall: Overall) -> None:
    """Raise ValueError for an invalid interval, or a decision with another verdict or arm."""
    speedup, decision = overall.speedup, overall.decision
    _check_ratios(overall.noise, speedup.interval)
    if decision and (decision.arm, decision.verdict) != (speedup.arm, speedup.verdict):
        raise ValueError(f"a mean has two verdicts on {speedup.arm}")


def _check_ratios(*intervals: Interval | None) -> None:
    for interval in filter(None, intervals):
        if not 1 / _MOST <= interval.low <= interval.value <= interval.high <= _MOST:
            raise ValueError(f"{interval.low:g} to {interval.high:g} is no interval of a ratio")
