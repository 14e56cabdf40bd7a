"""A cell's journal, grouped into launches and blocks, and the numbers computed from them. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from tfbench.arms.arm import Arm
from tfbench.inside.phases import JUDGED
from tfbench.measuring import gates, repetition
from tfbench.measuring.samples import End, Entry, Fault, Sample, Start, list_step_seconds
from tfbench.measuring.statistics import (
    FEWEST_LAUNCHES,
    Contrast,
    compute_contrast,
    compute_level,
    compute_log_ratio,
    estimate_geometric_mean,
)
from tfcore.comparisons.comparison import MOST_DROPPED, ArmFailure
from tfcore.comparisons.effort import FEWEST_BLOCKS, Effort
from tfcore.comparisons.interval import Interval
from tfcore.errors import SampleError

_PER_BLOCK = 2
"""Samples of each arm in a block."""

Block = tuple[Sample, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One start of all arms. `blocks` are the complete blocks by phase; `end` is None if the
    launch was cut short.
    """

    number: int
    starts: Mapping[str, Start]
    blocks: Mapping[str, tuple[Block, ...]]
    end: End | None

    @property
    def judged(self) -> tuple[Block, ...]:
        """Return the blocks by which arms are compared: of training, or of inference."""
        return next((self.blocks[phase] for phase in JUDGED if phase in self.blocks), ())

    @property
    def seconds(self) -> float:
        last = max(
            (block[-1].at_s for phase_blocks in self.blocks.values() for block in phase_blocks),
            default=0.0,
        )
        return last if self.end is None else self.end.seconds

    @property
    def steady(self) -> bool:
        """Return whether the warm-up ended without a trend; a launch that was cut short had
        ended it.
        """
        return self.end is None or self.end.steady

    def get_peak_mb(self, arm: str) -> float:
        return 0.0 if self.end is None else self.end.peak_mb.get(arm, 0.0)

    def get_steps(self, phase: str) -> int:
        """Return the steps per sample, or 0 if the phase was not timed."""
        blocks = self.blocks.get(phase, ())
        return blocks[0][0].steps if blocks else 0

    def has_arm(self, arm: str) -> bool:
        """Return whether the arm was timed."""
        return any(sample.arm == arm for block in self.judged[:1] for sample in block)


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedCell:
    """The launches of a cell.

    `repeat` is the baseline's second worker; `arms` are the baseline and the candidates, without
    those that failed. `starts` has every start, also of launches that are too short to count.
    """

    workload: str
    vcpus: int
    baseline: str
    repeat: str
    arms: tuple[str, ...]
    starts: tuple[Start, ...]
    launches: tuple[Launch, ...]
    failures: tuple[ArmFailure, ...]

    @property
    def has_baseline(self) -> bool:
        """Return whether the baseline and its repeat work; otherwise there is no answer at all."""
        return not {failure.arm for failure in self.failures} & {self.baseline, self.repeat}

    @property
    def answered(self) -> bool:
        """Return whether the baseline and its repeat were timed often enough to compare with."""
        return self.has_baseline and len(self.launches) >= FEWEST_LAUNCHES

    @property
    def seconds(self) -> float:
        return math.fsum(launch.seconds for launch in self.launches)

    def list_timed_launches(self, arm: str) -> tuple[Launch, ...]:
        """List the launches in which the arm was timed."""
        return tuple(launch for launch in self.launches if launch.has_arm(arm))

    def can_compare(self, arm: str) -> bool:
        """Return whether the arm did not fail and was timed often enough for an interval.

        Launches of which the gates leave no block do not count.
        """
        works = arm in (*self.arms, self.repeat)
        return self.answered and works and len(_select_compared(self, arm)) >= FEWEST_LAUNCHES

    @property
    def profiled(self) -> bool:
        """Return whether the op times of arms with tuned kernels are known."""
        return any(launch.end is not None and launch.end.profiles for launch in self.launches)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(block for launch in self.launches for block in launch.judged)

    @property
    def kept_blocks(self) -> tuple[tuple[Block, ...], ...]:
        """Return the judged blocks that pass the gates, for each launch that has any."""
        passing = (
            tuple(block for block in launch.judged if not gates.list_drop_reasons(block))
            for launch in self.launches
        )
        return tuple(blocks for blocks in passing if blocks)

    @property
    def fair(self) -> bool:
        """Return whether enough blocks pass the gates to represent the machine."""
        dropped = len(self.blocks) - sum(map(len, self.kept_blocks))
        enough = not dropped or len(self.kept_blocks) >= FEWEST_LAUNCHES
        return enough and dropped <= MOST_DROPPED * len(self.blocks)


def group_launches(entries: Iterable[Entry]) -> tuple[Launch, ...]:
    """Group the entries of one cell into launches with enough complete blocks.

    Raises SampleError if the samples of a launch have different numbers of steps.
    """
    grouped: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        grouped[entry.launch].append(entry)
    launches = (
        _create_launch(number, launch_entries) for number, launch_entries in sorted(grouped.items())
    )
    return tuple(launch for launch in launches if len(launch.judged) >= FEWEST_BLOCKS)


def filter_starts(entries: Iterable[Entry]) -> tuple[Start, ...]:
    return tuple(entry for entry in entries if isinstance(entry, Start))


def list_failures(entries: Iterable[Entry], arms: Iterable[Arm]) -> tuple[ArmFailure, ...]:
    by_name = {arm.name: arm for arm in arms}
    faults = (entry for entry in entries if isinstance(entry, Fault))
    return tuple(_create_failure(fault, by_name.get(fault.arm)) for fault in faults)


def _create_failure(fault: Fault, arm: Arm | None) -> ArmFailure:
    failure = ArmFailure(arm=fault.arm, reason=fault.reason)
    if arm is None:
        return failure
    return dataclasses.replace(failure, wheel_sha256=arm.wheel_sha256, env=arm.env)


def compute_arm_contrast(measured: ObservedCell, arm: str) -> Contrast:
    """Compute ln(baseline time / arm's time) of a step, over the launches that timed the arm.

    The baseline is the mean of it and its repeat; for the repeat itself it is the baseline
    alone. Raises SampleError if there are too few launches.
    """
    names = [measured.baseline, measured.repeat]
    launches = _select_compared(measured, arm)
    arms = (*names, *measured.arms[1:])
    timed = [name for name in arms if all(_has_arms(blocks, {name}) for blocks in launches)]
    levels = {
        name: [compute_level(_list_step_seconds(blocks, name)) for blocks in launches]
        for name in timed
    }
    return compute_contrast(levels, arm, names[:1] if arm == measured.repeat else names)


def _select_compared(measured: ObservedCell, arm: str) -> list[tuple[Block, ...]]:
    """Select the blocks of the launches that timed the arm, the baseline and its repeat."""
    names = {measured.baseline, measured.repeat, arm}
    return [blocks for blocks in select_blocks(measured) if _has_arms(blocks, names)]


def select_blocks(measured: ObservedCell) -> tuple[tuple[Block, ...], ...]:
    """Select the judged blocks for the intervals: all of them if too few pass the gates."""
    all_blocks = tuple(launch.judged for launch in measured.launches)
    return measured.kept_blocks if measured.fair else all_blocks


def estimate_median_ratio(measured: ObservedCell, arm: str) -> Interval:
    """Estimate the speedup by a second method: the median of each launch's blocks, by wall time,
    and Student's t over launches.

    Raises SampleError if there are too few launches.
    """
    return estimate_geometric_mean(
        [
            [_compute_block_ratio(block, measured.baseline, arm) for block in blocks]
            for blocks in select_blocks(measured)
            if _has_arms(blocks, {measured.baseline, arm})
        ]
    )


def compute_log_ms(
    measured: ObservedCell, arm: str, phase: str, launches: Sequence[Launch] | None = None
) -> list[float]:
    """Compute each launch's level, ln(milliseconds per step); none if the phase was not timed."""
    return [
        math.log(1000) + compute_level(_list_step_seconds(blocks, arm))
        for launch in (measured.list_timed_launches(arm) if launches is None else launches)
        if (blocks := launch.blocks.get(phase, ()))
    ]


def compute_half_width(measured: ObservedCell, launches: int) -> float:
    """Compute the half-width of the widest interval after this many launches; infinite if there
    is none.

    An arm that the last of these launches did not time computes something else. It gets no
    narrower, so it does not count.
    """
    first = dataclasses.replace(measured, launches=measured.launches[:launches])
    timed = (
        arm for arm in first.arms[1:] if any(last.has_arm(arm) for last in first.launches[-1:])
    )
    names = (measured.repeat, *timed)
    try:
        return max(compute_arm_contrast(first, name).interval.half_width for name in names)
    except SampleError:
        return math.inf


def choose_next_block_count(measured: ObservedCell, effort: Effort) -> int:
    """Choose the number of blocks of the next launch from the cost and variance of earlier ones.

    Return 0 if the budget is spent. There must be an earlier launch.
    """
    arms = (measured.repeat, *measured.arms[1:])
    return repetition.choose_block_count(
        effort,
        compute_launch_cost(measured.launches),
        repetition.average_spreads(
            [_compute_spread(measured, arm) for arm in arms if measured.list_timed_launches(arm)]
        ),
        past=[len(launch.judged) for launch in measured.launches],
        spent_s=measured.seconds,
    )


def compute_launch_cost(launches: Sequence[Launch]) -> repetition.LaunchCost:
    """Compute the median cost of the launches and of their blocks of the judged phase."""
    costs = [_compute_cost(launch) for launch in launches]
    return repetition.LaunchCost(
        start_s=float(np.median([cost.start_s for cost in costs])),
        block_s=float(np.median([cost.block_s for cost in costs])),
    )


def _compute_cost(launch: Launch) -> repetition.LaunchCost:
    blocks = launch.judged
    first, last = blocks[0][0], blocks[-1][-1]
    timed_s = last.at_s - (first.at_s - first.elapsed_s)
    return repetition.LaunchCost(
        start_s=max(0.0, launch.seconds - timed_s), block_s=timed_s / len(blocks)
    )


def _compute_spread(measured: ObservedCell, arm: str) -> repetition.Spread:
    return repetition.estimate_spread(
        [
            [_compute_block_ratio(block, measured.baseline, arm) for block in launch.judged]
            for launch in measured.list_timed_launches(arm)
        ]
    )


def _create_launch(number: int, entries: Sequence[Entry]) -> Launch:
    samples = [entry for entry in entries if isinstance(entry, Sample)]
    phases = dict.fromkeys(sample.phase for sample in samples)
    ends = [entry for entry in entries if isinstance(entry, End)]
    return Launch(
        number=number,
        starts={start.arm: start for start in filter_starts(entries)},
        blocks={
            phase: _select_complete_blocks([s for s in samples if s.phase == phase])
            for phase in phases
        },
        end=ends[0] if ends else None,
    )


def _select_complete_blocks(samples: Sequence[Sample]) -> tuple[Block, ...]:
    """Select the blocks in which every arm has all its samples."""
    if len({sample.steps for sample in samples}) > 1:
        raise SampleError("the arms' samples have different numbers of steps")
    arms = {sample.arm for sample in samples}
    blocks: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        blocks[sample.block].append(sample)
    return tuple(
        tuple(block_samples)
        for block_samples in blocks.values()
        if len(block_samples) == _PER_BLOCK * len(arms)
    )


def _has_arms(blocks: Sequence[Block], arms: AbstractSet[str]) -> bool:
    """Return whether a launch's blocks have all of these arms."""
    return arms <= {sample.arm for sample in blocks[0]}


def _list_step_seconds(blocks: Iterable[Block], arm: str) -> list[float]:
    """List the seconds per step of each slice of an arm's samples in a launch."""
    return list_step_seconds([sample for block in blocks for sample in block if sample.arm == arm])


def _compute_block_ratio(block: Block, baseline: str, arm: str) -> float:
    return compute_log_ratio(_list_wall_times(block, baseline), _list_wall_times(block, arm))


def _list_wall_times(block: Block, arm: str) -> list[float]:
    return [sample.wall_s for sample in block if sample.arm == arm]
