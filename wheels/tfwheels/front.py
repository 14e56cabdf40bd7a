"""What the tasks about indexes call: options in, text out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import Version

from tfbuild import audit, releases, settings, talk, tuned
from tfbuild.download import sha256_of
from tfbuild.errors import UsageError, WheelError
from tfbuild.records import plain, pretty
from tfbuild.settings import Places
from tfbuild.tuned import Tuned
from tfbuild.wheel import read_identity
from tfwheels import gate, publish, snippet, upload
from tfwheels.choosing import Choice
from tfwheels.dependencies import stock_and_dependencies
from tfwheels.gate import Judgement
from tfwheels.publish import Published
from tfwheels.store import open_store


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Options as they were typed; an empty one means the default."""

    to: str = ""
    upload: str = ""
    simple: str = ""
    wheels: str = ""
    comparison: str = ""
    gate: bool = True
    only_tuned: bool = False
    dependencies: str = ""
    rebuild: bool = False
    variants: bool = False
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Offered:
    """A tuned wheel that may be published, and what was measured of it."""

    wheel: Path
    sha256: str
    tuned: Tuned
    judgement: Judgement


def publish_wheels(wanted: Wanted, *, as_json: bool) -> str:
    """Audit and judge the tuned wheels, then put them into the index that was named."""
    if bool(wanted.to) == bool(wanted.upload):
        raise UsageError("name one place for the wheels", hint="--to DIR or --upload URL")
    places = settings.places()
    offered = [_offered(path, wanted, places) for path in _tuned_wheels(wanted, places)]
    if wanted.upload:
        sent = upload.upload(
            [each.wheel for each in offered],
            wanted.upload,
            pages=wanted.simple,
            dry_run=wanted.dry_run,
        )
        return pretty(sent) if as_json else _uploads(sent, dry_run=wanted.dry_run)
    others = () if wanted.only_tuned else _stock_of(offered, wanted, places)
    published = publish.publish(
        [*(each.wheel for each in offered), *others],
        open_store(wanted.to),
        judgements={each.sha256: each.judgement for each in offered},
        now=datetime.now(UTC).isoformat(timespec="seconds"),
        rebuild=wanted.rebuild,
        dry_run=wanted.dry_run,
    )
    if as_json:
        return pretty(plain(published) | {"judgements": _judgements(offered)})
    return _describe(published, wanted)


def _tuned_wheels(wanted: Wanted, places: Places) -> tuple[Path, ...]:
    """Those that were named, else all tuned ones of the pool that are not for comparing only."""
    if wanted.wheels:
        named = [Path(word).expanduser() for word in wanted.wheels.split(",") if word.strip()]
        lost = next((path for path in named if not path.is_file()), None)
        if lost is not None:
            raise WheelError(f"there is no wheel {lost}", hint="Give the path of a .whl file")
        return tuple(named)
    found = [
        path
        for path in sorted(places.pool.glob("*.whl"))
        if (facts := tuned.read_tuned(path)) is not None and not tuned.is_control(facts)
    ]
    if not found and not wanted.rebuild:
        raise WheelError(
            f"there is no tuned wheel in {places.pool}",
            hint="Make one (invoke build), or name some with --wheels",
        )
    return tuple(found)


def _offered(path: Path, wanted: Wanted, places: Places) -> Offered:
    """Raises AuditError, GateError, WheelError for a wheel that must not be handed out."""
    facts = tuned.read_tuned(path)
    if facts is None:
        raise WheelError(
            f"{path.name} is not a tuned wheel",
            hint="The stock wheel and its dependencies are published with the tuned ones",
        )
    with talk.step(f"audit {path.name}"):
        audit.judge(audit.audit(path, places=places))
    sha256 = sha256_of(path)
    named = [Path(word) for word in wanted.comparison.split(",") if word.strip()]
    files = named or gate.find_comparisons(places.reports, sha256)
    judged = gate.judge if wanted.gate else gate.examine
    judgement = judged(path.name, sha256, facts, [_comparison(each) for each in files])
    for gap in () if wanted.gate else (*judgement.faults, *judgement.gaps):
        talk.warn(f"{path.name}: {gap}")
    if judgement.silent:
        talk.note(f"{path.name}: nothing was measured of {', '.join(judgement.silent)}")
    return Offered(wheel=path, sha256=sha256, tuned=facts, judgement=judgement)


def _comparison(path: Path) -> Path:
    return path / gate.COMPARISON if path.is_dir() else path


def _stock_of(offered: Iterable[Offered], wanted: Wanted, places: Places) -> tuple[Path, ...]:
    """The stock wheels of what is offered and all that they need, each once."""
    kinds = {
        (facts.release, identity.name, identity.python)
        for each in offered
        for facts, identity in [(each.tuned, read_identity(each.wheel))]
    }
    given = Path(wanted.dependencies).expanduser() if wanted.dependencies else None
    found: dict[str, Path] = {}
    for release, package, python in sorted(kinds):
        with talk.step(f"{package} {release} for Python {python} and what it needs"):
            known = releases.find_release(release)
            paths = stock_and_dependencies(known, package, python, places, given=given)
        found |= {path.name: path for path in paths}
    return tuple(found.values())


def _judgements(offered: Iterable[Offered]) -> dict[str, object]:
    return {
        each.wheel.name: {
            "verdicts": each.judgement.verdicts,
            "faults": each.judgement.faults,
            "gaps": each.judgement.gaps,
            "silent": each.judgement.silent,
        }
        for each in offered
    }


def _uploads(sent: Sequence[upload.Upload], *, dry_run: bool) -> str:
    lines = [f"{each.state.value:<14} {each.wheel.name}" for each in sent]
    if dry_run:
        lines.append("nothing was sent (--dry-run)")
    return "".join(f"{line}\n" for line in lines)


def _describe(published: Published, wanted: Wanted) -> str:
    """What was added, then what every target gets of the versions that were given."""
    verb = "would be added" if wanted.dry_run else "added"
    counts = (
        f"{talk.count(len(published.added), 'wheel')} {verb}, {len(published.present)} were there, "
        f"{talk.count(len(published.pages), 'page')} changed"
    )
    lines = [f"{wanted.to}: {counts}"]
    for version, targets in _by_version(published.choices).items():
        lines.append(f"{version:<32} {' '.join(targets)}")
    if not wanted.dry_run:
        lines.append(f"Try it: invoke serve --at {wanted.to}")
        lines.append(f"Install from it: invoke install-snippet --at {wanted.to}")
    return "".join(f"{line}\n" for line in lines)


def _by_version(choices: Mapping[str, Sequence[Choice]]) -> dict[str, list[str]]:
    """The TensorFlow wheels that were chosen, newest first, with the targets that get them."""
    found: dict[str, list[str]] = defaultdict(list)
    for target, chosen in choices.items():
        for version in {choice.entry.version for choice in chosen}:
            found[version].append(target)
    order = sorted(found, key=Version, reverse=True)
    return {version: found[version] for version in order}


def describe_install(
    at: str, *, version: str, target: str, package: str, python: str, as_json: bool
) -> str:
    """The lines that install from an index."""
    if not at:
        raise UsageError("name the index", hint="--at DIR, or the address that it is served at")
    made = snippet.install_snippet(
        at, version=version, target=target, package=package, python=python
    )
    return pretty(made) if as_json else snippet.describe(made)
