"""The index's own state: what stands in the pool, so that no wheel is read twice.

Pages are made from it. It is written last, so what it names is there.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.tags import parse_tag
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tfbuild import console
from tfbuild.errors import PublishError, RecordError
from tfbuild.packing.tuned import read_tuned
from tfbuild.records import decode_record, format_json, parse_json, quote_value
from tfwheels import gate
from tfwheels.entry import Entry, Gating, Signed, WheelKind, read_entry
from tfwheels.folder import need_same
from tfwheels.gate import Judgement
from tfwheels.layout import PROVENANCE, digest_of, pool_key
from tfwheels.provenance import signer_named
from tfwheels.store import Store

SCHEMA = 1
KEY = "catalog.json"
POOL = "pool"
MEND = "Make it anew from the wheels that are there: add --reindex"
CHANGED = "It was changed there: remove it and publish the wheel again, which brings it back"
_MEASURED = ".comparison"


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalog:
    """`revision` grows with every publishing that changed something, if only a page."""

    schema: int = SCHEMA
    revision: int = 0
    entries: tuple[Entry, ...] = ()

    def to_bytes(self) -> bytes:
        return format_json(self).encode()


def parse(data: bytes | None, where: str) -> Catalog:
    """The catalog of an index; an empty one before the first wheel is published.

    Raises RecordError for a torn or foreign one.
    """
    if data is None:
        return Catalog()
    try:
        fields = parse_json(data)
        schema = fields["schema"]
        if schema == SCHEMA:
            found = decode_record(Catalog, fields)
            for entry in found.entries:
                _check(entry)
            return found
    except (ValueError, KeyError, TypeError, AttributeError, PublishError) as error:
        raise RecordError(f"{KEY} of {where} cannot be read ({error})", hint=MEND) from error
    raise RecordError(
        f"{KEY} of {where} has schema {quote_value(schema)}, this version reads {SCHEMA}", hint=MEND
    )


def _check(entry: Entry) -> None:
    """Raises ValueError and PublishError for what no page can show."""
    pool_key(entry.name, entry.file)
    parse_wheel_filename(entry.file)
    Version(entry.version)
    datetime.fromisoformat(entry.published)
    for tag in entry.tags:
        parse_tag(tag)
    if entry.kind is WheelKind.TUNED and not entry.targets:
        raise ValueError(f"{entry.file} is tuned for no target")


def merged(known: Iterable[Entry], fresh: Iterable[Entry]) -> tuple[Entry, ...]:
    """What is known and what is new, in one order. A wheel that comes again keeps its time, its
    verdicts and its provenance. Raises PublishError for one that comes again with other bytes."""
    found = {entry.file: entry for entry in known}
    for entry in fresh:
        old = found.get(entry.file)
        found[entry.file] = entry if old is None else _renewed(old, entry)
    return tuple(sorted(found.values(), key=_place))


def reindexed(store: Store, current: bytes | None = None) -> Catalog:
    """A catalog of all wheels in the pool, also of one that a killed run has brought there, read
    again with the comparisons beside them; the time of each is when it was stored.

    What the catalog that was `current` says beyond that stays, where it can be read. Raises
    WheelError, RecordError, and PublishError for a wheel that has other bytes than it says.
    """
    known = _readable(current, store.where)
    files = tuple(store.sizes(POOL))
    wheels = [key for key in files if key.endswith(".whl")]
    entries = []
    with console.track_progress("wheels", len(wheels)) as count:
        for done, key in enumerate(wheels, 1):
            beside = [each for each in files if _MEASURED in each.partition(key)[2]]
            found = _read_again(store, key, beside)
            old = known.get(found.file)
            entries.append(found if old is None else _still(old, found, key, store.where))
            count.advance(done, detail=entries[-1].file)
    return Catalog(entries=tuple(sorted(entries, key=_place)))


def _read_again(store: Store, key: str, comparisons: Sequence[str]) -> Entry:
    with store.local(key) as wheel:
        stored = datetime.fromtimestamp(wheel.stat().st_mtime, UTC)
        entry, _ = read_entry(wheel, published=stored.isoformat(timespec="seconds"))
        said = _judged(store, wheel, entry, comparisons)
    if pool_key(entry.name, entry.file) != key:
        raise PublishError(
            f"{store.where} has {key}, which is no place for a wheel of {entry.name}"
        )
    entry = dataclasses.replace(entry, provenance=_provenance(store, key, entry))
    return entry if said is None else with_judgement(entry, said)


def _provenance(store: Store, key: str, entry: Entry) -> Signed | None:
    data = store.read(key + PROVENANCE)
    if data is None:
        return None
    return Signed(key=signer_named(data, entry.file), sha256=digest_of(data).sha256)


def with_judgement(entry: Entry, judgement: Judgement) -> Entry:
    return dataclasses.replace(entry, verdicts=judgement.verdicts, gating=judgement.gating)


def _judged(
    store: Store, wheel: Path, entry: Entry, comparisons: Sequence[str]
) -> Judgement | None:
    """What the comparisons say; None of a wheel that is not tuned."""
    tuned = read_tuned(wheel)
    if tuned is None:
        return None
    with contextlib.ExitStack() as stack:
        paths = [stack.enter_context(store.local(key)) for key in comparisons]
        return gate.examine(entry.file, entry.sha256, tuned, paths)


def _readable(current: bytes | None, where: str) -> dict[str, Entry]:
    """The entries of a catalog by file; nothing of one that is torn."""
    with contextlib.suppress(RecordError):
        return {entry.file: entry for entry in parse(current, where).entries}
    return {}


def _still(old: Entry, found: Entry, key: str, where: str) -> Entry:
    """A wheel as it is in the pool, with what only the catalog knows of it."""
    need_same(where, key, found.sha256, old.sha256, hint=CHANGED)
    return dataclasses.replace(found, published=old.published, gating=old.gating or found.gating)


def _renewed(old: Entry, new: Entry) -> Entry:
    if old.sha256 != new.sha256:
        raise PublishError(
            f"{new.file} is published with other bytes: sha256 {old.sha256}, not {new.sha256}",
            hint="A published file never changes: give the wheel a version of its own",
        )
    verdicts = {each.file: each for each in (*old.verdicts, *new.verdicts)}
    return dataclasses.replace(
        new,
        published=old.published,
        verdicts=tuple(verdicts.values()),
        provenance=new.provenance or old.provenance,
        gating=_regated(old.gating, new.gating),
    )


def _regated(old: Gating | None, new: Gating | None) -> Gating | None:
    """A wheel that has passed once has passed; faults that were found stay, as verdicts do."""
    if old is None or new is None:
        return new or old
    passed = old.passed or new.passed
    return Gating(
        passed=passed,
        faults=tuple(dict.fromkeys((*old.faults, *new.faults))),
        gaps=() if passed else new.gaps or old.gaps,
    )


def _place(entry: Entry) -> tuple[str, str]:
    return entry.name, entry.file
