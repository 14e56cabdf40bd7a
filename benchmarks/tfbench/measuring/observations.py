"""What a cell's journal says, put in order: launches, blocks, and the numbers in them. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from tfbench.inside.phases import JUDGED
from tfbench.measuring import gates, repetition
from tfbench.measuring.samples import End, Entry, Fault, Sample, Start
from tfbench.measuring.statistics import (
    FEWEST_LAUNCHES,
    Contrast,
    contrast,
    estimate,
    level,
    log_ratio,
)
from tfbuild.errors import SampleError
from tfbuild.measured.comparison import ArmFailure
from tfbuild.measured.effort import FEWEST_BLOCKS, Effort
from tfbuild.measured.interval import Interval

_PER_BLOCK = 2
"""Samples of each arm."""

Block = tuple[Sample, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One start of all arms. `blocks` are the whole ones, by phase; `end` is None when the launch
    was cut short."""

    number: int
    starts: Mapping[str, Start]
    blocks: Mapping[str, tuple[Block, ...]]
    end: End | None

    @property
    def judged(self) -> tuple[Block, ...]:
        """The blocks by which arms are compared: of training, or of requests."""
        return next((self.blocks[phase] for phase in JUDGED if phase in self.blocks), ())

    @property
    def seconds(self) -> float:
        last = max((block[-1].at_s for each in self.blocks.values() for block in each), default=0.0)
        return last if self.end is None else self.end.seconds

    @property
    def steady(self) -> bool:
        """Whether its warm-up ended without a trend; a launch that was cut short had ended it."""
        return self.end is None or self.end.steady

    def peak_mb(self, arm: str) -> float:
        return 0.0 if self.end is None else self.end.peak_mb.get(arm, 0.0)

    def steps(self, phase: str) -> int:
        """Per sample; 0 where the phase was not timed."""
        blocks = self.blocks.get(phase, ())
        return blocks[0][0].steps if blocks else 0

    def has(self, arm: str) -> bool:
        """Whether the arm was timed."""
        return any(sample.arm == arm for block in self.judged[:1] for sample in block)


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservedCell:
    """A cell's launches. `repeat` is the baseline's second worker; `arms` are the baseline and the
    candidates, without those that failed. `starts` are all that there were, also of launches that
    were too short to count."""

    workload: str
    vcpus: int
    baseline: str
    repeat: str
    arms: tuple[str, ...]
    starts: tuple[Start, ...]
    launches: tuple[Launch, ...]
    failures: tuple[ArmFailure, ...]

    @property
    def stands(self) -> bool:
        """Whether the baseline and its repeat work: without them there is no answer at all."""
        return not {failure.arm for failure in self.failures} & {self.baseline, self.repeat}

    @property
    def answered(self) -> bool:
        """Whether there is something to compare with: the baseline and its repeat, often enough."""
        return self.stands and len(self.launches) >= FEWEST_LAUNCHES

    @property
    def seconds(self) -> float:
        return math.fsum(launch.seconds for launch in self.launches)

    def timed(self, arm: str) -> tuple[Launch, ...]:
        """The launches in which the arm was timed."""
        return tuple(launch for launch in self.launches if launch.has(arm))

    def compared(self, arm: str) -> bool:
        """Whether the arm did not fail and was timed often enough for an interval."""
        works = arm in (*self.arms, self.repeat)
        return self.answered and works and len(self.timed(arm)) >= FEWEST_LAUNCHES

    @property
    def profiled(self) -> bool:
        """Whether the op times of arms with tuned kernels are known."""
        return any(one.end is not None and one.end.profiles for one in self.launches)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(block for launch in self.launches for block in launch.judged)

    @property
    def sound(self) -> tuple[tuple[Block, ...], ...]:
        """The judged blocks that gates leave, of each launch that has any left."""
        left = (
            tuple(block for block in launch.judged if not gates.reasons(block))
            for launch in self.launches
        )
        return tuple(blocks for blocks in left if blocks)

    @property
    def fair(self) -> bool:
        """Whether gates left enough for a picture of the machine."""
        dropped = len(self.blocks) - sum(map(len, self.sound))
        enough = not dropped or len(self.sound) >= FEWEST_LAUNCHES
        return enough and dropped <= gates.MOST_DROPPED * len(self.blocks)


def launches_of(entries: Iterable[Entry]) -> tuple[Launch, ...]:
    """The launches of one cell that have enough whole blocks. Raises SampleError for a launch
    whose samples have different numbers of steps."""
    grouped: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        grouped[entry.launch].append(entry)
    launches = (_launch(number, each) for number, each in sorted(grouped.items()))
    return tuple(one for one in launches if len(one.judged) >= FEWEST_BLOCKS)


def starts_of(entries: Iterable[Entry]) -> tuple[Start, ...]:
    return tuple(entry for entry in entries if isinstance(entry, Start))


def failures_of(entries: Iterable[Entry]) -> tuple[ArmFailure, ...]:
    faults = (entry for entry in entries if isinstance(entry, Fault))
    return tuple(ArmFailure(arm=fault.arm, reason=fault.reason) for fault in faults)


def contrast_of(measured: ObservedCell, arm: str) -> Contrast:
    """ln(baseline time / arm's time) of a step, over the launches in which the arm was timed.

    The baseline is it and its repeat; for the repeat itself it is the baseline alone. Raises
    SampleError.
    """
    names = [measured.baseline, measured.repeat]
    launches = [blocks for blocks in counting(measured) if _timed(blocks, {*names, arm})]
    arms = (*names, *measured.arms[1:])
    timed = [name for name in arms if all(_timed(blocks, {name}) for blocks in launches)]
    levels = {name: [level(_seconds(blocks, name)) for blocks in launches] for name in timed}
    return contrast(levels, arm, names[:1] if arm == measured.repeat else names)


def counting(measured: ObservedCell) -> tuple[tuple[Block, ...], ...]:
    """The judged blocks that the intervals are of: all of them where gates left too few."""
    whole = tuple(launch.judged for launch in measured.launches)
    return measured.sound if measured.fair else whole


def medians(measured: ObservedCell, arm: str) -> Interval:
    """A second opinion: the median of each launch's blocks, wall time against wall time, and
    Student's t over launches. Raises SampleError."""
    return estimate(
        [
            [_ratio(block, measured.baseline, arm) for block in blocks]
            for blocks in counting(measured)
            if _timed(blocks, {measured.baseline, arm})
        ]
    )


def log_ms(
    measured: ObservedCell, arm: str, phase: str, launches: Sequence[Launch] | None = None
) -> list[float]:
    """ln(milliseconds per step), the level of each launch; none where the phase was not timed."""
    return [
        math.log(1000) + level(_seconds(blocks, arm))
        for launch in (measured.timed(arm) if launches is None else launches)
        if (blocks := launch.blocks.get(phase, ()))
    ]


def half_width(measured: ObservedCell, launches: int) -> float:
    """That of the widest interval after so many launches; infinite while there is none."""
    first = dataclasses.replace(measured, launches=measured.launches[:launches])
    names = (measured.repeat, *(arm for arm in measured.arms[1:] if first.timed(arm)))
    try:
        return max(contrast_of(first, name).interval.half_width for name in names)
    except SampleError:
        return math.inf


def more_blocks(measured: ObservedCell, effort: Effort) -> int:
    """Of the next launch, from what those before cost and how they differ; 0 when the budget is
    spent. There has to be a launch before it."""
    arms = (measured.repeat, *measured.arms[1:])
    return repetition.blocks(
        effort,
        cost_of(measured.launches),
        repetition.mean_of([_spread(measured, arm) for arm in arms if measured.timed(arm)]),
        past=[len(launch.judged) for launch in measured.launches],
        spent_s=measured.seconds,
    )


def cost_of(launches: Sequence[Launch]) -> repetition.LaunchCost:
    """The medians of what launches and blocks of the judged phase took."""
    costs = [_cost(one) for one in launches]
    return repetition.LaunchCost(
        start_s=float(np.median([each.start_s for each in costs])),
        block_s=float(np.median([each.block_s for each in costs])),
    )


def _cost(launch: Launch) -> repetition.LaunchCost:
    blocks = launch.judged
    first, last = blocks[0][0], blocks[-1][-1]
    timed_s = last.at_s - (first.at_s - first.elapsed_s)
    return repetition.LaunchCost(
        start_s=max(0.0, launch.seconds - timed_s), block_s=timed_s / len(blocks)
    )


def _spread(measured: ObservedCell, arm: str) -> repetition.Spread:
    return repetition.spread_of(
        [
            [_ratio(block, measured.baseline, arm) for block in launch.judged]
            for launch in measured.timed(arm)
        ]
    )


def _launch(number: int, entries: Sequence[Entry]) -> Launch:
    samples = [entry for entry in entries if isinstance(entry, Sample)]
    phases = dict.fromkeys(sample.phase for sample in samples)
    ends = [entry for entry in entries if isinstance(entry, End)]
    return Launch(
        number=number,
        starts={start.arm: start for start in starts_of(entries)},
        blocks={phase: _complete([s for s in samples if s.phase == phase]) for phase in phases},
        end=ends[0] if ends else None,
    )


def _complete(samples: Sequence[Sample]) -> tuple[Block, ...]:
    """The blocks in which every arm has all its samples."""
    if len({sample.steps for sample in samples}) > 1:
        raise SampleError("the arms' samples have different numbers of steps")
    arms = {sample.arm for sample in samples}
    blocks: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        blocks[sample.block].append(sample)
    return tuple(tuple(each) for each in blocks.values() if len(each) == _PER_BLOCK * len(arms))


def _timed(blocks: Sequence[Block], arms: AbstractSet[str]) -> bool:
    """Whether a launch's blocks have all of these arms."""
    return arms <= {sample.arm for sample in blocks[0]}


def _seconds(blocks: Iterable[Block], arm: str) -> list[float]:
    """Per step, of each slice of an arm's samples."""
    return [s for block in blocks for each in block if each.arm == arm for s in each.step_s]


def _ratio(block: Block, baseline: str, arm: str) -> float:
    return log_ratio(_walls(block, baseline), _walls(block, arm))


def _walls(block: Block, arm: str) -> list[float]:
    return [sample.wall_s for sample in block if sample.arm == arm]
