"""Publish wheels to an index; readers see the old index or the new one.

An index starts with an empty catalog. Files are then written in this order: wheel, METADATA,
provenance, comparisons, pages, manifest, catalog. Pages name only files that are in the pool, files
in the pool never change, and each file is written in one step. So a run can be killed at any point,
and the next run completes it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType

from tfbuild.upstream.download import hash_file
from tfcore import console
from tfcore.errors import BusyError, PublishError
from tfcore.records import format_json
from tfwheels import catalog, trust
from tfwheels.catalog import INDEX, Catalog, CatalogSignature
from tfwheels.catalog_state import ADD_KEY, inspect_catalog
from tfwheels.entry import NO_CHECKS, Entry, Withdrawal, read_entry, require_checked
from tfwheels.folder import OWN_NAME, require_same
from tfwheels.gate import Judgement
from tfwheels.layout import (
    SIMPLE,
    Digest,
    build_manifest,
    build_metadata_key,
    build_pool_key,
    build_provenance_key,
    build_rebuilt_key,
    compute_digest,
)
from tfwheels.pages import render, render_removed
from tfwheels.signed_catalog import VALID_DAYS, sign_catalog
from tfwheels.store import Store
from tfwheels.trust import Signing
from tfwheels.wheel_choice import PageChoice, choose, targets_for
from tfwheels.withdrawal import NO_CHANGE, WithdrawalChange, apply_change, find_files

MANIFEST = "manifest.json"
TRIES = 20
"""Largest number of attempts; each failure means that another publisher succeeded."""
_UNSIGNED = Signing()
NO_STATEMENTS: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishResult:
    """The result of publishing, or of a dry run.

    `added`, `restored` and `present` are file names: new files, published files that were missing
    from the pool, and files that it contains. The bytes of the `unread` files were not compared.
    `pages` are the keys of changed pages. `choices` has the wheels that each target's pages list of
    the given versions. `signers` has the id of the key that signed each given file;
    empty if unsigned. `withdrawals` has the new state of the wheels that were withdrawn, and None
    for those that were restored.
    """

    added: tuple[str, ...]
    restored: tuple[str, ...] = ()
    present: tuple[str, ...]
    unread: tuple[str, ...] = ()
    pages: tuple[str, ...]
    choices: Mapping[str, tuple[PageChoice, ...]]
    signers: Mapping[str, str] = field(default_factory=dict)
    withdrawals: Mapping[str, Withdrawal | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class _PoolState:
    """The state of the pool for the wheels to publish.

    `lacks` are files that are not in the pool, `lost` are published files that are missing or
    without METADATA, and `unread` are files whose bytes were not compared.
    """

    lacks: frozenset[str]
    lost: frozenset[str]
    unread: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidate:
    """A wheel to publish; `beside` are the small files that go with it, by key."""

    path: Path
    entry: Entry
    beside: Mapping[str, bytes]


def publish(
    wheels: Sequence[Path],
    store: Store,
    *,
    judgements: Mapping[str, Judgement],
    now: str,
    checked: Mapping[Path, str] = NO_CHECKS,
    rebuilt: Mapping[str, bytes] = NO_STATEMENTS,
    family: str | None = None,
    signing: Signing = _UNSIGNED,
    reindex: bool = False,
    change: WithdrawalChange = NO_CHANGE,
    renew: bool = False,
    history: Path | None = None,
    dry_run: bool = False,
) -> PublishResult:
    """Add wheels to the index, withdraw or restore others by `change`, and rebuild its pages.

    The pages are those of `family`, or of all families with wheels. `judgements` has the gate
    results by the wheel's SHA-256, `now` is ISO 8601 in UTC, `checked` has the SHA-256 that wheels
    had when they were checked, `rebuilt` has rebuilders' statements by the wheel's SHA-256. In an
    index with trusted signers, the key of `signing` signs the catalog; `renew` signs it again
    although nothing changed; `history` is the folder with the last revisions that were read on this
    machine. `reindex` reads the pool instead of the catalog, needs no wheels, and empties pages of
    packages and targets that the index no longer has. Raises UsageError for a `change` of a wheel
    that the index does not have, PublishError, also if the pool has other bytes of a wheel or a
    wheel lacks a required signature, ChecksumError for a wheel that changed after it was checked,
    WheelError, RecordError, BusyError, DiskError.
    """
    candidates = [_create_candidate(path, judgements, now) for path in wheels]
    for candidate in candidates:
        require_checked(candidate.path, candidate.entry.sha256, checked)
    with contextlib.nullcontext() if dry_run else store.lock():
        signing = trust.resolve_signing(signing, store)
        candidates = [_add_provenance(candidate, signing, store) for candidate in candidates]
        candidates = [_add_statement(candidate, rebuilt, store) for candidate in candidates]
        beside = {key: data for candidate in candidates for key, data in candidate.beside.items()}
        pool: _PoolState | None = None
        for _ in range(TRIES):
            current = store.read(catalog.KEY) if reindex else INDEX.start(store, dry_run=dry_run)
            state = inspect_catalog(store, current, signing, history)
            old = state.read_pool() if reindex else catalog.parse(current, store.where)
            entries = catalog.merge_entries(
                old.entries, (candidate.entry for candidate in candidates)
            )
            named = find_files(entries, change, store.where)
            entries = apply_change(entries, named, change, now)
            signing = trust.resolve_signing(signing, store)
            if signing.trusted:
                trust.require_signed(
                    entries, signing.anchors, lambda key: beside.get(key) or store.read(key)
                )
            time = None if renew else datetime.fromisoformat(now)
            state.require_replaceable(old, time, reindex=reindex)
            pages = render(entries, family)
            if reindex and family is None:
                pages |= _empty_removed(pages, store)
            changed = store.find_differing(pages)
            begins = pool is None
            pool = pool or _inspect_pool(candidates, old.entries, store)
            outcome = _summarize(candidates, old.entries, entries, named, changed, pool, family)
            if old.signature and not signing.catalog_key and (changed or entries != old.entries):
                raise PublishError(f"{store.where} is signed", hint=ADD_KEY)
            if dry_run:
                return outcome
            if begins:
                trust.save_trusted(signing, store)
                _store_missing(candidates, pool, store)
            manifest = write_pages(pages, changed, _list_pooled(entries, store), MANIFEST, store)
            new = Catalog(revision=state.compute_revision(old), entries=entries)
            if key := signing.catalog_key:
                new = sign_catalog(new, key, manifest=manifest, now=now, index=state.index)
            if _write_catalog(new, old, changed, current, store, renew=renew):
                state.record()
                return outcome
    raise create_busy_error(store)


def create_busy_error(store: Store) -> BusyError:
    return BusyError(
        f"other publishers changed {store.where} during each of {TRIES} attempts",
        hint="Run the same command again: no data is lost",
    )


def _empty_removed(pages: Mapping[str, bytes], store: Store) -> dict[str, bytes]:
    """Return empty pages for those that the index no longer has; warn of files of others."""
    removed, unknown = render_removed(store.list_sizes(SIMPLE), pages)
    if unknown:
        more = f" and {len(unknown) - 1} more" if unknown[1:] else ""
        console.warn(
            f"{store.where}: publish did not write {unknown[0]}{more}; remove what is not yours"
        )
    return removed


def _create_candidate(path: Path, judgements: Mapping[str, Judgement], now: str) -> _Candidate:
    entry, metadata = read_entry(path, published=now)
    beside = {build_metadata_key(entry.name, entry.file): metadata}
    judgement = judgements.get(entry.sha256)
    if judgement is not None:
        entry = catalog.add_judgement(entry, judgement)
        files = judgement.published
        beside |= {_build_comparison_key(entry, file): data for file, data in files.items()}
    return _Candidate(path=path, entry=entry, beside=beside)


def _add_provenance(candidate: _Candidate, signing: Signing, store: Store) -> _Candidate:
    """Add the provenance of a candidate, if it has one or gets one.

    Raises PublishError.
    """
    provenance = trust.resolve_provenance(candidate.path, candidate.entry, signing, store)
    if provenance is None:
        return candidate
    signed, data = provenance
    key = build_provenance_key(candidate.entry.name, candidate.entry.file)
    entry = dataclasses.replace(candidate.entry, provenance=signed)
    return dataclasses.replace(candidate, entry=entry, beside={**candidate.beside, key: data})


def _add_statement(candidate: _Candidate, rebuilt: Mapping[str, bytes], store: Store) -> _Candidate:
    """Add a rebuilder's statement, unless the index has one: a published file never changes."""
    entry = candidate.entry
    statement = rebuilt.get(entry.sha256)
    key = build_rebuilt_key(entry.name, entry.file)
    stored = store.read(key)
    if statement is None or stored not in (None, statement):
        return candidate
    entry = dataclasses.replace(entry, rebuilt_sha256=compute_digest(statement).sha256)
    return dataclasses.replace(candidate, entry=entry, beside={**candidate.beside, key: statement})


def _inspect_pool(
    candidates: Iterable[_Candidate], known: Iterable[Entry], store: Store
) -> _PoolState:
    """Inspect the wheels' files in the pool; nothing is written before their bytes are verified.

    Only the given wheels are read, because a pool of 50 wheels of 250 MB has 12 GB. They are read
    each time, because a cache of sizes and times would not detect a bad disk. `reindex` reads all
    wheels. Raises PublishError for a wheel with other bytes.
    """
    sizes = store.list_sizes(catalog.POOL)
    catalogued = {entry.file for entry in known}
    lacks, lost, unread = set[str](), set[str](), list[str]()
    for candidate in candidates:
        entry, key = candidate.entry, _build_key(candidate.entry)
        beside = build_metadata_key(entry.name, entry.file)
        if entry.file in catalogued and not {key, beside} <= sizes.keys():
            lost.add(entry.file)
        if key not in sizes:
            lacks.add(entry.file)
        elif not _is_verified(candidate, store, vouched=entry.file in catalogued, size=sizes[key]):
            unread.append(entry.file)
    return _PoolState(lacks=frozenset(lacks), lost=frozenset(lost), unread=tuple(unread))


def _is_verified(candidate: _Candidate, store: Store, *, vouched: bool, size: int) -> bool:
    """Return whether the bytes of the wheel in the pool were compared.

    False if that needs a download and the catalog lists a wheel of this `size`. Raises PublishError
    for other bytes.
    """
    entry, key = candidate.entry, _build_key(candidate.entry)
    same = store.has_content(key, candidate.path, entry.sha256)
    if same is None and vouched and size == entry.size:
        return False
    if not same:
        with store.open_local(key) as path:
            hint = catalog.CHANGED if vouched else OWN_NAME
            require_same(store.where, key, hash_file(path), entry.sha256, hint=hint)
    return True


def _store_missing(candidates: Iterable[_Candidate], pool: _PoolState, store: Store) -> None:
    """Store the files that the pool lacks."""
    for candidate in candidates:
        if candidate.entry.file in pool.lacks:
            store.put_new(_build_key(candidate.entry), candidate.path, candidate.entry.sha256)
        for key, data in candidate.beside.items():
            store.put_new(key, data, compute_digest(data).sha256)


def write_pages(
    pages: Mapping[str, bytes],
    changed: Collection[str],
    pooled: Mapping[str, Digest],
    manifest_key: str,
    store: Store,
) -> str:
    """Write the changed pages, then the manifest; return the SHA-256 of the manifest.

    Pages that link to others come last. The manifest lists all pages and all files of the pool.
    """
    objects = build_manifest(
        {**pooled, **{key: compute_digest(data) for key, data in pages.items()}}
    )
    changed = frozenset(changed)
    order = [
        stored.file for stored in objects if stored.key == stored.file and stored.file in changed
    ]
    with console.track_progress("pages", len(order)) as count:
        for done, key in enumerate(order, 1):
            store.put(key, pages[key])
            count.advance(done, detail=key)
    record = format_json({"schema": 1, "objects": objects}).encode()
    if store.find_differing({manifest_key: record}):
        store.put(manifest_key, record)
    return compute_digest(record).sha256


def _list_pooled(entries: Iterable[Entry], store: Store) -> dict[str, Digest]:
    """Return the digests of the pool's files that the entries name.

    Raises PublishError if one is missing.
    """
    sizes = store.list_sizes(catalog.POOL)
    digests: dict[str, Digest] = {}
    for entry in entries:
        hashes = {_build_key(entry): entry.sha256}
        hashes[build_metadata_key(entry.name, entry.file)] = entry.metadata_sha256
        compared = {verdict.file: verdict.sha256 for verdict in entry.verdicts}
        compared |= dict(entry.gating.evidence if entry.gating else ())
        hashes |= {_build_comparison_key(entry, file): sha256 for file, sha256 in compared.items()}
        if entry.provenance is not None:
            hashes[build_provenance_key(entry.name, entry.file)] = entry.provenance.sha256
        if entry.rebuilt_sha256:
            hashes[build_rebuilt_key(entry.name, entry.file)] = entry.rebuilt_sha256
        for key, sha256 in hashes.items():
            if key not in sizes or (key == _build_key(entry) and sizes[key] != entry.size):
                raise PublishError(
                    f"{store.where}: {key} is missing or incomplete ({sizes.get(key, 'no')} bytes)",
                    hint=f"Remove the incomplete file and publish {entry.file} again",
                )
            digests[key] = Digest(sha256, sizes[key])
    return digests


def _write_catalog(
    new: Catalog,
    old: Catalog,
    changed: Sequence[str],
    current: bytes | None,
    store: Store,
    *,
    renew: bool,
) -> bool:
    """Write the catalog, unless nothing changed; return False if another publisher was faster.

    A signed catalog is also written with `renew`, and if the old one has no signature, or one of
    another key or for another manifest.

    A written page always gives a new revision, even with the same entries. It shows another
    publisher that has already checked the pages that it must check them again.
    """
    same = new.entries == old.entries and not changed and old.to_bytes() == current
    if same and not (new.signature and (renew or _is_outdated(old.signature, new.signature))):
        return True
    return store.swap(catalog.KEY, new.to_bytes(), current)


def _is_outdated(old: CatalogSignature | None, new: CatalogSignature) -> bool:
    """Return whether a catalog needs the new signature although its entries did not change."""
    if old is None or (old.key, old.manifest) != (new.key, new.manifest):
        return True
    left = datetime.fromisoformat(old.expires) - datetime.fromisoformat(new.issued)
    return left < timedelta(days=VALID_DAYS / 2)


def _summarize(
    candidates: Sequence[_Candidate],
    known: Iterable[Entry],
    entries: Sequence[Entry],
    named: frozenset[str],
    changed: tuple[str, ...],
    pool: _PoolState,
    family: str | None,
) -> PublishResult:
    known_files = {entry.file for entry in known}
    requested = {candidate.entry.file: candidate.entry for candidate in candidates}
    concerned = requested.keys() | named
    versions = {(entry.name, entry.public) for entry in entries if entry.file in concerned}
    rivals = [entry for entry in entries if (entry.name, entry.public) in versions]
    return PublishResult(
        added=tuple(file for file in requested if file not in known_files),
        restored=tuple(file for file in requested if file in pool.lost),
        present=tuple(file for file in requested if file in known_files - pool.lost),
        unread=pool.unread,
        pages=changed,
        choices={target.name: choose(rivals, target) for target in targets_for(entries, family)},
        signers={
            entry.file: entry.provenance.key if entry.provenance else ""
            for entry in entries
            if entry.file in requested
        },
        withdrawals={entry.file: entry.withdrawal for entry in entries if entry.file in named},
    )


def _build_key(entry: Entry) -> str:
    return build_pool_key(entry.name, entry.file)


def _build_comparison_key(entry: Entry, file: str) -> str:
    return f"{_build_key(entry).removesuffix(entry.file)}{file}"
