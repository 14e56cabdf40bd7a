"""Start-up: the time that a tuned wheel adds to `import tensorflow`, compared with a limit.

Every process is fresh, so blocks are independent replicates: the interval is Student's t over the
logarithms of the blocks' ratios.
"""

from __future__ import annotations

import math
import operator
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from tfbench import options
from tfbench.arms import installs, lineup
from tfbench.arms.arm import Arm, create_repeat
from tfbench.commands import StartupOptions
from tfbench.engine import engine, folder
from tfbench.engine.engine import RunProgress
from tfbench.engine.folder import RunKind
from tfbench.engine.journal import Keep, Kinds, open_journal
from tfbench.engine.schedule import create_random, draw_block_order, draw_padding
from tfbench.experiments.import_launches import IMPORT, ImportLaunch, Launcher, Turn
from tfbench.measuring import gates
from tfbench.measuring.statistics import FEWEST_LAUNCHES, compute_contrast, compute_level
from tfbench.reports import wording
from tfbench.result_table import ResultTable, format_result
from tfcore import console, settings
from tfcore.comparisons.comparison import MOST_DROPPED
from tfcore.comparisons.host import Host, read_host
from tfcore.comparisons.interval import Interval
from tfcore.records import format_now, save

KIND = RunKind(name="startup", prefix="startup", result="startup.json")
KINDS: Kinds[ImportLaunch] = MappingProxyType({"import": ImportLaunch})
SPEC_SCHEMA, SCHEMA = 1, 2
LIMIT = 0.05
"""Largest acceptable import overhead of a tuned wheel."""
Block = tuple[ImportLaunch, ...]
_IMPORT_S, _PROCESS_S = map(operator.attrgetter, ("import_s", "process_s"))


# --- imports --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSpec:
    """The settings of a run. The first arm is the baseline."""

    schema: int = SPEC_SCHEMA
    host: Host
    arms: tuple[Arm, ...]
    rounds: int
    seed: int

    @property
    def lineup(self) -> tuple[Arm, ...]:
        """Return the arms, with the baseline followed by its repeat."""
        baseline, *other_arms = self.arms
        return baseline, create_repeat(baseline), *other_arms

    @property
    def turns(self) -> tuple[Turn, ...]:
        """List the turns: every arm twice in each round, mirrored."""
        turns: list[Turn] = []
        for block in range(self.rounds):
            chance = create_random(self.seed, IMPORT, len(self.host.affinity), block)
            turns += (
                Turn(arm=arm, block=block, position=position, padding=draw_padding(chance))
                for position, arm in enumerate(draw_block_order(self.lineup, chance))
            )
        return tuple(turns)


@dataclass(frozen=True, kw_only=True, slots=True)
class Imports:
    """The imports of a run as an experiment of the engine; an import that fails ends the run."""

    spec: ImportSpec
    launcher: Launcher
    listen: Callable[[int, int, str], None]

    def is_reusable(self, _: ImportLaunch) -> bool:
        return True

    def choose_next(self, launches: Sequence[ImportLaunch], _: RunProgress) -> Turn | None:
        done = {(launch.block, launch.position) for launch in launches}
        turns = self.spec.turns
        remaining = [turn for turn in turns if (turn.block, turn.position) not in done]
        if not remaining:
            return None
        self.listen(len(turns) - len(remaining), len(turns), remaining[0].arm.name)
        return remaining[0]

    def run_launch(self, turn: Turn, keep: Keep[ImportLaunch]) -> None:
        """Import once and record it. Raises WorkerError if the import fails, and DiskError."""
        keep(self.launcher.measure_import(turn))


def measure_startup(startup_options: StartupOptions, *, as_json: bool) -> tuple[Startup, str]:
    """Measure the imports of the candidate and of the stock wheel that it was built from.

    Returns the record, which is saved in --out or in a new report, and the text to print.
    """
    paths = settings.paths()
    number = options.parse_integer(startup_options.rounds, "--rounds", least=FEWEST_LAUNCHES)
    choices = installs.choose(lineup.read_lineup(), startup_options.candidate, paths)
    with settings.lock_folder(paths.cache, "a measurement"):
        spec = ImportSpec(
            host=read_host(), arms=installs.install(choices, paths), rounds=number, seed=1
        )
        out_dir = folder.choose_folder(KIND, spec, startup_options.out, paths)
        folder.begin(KIND, spec, out_dir)
        folder.require_unfinished(KIND, out_dir)
        with console.report_step(f"import TensorFlow, {number} rounds"):
            startup = measure(spec, out_dir)
    save(out_dir / KIND.result, startup)
    console.print_note(f"every launch: {out_dir / KIND.result}")
    return startup, format_result(startup, build_table(startup), as_json=as_json)


def measure(spec: ImportSpec, out: Path) -> Startup:
    """Measure the imports of each arm. The first arm is the baseline; its repeat is timed, too.

    Raises WorkerError if an import fails, and SampleError if there are too few rounds.
    """
    with tempfile.TemporaryDirectory(prefix="tensorwright-") as home:
        launcher = Launcher(home=Path(home))
        for arm in spec.arms:
            launcher.warm_caches(arm)
        with (
            open_journal(out / KIND.journal, KINDS) as (known, keep),
            console.track_progress("imports", len(spec.turns)) as count,
        ):
            imports = Imports(spec=spec, launcher=launcher, listen=count.advance)
            launches = engine.run(imports, known, keep)
    return build_startup(spec, launches)


# --- results --------------------------------------------------------------------------------------


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


def build_startup(spec: ImportSpec, launches: tuple[ImportLaunch, ...]) -> Startup:
    """Build the result from all launches. Raises SampleError if there are too few rounds."""
    baseline, *other_arms = spec.arms
    measured = select_blocks(launches)
    control = compute_overhead(measured, baseline.name, create_repeat(baseline).name, floor=0.0)
    return Startup(
        made=format_now(),
        host=spec.host,
        seed=spec.seed,
        limit=LIMIT,
        rounds=spec.rounds,
        dropped=gates.count_reasons(measured.dropped),
        fair=measured.fair,
        arms=tuple(_summarise_arm(arm, launches) for arm in spec.lineup),
        twin=control,
        overheads=tuple(
            compute_overhead(measured, baseline.name, arm.name, floor=control.imported.reach)
            for arm in other_arms
        ),
        launches=launches,
    )


def _summarise_arm(arm: Arm, launches: Sequence[ImportLaunch]) -> ImportTimes:
    arm_launches = [launch for launch in launches if launch.arm == arm.name]
    return ImportTimes(
        arm=arm.name,
        label=arm.label,
        wheel_sha256=arm.wheel_sha256,
        import_s=statistics.median(map(_IMPORT_S, arm_launches)),
        process_s=statistics.median(map(_PROCESS_S, arm_launches)),
    )


def select_blocks(launches: Iterable[ImportLaunch]) -> JudgedBlocks:
    """Select the blocks that pass the gates if there are enough, otherwise all blocks."""
    grouped: dict[int, list[ImportLaunch]] = {}
    for launch in launches:
        grouped.setdefault(launch.block, []).append(launch)
    blocks = {tuple(block): gates.find_throttling(block) for block in grouped.values()}
    quiet = tuple(block for block, reasons in blocks.items() if not reasons)
    dropped = tuple(reasons for reasons in blocks.values() if reasons)
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
    levels = {
        name: [compute_level(_list_times(block, name, seconds)) for block in blocks]
        for name in dict.fromkeys(launch.arm for launch in blocks[0])
    }
    interval = compute_contrast(levels, arm, [baseline]).interval
    return Interval(value=1 / interval.value, low=1 / interval.high, high=1 / interval.low)


def _list_times(block: Block, arm: str, seconds: Callable[[ImportLaunch], float]) -> list[float]:
    return [seconds(launch) for launch in block if launch.arm == arm]


# --- text -----------------------------------------------------------------------------------------


def build_table(startup: Startup) -> ResultTable:
    where = console.format_vcpus(len(startup.host.affinity))
    return ResultTable(
        title=f"import tensorflow, {startup.rounds} rounds on {where}, warm caches",
        headings=("arm", "#import", f"#over {startup.arms[0].arm}", "#whole process", "#verdict"),
        rows=tuple(_list_rows(startup)),
        lines=tuple(_list_lines(startup)),
    )


def _list_rows(startup: Startup) -> Iterator[tuple[str, ...]]:
    overheads = {overhead.arm: overhead for overhead in (startup.twin, *startup.overheads)}
    for arm in startup.arms:
        overhead = overheads.get(arm.arm)
        yield (
            arm.arm,
            f"{arm.import_s:.3f} s",
            _format_increase(overhead.imported) if overhead else "",
            _format_increase(overhead.process) if overhead else "",
            overhead.verdict.value if overhead and overhead is not startup.twin else "",
        )


def _list_lines(startup: Startup) -> Iterator[str]:
    if startup.dropped:
        reasons = ", ".join(f"{name} {times}" for name, times in startup.dropped)
        outcome = "do not count" if startup.fair else "are too many to drop, so there is no verdict"
        yield f"Disturbed rounds {outcome}: {reasons}."
    limit, baseline = f"{startup.limit:.0%}", startup.arms[0].arm
    for overhead in startup.overheads:
        arm = overhead.arm
        span = f"{_format_increase(overhead.imported)}, {1000 * overhead.added_s:+.0f} ms"
        yield {
            ImportVerdict.WITHIN: f"{arm} imports within {limit} of {baseline} ({span}).",
            ImportVerdict.OVER: f"{arm} imports more than {limit} slower than {baseline} ({span}).",
            ImportVerdict.INCONCLUSIVE: f"It is inconclusive whether {arm} imports within {limit} "
            f"of {baseline} ({span}). Use more rounds, or a quieter machine.",
        }[overhead.verdict]


def _format_increase(ratio: Interval) -> str:
    return wording.format_spread(ratio, lambda value: f"{value - 1:+.1%}")
