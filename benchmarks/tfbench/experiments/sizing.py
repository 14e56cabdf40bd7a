"""Sizing: the smallest machine on which a workload is as fast as on a larger one."""

from __future__ import annotations

import functools
import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tfbench import options
from tfbench.arms.installs import ArmChoice
from tfbench.commands import SizingOptions
from tfbench.costs import catalog
from tfbench.costs.cost import Amount, get_value
from tfbench.costs.prices import Mode, Price, PriceBook
from tfbench.experiments import limits, speeds
from tfbench.experiments.cell import Cell, CellResult, Outcome
from tfbench.experiments.experiment import CellExperiment, ExperimentRun, Wheel
from tfbench.experiments.table_page import TablePage, format_speed
from tfbench.inside import steps
from tfbench.inside.phases import INFER, PREPROCESS, TRAIN
from tfbench.inside.steps import FILES, MEMORY
from tfbench.inside.workloads import PROGRAM, find_workload, set_sizes
from tfbench.reports.canvas import Drawing, create_drawing
from tfbench.reports.charts import ChartGroup, ChartPoint, describe_rows, plot_amounts
from tfbench.reports.document import TextColumns
from tfbench.reports.wording import format_optional, format_rate
from tfcore import console, settings
from tfcore.comparisons.host import Host
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import UsageError
from tfcore.records import format_now

KIND = "sizing"
SCHEMA = 1
EXAMPLES = 512
"""Number of generated examples; at least four batches."""
CACHED, COLD = "cached", "cold"
KINDS = (MEMORY, CACHED, COLD)
_SLOW = re.compile(r"(\d+(?:\.\d+)?)MB/s(?:@(\d+)IOPS)?", re.IGNORECASE)
_HINT = f"Use {', '.join(KINDS)}, or a disk's speed such as 40MB/s or 40MB/s@500IOPS"
_PHASE_HINT = f"Use {console.format_choices(steps.PHASES)}"
_READING, _MOSTLY_READING = 0.75, 0.5
"""Input is the bottleneck if its reader is busy for the first share of the time, or for the second
while the CPUs are idle."""
_COMPUTING = 0.8
"""Computing is the bottleneck if the process uses this share of its CPUs' time."""
_MARGIN = 1.1
"""The memory of a machine, relative to that of the process: the system needs some, too."""


# --- options and cells ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class InputSource:
    """A source of examples: memory, the page cache, the disk, or a disk of a given speed. `mb_s`
    and `iops` limit the simulated disk, 0 for no limit.
    """

    name: str
    kind: str
    cold: bool = False
    mb_s: float = 0.0
    iops: float = 0.0

    def build_request(self, folder: str, sink: str, *, generate: int) -> dict[str, object]:
        """Build the request for `inside.steps`. `generate` is the number of examples to
        generate, 0 for a folder of the user's own.
        """
        if self.kind == MEMORY:
            return {"kind": MEMORY}
        return {
            "kind": FILES,
            "folder": folder,
            "sink": sink,
            "generate": generate,
            "mb_s": self.mb_s,
            "iops": self.iops,
            "cold": self.cold,
        }


def parse_source(text: str) -> InputSource:
    """Parse one of KINDS or a disk's speed. Raises UsageError."""
    if text in KINDS:
        kind = MEMORY if text == MEMORY else FILES
        return InputSource(name=text, kind=kind, cold=text == COLD)
    match = _SLOW.fullmatch(text)
    if not match:
        suggestion = console.suggest_spelling(text, KINDS)
        raise UsageError(f"unknown input {text!r}", hint=f"{suggestion} {_HINT}".strip())
    mb_s, iops = float(match[1]), float(match[2] or 0)
    if mb_s == 0 or (match[2] is not None and iops == 0):
        raise UsageError(f"the speed of {text} is 0", hint=_HINT)
    return InputSource(name=text, kind=FILES, mb_s=mb_s, iops=iops)


@dataclass(frozen=True, kw_only=True, slots=True)
class SizingConfig:
    """The checked options of `invoke sizing`. A `memory` of 0 is no limit; `data` is the user's
    own folder.
    """

    workloads: tuple[str, ...]
    program: str
    phases: tuple[str, ...]
    inputs: tuple[InputSource, ...]
    data: str
    vcpus: tuple[int, ...]
    memory: tuple[float, ...]
    seconds: float
    launches: int
    within: float
    seed: int

    def list_cells(self, arms: Sequence[str], host: Host, out: Path) -> tuple[Cell, ...]:
        """List the cells of the only arm. Generated input and the output of preprocessing are
        written to `out`.
        """
        (arm,) = arms
        return tuple(
            Cell(
                arm=arm,
                place=(
                    *(("workload", workload), ("phase", phase), ("input", source.name)),
                    *(("vcpus", len(host.affinity[:count])), ("memory", memory)),
                ),
                launch=launch,
                module=steps.__name__,
                request={
                    "workload": workload,
                    "phase": phase,
                    "seed": self.seed,
                    "seconds": self.seconds,
                    "least": 4,
                    "source": self._build_source(source, workload, out / "inputs"),
                },
                vcpus=host.affinity[:count],
                memory_mb=memory or None,
                env=((PROGRAM, self.program),) if self.program else (),
            )
            for launch in range(self.launches)
            for workload in self.workloads
            for phase in self.phases
            for source in self.inputs
            if not (phase == PREPROCESS and source.kind == MEMORY)
            for count in self.vcpus
            for memory in self.memory
        )

    def _build_source(self, source: InputSource, workload: str, inputs: Path) -> dict[str, object]:
        folder = inputs / workload.replace(":", "-")
        count = 0 if self.data or self.program else max(EXAMPLES, 4 * find_workload(workload).batch)
        sink = str(folder.with_suffix(".sink"))
        return source.build_request(self.data or str(folder), sink, generate=count)

    def describe(self, _: Sequence[ArmChoice], processes: int) -> dict[str, str]:
        memory = (f"{limit_mb:.0f} MB" if limit_mb else "no limit" for limit_mb in self.memory)
        return {
            "workloads": ", ".join(self.workloads),
            "phases": ", ".join(self.phases),
            "inputs": ", ".join(source.name for source in self.inputs),
            "vCPUs": ", ".join(map(str, self.vcpus)),
            "memory": ", ".join(memory),
            "processes": f"{processes}, {self.seconds:g} s of steps each",
        }


def parse_options(sizing_options: SizingOptions) -> SizingConfig:
    """Parse and check the options. Of a user's own model, training and inference on its own data
    in memory are measured. Raises UsageError.
    """
    if len(options.parse_words(sizing_options.arms)) > 1:
        raise UsageError(f"--arms {sizing_options.arms} has several arms", hint="Give one")
    names: tuple[str, ...]
    phases: tuple[str, ...] = (TRAIN, INFER)
    inputs: tuple[str, ...] = (MEMORY,)
    if sizing_options.workload:
        name, path = options.parse_model_file(sizing_options.workload)
        names, program = (name,), str(path)
    else:
        names, program = tuple(_parse_nets(sizing_options)), ""
        phases = _parse_phases(sizing_options.phases)
        inputs = options.parse_words(sizing_options.inputs)
    return SizingConfig(
        workloads=names,
        program=program,
        phases=phases,
        inputs=tuple(map(parse_source, inputs)),
        data=_parse_folder(sizing_options.data),
        vcpus=_parse_vcpus(sizing_options.vcpus),
        memory=_parse_memory(sizing_options.memory),
        seconds=options.parse_positive(sizing_options.seconds, "--seconds"),
        launches=options.parse_integer(sizing_options.launches, "--launches"),
        within=options.parse_percent(sizing_options.within, "--within"),
        seed=options.parse_integer(sizing_options.seed, "--seed", least=0),
    )


def _parse_nets(sizing_options: SizingOptions) -> Iterator[str]:
    """Yield the workloads; those that take images get the image size."""
    image = options.parse_integer(sizing_options.image, "--image") if sizing_options.image else None
    for name in options.parse_workloads(sizing_options.workloads):
        if image is not None and find_workload(name).image is not None:
            yield options.parse_workload(set_sizes(name, image=image))
        else:
            yield name


def _parse_phases(words: str) -> tuple[str, ...]:
    phases = options.parse_words(words)
    for word in phases:
        options.check_word("phase", word, steps.PHASES, _PHASE_HINT)
    if not phases:
        raise UsageError("--phases is empty", hint=_PHASE_HINT)
    return phases


def _parse_folder(words: str) -> str:
    if not words:
        return ""
    folder = settings.expand_home(words).resolve()
    if not folder.is_dir():
        raise UsageError(
            f"there is no folder {words}", hint="Give a folder with one folder of images per class"
        )
    return str(folder)


def _parse_vcpus(words: str) -> tuple[int, ...]:
    """Parse the numbers of vCPUs, by default 1, 2, 4 … and all usable ones."""
    usable = read_vcpus().usable
    powers = tuple(2**power for power in range(usable.bit_length()) if 2**power < usable)
    return options.parse_vcpus(words, usable) or (*powers, usable)


def _parse_memory(words: str) -> tuple[float, ...]:
    """Parse the memory limits in MB; by default 0, no limit."""
    limits_mb = tuple(float(limit_mb) for limit_mb in options.parse_counts(words, "--memory"))
    for limit_mb in filter(None, limits_mb):
        limits.check_memory(limit_mb)
    return limits_mb or (0.0,)


# --- results --------------------------------------------------------------------------------------


class Bound(StrEnum):
    """The bottleneck of a cell."""

    COMPUTE = "compute"
    INPUT = "input"
    MEMORY = "memory"
    SERIAL = "one thread"
    """CPUs are idle and input is ready: serial parts limit the speed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SizingRow:
    """One cell. `speed` is in examples per second; `growth_mb` is the growth of resident memory
    in MB between the first and the last quarter of the timed steps; `busy` is the share of
    its CPUs' time that the process used, `reading` the share of the time that its reader was busy.
    """

    workload: str
    phase: str
    input: str
    vcpus: int
    memory_mb: float | None
    outcome: Outcome
    reason: str
    launches: int
    speed: Amount | None
    peak_mb: float | None
    growth_mb: float | None
    busy: float | None
    reading: float | None
    read_mb_s: float | None
    bound: Bound | None
    cached: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Knee:
    """The fewest vCPUs, and with them the smallest memory limit, at which a phase on an input is
    within `within` of the fastest speed; `peak_mb` is the memory that it used there.
    `holding` is the cheapest machine of the price book with that much.
    """

    workload: str
    phase: str
    input: str
    within: float
    vcpus: int
    memory_mb: float | None
    speed: Amount
    plateau: float
    peak_mb: float
    holding: Price | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizing:
    """The result of `invoke sizing`. `means` is the method of the memory limit, empty if none."""

    schema: int = SCHEMA
    made: str
    host: Host
    seed: int
    within: float
    means: str
    wheels: tuple[Wheel, ...]
    rows: tuple[SizingRow, ...]
    knees: tuple[Knee, ...]
    book: str


def _build_result(
    book: PriceBook | None, config: SizingConfig, run: ExperimentRun, measured: Sequence[CellResult]
) -> Sizing:
    rows = build_rows(measured)
    return Sizing(
        made=format_now(),
        host=run.host,
        seed=config.seed,
        within=config.within,
        means=limits.detect_method() if any(config.memory) else "",
        wheels=run.wheels,
        rows=rows,
        knees=find_knees(rows, config.within, book),
        book=book.name if book else "",
    )


def build_rows(cell_results: Iterable[CellResult]) -> tuple[SizingRow, ...]:
    return tuple(map(_build_row, cell_results))


def _build_row(cell_result: CellResult) -> SizingRow:
    place, answers = cell_result.place, cell_result.answers
    ok = cell_result.outcome is Outcome.OK

    def find_median(compute: Callable[[Mapping[str, Any]], float]) -> float | None:
        return statistics.median(map(compute, answers)) if ok else None

    busy, reading = find_median(_compute_busy_share), find_median(_compute_reading_share)
    return SizingRow(
        workload=str(place["workload"]),
        phase=str(place["phase"]),
        input=str(place["input"]),
        vcpus=int(place["vcpus"]),
        memory_mb=float(place["memory"]) or None,
        outcome=cell_result.outcome,
        reason=cell_result.reason,
        launches=len(answers),
        speed=speeds.compute_speed(answers) if ok else None,
        peak_mb=max(launch["peak_mb"] for launch in answers) if ok else None,
        growth_mb=find_median(lambda answer: compute_growth_mb(answer["rss_mb"])),
        busy=busy,
        reading=reading,
        read_mb_s=find_median(_compute_read_mb_s),
        bound=find_bottleneck(cell_result.outcome, busy, reading),
        cached=max((float(launch["cached_bytes"]) for launch in answers), default=0.0),
    )


def find_bottleneck(outcome: Outcome, busy: float | None, reading: float | None) -> Bound | None:
    """Return the bottleneck of a cell; None if it is unknown."""
    if outcome is Outcome.OUT_OF_MEMORY:
        return Bound.MEMORY
    if busy is None or reading is None:
        return None
    if reading >= _READING:
        return Bound.INPUT
    if busy >= _COMPUTING:
        return Bound.COMPUTE
    return Bound.INPUT if reading >= _MOSTLY_READING else Bound.SERIAL


def compute_growth_mb(rss_mb: Sequence[float]) -> float:
    """Return the difference in MB between the medians of the first and the last quarter of the
    steps; 0 for fewer than four steps.
    """
    quarter = len(rss_mb) // 4
    if quarter == 0:
        return 0.0
    return statistics.median(rss_mb[-quarter:]) - statistics.median(rss_mb[:quarter])


def _compute_busy_share(answer: Mapping[str, Any]) -> float:
    return float(answer["cpu_s"]) / (math.fsum(answer["step_s"]) * len(answer["vcpus"]))


def _compute_reading_share(answer: Mapping[str, Any]) -> float:
    return float(answer["meters"].get("read_s", 0.0)) / math.fsum(answer["step_s"])


def _compute_read_mb_s(answer: Mapping[str, Any]) -> float:
    return 1e-6 * float(answer["meters"].get("read_bytes", 0)) / math.fsum(answer["step_s"])


def find_knees(
    rows: Sequence[SizingRow], within: float, book: PriceBook | None
) -> tuple[Knee, ...]:
    """Return one knee for every workload, phase and input with a measured speed."""
    groups: dict[tuple[str, str, str], list[tuple[SizingRow, Amount]]] = {}
    for row in rows:
        timed = groups.setdefault((row.workload, row.phase, row.input), [])
        if row.speed is not None:
            timed.append((row, row.speed))
    return tuple(_find_knee(timed, within, book) for timed in groups.values() if timed)


def _find_knee(
    timed: Sequence[tuple[SizingRow, Amount]], within: float, book: PriceBook | None
) -> Knee:
    plateau = max(get_value(speed) for _, speed in timed)
    sufficient = [
        (row, speed) for row, speed in timed if get_value(speed) >= plateau * (1 - within)
    ]
    row, speed = min(sufficient, key=lambda pair: _compute_size(pair[0]))
    assert row.peak_mb is not None  # noqa: S101  (it was timed)
    return Knee(
        workload=row.workload,
        phase=row.phase,
        input=row.input,
        within=within,
        vcpus=row.vcpus,
        memory_mb=row.memory_mb,
        speed=speed,
        plateau=plateau,
        peak_mb=row.peak_mb,
        holding=None if book is None else find_cheapest_machine(book, row.vcpus, row.peak_mb),
    )


def _compute_size(row: SizingRow) -> tuple[int, float]:
    return row.vcpus, math.inf if row.memory_mb is None else row.memory_mb


def find_cheapest_machine(book: PriceBook, vcpus: int, peak_mb: float) -> Price | None:
    """Return the cheapest machine with enough vCPUs and memory. Machines whose vCPUs or memory
    the book does not state are skipped.
    """
    fitting = [
        price
        for price in book.restrict(mode=Mode.ON_DEMAND).fitting
        if price.vcpus is not None
        and price.memory_gib is not None
        and not price.accelerator
        and price.vcpus >= vcpus
        and price.memory_gib * 2**30 >= peak_mb * 1e6 * _MARGIN
    ]
    return min(fitting, key=lambda price: price.usd_hour, default=None)


# --- text and figures -----------------------------------------------------------------------------


COLUMNS: TextColumns[SizingRow] = {
    "workload": lambda row: row.workload,
    "phase": lambda row: row.phase,
    "input": lambda row: row.input,
    "#vCPUs": lambda row: str(row.vcpus),
    "#limit MB": lambda row: format_optional(row.memory_mb, ".0f"),
    "#examples/s": lambda row: format_speed(row.outcome, row.speed)[0],
    "#interval": lambda row: format_speed(row.outcome, row.speed)[1],
    "bound by": lambda row: "" if row.bound is None else row.bound.value,
    "#CPU": lambda row: format_optional(row.busy, ".0%"),
    "#reading": lambda row: format_optional(row.reading, ".0%"),
    "#MB/s": lambda row: format_optional(row.read_mb_s or None, ".1f"),
    "#peak MB": lambda row: format_optional(row.peak_mb, ".0f"),
    "#growth": lambda row: format_optional(row.growth_mb, "+.0f"),
}


def list_lines(sizing: Sizing) -> Iterator[str]:
    for knee in sizing.knees:
        yield _format_sentence(knee, sizing)
    for row in sizing.rows:
        if row.outcome is not Outcome.OK:
            place = f"{row.workload}, {row.phase}, {row.input}, {_format_size(row)}"
            yield f"{place}: {row.outcome.value}: {row.reason}"
    if sizing.means:
        yield f"Memory was limited by {sizing.means}, CPUs by affinity."
    if any(row.cached for row in sizing.rows if row.input == COLD):
        yield "cold: the page cache kept some files. Is their folder on a file system in memory?"


def _format_size(row: SizingRow) -> str:
    limit = "" if row.memory_mb is None else f", {row.memory_mb:.0f} MB"
    return f"{console.format_vcpus(row.vcpus)}{limit}"


def _format_sentence(knee: Knee, sizing: Sizing) -> str:
    limit = "" if knee.memory_mb is None else f" and {knee.memory_mb:.0f} MB"
    verb = "is" if knee.vcpus == 1 and not limit else "are"
    text = (
        f"{knee.workload}, {knee.phase}, {knee.input}: "
        f"{console.format_vcpus(knee.vcpus)}{limit} {verb} enough, "
        f"{format_rate(get_value(knee.speed))} examples/s, within {knee.within:.0%} of "
        f"the fastest ({format_rate(knee.plateau)}); it used {knee.peak_mb:.0f} MB."
    )
    if knee.holding is not None:
        price = knee.holding
        return f"{text} Cheapest such machine: {price}, {price.usd_hour:.4g} USD per hour."
    return f"{text} No machine of {sizing.book} is known to be that large." if sizing.book else text


def draw_figures(sizing: Sizing) -> Iterator[Drawing]:
    """Draw every cell's speed, a figure per workload and phase."""
    for position, (workload, phase) in enumerate(
        dict.fromkeys((row.workload, row.phase) for row in sizing.rows)
    ):
        phase_rows = [row for row in sizing.rows if (row.workload, row.phase) == (workload, phase)]
        groups = [
            ChartGroup(
                label=source,
                points=tuple(_build_point(row) for row in phase_rows if row.input == source),
            )
            for source in dict.fromkeys(row.input for row in phase_rows)
        ]
        yield create_drawing(
            functools.partial(plot_amounts, groups, "examples per second"),
            key=f"{KIND}-{position}",
            title=f"{workload}: {phase}",
            caption="By input; lines are 95% intervals over launches.",
            description=describe_rows(groups),
        )


def _build_point(row: SizingRow) -> ChartPoint:
    note = row.outcome.value if row.speed is None else format_rate(get_value(row.speed))
    return ChartPoint(label=_format_size(row), series=0, amount=row.speed, note=note)


TEXT: TablePage[Sizing, SizingRow] = TablePage(
    key=KIND,
    title="Sizing",
    heading="Machine size",
    caption="Cells",
    method=(
        "Each cell is a process with limited CPUs and memory. train and infer read batches from "
        "memory or decode them from a TFRecord of JPEGs; preprocess converts raw files to "
        "normalised TFRecords. cached reads files from the page cache; cold removes each file from "
        "the page cache first; a speed limits the reader to that of such a disk. growth is the "
        "growth of resident memory in MB from the first to the last quarter of the steps. Bound by "
        "input: the reader is busy for three quarters of the time, or for half of it while CPUs "
        "are idle; by compute: the process uses four fifths of its CPUs; by one thread: neither."
    ),
    format_title=lambda sizing: f"sizes on {sizing.host.cpu.name}",
    list_columns=lambda _: COLUMNS,
    list_items=lambda sizing: sizing.rows,
    list_lines=list_lines,
    draw_figures=draw_figures,
    width=160,
)


def create_experiment(
    book: PriceBook | None = None,
) -> CellExperiment[SizingOptions, SizingConfig, Sizing]:
    """Create the experiment. With a price book its result names the cheapest machines."""
    return CellExperiment(
        kind=KIND,
        parse_options=parse_options,
        build_result=functools.partial(_build_result, book),
        text=TEXT,
    )


def measure_sizing(sizing_options: SizingOptions, *, as_json: bool = False) -> tuple[Sizing, str]:
    """Run `invoke sizing`. Raises UsageError if there is no such price book, and the errors of
    the experiment.
    """
    book = catalog.find_book(sizing_options.prices) if sizing_options.prices else None
    return create_experiment(book).run(sizing_options, as_json=as_json)
