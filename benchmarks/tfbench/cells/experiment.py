"""What the experiments have in common: which wheels, which folder, what is written at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tfbench.arms import installs, lineup
from tfbench.arms.arm import Arm
from tfbench.arms.installs import Choice
from tfbench.reports import page, report
from tfbench.reports.canvas import Drawing
from tfbench.reports.document import Document
from tfbuild import talk
from tfbuild.errors import UsageError
from tfbuild.records import plain, pretty, save, write_atomic
from tfbuild.settings import Places

QUESTION = "question.json"
MARKDOWN, HTML = "report.md", "report.html"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """What an arm was, as a result keeps it."""

    arm: str
    label: str
    wheel_sha256: str
    settings: tuple[tuple[str, str], ...] = ()


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


def install_arms(choices: Sequence[Choice], places: Places) -> dict[str, Arm]:
    """By name. Raises what an installation raises."""
    return {arm.name: arm for arm in installs.install(choices, places)}


def result_file(kind: str) -> str:
    return f"{kind}.json"


def find_folder(kind: str, question: object, wanted: str, places: Places) -> Path:
    """The wanted one, or that of the last run that asked the same and was stopped, or a new one."""
    if wanted:
        return Path(wanted)
    for folder in sorted(places.reports.glob(f"{kind}-*"), reverse=True):
        stopped = not (folder / result_file(kind)).exists()
        if stopped and _asks(folder / QUESTION, question):
            talk.say(f"going on with the run that was stopped: {folder}")
            return folder
    return places.new_report(kind)


def _asks(path: Path, question: object) -> bool:
    try:
        return path.read_text(encoding="utf-8") == pretty(question)
    except (OSError, UnicodeDecodeError):
        return False


def begin(kind: str, question: object, out: Path) -> None:
    """Write down what is asked. Raises UsageError for a folder in which something else was."""
    path = out / QUESTION
    if path.exists() and not _asks(path, question):
        raise UsageError(
            f"{out} holds another {kind}",
            hint="Give another --out, or none: a run that was stopped is found by itself",
        )
    save(path, plain(question))
    talk.note(f"cells and results: {out}")


def write_report(
    out: Path,
    document: Document,
    templates: Path,
    figures: Mapping[str, Iterable[Drawing]] | None = None,
) -> Path:
    """Markdown and HTML; the latter's path. Raises DiskError."""
    drawn = {key: tuple(each) for key, each in (figures or {}).items()}
    write_atomic(out / MARKDOWN, report.rendered(document, templates))
    write_atomic(out / HTML, page.rendered(document, drawn, templates))
    talk.note(f"report: {out / HTML}")
    return out / HTML


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
