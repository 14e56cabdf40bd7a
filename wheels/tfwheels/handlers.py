"""Handlers of the commands for package indexes: options in, text out."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from tfbuild import console, settings
from tfbuild.comparisons import comparison
from tfbuild.cpus.cpu import read_cpu
from tfbuild.errors import CpuError, UsageError, WheelError
from tfbuild.packing.wheel import read_identity
from tfbuild.records import format_json
from tfbuild.settings import Paths
from tfbuild.upstream import releases
from tfwheels import snippet, summary
from tfwheels.candidates import Candidates, PublishRule, WheelCandidate, check_named, check_pool
from tfwheels.commands import PublishOptions, SnippetOptions
from tfwheels.dependencies import fetch_stock_and_dependencies
from tfwheels.keys import read_public_keys, read_signing_key
from tfwheels.level_variants import publish_variants
from tfwheels.publish import publish
from tfwheels.remote import check_url
from tfwheels.store import Store, open_store
from tfwheels.trust import Signing, resolve_signing
from tfwheels.upload import upload


def publish_wheels(wanted: PublishOptions, *, as_json: bool) -> str:
    """Check the tuned wheels, then publish them to the index.

    Options are checked first, so that an invalid one fails at once and without side effects.
    """
    _check_options(wanted)
    paths = settings.paths()
    signing = _read_signing(wanted)
    store = open_store(wanted.to) if wanted.to else None
    if store is not None and (wanted.sign or wanted.trust or wanted.variants):
        signing = resolve_signing(signing, store)
    if wanted.variants and signing.trusted:
        raise UsageError(
            "--variants writes unsigned wheels, and this index accepts only signed ones",
            hint="Omit --variants",
        )
    rule = PublishRule(
        comparisons=tuple(_list_comparisons(wanted.comparison)),
        gated=wanted.gate,
        near=wanted.near_sources,
        stock=_parse_path(wanted.stock_wheel or wanted.dependencies),
        now=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    named = tuple(_list_named_wheels(wanted.wheels))
    candidates = check_named(named, rule, paths) if named else check_pool(rule, paths)
    if not wanted.reindex:
        _require_candidates(candidates, paths)
    _warn_of_wheels(candidates, gated=wanted.gate)
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
    others = () if wanted.only_tuned else _fetch_stock(candidates.made, wanted, paths)
    dry_run = wanted.dry_run
    with contextlib.nullcontext() if dry_run else console.report_step(f"publish to {store.where}"):
        published = publish(
            [*(candidate.wheel for candidate in candidates.made), *others],
            store,
            judgements={
                candidate.entry.sha256: candidate.judgement for candidate in candidates.made
            },
            now=now,
            signing=signing,
            reindex=wanted.reindex,
            dry_run=dry_run,
        )
    if wanted.variants:
        publish_variants(
            [candidate.wheel for candidate in candidates.made], store, now=now, dry_run=dry_run
        )
    with contextlib.suppress(CpuError):
        for line in summary.find_unserved(published, candidates.made, read_cpu()):
            console.print_note(line)
    if as_json:
        return format_json(
            summary.build_fields(published, candidates, store.where, dry_run=dry_run)
        )
    text = summary.describe(published, candidates, store.where, dry_run=dry_run)
    if dry_run or wanted.to.startswith("s3:"):
        return text
    at = shlex.quote(store.where)
    return f"{text}\nTry it: invoke serve --at {at}\nUse it: invoke install-snippet --at {at}\n"


def _upload(candidates: Candidates, wanted: PublishOptions, *, as_json: bool) -> str:
    wheels = [candidate.wheel for candidate in candidates.made]
    sent = upload(wheels, wanted.upload, pages=wanted.simple, dry_run=wanted.dry_run)
    if as_json:
        return format_json(summary.build_upload_fields(sent, candidates, wanted.upload))
    return summary.describe_uploads(sent, candidates, wanted.upload, dry_run=wanted.dry_run)


# ---- options ----


def _check_options(wanted: PublishOptions) -> None:
    """Raise UsageError if an option is missing, invalid or without effect."""
    if bool(wanted.to) == bool(wanted.upload):
        raise UsageError(
            "publish needs either --to or --upload",
            hint="Use --to DIR, --to s3://bucket/prefix or --upload URL",
        )
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
    for option, value, other, other_value in idle:
        if value and other_value:
            raise UsageError(f"{option} has no effect with {other}", hint="Omit one of them")
    if wanted.stock_wheel and not Path(wanted.stock_wheel).expanduser().exists():
        raise UsageError(f"--stock-wheel {wanted.stock_wheel} does not exist")
    if wanted.dependencies and not Path(wanted.dependencies).expanduser().is_dir():
        raise UsageError(f"--dependencies {wanted.dependencies} is not a folder")


def _parse_path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None


def _read_signing(wanted: PublishOptions) -> Signing:
    """Read the signing key and the trusted keys. Raises UsageError for an invalid one."""
    trusted = read_public_keys(wanted.trust)
    key = read_signing_key(Path(wanted.sign).expanduser()) if wanted.sign else None
    return Signing(key=key, trusted=trusted)


def _parse_paths(text: str) -> Iterator[Path]:
    """Yield comma-separated paths; expand ~, because shells do not expand it after a comma."""
    return (Path(word.strip()).expanduser() for word in text.split(",") if word.strip())


def _list_named_wheels(text: str) -> Iterator[Path]:
    """Yield each named wheel once.

    Raises WheelError for one that does not exist.
    """
    for path in {path.resolve(): path for path in _parse_paths(text)}.values():
        if path.is_dir():
            raise WheelError(f"{path} is a folder", hint="Give the paths of .whl files")
        if not path.is_file():
            raise WheelError(f"{path} does not exist", hint="Give the path of a .whl file")
        yield path


def _list_comparisons(text: str) -> Iterator[Path]:
    """Yield the named comparison files.

    Raises RecordError for one that cannot be read.
    """
    for path in _parse_paths(text):
        file = path / comparison.FILE if path.is_dir() else path
        comparison.load(file)
        yield file


# ---- wheels ----


def _require_candidates(candidates: Candidates, paths: Paths) -> None:
    """Raise the error of the first refused wheel if there is no candidate.

    Raises WheelError if there is no refused wheel either.
    """
    if candidates.made:
        return
    if not candidates.refused:
        raise WheelError(
            f"there is no tuned wheel in {paths.pool}",
            hint="Build one with invoke build, or pass paths with --wheels",
        )
    first, *others = candidates.refused.values()
    for error in others:
        console.warn(f"excluded: {error.message}")
    raise first


def _warn_of_wheels(candidates: Candidates, *, gated: bool) -> None:
    """Warn of excluded wheels and, without the gate, of its reasons against the others."""
    for error in candidates.refused.values():
        console.warn(f"excluded: {error.message}")
    for candidate in () if gated else candidates.made:
        for reason in (*candidate.judgement.faults, *candidate.judgement.gaps):
            console.warn(f"{candidate.entry.file}: {reason}")


def _fetch_stock(
    made: Iterable[WheelCandidate], wanted: PublishOptions, paths: Paths
) -> tuple[Path, ...]:
    """Return the stock wheels of the candidates and their dependencies, each once."""
    kinds = {
        (candidate.tuned.release, identity.name, identity.python)
        for candidate in made
        for identity in [read_identity(candidate.wheel)]
    }
    folder = _parse_path(wanted.dependencies)
    by_name: dict[str, Path] = {}
    for release, package, python in sorted(kinds):
        with console.report_step(f"{package} {release} for Python {python} and its dependencies"):
            known_release = releases.find_release(release)
            stock = fetch_stock_and_dependencies(
                known_release, package, python, paths, given=folder
            )
        by_name |= {path.name: path for path in stock}
    return tuple(by_name.values())


def describe_install(wanted: SnippetOptions, *, as_json: bool) -> str:
    """Return the commands for pip and uv that install from an index, or JSON."""
    if not wanted.at:
        raise UsageError("--at is missing", hint="Pass the folder or the address of the index")
    resolved = snippet.resolve_snippet(wanted)
    return format_json(resolved) if as_json else snippet.describe(resolved)
