"""Handler of `invoke sizing`: measure cells of every size, and find the smallest that is enough."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench import options
from tfbench.commands import SizingOptions
from tfbench.costs import catalog
from tfbench.costs.prices import PriceBook
from tfbench.experiments import experiment, limits
from tfbench.experiments.cell import Cell, CellResult
from tfbench.experiments.experiment import CellExperiment, ExperimentRun
from tfbench.experiments.sizing import results, sources, text
from tfbench.experiments.sizing.results import Sizing
from tfbench.experiments.sizing.sources import InputSource
from tfbench.inside import steps
from tfbench.inside.phases import INFER, PREPROCESS, TRAIN
from tfbench.inside.workloads import PROGRAM, find_workload, set_sizes
from tfcore import console, settings
from tfcore.comparisons.host import Host, read_host
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import UsageError
from tfcore.records import format_now

KIND = "sizing"
EXAMPLES = 512
_PHASE_HINT = f"Use {console.format_choices(steps.PHASES)}"
"""Number of generated examples; at least four batches."""


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

    def list_cells(self, arms: Sequence[str], host: Host, folder: Path) -> tuple[Cell, ...]:
        """List the cells. `folder` is for generated input and for the output of preprocessing.
        `arms` must hold one arm.
        """
        (arm,) = arms
        return tuple(
            self._build_cell(
                arm, folder, workload, phase, source, host.affinity[:count], memory, launch
            )
            for launch in range(self.launches)
            for workload in self.workloads
            for phase in self.phases
            for source in self.inputs
            if not (phase == PREPROCESS and source.kind == steps.MEMORY)
            for count in self.vcpus
            for memory in self.memory
        )

    def _build_cell(
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
        workload_folder = folder / workload.replace(":", "-")
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
                "source": source.build_request(
                    self.data or str(workload_folder),
                    str(workload_folder.with_suffix(".sink")),
                    generate=count,
                ),
            },
            vcpus=cpus,
            memory_mb=memory or None,
            env=((PROGRAM, self.program),) if self.program else (),
        )


def measure_sizing(sizing_options: SizingOptions, *, as_json: bool = False) -> tuple[Sizing, str]:
    """Run `invoke sizing`. Raises UsageError if there is no such price book, and the errors of
    the experiment.
    """
    book = catalog.find_book(sizing_options.prices) if sizing_options.prices else None
    return create_experiment(book).run(sizing_options, as_json=as_json)


def describe_plan(sizing_options: SizingOptions) -> str:
    """Describe what would be measured. Nothing is installed."""
    paths = settings.paths()
    config = parse_options(sizing_options)
    arms = experiment.list_names(experiment.choose_arms(sizing_options.arms, paths))
    count = len(config.list_cells(arms, read_host(), Path()))
    memory = ", ".join(f"{item:.0f} MB" if item else "no limit" for item in config.memory)
    return (
        f"workloads  {', '.join(config.workloads)}\n"
        f"phases     {', '.join(config.phases)}\n"
        f"inputs     {', '.join(item.name for item in config.inputs)}\n"
        f"vCPUs      {', '.join(map(str, config.vcpus))}\n"
        f"memory     {memory}\n"
        f"processes  {count}, {config.seconds:g} s of steps each\n"
        f"out        {sizing_options.out or paths.choose_report_folder(KIND)}\n"
    )


def parse_options(sizing_options: SizingOptions) -> SizingConfig:
    """Parse and check the options. Raises UsageError."""
    if len(options.parse_words(sizing_options.arms)) > 1:
        raise UsageError(f"--arms {sizing_options.arms} has several arms", hint="Give one")
    names, program = _parse_workloads(sizing_options)
    return SizingConfig(
        workloads=names,
        program=program,
        phases=(TRAIN, INFER) if program else _parse_phases(sizing_options.phases),
        inputs=(sources.parse_source(steps.MEMORY),)
        if program
        else tuple(
            sources.parse_source(word) for word in options.parse_words(sizing_options.inputs)
        ),
        data=_parse_folder(sizing_options.data),
        vcpus=_parse_vcpus(sizing_options.vcpus),
        memory=_parse_memory(sizing_options.memory),
        seconds=options.parse_positive(sizing_options.seconds, "--seconds"),
        launches=options.parse_integer(sizing_options.launches, "--launches"),
        within=options.parse_percent(sizing_options.within, "--within"),
        seed=options.parse_integer(sizing_options.seed, "--seed", least=0),
    )


def _parse_workloads(sizing_options: SizingOptions) -> tuple[tuple[str, ...], str]:
    """Return the workloads' names and an empty path, or the name and path of a user's own, of
    which training and inference on its own data in memory are measured.
    """
    if sizing_options.workload:
        name, path = options.parse_model_file(sizing_options.workload)
        return (name,), str(path)
    image = options.parse_integer(sizing_options.image, "--image") if sizing_options.image else None
    return tuple(
        _set_image_size(name, image) for name in options.parse_workloads(sizing_options.workloads)
    ), ""


def _set_image_size(name: str, image: int | None) -> str:
    """Return the workload at that image size if it takes images, otherwise unchanged."""
    if image is None or find_workload(name).image is None:
        return name
    return options.parse_workload(set_sizes(name, image=image))


def _parse_phases(words: str) -> tuple[str, ...]:
    phases = options.parse_words(words)
    for word in phases:
        if word not in steps.PHASES:
            hint = console.suggest_spelling(word, steps.PHASES) or _PHASE_HINT
            raise UsageError(f"unknown phase {word!r}", hint=hint)
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
    for limit_mb in limits_mb:
        if limit_mb:
            limits.check_memory(limit_mb)
    return limits_mb or (0.0,)


def _build_result(
    book: PriceBook | None,
    config: SizingConfig,
    run: ExperimentRun,
    measured: Sequence[CellResult],
) -> Sizing:
    rows = results.build_rows(measured)
    return Sizing(
        made=format_now(),
        host=run.host,
        seed=config.seed,
        within=config.within,
        means=limits.detect_method() if any(config.memory) else "",
        wheels=run.wheels,
        rows=rows,
        knees=results.find_knees(rows, config.within, book),
        book=book.name if book else "",
    )


def create_experiment(
    book: PriceBook | None = None,
) -> CellExperiment[SizingOptions, SizingConfig, Sizing]:
    """Create the experiment. With a price book its result names the cheapest machines."""
    result = functools.partial(_build_result, book)
    return CellExperiment(
        kind=KIND,
        read=parse_options,
        cells=lambda config, run: config.list_cells(run.names, run.host, run.out / "inputs"),
        result=result,
        text=text,
    )
