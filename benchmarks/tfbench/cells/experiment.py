"""What the experiments have in common: which wheels, which folder, what is written at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tfbench.arms import installs, lineup
from tfbench.arms.arm import Arm
from tfbench.arms.installs import Choice
from tfbench.engine import folder
from tfbench.engine.folder import Kind
from tfbench.measuring.host import Host, read_host
from tfbench.reports import page, report
from tfbench.reports.canvas import Drawing
from tfbench.reports.document import Document
from tfbuild import talk
from tfbuild.errors import UsageError
from tfbuild.records import save, write_atomic
from tfbuild.settings import Places

SCHEMA = 1
"""Of run.json."""
MARKDOWN, HTML = "report.md", "report.html"
Figures = Mapping[str, Iterable[Drawing]]
"""By the key of the section that they stand in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """What an arm was, as a result keeps it."""

    arm: str
    label: str
    wheel_sha256: str
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
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


def wheels(arms: Mapping[str, Arm]) -> tuple[Wheel, ...]:
    return tuple(
        Wheel(arm=arm.name, label=arm.label, wheel_sha256=arm.wheel_sha256, settings=arm.env)
        for arm in arms.values()
    )


def choose_arms(text: str, places: Places) -> tuple[Choice, ...]:
    """The wheels that --arms names, each as `compare` takes them; stock for an empty text.

    Raises UsageError, WheelError, HostError.
    """
    words = [word for word in text.split(",") if word.strip()] or [lineup.STOCK]
    specs = tuple(lineup.parse_arm(word) for word in words)
    names = [spec.name for spec in specs]
    if len({*names}) < len(names):
        raise UsageError(f"two arms have one name ({', '.join(names)})", hint="Write NAME=WHEEL")
    return installs.choose(specs, "", places)


def names(choices: Iterable[Choice]) -> tuple[str, ...]:
    """Of the arms that the wheels become."""
    return tuple(choice.spec.name for choice in choices)


def install_arms(choices: Sequence[Choice], places: Places) -> dict[str, Arm]:
    """By name. Raises what an installation raises."""
    return {arm.name: arm for arm in installs.install(choices, places)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """What is asked, of which wheels, on which machine."""

    schema: int = SCHEMA
    kind: str
    question: object
    host: Host
    wheels: tuple[Wheel, ...]


def start(
    kind: str, question: object, arms: Mapping[str, Arm], wanted_out: str, places: Places
) -> Run:
    """Go on with the run that asked the same of the same wheels on this machine and was stopped,
    or begin one.

    Raises UsageError for a folder of something else, HostError, RecordError, CpuError, DiskError.
    """
    host, named = read_host(), kind_of(kind)
    spec = Spec(kind=kind, question=question, host=host, wheels=wheels(arms))
    out = folder.find(named, spec, wanted_out, places).resolve()
    folder.begin(named, spec, out)
    talk.note(f"cells and results: {out}")
    return Run(kind=kind, arms=arms, host=host, out=out)


def kind_of(name: str) -> Kind:
    return Kind(name=name, prefix=name, result=f"{name}.json")


def finish(run: Run, result: object, document: Document, figures: Figures, templates: Path) -> None:
    """Write the report, and the result last: with it a run is whole. Raises DiskError."""
    write_report(run.out, document, templates, figures)
    save(run.out / kind_of(run.kind).result, result)


def write_report(
    out: Path,
    document: Document,
    templates: Path,
    figures: Figures,
) -> None:
    """As Markdown and HTML. Raises DiskError."""
    drawn = {key: tuple(each) for key, each in figures.items()}
    write_atomic(out / MARKDOWN, report.rendered(document, templates))
    write_atomic(out / HTML, page.rendered(document, drawn, templates))
    talk.note(f"report: {out / HTML}")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
