"""What a cell's journal says, put in order: launches, blocks, and the numbers in them. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfbench.inside.phases import TRAIN
from tfbench.measuring import gates
from tfbench.measuring.results import Failure
from tfbench.measuring.samples import End, Entry, Fault, Sample, Start
from tfbench.measuring.schedule import FEWEST_BLOCKS
from tfbench.measuring.statistics import FEWEST_LAUNCHES, estimate, log_ratio, total
from tfbuild.errors import SampleError

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
        return any(sample.arm == arm for block in self.blocks[TRAIN][:1] for sample in block)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A cell's launches. `twin` is the baseline's second worker; `arms` are the baseline and the
    candidates, without those that failed. `starts` are all that there were, also of launches that
    were too short to count."""

    workload: str
    vcpus: int
    baseline: str
    twin: str
    arms: tuple[str, ...]
    starts: tuple[Start, ...]
    launches: tuple[Launch, ...]
    failures: tuple[Failure, ...]

    @property
    def stands(self) -> bool:
        """Whether the baseline and its twin work: without them there is no answer at all."""
        return not {failure.arm for failure in self.failures} & {self.baseline, self.twin}

    @property
    def answered(self) -> bool:
        """Whether there is something to compare with: the baseline and its twin, often enough."""
        return self.stands and len(self.launches) >= FEWEST_LAUNCHES

    @property
    def seconds(self) -> float:
        return math.fsum(launch.seconds for launch in self.launches)

    def timed(self, arm: str) -> tuple[Launch, ...]:
        """The launches in which the arm was timed."""
        return tuple(launch for launch in self.launches if launch.has(arm))

    def compared(self, arm: str) -> bool:
        """Whether the arm did not fail and was timed often enough for an interval."""
        works = arm in (*self.arms, self.twin)
        return self.answered and works and len(self.timed(arm)) >= FEWEST_LAUNCHES

    @property
    def profiled(self) -> bool:
        """Whether the op times of arms with tuned kernels are known."""
        return any(one.end is not None and one.end.profiles for one in self.launches)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return tuple(block for launch in self.launches for block in launch.blocks[TRAIN])

    @property
    def fair(self) -> bool:
        """Whether gates left enough for a picture of the machine."""
        dropped = sum(bool(gates.reasons(block)) for block in self.blocks)
        return dropped <= gates.MOST_DROPPED * len(self.blocks)


def launches_of(entries: Iterable[Entry]) -> tuple[Launch, ...]:
    """The launches of one cell that have enough whole blocks. Raises SampleError for a launch
    whose samples have different numbers of steps."""
    grouped: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        grouped[entry.launch].append(entry)
    launches = (_launch(number, each) for number, each in sorted(grouped.items()))
    return tuple(one for one in launches if len(one.blocks.get(TRAIN, ())) >= FEWEST_BLOCKS)


def starts_of(entries: Iterable[Entry]) -> tuple[Start, ...]:
    return tuple(entry for entry in entries if isinstance(entry, Start))


def failures_of(entries: Iterable[Entry]) -> tuple[Failure, ...]:
    faults = (entry for entry in entries if isinstance(entry, Fault))
    return tuple(Failure(arm=fault.arm, reason=fault.reason) for fault in faults)


def ratios(measured: Measured, arm: str, *, gated: bool) -> list[list[float]]:
    """ln(baseline time / arm's time) of training, per launch and block. Raises SampleError."""
    found = []
    for launch in measured.timed(arm):
        blocks = launch.blocks[TRAIN]
        counting = [each for each in blocks if not (gated and gates.reasons(each))]
        if counting:
            found.append([_ratio(block, measured.baseline, arm) for block in counting])
    return found


def best_ratios(measured: Measured, arm: str) -> list[list[float]]:
    """The gated ratios where enough blocks passed, else all."""
    gated = ratios(measured, arm, gated=True) if measured.fair else []
    enough = len(gated) >= FEWEST_LAUNCHES
    return gated if enough else ratios(measured, arm, gated=False)


def log_ms(
    measured: Measured, arm: str, phase: str, launches: Sequence[Launch] | None = None
) -> list[list[float]]:
    """ln(milliseconds per step) per launch and block; empty where the phase was not timed."""
    return [
        [math.log(1000 * total(_walls(block, arm)) / _steps(block, arm)) for block in blocks]
        for launch in (measured.timed(arm) if launches is None else launches)
        if (blocks := launch.blocks.get(phase, ()))
    ]


def half_width(measured: Measured, launches: int) -> float:
    """That of the widest interval after so many launches; infinite while there is none."""
    first = dataclasses.replace(measured, launches=measured.launches[:launches])
    names = (measured.twin, *(arm for arm in measured.arms[1:] if first.timed(arm)))
    try:
        return max(estimate(best_ratios(first, name)).half_width for name in names)
    except SampleError:
        return math.inf


def _launch(number: int, entries: Sequence[Entry]) -> Launch:
    samples = [entry for entry in entries if isinstance(entry, Sample)]
    phases = dict.fromkeys(sample.phase for sample in samples)
    ends = [entry for entry in entries if isinstance(entry, End)]
    return Launch(
        number=number,
        starts={start.arm: start for start in starts_of(entries)},
        blocks={phase: _whole([s for s in samples if s.phase == phase]) for phase in phases},
        end=ends[0] if ends else None,
    )


def _whole(samples: Sequence[Sample]) -> tuple[Block, ...]:
    """The blocks in which every arm has all its samples."""
    if len({sample.steps for sample in samples}) > 1:
        raise SampleError("the arms' samples have different numbers of steps")
    arms = {sample.arm for sample in samples}
    blocks: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        blocks[sample.block].append(sample)
    return tuple(tuple(each) for each in blocks.values() if len(each) == _PER_BLOCK * len(arms))


def _ratio(block: Block, baseline: str, arm: str) -> float:
    return log_ratio(_walls(block, baseline), _walls(block, arm))


def _walls(block: Block, arm: str) -> list[float]:
    return [sample.wall_s for sample in block if sample.arm == arm]


def _steps(block: Block, arm: str) -> int:
    return sum(sample.steps for sample in block if sample.arm == arm)
