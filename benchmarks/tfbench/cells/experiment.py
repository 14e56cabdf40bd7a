"""An experiment of cells: from options to a result with a report, in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tfbench.arms import installs, lineup
from tfbench.arms.arm import Arm
from tfbench.arms.installs import ArmChoice
from tfbench.cells import running
from tfbench.cells.cell import Cell, CellResult, gathered
from tfbench.engine import folder
from tfbench.engine.folder import RunKind
from tfbench.reports import page
from tfbench.reports.canvas import Drawing
from tfbench.reports.document import Document, Section
from tfbench.reports.page import Figures
from tfbench.sheet import ResultTable, format_result
from tfbuild import console, settings
from tfbuild.errors import UsageError
from tfbuild.measured.host import Host, read_host
from tfbuild.records import save
from tfbuild.settings import Paths

SCHEMA = 1
"""Of run.json."""
_W = TypeVar("_W", bound="ExperimentOptions")
_Q = TypeVar("_Q", bound="ExperimentConfig")
_R = TypeVar("_R")
_R_contra = TypeVar("_R_contra", contravariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """What an arm was, as a result keeps it."""

    arm: str
    label: str
    wheel_sha256: str
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentRun:
    """One run of an experiment: its arms on this machine, by name, and the folder that keeps its
    cells and gets its result."""

    kind: str
    arms: Mapping[str, Arm]
    host: Host
    out: Path

    @property
    def names(self) -> tuple[str, ...]:
        """Of the arms."""
        return tuple(self.arms)

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        return wheels(self.arms)


class ExperimentOptions(Protocol):
    """Options as they were typed."""

    @property
    def arms(self) -> str: ...

    @property
    def out(self) -> str: ...


class ExperimentConfig(Protocol):
    """The same, read and checked."""

    @property
    def seed(self) -> int: ...


class Summary(Protocol[_R_contra]):
    """How a result is shown on a page beside others: a module of functions."""

    def section(self, found: _R_contra, /) -> Section: ...

    def figures(self, found: _R_contra, /) -> Iterable[Drawing]: ...

    def lines(self, found: _R_contra, /) -> Iterable[str]: ...


class Text(Summary[_R_contra], Protocol[_R_contra]):
    """How it is shown by itself. `KEY` is the section of the document that has the figures."""

    KEY: str

    def sheet(self, found: _R_contra, /) -> ResultTable: ...

    def document(self, found: _R_contra, /) -> Document: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CellExperiment(Generic[_W, _Q, _R]):
    """What tells one experiment from another; `kind` names its folders and its result."""

    kind: str
    read: Callable[[_W], _Q]
    """Raises UsageError."""
    cells: Callable[[_Q, ExperimentRun], Sequence[Cell]]
    result: Callable[[_Q, ExperimentRun, Sequence[CellResult]], _R]
    text: Text[_R]

    def answer(self, wanted: _W, *, as_json: bool) -> tuple[_R, str]:
        """Measure, write the result and its reports; the record and what to print of it.

        Raises UsageError, WheelError, WorkerError, DiskError.
        """
        paths = settings.paths()
        choices = choose_arms(wanted.arms, paths)
        config = self.read(wanted)
        with settings.lock_folder(paths.cache, "a measurement"):
            found = self.measure(config, choices, wanted.out, paths)
        return found, format_result(found, self.text.sheet(found), as_json=as_json)

    def measure(
        self, config: _Q, choices: tuple[ArmChoice, ...], wanted_out: str, paths: Paths
    ) -> _R:
        """The result, written with its report. The caller holds the cache."""
        arms = install_arms(choices, paths)
        run = start(self.kind, config, arms, wanted_out, paths)
        found = self.found(config, run)
        drawn = {self.text.KEY: self.text.figures(found)}
        finish(run, found, self.text.document(found), drawn, paths.templates)
        return found

    def found(self, config: _Q, run: ExperimentRun) -> _R:
        """What the run's folder knows already is not measured again. Raises DiskError,
        RecordError."""
        cells = self.cells(config, run)
        with console.report_step(
            f"{self.kind}, {console.format_count(len(cells), 'process', 'processes')}"
        ):
            results = running.measure(cells, run.arms, run.out, seed=config.seed)
        return self.result(config, run, gathered(cells, results))


def wheels(arms: Mapping[str, Arm]) -> tuple[Wheel, ...]:
    return tuple(
        Wheel(arm=arm.name, label=arm.label, wheel_sha256=arm.wheel_sha256, settings=arm.env)
        for arm in arms.values()
    )


def choose_arms(text: str, paths: Paths) -> tuple[ArmChoice, ...]:
    """The wheels that --arms names, each as `compare` takes them; stock for an empty text.

    Raises UsageError, WheelError, HostError.
    """
    words = [word for word in text.split(",") if word.strip()] or [lineup.STOCK]
    specs = tuple(lineup.parse_arm(word) for word in words)
    names = [spec.name for spec in specs]
    if len({*names}) < len(names):
        raise UsageError(f"two arms have one name ({', '.join(names)})", hint="Write NAME=WHEEL")
    return installs.choose(specs, "", paths)


def names(choices: Iterable[ArmChoice]) -> tuple[str, ...]:
    """Of the arms that the wheels become."""
    return tuple(choice.spec.name for choice in choices)


def install_arms(choices: Sequence[ArmChoice], paths: Paths) -> dict[str, Arm]:
    """By name. Raises what an installation raises."""
    return {arm.name: arm for arm in installs.install(choices, paths)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentSpec:
    """What is asked, of which wheels, on which machine."""

    schema: int = SCHEMA
    kind: str
    question: object
    host: Host
    wheels: tuple[Wheel, ...]


def start(
    kind: str, config: object, arms: Mapping[str, Arm], wanted_out: str, paths: Paths
) -> ExperimentRun:
    """Go on with the run that asked the same of the same wheels on this machine and was stopped,
    or begin one.

    Raises UsageError for a folder of something else, HostError, RecordError, CpuError, DiskError.
    """
    host, named = read_host(), kind_of(kind)
    spec = ExperimentSpec(kind=kind, question=config, host=host, wheels=wheels(arms))
    out = folder.choose_folder(named, spec, wanted_out, paths).resolve()
    folder.begin(named, spec, out)
    console.print_note(f"cells and results: {out}")
    return ExperimentRun(kind=kind, arms=arms, host=host, out=out)


def kind_of(name: str) -> RunKind:
    return RunKind(name=name, prefix=name, result=f"{name}.json")


def finish(
    run: ExperimentRun, result: object, document: Document, figures: Figures, templates: Path
) -> None:
    """Write the report, and the result last: with it a run is whole. Raises DiskError."""
    write_report(run.out, document, templates, figures)
    save(run.out / kind_of(run.kind).result, result)


def write_report(out: Path, document: Document, templates: Path, figures: Figures) -> None:
    """Raises DiskError."""
    console.print_note(f"report: {page.write(out, document, figures, templates)}")
