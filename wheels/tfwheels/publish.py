"""Wheels into an index, so that whoever uses it meanwhile sees the old one or the new one.

An index begins with an empty catalog. Then the order is wheel, METADATA, provenance, comparisons,
pages, manifest, catalog. A page names only what is in the pool, nothing in the pool changes or goes
away, and each file is there whole or not at all: so a run may be killed anywhere, and the next one
finishes the work.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfbuild import console
from tfbuild.errors import BusyError, PublishError, RecordError
from tfbuild.records import format_json
from tfbuild.upstream.download import hash_file
from tfwheels import catalog, trust
from tfwheels.catalog import Catalog
from tfwheels.choosing import PageChoice, choose, targets_for
from tfwheels.entry import Entry, read_entry
from tfwheels.folder import OWN_NAME, need_same
from tfwheels.gate import Judgement
from tfwheels.layout import Digest, digest_of, manifest, metadata_key, pool_key, provenance_key
from tfwheels.pages import render
from tfwheels.store import Store
from tfwheels.trust import Signing

MANIFEST = "manifest.json"
TRIES = 20
"""Each time that a publisher loses, another one has won."""
_UNSIGNED = Signing()


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What came of it, or would. `added`, `restored` and `present` are files: new ones, published
    ones that the pool had lost, and those that it has; nobody looked at the bytes of the `unread`
    ones. `pages` are keys of those that changed. `choices` are what each target's pages list of the
    versions that were given, and `signers` the ids of the keys or identities that signed what was
    given, by file; empty for an unsigned one."""

    added: tuple[str, ...]
    restored: tuple[str, ...] = ()
    present: tuple[str, ...]
    unread: tuple[str, ...] = ()
    pages: tuple[str, ...]
    choices: Mapping[str, tuple[PageChoice, ...]]
    signers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pool:
    """What the pool has of the wheels to publish: files that it `lacks`, published ones that are
    `lost`, or their METADATA, and those whose bytes are `unread`."""

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
    family: str | None = None,
    signing: Signing = _UNSIGNED,
    reindex: bool = False,
    dry_run: bool = False,
) -> Published:
    """Add wheels to the index and make its pages again, those of one family or of all that there
    are wheels for.

    `judgements` are by the wheel's SHA-256, `now` is ISO 8601 in UTC. `reindex` reads the pool
    instead of the catalog, and may go without a wheel. Raises PublishError, also where the pool has
    other bytes of a wheel than are given and for a wheel that was not signed as the index asks,
    WheelError, RecordError, BusyError, DiskError.
    """
    candidates = [_candidate(path, judgements, now) for path in wheels]
    with contextlib.nullcontext() if dry_run else store.exclusive():
        signing = trust.settled(signing, store)
        candidates = [_signed(candidate, signing, store) for candidate in candidates]
        beside = {key: data for candidate in candidates for key, data in candidate.beside.items()}
        pool: _Pool | None = None
        for _ in range(TRIES):
            current = store.read(catalog.KEY) if reindex else _begun(store, dry_run=dry_run)
            old = (
                catalog.reindexed(store, current)
                if reindex
                else catalog.parse(current, store.where)
            )
            entries = catalog.merged(old.entries, (candidate.entry for candidate in candidates))
            needed = trust.settled(signing, store).trusted
            trust.need_signed(entries, needed, lambda key: beside.get(key) or store.read(key))
            pages = render(entries, family)
            changed = store.differing(pages)
            begins = pool is None
            pool = pool or _examined(candidates, old.entries, store)
            outcome = _published(candidates, old.entries, entries, changed, pool, family)
            if dry_run:
                return outcome
            if begins:
                trust.keep(signing, store)
                _store(candidates, pool, store)
            show(pages, changed, _pooled(entries, store), MANIFEST, store)
            if _settled(entries, old, changed, current, store):
                return outcome
    raise BusyError(
        f"others published to {store.where} {TRIES} times meanwhile",
        hint="Run the same command again: nothing is lost",
    )


def _begun(store: Store, *, dry_run: bool) -> bytes | None:
    """The catalog. An index begins with an empty one, before there is a wheel, so that it is
    noticed when it was lost. Raises RecordError."""
    current = store.read(catalog.KEY)
    if current is None and store.sizes(catalog.POOL):
        current = store.read(catalog.KEY)  # unless another publisher has begun just now
        if current is None:
            raise RecordError(f"{store.where} has wheels, but no {catalog.KEY}", hint=catalog.MEND)
    if current is None and not dry_run:
        store.swap(catalog.KEY, Catalog().to_bytes(), None)
        current = store.read(catalog.KEY)
    return current


def _candidate(path: Path, judgements: Mapping[str, Judgement], now: str) -> _Candidate:
    entry, metadata = read_entry(path, published=now)
    beside = {metadata_key(entry.name, entry.file): metadata}
    judgement = judgements.get(entry.sha256)
    if judgement is not None:
        entry = catalog.with_judgement(entry, judgement)
        files = judgement.published
        beside |= {_comparison_key(entry, file): data for file, data in files.items()}
    return _Candidate(path=path, entry=entry, beside=beside)


def _signed(candidate: _Candidate, signing: Signing, store: Store) -> _Candidate:
    """With its provenance, where it has one or gets one. Raises PublishError."""
    found = trust.provenance_for(candidate.path, candidate.entry, signing, store)
    if found is None:
        return candidate
    signed, data = found
    key = provenance_key(candidate.entry.name, candidate.entry.file)
    entry = dataclasses.replace(candidate.entry, provenance=signed)
    return dataclasses.replace(candidate, entry=entry, beside={**candidate.beside, key: data})


def _examined(candidates: Iterable[_Candidate], known: Iterable[Entry], store: Store) -> _Pool:
    """What the pool has of the wheels. Nothing is written until their bytes are seen to be right.

    Only the wheels that are given are looked at, each time anew: a memory of sizes and times would
    not notice a bad disk, and a pool of 50 wheels of 250 MB is 12 GB to read for each that is
    added. `reindex` reads them all. Raises PublishError for a wheel with other bytes.
    """
    sizes = store.sizes(catalog.POOL)
    vouched = {entry.file for entry in known}
    lacks, lost, unread = set[str](), set[str](), list[str]()
    for candidate in candidates:
        entry, key = candidate.entry, _key(candidate.entry)
        beside = metadata_key(entry.name, entry.file)
        if entry.file in vouched and not {key, beside} <= sizes.keys():
            lost.add(entry.file)
        if key not in sizes:
            lacks.add(entry.file)
        elif not _seen_same(candidate, store, vouched=entry.file in vouched, size=sizes[key]):
            unread.append(entry.file)
    return _Pool(lacks=frozenset(lacks), lost=frozenset(lost), unread=tuple(unread))


def _seen_same(candidate: _Candidate, store: Store, *, vouched: bool, size: int) -> bool:
    """Whether the pool is seen to have the wheel's bytes. False where that would take a download
    and the catalog vouches for a wheel of this `size`. Raises PublishError for other bytes."""
    entry, key = candidate.entry, _key(candidate.entry)
    same = store.holds(key, candidate.path, entry.sha256)
    if same is None and vouched and size == entry.size:
        return False
    if not same:
        with store.local(key) as path:
            hint = catalog.CHANGED if vouched else OWN_NAME
            need_same(store.where, key, hash_file(path), entry.sha256, hint=hint)
    return True


def _store(candidates: Iterable[_Candidate], pool: _Pool, store: Store) -> None:
    """Bring into the pool what it has not."""
    for candidate in candidates:
        if candidate.entry.file in pool.lacks:
            store.put_new(_key(candidate.entry), candidate.path, candidate.entry.sha256)
        for key, data in candidate.beside.items():
            store.put_new(key, data, digest_of(data).sha256)


def show(
    pages: Mapping[str, bytes],
    changed: Collection[str],
    pooled: Mapping[str, Digest],
    manifest_key: str,
    store: Store,
) -> None:
    """Write the pages that changed, those first that others lead to, and then the manifest of them
    and of what is in the pool."""
    objects = manifest({**pooled, **{key: digest_of(data) for key, data in pages.items()}})
    changed = frozenset(changed)
    order = [each.file for each in objects if each.key == each.file and each.file in changed]
    with console.track_progress("pages", len(order)) as count:
        for done, key in enumerate(order, 1):
            store.put(key, pages[key])
            count.advance(done, detail=key)
    record = format_json({"schema": 1, "objects": objects}).encode()
    if store.differing({manifest_key: record}):
        store.put(manifest_key, record)


def _pooled(entries: Iterable[Entry], store: Store) -> dict[str, Digest]:
    """The files of the pool that the entries name. Raises PublishError when one is not there."""
    sizes = store.sizes(catalog.POOL)
    found: dict[str, Digest] = {}
    for entry in entries:
        hashes = {_key(entry): entry.sha256}
        hashes[metadata_key(entry.name, entry.file)] = entry.metadata_sha256
        hashes |= {_comparison_key(entry, each.file): each.sha256 for each in entry.verdicts}
        if entry.provenance is not None:
            hashes[provenance_key(entry.name, entry.file)] = entry.provenance.sha256
        for key, sha256 in hashes.items():
            if key not in sizes or (key == _key(entry) and sizes[key] != entry.size):
                raise PublishError(
                    f"{store.where} has lost {key}, of {sizes.get(key, 'no')} bytes",
                    hint=f"Remove what is left of it and publish {entry.file} again",
                )
            found[key] = Digest(sha256, sizes[key])
    return found


def _settled(
    entries: tuple[Entry, ...],
    old: Catalog,
    changed: Sequence[str],
    current: bytes | None,
    store: Store,
) -> bool:
    """Write the catalog, unless there was nothing to do; False when another publisher was faster.

    Whoever wrote a page makes a new revision, even of the same entries: another publisher that has
    looked at the pages before sees by it that it must look again.
    """
    if current is not None and entries == old.entries and not changed and old.to_bytes() == current:
        return True
    new = Catalog(revision=old.revision + 1, entries=entries)
    return store.swap(catalog.KEY, new.to_bytes(), current)


def _published(
    candidates: Sequence[_Candidate],
    known: Iterable[Entry],
    entries: Sequence[Entry],
    changed: tuple[str, ...],
    pool: _Pool,
    family: str | None,
) -> Published:
    there = {entry.file for entry in known}
    given = {candidate.entry.file: candidate.entry for candidate in candidates}
    versions = {(entry.name, entry.public) for entry in given.values()}
    rivals = [entry for entry in entries if (entry.name, entry.public) in versions]
    return Published(
        added=tuple(file for file in given if file not in there),
        restored=tuple(file for file in given if file in pool.lost),
        present=tuple(file for file in given if file in there - pool.lost),
        unread=pool.unread,
        pages=changed,
        choices={each.name: choose(rivals, each) for each in targets_for(entries, family)},
        signers={
            each.file: each.provenance.key if each.provenance else ""
            for each in entries
            if each.file in given
        },
    )


def _key(entry: Entry) -> str:
    return pool_key(entry.name, entry.file)


def _comparison_key(entry: Entry, file: str) -> str:
    return f"{_key(entry).removesuffix(entry.file)}{file}"
