"""What a comparison found, as records, and the file that holds them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tfbuild.errors import RecordError, UsageError
from tfbuild.measured.effort import Effort
from tfbuild.measured.host import Host
from tfbuild.measured.interval import Interval, Verdict
from tfbuild.measured.kernels import KernelTable
from tfbuild.records import decode_record
from tfbuild.records import load as load_fields
from tfbuild.records import save as save_record

FILE = "comparison.json"
SCHEMA = 3
_CLIENTS = ":clients="
"""In the names of workloads whose steps are requests."""


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
    """The arm's own settings; what its workers really saw stands with each cell."""
    tolerance: float
    """Largest difference from the baseline's losses and predictions that is let pass."""
    tensorflow: str
    tensorflow_file: str
    git_version: str
    compiler_version: str
    python: str
    numpy: str
    threading: str
    """Whose threads run the kernels: "Eigen", or the "OpenMP" of an MKL build."""
    raised_kernels: int
    kernel_library: str | None
    """The library of tuned kernels in the worker's memory; None when none was loaded."""
    whole: bool = False
    """Whether it is a full build, all of which is compiled for a target."""
    kernel_table: KernelTable | None = None
    """What the kernels of `kernel_library` were chosen by."""
    admission: str = ""
    """How the kernels that this CPU takes were admitted; empty for other wheels, and not known of
    comparisons from before it was recorded."""
    keras: int = 2
    """The generation of Keras that comes with the TensorFlow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpShare:
    """An op's share of the time of all ops, and how often its tuned kernels ran per step."""

    op: str
    share: float
    runs_per_step: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """The share of the arm's op time that is spent in ops whose tuned kernels ran.

    `fused` are the counters of a library that fuses, of one launch: graphs that were fused
    and that were not, and executions (native/fused/tally.h).
    """

    share: float
    ops: tuple[OpShare, ...]
    fused: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """Milliseconds of single requests, each with its interval over launches.

    99 of 100 requests are answered within `p99_ms`; it is None if launches have too few
    requests.
    """

    median_ms: Interval
    p99_ms: Interval | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseTime:
    """Milliseconds per step of "train", "validate", "augment" or "infer".

    One step is one batch, or one request: the time over all of them, also if several ran at
    once.
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
    """The judged one first; empty when nothing was timed."""
    run_s: Interval | None
    """The article's training run, composed from the phases; None where they were not all timed."""
    cpu_ms: float | None
    """CPU time per training step, of all threads."""
    idle_share: float | None
    """CPU time of its threads while another arm ran, over that time: spinning disturbs others."""
    peak_mb: float
    losses: tuple[float | None, ...]
    """The first ones; None for what is no finite number."""
    import_s: float
    build_s: float
    first_steps_s: float
    """The five steps that are checked, with the tracing of the first."""
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
    """Of the launches' levels, see `statistics.compute_contrast`."""
    verdict: Verdict
    confidence: float
    """The largest level at which the interval leaves out 1: 0.95 and more for a verdict, 0 where
    gates left no fair picture."""
    medians: Interval | None = None
    """A second opinion on a cell: medians of blocks, each arm by its own spread."""
    run: Interval | None = None
    """The ratio of the composed training runs, where both were composed."""


SENSITIVITY = 10
"""Rounding explains a difference of so many times what one rounding of the parameters does to the
baseline. Programs amplify what is rounded, some to any size within a few steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """An arm's largest differences from the baseline in losses and predictions.

    Those of the first losses are relative, those of the predictions after them absolute; None
    if one is not a finite number. Differences beyond the tolerance that rounding explains are
    stored separately: they prove nothing. An arm is not `held` to the tolerance if it has
    another generation of Keras, whose dropout and updates differ.
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

    A failure of the baseline is one of the cell.
    """

    arm: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmResult:
    """The results of one arm in a cell; None for those that the cell lacks."""

    times: ArmTimes | None
    speedup: Speedup | None
    agreement: Agreement | None
    failure: ArmFailure | None


_Said = TypeVar("_Said", ArmTimes, Speedup, Agreement, ArmFailure)


def _find_arm(arm: str, said: Iterable[_Said]) -> _Said | None:
    return next((result for result in said if result.arm == arm), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class InterimAnalysis:
    """An interim analysis of a cell: the widest interval after so many launches and seconds."""

    launches: int
    seconds: float
    half_width: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Gates:
    """Blocks that were dropped as no measurement, by reason; one block may have several."""

    dropped: int
    reasons: tuple[tuple[str, int], ...]
    counting: int | None = None
    """Blocks that the intervals are of: all of them where too few were left. Not known of
    comparisons from before it was recorded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedCell:
    """One workload at one number of vCPUs.

    Without agreement nothing was timed.
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
    """One of effort.Stop; empty when nothing was timed."""
    looks: tuple[InterimAnalysis, ...]
    gates: Gates
    others: float
    """The share of the CPU time that other processes and the hypervisor took."""
    unsteady: int
    """Launches whose warm-up still had a trend when its time was up."""
    arms: tuple[ArmTimes, ...]
    """The baseline first. An arm that failed is not here."""
    agreements: tuple[Agreement, ...]
    noise: Interval | None
    """The baseline against a second worker of its own (A/A): what "no difference" looks like."""
    speedups: tuple[Speedup, ...]
    failures: tuple[ArmFailure, ...] = ()

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Overall:
    """An arm's geometric mean over all cells with the same number of vCPUs, and that of A/A."""

    vcpus: int
    workloads: int
    speedup: Speedup
    noise: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A comparison of arms, of which the first is the baseline.

    `margin` and `level` are those of the verdicts. `parts` of a merged comparison names those
    that it was merged from; their seconds add up.
    """

    schema: int
    made: str
    seconds: float
    seed: int
    effort: Effort
    margin: float
    threshold: float
    """The smallest gain that counts as one, 0.01 is 1 %."""
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

        If not even the baseline started, nothing is known of it.
        """
        return self.arms[0].name if self.arms else "the baseline"

    @property
    def margin_level(self) -> float:
        """Return the level of the interval of two one-sided tests, each at 1 - level.

        An interval within the margin shows no difference.
        """
        return 2 * self.level - 1


def save(path: Path, comparison: Comparison) -> None:
    save_record(path, comparison)


def load(path: Path) -> Comparison:
    """Load a comparison.

    Raises RecordError if the file is missing, truncated or of another schema.
    """
    fields = load_fields(path, schema=SCHEMA)
    try:
        return decode_record(Comparison, fields)
    except (TypeError, ValueError, KeyError, UsageError) as error:
        raise RecordError(f"{path} is not a comparison ({error})") from error
