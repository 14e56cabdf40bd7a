"""The import overhead of an arm over the baseline, compared with a limit. Pure.

Every process is fresh, so blocks are independent replicates: the interval is Student's t over the
logarithms of the blocks' ratios.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tfbench.experiments.startup.launches import ImportLaunch
from tfbench.measuring import gates
from tfbench.measuring.statistics import FEWEST_LAUNCHES, compute_contrast, compute_level
from tfcore.comparisons.comparison import MOST_DROPPED
from tfcore.comparisons.host import Host
from tfcore.comparisons.interval import Interval

SCHEMA = 2
LIMIT = 0.05
"""Largest acceptable import overhead of a tuned wheel."""

Block = tuple[ImportLaunch, ...]
_IMPORT_S, _PROCESS_S = map(operator.attrgetter, ("import_s", "process_s"))


class ImportVerdict(StrEnum):
    WITHIN = "within the limit"
    OVER = "over the limit"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOverhead:
    """An arm's times relative to the baseline: 1.02 is 2 % longer.

    `added_s` is the additional import time in seconds, the median over blocks.
    """

    arm: str
    imported: Interval
    process: Interval
    added_s: float
    verdict: ImportVerdict


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportTimes:
    """The medians of an arm over all launches, in seconds."""

    arm: str
    label: str
    wheel_sha256: str
    import_s: float
    process_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Startup:
    """The result of `invoke startup`.

    `twin` is the baseline compared with itself. `dropped` counts the reasons of the blocks that
    gates dropped. If they dropped too many, `fair` is false and all blocks count.
    """

    schema: int = SCHEMA
    made: str
    host: Host
    seed: int
    limit: float
    rounds: int
    dropped: tuple[tuple[str, int], ...]
    fair: bool
    arms: tuple[ImportTimes, ...]
    twin: ImportOverhead
    overheads: tuple[ImportOverhead, ...]
    launches: tuple[ImportLaunch, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedBlocks:
    """The blocks of a run that count, and the reasons of those that the gates drop."""

    blocks: tuple[Block, ...]
    dropped: tuple[tuple[str, ...], ...]
    fair: bool


def select_blocks(launches: Iterable[ImportLaunch]) -> JudgedBlocks:
    """Select the blocks that pass the gates if there are enough, otherwise all blocks."""
    grouped: dict[int, list[ImportLaunch]] = defaultdict(list)
    for launch in launches:
        grouped[launch.block].append(launch)
    blocks = [tuple(block_launches) for block_launches in grouped.values()]
    block_reasons = [gates.find_throttling(block) for block in blocks]
    quiet = tuple(
        block for block, reasons in zip(blocks, block_reasons, strict=True) if not reasons
    )
    dropped = tuple(reasons for reasons in block_reasons if reasons)
    fair = len(dropped) <= MOST_DROPPED * len(blocks) and len(quiet) >= FEWEST_LAUNCHES
    return JudgedBlocks(blocks=quiet if fair else tuple(blocks), dropped=dropped, fair=fair)


def compute_overhead(
    measured: JudgedBlocks, baseline: str, arm: str, *, floor: float, limit: float = LIMIT
) -> ImportOverhead:
    """Compute an arm's overhead over the baseline.

    `floor` is the noise floor: the largest absolute logarithm in the A/A interval. Raises
    SampleError if there are fewer than two blocks.
    """
    imported = _compute_ratio(measured.blocks, baseline, arm, _IMPORT_S)
    added = [
        statistics.fmean(_list_times(block, arm, _IMPORT_S))
        - statistics.fmean(_list_times(block, baseline, _IMPORT_S))
        for block in measured.blocks
    ]
    return ImportOverhead(
        arm=arm,
        imported=imported,
        process=_compute_ratio(measured.blocks, baseline, arm, _PROCESS_S),
        added_s=statistics.median(added),
        verdict=choose_import_verdict(imported, floor, limit)
        if measured.fair
        else ImportVerdict.INCONCLUSIVE,
    )


def choose_import_verdict(ratio: Interval, floor: float, limit: float) -> ImportVerdict:
    """Choose the verdict: within or over the limit if the whole interval is.

    Otherwise, or if the noise floor is above the limit, it is inconclusive.
    """
    if floor > math.log1p(limit):
        return ImportVerdict.INCONCLUSIVE
    if ratio.high <= 1 + limit:
        return ImportVerdict.WITHIN
    return ImportVerdict.OVER if ratio.low > 1 + limit else ImportVerdict.INCONCLUSIVE


def _compute_ratio(
    blocks: Sequence[Block], baseline: str, arm: str, seconds: Callable[[ImportLaunch], float]
) -> Interval:
    """Compute the arm's time over the baseline's, from each round's level of every arm."""
    arms = dict.fromkeys(launch.arm for launch in blocks[0])
    levels = {
        name: [compute_level(_list_times(block, name, seconds)) for block in blocks]
        for name in arms
    }
    interval = compute_contrast(levels, arm, [baseline]).interval
    return Interval(value=1 / interval.value, low=1 / interval.high, high=1 / interval.low)


def _list_times(block: Block, arm: str, seconds: Callable[[ImportLaunch], float]) -> list[float]:
    return [seconds(launch) for launch in block if launch.arm == arm]
