"""The catalog of an index: a list of the wheels in the pool, so that none is read twice.

Pages are rendered from it. It is written last, so every file that it names exists.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from packaging.tags import parse_tag
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tfbuild.packing.tuned import read_tuned
from tfcore import console
from tfcore.cpus.targets import parse_target
from tfcore.errors import PublishError, RecordError, TargetError
from tfcore.records import decode_record, format_json, parse_json, quote_value
from tfwheels import gate
from tfwheels.entry import Entry, GateResult, SignedProvenance, WheelKind, read_entry
from tfwheels.folder import require_same
from tfwheels.gate import Judgement
from tfwheels.layout import (
    PROVENANCE,
    build_metadata_key,
    build_pool_key,
    compute_digest,
    is_sha256,
)
from tfwheels.provenance import read_claimed_signer
from tfwheels.store import Store

SCHEMA = 1
KEY = "catalog.json"
POOL = "pool"
CHANGED = "The stored file was changed: remove it and publish the wheel again"
_MEASURED = ".comparison"
_MOST_REVISIONS = 1 << 62


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogSignature:
    """The signature of a catalog, see `signed_catalog`.

    `issued` and `expires` are ISO 8601 in UTC, `manifest` is the SHA-256 of the manifest, `index`
    identifies the index, `key` is the id of the key, and `value` the signature in hex.
    """

    issued: str
    expires: str
    manifest: str
    index: str
    key: str
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalog:
    """The entries of an index; `revision` increases when the catalog or a page changes."""

    schema: int = SCHEMA
    revision: int = 0
    entries: tuple[Entry, ...] = ()
    signature: CatalogSignature | None = None

    def to_bytes(self) -> bytes:
        return format_json(self).encode()


CatalogT = TypeVar("CatalogT")


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogFile(Generic[CatalogT]):
    """The file of a catalog: a record with a schema, at `key`, of the wheels in the folder `pool`.

    `mend` is the hint of every error. `check` raises ValueError or PublishError for a record that
    cannot be used.
    """

    kind: type[CatalogT]
    key: str
    pool: str
    mend: str
    check: Callable[[CatalogT], None] = lambda _: None

    def parse(self, data: bytes | None, where: str) -> CatalogT:
        """Parse the catalog; return an empty one before the first wheel is published.

        Raises RecordError for a damaged catalog, or one of another version.
        """
        if data is None:
            return self.kind()
        try:
            fields = parse_json(data)
            schema = fields["schema"]
            if schema == SCHEMA:
                catalog = decode_record(self.kind, fields)
                self.check(catalog)
                return catalog
        except (ValueError, KeyError, TypeError, AttributeError, PublishError) as error:
            raise RecordError(
                f"cannot read {self.key} of {where} ({error})", hint=self.mend
            ) from error
        raise RecordError(
            f"{self.key} of {where} has schema {quote_value(schema)}; this version reads {SCHEMA}",
            hint=self.mend,
        )

    def start(self, store: Store, *, dry_run: bool = False) -> bytes | None:
        """Return the bytes of the catalog.

        An index starts with an empty catalog, written before the first wheel, so that its loss is
        detected. Raises RecordError for wheels without a catalog.
        """
        current = store.read(self.key)
        if current is None and store.list_sizes(self.pool):
            current = store.read(self.key)  # another publisher may have just started
            if current is None:
                raise RecordError(f"{store.where} has wheels but no {self.key}", hint=self.mend)
        if current is None and not dry_run:
            store.swap(self.key, format_json(self.kind()).encode(), None)
            current = store.read(self.key)
        return current


def _check_entries(catalog: Catalog) -> None:
    if not 0 <= catalog.revision < _MOST_REVISIONS:
        raise ValueError(f"its revision is not below {_MOST_REVISIONS}")
    for entry in catalog.entries:
        _check_entry(entry)
    if catalog.signature is not None:
        for time_text in (catalog.signature.issued, catalog.signature.expires):
            if datetime.fromisoformat(time_text).tzinfo is None:
                raise ValueError(f"{time_text} has no time zone")


INDEX = CatalogFile(
    kind=Catalog,
    key=KEY,
    pool=POOL,
    mend="Rebuild it from the wheels in the pool: add --reindex",
    check=_check_entries,
)


def parse(data: bytes | None, where: str) -> Catalog:
    """Parse the catalog of an index, as `CatalogFile.parse` does."""
    return INDEX.parse(data, where)


def _check_entry(entry: Entry) -> None:
    """Raise ValueError or PublishError for an entry that no page can show."""
    build_pool_key(entry.name, entry.file)
    parse_wheel_filename(entry.file)
    Version(entry.version)
    datetime.fromisoformat(entry.published)
    if entry.withdrawal is not None:
        datetime.fromisoformat(entry.withdrawal.since)
        if not entry.withdrawal.reason.strip() or not entry.withdrawal.reason.isprintable():
            raise ValueError(f"{entry.file} is {entry.withdrawal.kind} without a reason in a line")
    for tag in entry.tags:
        parse_tag(tag)
    for digest in (entry.sha256, entry.metadata_sha256):
        if not is_sha256(digest):
            raise ValueError(f"{entry.file} has {quote_value(digest)} in place of a SHA-256")
    for target in entry.targets:
        try:
            parse_target(target)
        except TargetError as error:
            raise ValueError(f"{entry.file} has an unknown target: {error.message}") from error
    if entry.kind is WheelKind.TUNED and not entry.targets:
        raise ValueError(f"{entry.file} is tuned but has no target")


def merge_entries(known: Iterable[Entry], fresh: Iterable[Entry]) -> tuple[Entry, ...]:
    """Merge the known and the new entries, in the catalog's order.

    A wheel that is published again retains its time, its verdicts, its provenance and its
    withdrawal. Raises PublishError if its bytes differ.
    """
    by_file = {entry.file: entry for entry in known}
    for entry in fresh:
        old = by_file.get(entry.file)
        by_file[entry.file] = entry if old is None else _renew_entry(old, entry)
    return tuple(sorted(by_file.values(), key=_get_sort_key))


def reindex_pool(store: Store, current: bytes | None = None, *, signed: bool = False) -> Catalog:
    """Build a catalog from the bytes of all wheels in the pool and the comparisons beside them.

    Includes wheels that a killed run stored. The publication time of a wheel is the time when it
    was stored. The revision, and fields that only the catalog `current` records, are copied, if it
    can be read. In a `signed` index, only comparisons count whose hash the catalog has. Raises
    WheelError, RecordError, and PublishError for a wheel whose bytes differ from the catalog's, or
    a METADATA file whose bytes differ from the wheel's.
    """
    old_catalog = _read_known(current, store.where)
    known = {entry.file: entry for entry in old_catalog.entries}
    files = tuple(store.list_sizes(POOL))
    wheels = [key for key in files if key.endswith(".whl")]
    entries = []
    with console.track_progress("wheels", len(wheels)) as count:
        for done, key in enumerate(wheels, 1):
            beside = [file for file in files if _MEASURED in file.partition(key)[2]]
            if signed:
                beside = _filter_known(store, beside, known.get(PurePosixPath(key).name))
            entry = _read_stored(store, key, beside)
            old = known.get(entry.file)
            entries.append(entry if old is None else _restore_fields(old, entry, key, store.where))
            _check_metadata(entry, store)
            count.advance(done, detail=entries[-1].file)
    lost = known.keys() - {entry.file for entry in entries}
    for file in sorted(file for file in lost if known[file].withdrawal):
        console.warn(f"{file} is not in the pool; that it was withdrawn is forgotten")
    return Catalog(revision=old_catalog.revision, entries=tuple(sorted(entries, key=_get_sort_key)))


def _filter_known(store: Store, comparisons: Iterable[str], old: Entry | None) -> list[str]:
    """Return the comparisons whose bytes the entry of a wheel names."""
    if old is None:
        return []
    hashes = {verdict.sha256 for verdict in old.verdicts}
    hashes |= {sha256 for _, sha256 in (old.gating.evidence if old.gating else ())}
    return [key for key in comparisons if compute_digest(store.read(key) or b"").sha256 in hashes]


def _read_stored(store: Store, key: str, comparisons: Sequence[str]) -> Entry:
    with store.open_local(key) as wheel:
        stored = datetime.fromtimestamp(wheel.stat().st_mtime, UTC)
        entry, _ = read_entry(wheel, published=stored.isoformat(timespec="seconds"))
        judgement = _judge_wheel(store, wheel, entry, comparisons)
    if build_pool_key(entry.name, entry.file) != key:
        raise PublishError(
            f"{store.where} has {key}, which is the wrong path for a wheel of {entry.name}"
        )
    entry = dataclasses.replace(entry, provenance=_read_provenance(store, key, entry))
    return entry if judgement is None else add_judgement(entry, judgement)


def _check_metadata(entry: Entry, store: Store) -> None:
    """Raise PublishError if the stored METADATA of a wheel has other bytes, which pip refuses."""
    key = build_metadata_key(entry.name, entry.file)
    stored = store.read(key)
    if stored is not None:
        actual = compute_digest(stored).sha256
        require_same(store.where, key, actual, entry.metadata_sha256, hint=CHANGED)


def _read_provenance(store: Store, key: str, entry: Entry) -> SignedProvenance | None:
    data = store.read(key + PROVENANCE)
    if data is None:
        return None
    return SignedProvenance(
        key=read_claimed_signer(data, entry.file), sha256=compute_digest(data).sha256
    )


def add_judgement(entry: Entry, judgement: Judgement) -> Entry:
    return dataclasses.replace(entry, verdicts=judgement.verdicts, gating=judgement.gating)


def _judge_wheel(
    store: Store, wheel: Path, entry: Entry, comparisons: Sequence[str]
) -> Judgement | None:
    """Apply the gate to a wheel; return None for a wheel that is not tuned."""
    tuned = read_tuned(wheel)
    if tuned is None:
        return None
    with contextlib.ExitStack() as stack:
        paths = [stack.enter_context(store.open_local(key)) for key in comparisons]
        return gate.judge_comparisons(entry.file, entry.sha256, tuned, paths)


def _read_known(current: bytes | None, where: str) -> Catalog:
    """Return a catalog, or one without entries if it is damaged or lost.

    The revision is then the time in milliseconds, because no catalog may have a revision twice: a
    publisher could take the new one for the old one.
    """
    with contextlib.suppress(RecordError):
        if current is not None:
            return parse(current, where)
    return Catalog(revision=time.time_ns() // 1_000_000)


def _restore_fields(old: Entry, entry: Entry, key: str, where: str) -> Entry:
    """Copy the fields that only the catalog records to an entry from the pool.

    Raises PublishError if the bytes differ from the catalog's.
    """
    require_same(where, key, entry.sha256, old.sha256, hint=CHANGED)
    gating = old.gating
    if gating and entry.gating:  # (the pool may have lost evidence)
        gating = dataclasses.replace(gating, evidence=entry.gating.evidence)
    return dataclasses.replace(
        entry,
        published=old.published,
        gating=gating or entry.gating,
        rebuilt_sha256=old.rebuilt_sha256,
        withdrawal=old.withdrawal,
    )


def _renew_entry(old: Entry, new: Entry) -> Entry:
    if old.sha256 != new.sha256:
        raise PublishError(
            f"{new.file} is published with sha256 {old.sha256}; this one has {new.sha256}",
            hint="A published file never changes: build the wheel with another version",
        )
    verdicts = {verdict.file: verdict for verdict in (*old.verdicts, *new.verdicts)}
    return dataclasses.replace(
        new,
        published=old.published,
        verdicts=tuple(verdicts.values()),
        provenance=old.provenance or new.provenance,
        rebuilt_sha256=new.rebuilt_sha256 or old.rebuilt_sha256,
        gating=_merge_gating(old.gating, new.gating),
        withdrawal=old.withdrawal,
    )


def _merge_gating(old: GateResult | None, new: GateResult | None) -> GateResult | None:
    """Merge two gate results.

    A wheel that passed once counts as passed. The faults of both results remain.
    """
    if old is None or new is None:
        return new or old
    passed = old.passed or new.passed
    return GateResult(
        passed=passed,
        faults=tuple(dict.fromkeys((*old.faults, *new.faults))),
        gaps=() if passed else new.gaps or old.gaps,
        evidence=tuple(dict.fromkeys((*old.evidence, *new.evidence))),
    )


def _get_sort_key(entry: Entry) -> tuple[str, str]:
    return entry.name, entry.file
