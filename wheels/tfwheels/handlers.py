"""Handlers of the commands for package indexes: options in, text out."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from tfbuild.packing.wheel import read_identity
from tfbuild.upstream import releases
from tfcore import console, settings
from tfcore.comparisons import comparison
from tfcore.cpus.cpu import read_cpu
from tfcore.errors import CpuError, PublishError, UsageError, WheelError
from tfcore.records import format_json
from tfcore.settings import Paths
from tfwheels import catalog, check_index, check_installed, snippet, summary
from tfwheels.candidates import Candidates, PublishRule, WheelCandidate, check_named, check_pool
from tfwheels.commands import (
    CheckIndexOptions,
    CheckInstalledOptions,
    PublishOptions,
    SnippetOptions,
)
from tfwheels.dependencies import WheelUse, fetch_stock_and_dependencies
from tfwheels.keys import read_public_keys, read_signing_key
from tfwheels.level_variants import publish_variants, renew_variants
from tfwheels.other_indexes import describe_other_indexes
from tfwheels.publish import publish
from tfwheels.reader import find_target, open_reader
from tfwheels.remote import check_url
from tfwheels.signed_catalog import read_catalog
from tfwheels.store import Store, open_store
from tfwheels.trust import Signing, resolve_signing
from tfwheels.upload import upload
from tfwheels.withdrawal import WithdrawalChange, parse_change


def publish_wheels(options: PublishOptions, *, as_json: bool) -> str:
    """Check the tuned wheels, then publish them to the index.

    Options are checked first, so that an invalid one fails at once and without side effects.
    """
    _check_options(options)
    change = parse_change(options.yank, options.quarantine, options.restore, options.reason)
    paths = settings.paths()
    signing = _read_signing(options)
    store = open_store(options.to) if options.to else None
    if store is not None and (options.sign or options.trust or options.variants):
        signing = resolve_signing(signing, store)
    if options.variants and signing.trusted:
        raise UsageError(
            "--variants writes unsigned wheels, and this index accepts only signed ones",
            hint="Omit --variants",
        )
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if store is not None and (change.names or options.renew):
        return _amend(store, change, options, signing, now, as_json=as_json)
    rule = PublishRule(
        comparisons=tuple(_list_comparisons(options.comparison)),
        gated=options.gate,
        near=options.near_sources,
        searched=options.require_results,
        rebuilders=read_public_keys(options.rebuilt_by, "--rebuilt-by"),
        stock=_parse_path(options.stock_wheel or options.dependencies, "--stock-wheel"),
        now=now,
    )
    named = tuple(_list_named_wheels(options.wheels))
    candidates = check_named(named, rule, paths) if named else check_pool(rule, paths)
    if not options.reindex:
        _require_candidates(candidates, paths)
    _warn_of_wheels(candidates, gated=options.gate)
    if store is None:
        return _upload(candidates, options, as_json=as_json)
    return _publish(candidates, store, options, signing, now, paths, as_json=as_json)


def _amend(
    store: Store,
    change: WithdrawalChange,
    options: PublishOptions,
    signing: Signing,
    now: str,
    *,
    as_json: bool,
) -> str:
    """Withdraw or restore wheels of an index, or sign its catalog again."""
    dry_run = options.dry_run
    if store.read(catalog.KEY) is None:
        raise UsageError(f"{store.where} is not an index: it has no {catalog.KEY}")
    signing = resolve_signing(signing, store)
    if options.renew and not signing.catalog_key:
        raise UsageError(
            "--renew needs --sign, and an index with trusted signers",
            hint="Add --sign KEY --trust PUBLIC",
        )
    published = publish(
        (),
        store,
        judgements={},
        now=now,
        signing=signing,
        change=change,
        renew=options.renew,
        history=settings.paths().indexes,
        dry_run=dry_run,
    )
    if change.names and not dry_run:
        renew_variants(store)
    nothing = Candidates(made=(), refused={})
    if as_json:
        return format_json(summary.build_fields(published, nothing, store.where, dry_run=dry_run))
    if options.renew:
        return _describe_signature(store, dry_run=dry_run)
    return summary.describe(published, nothing, store.where, dry_run=dry_run)


def _describe_signature(store: Store, *, dry_run: bool) -> str:
    signed = catalog.parse(store.read(catalog.KEY), store.where)
    until = signed.signature.expires if signed.signature else "never"
    if dry_run:
        return f"{store.where}: the catalog would be signed again; now it is valid until {until}\n"
    return f"{store.where}: revision {signed.revision}, valid until {until}\n"


def _publish(
    candidates: Candidates,
    store: Store,
    options: PublishOptions,
    signing: Signing,
    now: str,
    paths: Paths,
    *,
    as_json: bool,
) -> str:
    stock_wheels = () if options.only_tuned else _fetch_stock(candidates.made, options, paths)
    dry_run = options.dry_run
    with contextlib.nullcontext() if dry_run else console.report_step(f"publish to {store.where}"):
        published = publish(
            [*(candidate.wheel for candidate in candidates.made), *stock_wheels],
            store,
            judgements={
                candidate.entry.sha256: candidate.judgement for candidate in candidates.made
            },
            now=now,
            checked=candidates.hashes,
            rebuilt={
                candidate.entry.sha256: candidate.rebuilt
                for candidate in candidates.made
                if candidate.rebuilt
            },
            signing=signing,
            reindex=options.reindex,
            history=paths.indexes,
            dry_run=dry_run,
        )
    if options.variants:
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
    if dry_run or options.to.startswith("s3:"):
        return text
    at = shlex.quote(store.where)
    return f"{text}\nTry it: invoke serve --at {at}\nUse it: invoke install-snippet --at {at}\n"


def _upload(candidates: Candidates, options: PublishOptions, *, as_json: bool) -> str:
    wheels = [candidate.wheel for candidate in candidates.made]
    sent = upload(
        wheels,
        options.upload,
        checked=candidates.hashes,
        pages=options.simple,
        dry_run=options.dry_run,
    )
    if as_json:
        return format_json(summary.build_upload_fields(sent, candidates, options.upload))
    return summary.describe_uploads(sent, candidates, options.upload, dry_run=options.dry_run)


# ---- options ----


def _check_options(options: PublishOptions) -> None:
    """Raise UsageError if an option is missing, invalid or without effect."""
    if bool(options.to) == bool(options.upload):
        raise UsageError(
            "publish needs either --to or --upload",
            hint="Use --to DIR, --to s3://bucket/prefix or --upload URL",
        )
    if options.upload:
        check_url(options.upload, "--upload")
    if options.simple:
        check_url(options.simple, "--simple")
    idle = (
        ("--simple", options.simple, "--to", options.to),
        ("--only-tuned", options.only_tuned, "--upload", options.upload),
        ("--reindex", options.reindex, "--upload", options.upload),
        ("--variants", options.variants, "--upload", options.upload),
        ("--sign", options.sign, "--upload", options.upload),
        ("--trust", options.trust, "--upload", options.upload),
        ("--dependencies", options.dependencies, "--upload", options.upload),
        ("--dependencies", options.dependencies, "--only-tuned", options.only_tuned),
        *_list_idle_when_amending(options),
    )
    for option, value, other_option, other_value in idle:
        if value and other_value:
            raise UsageError(f"{option} has no effect with {other_option}", hint="Omit one of them")
    stock_wheel = _parse_path(options.stock_wheel, "--stock-wheel")
    if stock_wheel and not stock_wheel.exists():
        raise UsageError(f"--stock-wheel {options.stock_wheel} does not exist")
    dependencies = _parse_path(options.dependencies, "--dependencies")
    if dependencies and not dependencies.is_dir():
        raise UsageError(f"--dependencies {options.dependencies} is not a folder")


def _list_idle_when_amending(
    options: PublishOptions,
) -> Iterator[tuple[str, str | bool, str, str]]:
    """Yield the options that have no effect with those that `_amend` serves."""
    others: dict[str, str | bool] = {
        "--upload": options.upload,
        "--wheels": options.wheels,
        "--comparison": options.comparison,
        "--near-sources": options.near_sources,
        "--only-tuned": options.only_tuned,
        "--dependencies": options.dependencies,
        "--stock-wheel": options.stock_wheel,
        "--reindex": options.reindex,
        "--variants": options.variants,
        "--require-results": options.require_results,
        "--rebuilt-by": options.rebuilt_by,
    }
    amending = {
        "--yank": options.yank,
        "--quarantine": options.quarantine,
        "--restore": options.restore,
        "--renew": "yes" if options.renew else "",
    }
    for option, given in amending.items():
        for other, value in others.items():
            yield other, value, option, given
    if any((options.yank, options.quarantine, options.restore)):
        yield "--renew", options.renew, "--yank, --quarantine and --restore", "yes"


def _parse_path(text: str, option: str) -> Path | None:
    return settings.expand_home(text, option) if text else None


def _read_signing(options: PublishOptions) -> Signing:
    """Read the signing key and the trusted keys. Raises UsageError for an invalid one."""
    trusted = read_public_keys(options.trust)
    path = _parse_path(options.sign, "--sign")
    key = read_signing_key(path) if path else None
    return Signing(key=key, trusted=trusted)


def _parse_paths(text: str, option: str) -> tuple[Path, ...]:
    """Parse comma-separated paths. Raises UsageError if the text names none, but is not empty."""
    paths = settings.expand_paths(text, option)
    if text and not paths:
        raise UsageError(f"{option} names no file", hint=f"Give a path, or omit {option}")
    return paths


def _list_named_wheels(text: str) -> Iterator[Path]:
    """Yield each named wheel once.

    Raises UsageError, and WheelError for a wheel that does not exist.
    """
    for path in {path.resolve(): path for path in _parse_paths(text, "--wheels")}.values():
        if path.is_dir():
            raise WheelError(f"{path} is a folder", hint="Give the paths of .whl files")
        if not path.is_file():
            raise WheelError(f"{path} does not exist", hint="Give the path of a .whl file")
        yield path


def _list_comparisons(text: str) -> Iterator[Path]:
    """Yield the named comparison files.

    Raises UsageError, and RecordError for a file that cannot be read.
    """
    for path in _parse_paths(text, "--comparison"):
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
    first, *further = candidates.refused.values()
    for error in further:
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
    candidates: Iterable[WheelCandidate], options: PublishOptions, paths: Paths
) -> tuple[Path, ...]:
    """Return the stock wheels of the candidates and their dependencies, each once."""
    kinds = {
        (candidate.tuned.release, identity.name, identity.python, identity.machine)
        for candidate in candidates
        for identity in [read_identity(candidate.wheel)]
    }
    folder = _parse_path(options.dependencies, "--dependencies")
    by_name: dict[str, Path] = {}
    for release, package, python, machine in sorted(kinds):
        what = f"{package} {release} for Python {python} on {machine}"
        with console.report_step(f"{what} and its dependencies"):
            known_release = releases.find_release(release)
            use = WheelUse(python=python, machine=machine)
            stock = fetch_stock_and_dependencies(
                known_release, package, use, paths, wheel_folder=folder
            )
        by_name |= {path.name: path for path in stock}
    return tuple(by_name.values())


def check_served_index(
    options: CheckIndexOptions, *, as_json: bool
) -> tuple[check_index.CheckedIndex, str]:
    """Check a signed index; return the result as a record and as text."""
    trusted = read_public_keys(options.trust)
    if not trusted:
        raise UsageError("--trust is missing", hint="Pass the public key of the index's publisher")
    target = find_target(options.arch)
    with open_reader(options.at) as reader:
        checked = check_index.check_index(
            reader,
            trusted,
            target=target.name,
            now=datetime.now(UTC),
            history=settings.paths().indexes,
        )
    return checked, format_json(checked) if as_json else check_index.describe(checked)


def check_environment(
    options: CheckInstalledOptions, *, as_json: bool
) -> tuple[tuple[check_installed.CheckedWheel, ...], str]:
    """Compare the installed TensorFlow with an index; return the result as records and as text."""
    trusted = read_public_keys(options.trust)
    target = find_target(options.arch)
    python = check_installed.find_python(options.environment)
    with open_reader(options.at) as reader:
        if trusted:
            now, history = datetime.now(UTC), settings.paths().indexes
            signed, _ = read_catalog(reader, trusted, now=now, history=history)
        else:
            data = reader.read(catalog.KEY)
            if data is None:
                raise PublishError(f"{reader.where} is not an index: it has no {catalog.KEY}")
            signed = catalog.parse(data, reader.where)
        base = reader.where if "://" in reader.where else Path(reader.where).as_uri()
    checked = tuple(
        check_installed.check_wheel(installed, signed.entries, target, base, python)
        for installed in check_installed.read_installed(python)
    )
    text = format_json({"wheels": checked}) if as_json else check_installed.describe(checked)
    return checked, text


def describe_install(options: SnippetOptions, *, as_json: bool) -> str:
    """Return the commands for pip and uv that install from an index, or JSON."""
    resolved = snippet.resolve_snippet(options)
    project = resolved.requirement.partition("==")[0]
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    others = describe_other_indexes(project, resolved.page, os.environ, config)
    resolved = dataclasses.replace(resolved, notes=(*resolved.notes, *others))
    return format_json(resolved) if as_json else snippet.describe(resolved)
