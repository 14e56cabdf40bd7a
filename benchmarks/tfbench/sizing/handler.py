"""Handler of `invoke sizing`: cells of every size, and the smallest that is enough."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench import options
from tfbench.cells import experiment, limits
from tfbench.cells.cell import Cell, CellResult
from tfbench.cells.experiment import CellExperiment, ExperimentRun
from tfbench.commands import SizingOptions
from tfbench.costs import catalog
from tfbench.costs.prices import PriceBook
from tfbench.inside import steps
from tfbench.inside.phases import INFER, PREPROCESS, TRAIN
from tfbench.inside.workloads import PROGRAM, find_workload, set_sizes
from tfbench.sizing import results, sources, text
from tfbench.sizing.results import Sizing
from tfbench.sizing.sources import InputSource
from tfbuild import console, settings
from tfbuild.cpus.cpu import read_vcpus
from tfbuild.errors import UsageError
from tfbuild.measured.host import Host, read_host
from tfbuild.records import format_now

KIND = "sizing"
EXAMPLES = 512
"""Generated ones; at least four batches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SizingConfig:
    """The same, read and checked. `memory` 0 is no limit; `data` is the user's own folder."""

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

    def cells(self, arms: Sequence[str], host: Host, folder: Path) -> tuple[Cell, ...]:
        """`folder` is for what is generated and for what preprocessing writes. Sizes are of one
        arm."""
        (arm,) = arms
        return tuple(
            self._cell(arm, folder, workload, phase, source, host.affinity[:count], memory, launch)
            for launch in range(self.launches)
            for workload in self.workloads
            for phase in self.phases
            for source in self.inputs
            if not (phase == PREPROCESS and source.kind == steps.MEMORY)
            for count in self.vcpus
            for memory in self.memory
        )

    def _cell(
        self,
        arm: str,
        folder: Path,
        workload: str,
        phase: str,
        source: InputSource,
        cpus: tuple[int, ...],
        memory: float,
        launch: int,
    ) -> Cell:
        own = folder / workload.replace(":", "-")
        count = 0 if self.data or self.program else max(EXAMPLES, 4 * find_workload(workload).batch)
        return Cell(
            arm=arm,
            place=(
                *(("workload", workload), ("phase", phase), ("input", source.name)),
                *(("vcpus", len(cpus)), ("memory", memory)),
            ),
            launch=launch,
            module=steps.__name__,
            request={
                "workload": workload,
                "phase": phase,
                "seed": self.seed,
                "seconds": self.seconds,
                "least": 4,
                "source": source.request(
                    self.data or str(own), str(own.with_suffix(".sink")), generate=count
                ),
            },
            vcpus=cpus,
            memory_mb=memory or None,
            env=((PROGRAM, self.program),) if self.program else (),
        )


def measure_sizing(wanted: SizingOptions, *, as_json: bool = False) -> tuple[Sizing, str]:
    """Raises what the experiment raises, and UsageError for prices that there are not."""
    book = catalog.find_book(wanted.prices) if wanted.prices else None
    return sizing(book).answer(wanted, as_json=as_json)


def describe(wanted: SizingOptions) -> str:
    """What would be measured. Nothing is installed."""
    paths = settings.paths()
    config = read(wanted)
    arms = experiment.names(experiment.choose_arms(wanted.arms, paths))
    count = len(config.cells(arms, read_host(), Path()))
    memory = ", ".join(f"{each:.0f} MB" if each else "no limit" for each in config.memory)
    return (
        f"workloads  {', '.join(config.workloads)}\n"
        f"phases     {', '.join(config.phases)}\n"
        f"inputs     {', '.join(each.name for each in config.inputs)}\n"
        f"vCPUs      {', '.join(map(str, config.vcpus))}\n"
        f"memory     {memory}\n"
        f"processes  {count}, {config.seconds:g} s of steps each\n"
        f"out        {wanted.out or paths.choose_report_folder(KIND)}\n"
    )


def read(wanted: SizingOptions) -> SizingConfig:
    """Raises UsageError."""
    if len(options.parse_words(wanted.arms)) > 1:
        raise UsageError(f"--arms {wanted.arms} names several", hint="Sizes are of one wheel")
    names, program = _workloads(wanted)
    return SizingConfig(
        workloads=names,
        program=program,
        phases=(TRAIN, INFER) if program else _phases(wanted.phases),
        inputs=(sources.parse(steps.MEMORY),)
        if program
        else tuple(sources.parse(word) for word in options.parse_words(wanted.inputs)),
        data=_folder(wanted.data),
        vcpus=_vcpus(wanted.vcpus),
        memory=_memory(wanted.memory),
        seconds=options.parse_positive(wanted.seconds, "--seconds"),
        launches=options.parse_integer(wanted.launches, "--launches"),
        within=options.parse_percent(wanted.within, "--within"),
        seed=options.parse_integer(wanted.seed, "--seed", least=0),
    )


def _workloads(wanted: SizingOptions) -> tuple[tuple[str, ...], str]:
    """Names, or a user's own with its path; of such there is training and inference on its own
    data in memory."""
    if wanted.workload:
        name, path = options.parse_model_file(wanted.workload)
        return (name,), str(path)
    image = options.parse_integer(wanted.image, "--image") if wanted.image else None
    return tuple(_at(name, image) for name in options.parse_workloads(wanted.workloads)), ""


def _at(name: str, image: int | None) -> str:
    """The workload at that image size, where it takes images."""
    if image is None or find_workload(name).image is None:
        return name
    return options.parse_workload(set_sizes(name, image=image))


def _phases(words: str) -> tuple[str, ...]:
    found = options.parse_words(words)
    for word in found:
        if word not in steps.PHASES:
            hint = console.suggest_spelling(word, steps.PHASES) or f"Use {', '.join(steps.PHASES)}"
            raise UsageError(f"there is no phase {word!r}", hint=hint)
    if not found:
        raise UsageError("--phases names none", hint=f"Use {', '.join(steps.PHASES)}")
    return found


def _folder(words: str) -> str:
    if not words:
        return ""
    folder = Path(words).expanduser().resolve()
    if not folder.is_dir():
        raise UsageError(f"there is no folder {words}", hint="Give one with images, by class")
    return str(folder)


def _vcpus(words: str) -> tuple[int, ...]:
    """By default 1, 2, 4 … and all that are usable."""
    usable = read_vcpus().usable
    doubled = tuple(2**power for power in range(usable.bit_length()) if 2**power < usable)
    return options.parse_vcpus(words, usable) or (*doubled, usable)


def _memory(words: str) -> tuple[float, ...]:
    """MB; 0, no limit, where nothing is asked."""
    found = tuple(float(each) for each in options.parse_counts(words, "--memory"))
    for each in found:
        if each:
            limits.check(each)
    return found or (0.0,)


def _cells(config: SizingConfig, run: ExperimentRun) -> tuple[Cell, ...]:
    return config.cells(run.names, run.host, run.out / "inputs")


def _result(
    book: PriceBook | None,
    config: SizingConfig,
    run: ExperimentRun,
    measured: Sequence[CellResult],
) -> Sizing:
    rows = results.rows(measured)
    return Sizing(
        made=format_now(),
        host=run.host,
        seed=config.seed,
        within=config.within,
        means=limits.means() if any(config.memory) else "",
        wheels=run.wheels,
        rows=rows,
        knees=results.knees(rows, config.within, book),
        book=book.name if book else "",
    )


def sizing(book: PriceBook | None = None) -> CellExperiment[SizingOptions, SizingConfig, Sizing]:
    """The experiment; with a book the machines that hold what was measured are named."""
    result = functools.partial(_result, book)
    return CellExperiment(kind=KIND, read=read, cells=_cells, result=result, text=text)
