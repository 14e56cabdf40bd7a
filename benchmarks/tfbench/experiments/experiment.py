"""Run an experiment of cells: from its options to a folder with the result and the report."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tfbench.arms import installs, lineup
from tfbench.arms.arm import Arm
from tfbench.arms.installs import ArmChoice
from tfbench.engine import folder
from tfbench.engine.folder import RunKind
from tfbench.experiments import cell_schedule
from tfbench.experiments.cell import Cell, CellResult, group_results
from tfbench.reports import page
from tfbench.reports.canvas import Drawing
from tfbench.reports.document import Document, Section
from tfbench.reports.page import Figures
from tfbench.result_table import ResultTable, format_result
from tfcore import console, settings
from tfcore.comparisons.host import Host, read_host
from tfcore.errors import UsageError
from tfcore.records import save
from tfcore.settings import Paths

SCHEMA = 1
"""Version of run.json."""
_W = TypeVar("_W", bound="ExperimentOptions")
_Q = TypeVar("_Q")
_C = TypeVar("_C", bound="ExperimentConfig")
_R = TypeVar("_R")
_R_contra = TypeVar("_R_contra", contravariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """The wheel of an arm, as a result records it."""

    arm: str
    label: str
    wheel_sha256: str
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentRun:
    """One run of an experiment: its arms on this machine by name, and the folder of its cells
    and its result.
    """

    kind: str
    arms: Mapping[str, Arm]
    host: Host
    out: Path

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        return list_wheels(self.arms)


class ExperimentOptions(Protocol):
    """The options of an experiment's command, as given on the command line."""

    @property
    def arms(self) -> str: ...

    @property
    def out(self) -> str: ...


class ExperimentConfig(Protocol):
    """The checked options of an experiment."""

    @property
    def seed(self) -> int: ...

    def list_cells(self, arms: Sequence[str], host: Host, out: Path, /) -> Sequence[Cell]:
        """List the cells of the arms on the host. `out` is the folder of the run."""

    def describe(self, choices: Sequence[ArmChoice], processes: int, /) -> dict[str, str]:
        """Describe what would be measured: texts by their names."""


class Text(Protocol[_R_contra]):
    """Functions that show a result: alone, or on a page with others."""

    def build_table(self, result: _R_contra, /) -> ResultTable: ...

    def build_document(self, result: _R_contra, /) -> Document: ...

    def build_section(self, result: _R_contra, /) -> Section: ...

    def draw_figures(self, result: _R_contra, /) -> Iterable[Drawing]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandExperiment(Generic[_W, _Q, _R]):
    """An experiment of a command. `kind` names its folders, its result and the section with its
    figures.
    """

    kind: str
    parse_options: Callable[[_W], _Q]
    """Parses and checks the options. Raises UsageError."""
    text: Text[_R]

    def run(self, options: _W, *, as_json: bool) -> tuple[_R, str]:
        """Measure, write the result and its reports; return the result and what to print.

        Raises UsageError, WheelError, WorkerError, DiskError.
        """
        paths = settings.paths()
        choices = choose_arms(options.arms, paths)
        config = self.parse_options(options)
        with settings.lock_folder(paths.cache, "a measurement"):
            result = self.measure(config, choices, options.out, paths)
        return result, format_result(result, self.text.build_table(result), as_json=as_json)

    def describe_plan(self, options: _W) -> str:
        """Describe what would be measured. Nothing is installed. Raises UsageError, WheelError."""
        paths = settings.paths()
        config = self.parse_options(options)
        plan = self.describe(config, choose_arms(options.arms, paths), paths)
        return format_plan(
            {**plan, "out": options.out or str(paths.choose_report_folder(self.kind))}
        )

    @abstractmethod
    def describe(
        self, config: _Q, choices: tuple[ArmChoice, ...], paths: Paths
    ) -> Mapping[str, str]:
        """Describe what would be measured: texts by their names."""

    @abstractmethod
    def measure(
        self, config: _Q, choices: tuple[ArmChoice, ...], wanted_out: str, paths: Paths
    ) -> _R:
        """Measure, write the result and its report, and return the result.

        The caller holds the lock on the cache.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class CellExperiment(CommandExperiment[_W, _C, _R]):
    """An experiment whose options determine all its cells."""

    build_result: Callable[[_C, ExperimentRun, Sequence[CellResult]], _R]

    def describe(self, config: _C, choices: tuple[ArmChoice, ...], _: Paths) -> Mapping[str, str]:
        cells = config.list_cells(list_names(choices), read_host(), Path())
        return config.describe(choices, len(cells))

    def measure(
        self, config: _C, choices: tuple[ArmChoice, ...], wanted_out: str, paths: Paths
    ) -> _R:
        run = start_run(self.kind, config, install_arms(choices, paths), wanted_out, paths)
        result = self.run_cells(config, run)
        drawings = {self.kind: self.text.draw_figures(result)}
        finish_run(run, result, self.text.build_document(result), drawings, paths.templates)
        return result

    def run_cells(self, config: _C, run: ExperimentRun) -> _R:
        """Run the cells that the run's folder does not have yet, and return the result.

        Raises DiskError, RecordError.
        """
        cells = config.list_cells(tuple(run.arms), run.host, run.out)
        with console.report_step(
            f"{self.kind}, {console.format_count(len(cells), 'process', 'processes')}"
        ):
            results = cell_schedule.run_cells(cells, run.arms, run.out, seed=config.seed)
        return self.build_result(config, run, group_results(cells, results))


def list_wheels(arms: Mapping[str, Arm]) -> tuple[Wheel, ...]:
    return tuple(
        Wheel(arm=arm.name, label=arm.label, wheel_sha256=arm.wheel_sha256, settings=arm.env)
        for arm in arms.values()
    )


def choose_arms(text: str, paths: Paths) -> tuple[ArmChoice, ...]:
    """Choose the wheels that --arms names, as in `compare`; stock if the text is empty.

    Raises UsageError, WheelError, HostError.
    """
    words = [word for word in text.split(",") if word.strip()] or [lineup.STOCK]
    specs = tuple(lineup.parse_arm(word) for word in words)
    lineup.require_phase(specs)
    names = [spec.name for spec in specs]
    if len({*names}) < len(names):
        raise UsageError(
            f"two arms have the same name ({', '.join(names)})", hint="Rename one: NAME=WHEEL"
        )
    return installs.choose(specs, "", paths)


def format_plan(plan: Mapping[str, str]) -> str:
    """Format what would be done as lines of names and texts."""
    width = max(10, *map(len, plan)) + 1
    return "".join(f"{name:{width}}{text}\n" for name, text in plan.items())


def list_names(choices: Iterable[ArmChoice]) -> tuple[str, ...]:
    """Return the names of the arms that the choices define."""
    return tuple(choice.spec.name for choice in choices)


def install_arms(choices: Sequence[ArmChoice], paths: Paths) -> dict[str, Arm]:
    """Install the arms and return them by name. Raises the errors of the installation."""
    return {arm.name: arm for arm in installs.install(choices, paths)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentSpec:
    """The specification of a run: the question, the wheels and the machine."""

    schema: int = SCHEMA
    kind: str
    question: object
    host: Host
    wheels: tuple[Wheel, ...]


def start_run(
    kind: str, config: object, arms: Mapping[str, Arm], wanted_out: str, paths: Paths
) -> ExperimentRun:
    """Continue the unfinished run with the same question, wheels and machine, or start a new run.

    Raises UsageError if the folder contains another run, HostError, RecordError, CpuError,
    DiskError.
    """
    host, run_kind = read_host(), create_kind(kind)
    spec = ExperimentSpec(kind=kind, question=config, host=host, wheels=list_wheels(arms))
    out = folder.choose_folder(run_kind, spec, wanted_out, paths).resolve()
    folder.begin(run_kind, spec, out)
    console.print_note(f"cells and results: {out}")
    return ExperimentRun(kind=kind, arms=arms, host=host, out=out)


def create_kind(name: str) -> RunKind:
    return RunKind(name=name, prefix=name, result=f"{name}.json")


def finish_run(
    run: ExperimentRun, result: object, document: Document, figures: Figures, templates: Path
) -> None:
    """Write the report, then the result, which marks the run as complete. Raises DiskError."""
    write_report(run.out, document, templates, figures)
    save(run.out / create_kind(run.kind).result, result)


def write_report(out: Path, document: Document, templates: Path, figures: Figures) -> None:
    """Write the report and note its path. Raises DiskError."""
    console.print_note(f"report: {page.write_page(out, document, figures, templates)}")
