"""Handlers of the commands about indexes: options in, text out."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from tfbuild import console, settings
from tfbuild.cpus.cpu import read_cpu
from tfbuild.errors import CpuError, UsageError, WheelError
from tfbuild.measured import comparison
from tfbuild.packing.wheel import read_identity
from tfbuild.records import format_json
from tfbuild.settings import Paths
from tfbuild.upstream import releases
from tfwheels import snippet, summary
from tfwheels.candidates import Candidates, Rule, WheelCandidate, named_candidates, pool_candidates
from tfwheels.commands import PublishOptions, SnippetOptions
from tfwheels.dependencies import stock_and_dependencies
from tfwheels.keys import read_signing_key
from tfwheels.level_variants import publish_variants
from tfwheels.publish import publish
from tfwheels.remote import check_url
from tfwheels.sigstore_client import find_identity
from tfwheels.store import Store, open_store
from tfwheels.trust import Signing, read_trusted, settled
from tfwheels.upload import upload

_SIGSTORE = "sigstore"
"""What --sign has instead of the path of a key; a file of that name is ./sigstore."""


def publish_wheels(wanted: PublishOptions, *, as_json: bool) -> str:
    """Audit and judge the tuned wheels, then put them into the index that was named.

    What was typed is looked at first, so that a wrong option takes no time and leaves no trace.
    """
    _need_sense(wanted)
    paths = settings.paths()
    signing = _signing(wanted)
    store = open_store(wanted.to) if wanted.to else None
    if store is not None and (wanted.sign or wanted.trust or wanted.variants):
        signing = settled(signing, store)
    if wanted.variants and signing.trusted:
        raise UsageError("an index of signed wheels has no variants: they are unsigned")
    rule = Rule(
        comparisons=tuple(_comparisons(wanted.comparison)),
        gated=wanted.gate,
        near=wanted.near_sources,
        stock=_given(wanted.stock_wheel or wanted.dependencies),
        now=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    named = tuple(_named_wheels(wanted.wheels))
    candidates = named_candidates(named, rule, paths) if named else pool_candidates(rule, paths)
    if not wanted.reindex:
        _need_some(candidates, paths)
    _warn(candidates, gated=wanted.gate)
    if store is None:
        return _upload(candidates, wanted, as_json=as_json)
    return _publish(candidates, store, wanted, signing, rule.now, paths, as_json=as_json)


def _publish(
    candidates: Candidates,
    store: Store,
    wanted: PublishOptions,
    signing: Signing,
    now: str,
    paths: Paths,
    *,
    as_json: bool,
) -> str:
    others = () if wanted.only_tuned else _stock_of(candidates.made, wanted, paths)
    dry_run = wanted.dry_run
    with contextlib.nullcontext() if dry_run else console.report_step(f"publish to {store.where}"):
        published = publish(
            [*(each.wheel for each in candidates.made), *others],
            store,
            judgements={each.entry.sha256: each.judgement for each in candidates.made},
            now=now,
            signing=signing,
            reindex=wanted.reindex,
            dry_run=dry_run,
        )
    if wanted.variants:
        publish_variants([each.wheel for each in candidates.made], store, now=now, dry_run=dry_run)
    with contextlib.suppress(CpuError):
        for line in summary.unserved(published, candidates.made, read_cpu()):
            console.print_note(line)
    if as_json:
        return format_json(summary.fields(published, candidates, store.where, dry_run=dry_run))
    text = summary.describe(published, candidates, store.where, dry_run=dry_run)
    if dry_run or wanted.to.startswith("s3:"):
        return text
    at = shlex.quote(store.where)
    return f"{text}\nTry it: invoke serve --at {at}\nUse it: invoke install-snippet --at {at}\n"


def _upload(candidates: Candidates, wanted: PublishOptions, *, as_json: bool) -> str:
    wheels = [each.wheel for each in candidates.made]
    sent = upload(wheels, wanted.upload, pages=wanted.simple, dry_run=wanted.dry_run)
    if as_json:
        return format_json(summary.upload_fields(sent, candidates, wanted.upload))
    return summary.describe_uploads(sent, candidates, wanted.upload, dry_run=wanted.dry_run)


# ---- what was typed ----


def _need_sense(wanted: PublishOptions) -> None:
    """Raises UsageError where an option is missing, or would do nothing."""
    if bool(wanted.to) == bool(wanted.upload):
        raise UsageError("name one place for the wheels", hint="--to DIR or --upload URL")
    if wanted.upload:
        check_url(wanted.upload, "--upload")
    if wanted.simple:
        check_url(wanted.simple, "--simple")
    idle = (
        ("--simple", wanted.simple, "--to", wanted.to),
        ("--only-tuned", wanted.only_tuned, "--upload", wanted.upload),
        ("--reindex", wanted.reindex, "--upload", wanted.upload),
        ("--variants", wanted.variants, "--upload", wanted.upload),
        ("--sign", wanted.sign, "--upload", wanted.upload),
        ("--trust", wanted.trust, "--upload", wanted.upload),
        ("--dependencies", wanted.dependencies, "--upload", wanted.upload),
        ("--dependencies", wanted.dependencies, "--only-tuned", wanted.only_tuned),
    )
    for option, given, other, beside in idle:
        if given and beside:
            raise UsageError(f"{option} does nothing with {other}", hint="Leave one of them out")
    if wanted.sign == _SIGSTORE and wanted.dry_run:
        raise UsageError(
            "--sign sigstore with --dry-run would write to a public log, which forgets nothing",
            hint="Leave one of them out",
        )
    if wanted.stock_wheel and not Path(wanted.stock_wheel).expanduser().exists():
        raise UsageError(f"--stock-wheel {wanted.stock_wheel} is no file and no folder")
    if wanted.dependencies and not Path(wanted.dependencies).expanduser().is_dir():
        raise UsageError(f"--dependencies {wanted.dependencies} is no folder")


def _given(text: str) -> Path | None:
    return Path(text).expanduser() if text else None


def _signing(wanted: PublishOptions) -> Signing:
    """Raises UsageError for keys that are none, and where there is no identity, ToolError."""
    trusted = read_trusted(wanted.trust)
    if wanted.sign == _SIGSTORE:
        return Signing(key=find_identity(), trusted=trusted)
    key = read_signing_key(Path(wanted.sign).expanduser()) if wanted.sign else None
    return Signing(key=key, trusted=trusted)


def _paths(text: str) -> Iterator[Path]:
    """Shells leave the ~ after a comma as it is."""
    return (Path(word.strip()).expanduser() for word in text.split(",") if word.strip())


def _named_wheels(text: str) -> Iterator[Path]:
    """Each once. Raises WheelError for one that is not there."""
    for path in {path.resolve(): path for path in _paths(text)}.values():
        if path.is_dir():
            raise WheelError(f"{path} is a folder", hint="Give paths of .whl files")
        if not path.is_file():
            raise WheelError(f"there is no wheel {path}", hint="Give the path of a .whl file")
        yield path


def _comparisons(text: str) -> Iterator[Path]:
    """Raises RecordError for one that cannot be read."""
    for path in _paths(text):
        file = path / comparison.FILE if path.is_dir() else path
        comparison.load(file)
        yield file


# ---- what is published ----


def _need_some(candidates: Candidates, paths: Paths) -> None:
    """Raises why the first wheel was refused when none is left, or that there is none."""
    if candidates.made:
        return
    if not candidates.refused:
        raise WheelError(
            f"there is no tuned wheel in {paths.pool}",
            hint="Make one (invoke build), or name some with --wheels",
        )
    first, *others = candidates.refused.values()
    for error in others:
        console.warn(f"left out: {error.message}")
    raise first


def _warn(candidates: Candidates, *, gated: bool) -> None:
    """Of wheels that were left out, and of those that are published against what was measured."""
    for error in candidates.refused.values():
        console.warn(f"left out: {error.message}")
    for each in () if gated else candidates.made:
        for what in (*each.judgement.faults, *each.judgement.gaps):
            console.warn(f"{each.entry.file}: {what}")


def _stock_of(
    made: Iterable[WheelCandidate], wanted: PublishOptions, paths: Paths
) -> tuple[Path, ...]:
    """The stock wheels of what is offered and all that they need, each once."""
    kinds = {
        (each.tuned.release, identity.name, identity.python)
        for each in made
        for identity in [read_identity(each.wheel)]
    }
    given = _given(wanted.dependencies)
    found: dict[str, Path] = {}
    for release, package, python in sorted(kinds):
        with console.report_step(f"{package} {release} for Python {python} and what it needs"):
            known = releases.find_release(release)
            stock = stock_and_dependencies(known, package, python, paths, given=given)
        found |= {path.name: path for path in stock}
    return tuple(found.values())


def describe_install(wanted: SnippetOptions, *, as_json: bool) -> str:
    """The lines that install from an index."""
    if not wanted.at:
        raise UsageError("name the index", hint="--at DIR, or the address that it is served at")
    made = snippet.install_snippet(wanted)
    return format_json(made) if as_json else snippet.describe(made)
