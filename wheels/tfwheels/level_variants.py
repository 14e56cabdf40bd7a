"""Experimental: the tree of level variants beside an index, for installers that know PEP 825.

Its pages list the variants, and the stock wheels and dependencies in the index's own pool: an
installer needs no other page. The order is that of publish, and so is what a killed run leaves:
wheels, METADATA, what the labels mean, pages, manifest, catalog.
"""

from __future__ import annotations

import dataclasses
import posixpath
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simple_repository.model import File

from tfbuild import console
from tfbuild.errors import BusyError, PublishError, RecordError
from tfbuild.packing.tuned import read_tuned
from tfbuild.packing.wheel import read_member
from tfbuild.records import decode_record, format_json, parse_json, quote_value
from tfbuild.upstream.download import hash_file
from tfwheels import catalog
from tfwheels.entry import Entry, WheelKind
from tfwheels.layout import (
    VARIANTS,
    Digest,
    digest_of,
    link,
    meaning_key,
    pool_key,
    variant_key,
    variants_folder,
)
from tfwheels.pages import (
    caveats,
    keyed,
    linked,
    project_list,
    project_page,
    provenance_links,
)
from tfwheels.publish import TRIES, show
from tfwheels.store import Store
from tfwheels.variants import index_json, index_name, label_of, make_variant, variant_name

SCHEMA = 1
KEY = f"{VARIANTS}/catalog.json"
MANIFEST = f"{VARIANTS}/manifest.json"
_POOL = f"{VARIANTS}/pool"
_MEND = f"Remove {VARIANTS}/ and publish the tuned wheels again with --variants"


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A variant in the tree, and the file of the tuned wheel in the index that it is made of."""

    entry: Entry
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantCatalog:
    """What stands in the tree. `revision` grows with every publishing that changed something."""

    schema: int = SCHEMA
    revision: int = 0
    variants: tuple[Variant, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantTree:
    """The small files by key: `meanings` say what labels mean and never change, `pages` do."""

    meanings: Mapping[str, bytes]
    pages: Mapping[str, bytes]


def publish_variants(
    wheels: Sequence[Path], store: Store, *, now: str, dry_run: bool = False
) -> tuple[str, ...]:
    """Add the tuned wheels that are within a level to the tree, and make its pages again.

    The index has the wheels already, unless nothing is written (`dry_run`). One that is in no level
    is left out, with a note. `now` is ISO 8601 in UTC; the answer is the variants' file names.
    Raises PublishError for two wheels of one level, WheelError, RecordError, BusyError, DiskError.
    """
    sources = _sources(wheels)
    _need_free(sources, _parse(store.read(KEY), store.where))
    for file, wheel in sources.items():
        console.print_note(f"{wheel.name} as a variant: {file}")
    if dry_run or not sources:
        return tuple(sources)
    with store.exclusive():
        fresh = _stored(sources, _begun(store), store, now)
        for _ in range(TRIES):
            current = store.read(KEY)
            old = _parse(current, store.where)
            _need_free(sources, old)
            if _shown(_merged(old.variants, fresh), old, current, store):
                return tuple(sources)
    raise BusyError(
        f"others published to {store.where} {TRIES} times meanwhile",
        hint="Run the same command again: nothing is lost",
    )


def _sources(wheels: Iterable[Path]) -> dict[str, Path]:
    """The wheels that are within a level, by the file names of their variants."""
    found: dict[str, Path] = {}
    for wheel in wheels:
        facts = read_tuned(wheel)
        if facts is None:
            raise PublishError(f"{wheel.name} is not a tuned wheel, so it is the plain one")
        try:
            file = variant_name(wheel.name, label_of(facts, wheel.name))
        except PublishError as error:
            console.print_note(error.message)
            continue
        first = found.setdefault(file, wheel)
        _need_one(first.name, wheel.name, file)
    return found


def _need_free(sources: Mapping[str, Path], known: VariantCatalog) -> None:
    for each in known.variants:
        wheel = sources.get(each.entry.file)
        if wheel is not None:
            _need_one(each.source, wheel.name, each.entry.file)


def _need_one(first: str, second: str, variant: str) -> None:
    if first != second:
        raise PublishError(
            f"{first} and {second} would both be {variant}",
            hint="An installer cannot tell them apart: name one of them with --wheels",
        )


# ---- what stands in the tree ----


def _begun(store: Store) -> VariantCatalog:
    """The catalog. A tree begins with an empty one, so that it is noticed when it was lost."""
    current = store.read(KEY)
    if current is None and store.sizes(_POOL):
        raise RecordError(f"{store.where} has variants, but no {KEY}", hint=_MEND)
    if current is None:
        store.swap(KEY, format_json(VariantCatalog()).encode(), None)
        current = store.read(KEY)
    return _parse(current, store.where)


def _parse(data: bytes | None, where: str) -> VariantCatalog:
    if data is None:
        return VariantCatalog()
    try:
        known = decode_record(VariantCatalog, parse_json(data))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{KEY} of {where} cannot be read ({error})", hint=_MEND) from error
    if known.schema != SCHEMA:
        schema = quote_value(known.schema)
        raise RecordError(
            f"{KEY} of {where} has schema {schema}, this version reads {SCHEMA}", hint=_MEND
        )
    return known


def _stored(
    sources: Mapping[str, Path], old: VariantCatalog, store: Store, now: str
) -> tuple[Variant, ...]:
    """The variants that are new, made and brought into the pool."""
    there = {each.entry.file for each in old.variants}
    known = {entry.file: entry for entry in _indexed(store)}
    found: list[Variant] = []
    for file, wheel in sources.items():
        if file in there:
            continue
        if wheel.name not in known:
            raise PublishError(f"{store.where} has no {wheel.name} to make a variant of")
        with console.report_step(f"variant {file}"):
            entry = _made(known[wheel.name], wheel, store, now)
        found.append(Variant(entry=entry, source=wheel.name))
    return tuple(found)


def _indexed(store: Store) -> tuple[Entry, ...]:
    return catalog.parse(store.read(catalog.KEY), store.where).entries


def _made(tuned: Entry, wheel: Path, store: Store, now: str) -> Entry:
    with tempfile.TemporaryDirectory() as folder:
        path = make_variant(wheel, Path(folder))
        name, version, _ = path.name.split("-", 2)
        metadata = read_member(path, f"{name}-{version}.dist-info/METADATA")
        entry = dataclasses.replace(
            tuned,
            file=path.name,
            version=tuned.public,
            size=path.stat().st_size,
            sha256=hash_file(path),
            metadata_sha256=digest_of(metadata).sha256,
            published=now,
            verdicts=(),  # they are of the tuned wheel's bytes, and so is what is signed
            provenance=None,
        )
        store.put_new(_key(entry), path, entry.sha256)
    store.put_new(f"{_key(entry)}.metadata", metadata, entry.metadata_sha256)
    return entry


def _merged(known: Iterable[Variant], fresh: Iterable[Variant]) -> tuple[Variant, ...]:
    """One that is known keeps its time."""
    found = {each.entry.file: each for each in (*fresh, *known)}
    return tuple(found[file] for file in sorted(found))


# ---- pages ----


def _shown(
    variants: tuple[Variant, ...], old: VariantCatalog, current: bytes | None, store: Store
) -> bool:
    """Write what leads to the variants; False when another publisher was faster. As in publish,
    whoever wrote a page makes a new revision."""
    plain = [entry for entry in _indexed(store) if entry.kind is not WheelKind.TUNED]
    tree = render(plain, [each.entry for each in variants])
    for key, data in tree.meanings.items():
        store.put_new(key, data, digest_of(data).sha256)
    changed = frozenset(store.differing(tree.pages))
    show(tree.pages, changed, _pooled(variants, tree, store), MANIFEST, store)
    if variants == old.variants and not changed:
        return True
    new = VariantCatalog(revision=old.revision + 1, variants=variants)
    return store.swap(KEY, format_json(new).encode(), current)


def render(plain: Iterable[Entry], variants: Iterable[Entry]) -> VariantTree:
    """The pages of every project, with the wheels of the index's own pool and the variants."""
    files: dict[str, list[File]] = defaultdict(list)
    versions: dict[str, set[str]] = defaultdict(set)
    notes: dict[str, tuple[str, ...]] = defaultdict(tuple)
    releases: dict[tuple[str, str], list[str]] = defaultdict(list)
    signed: dict[str, dict[str, str]] = defaultdict(dict)
    for entry in plain:
        key = pool_key(entry.name, entry.file)
        files[entry.name].append(linked(entry, key, variants_folder(entry.name)))
        versions[entry.name].add(entry.version)
        signed[entry.name] |= provenance_links((entry,), variants_folder(entry.name))
    for entry in variants:
        files[entry.name].append(linked(entry, _key(entry), variants_folder(entry.name)))
        notes[entry.name] += caveats(entry)
        versions[entry.name].add(entry.version)
        releases[entry.name, index_name(entry.file)].append(entry.file)
    meanings: dict[str, bytes] = {}
    for (name, file), labelled in releases.items():
        data = index_json(labelled)
        key = meaning_key(name, file, digest_of(data).sha256)
        meanings[key] = data
        files[name].append(_meaning(key, data, variants_folder(name)))
    pages = keyed(variants_folder(), project_list(files))
    for name, listed in files.items():
        ordered = sorted(listed, key=lambda each: each.filename)
        page = project_page(name, ordered, versions[name], notes[name], signed[name])
        pages |= keyed(variants_folder(name), page)
    return VariantTree(meanings=meanings, pages={key: text.encode() for key, text in pages.items()})


def _meaning(key: str, data: bytes, folder: str) -> File:
    sha256, size = digest_of(data)
    return File(
        filename=posixpath.basename(key),
        url=link(key, folder=folder),
        hashes={"sha256": sha256},
        size=size,
    )


def _pooled(variants: Iterable[Variant], tree: VariantTree, store: Store) -> dict[str, Digest]:
    """The files of the tree's pool. Raises PublishError when one of its pool is not there."""
    sizes = store.sizes(_POOL)
    hashes: dict[str, str] = {}
    for each in variants:
        hashes[_key(each.entry)] = each.entry.sha256
        hashes[f"{_key(each.entry)}.metadata"] = each.entry.metadata_sha256
    lost = next((key for key in hashes if key not in sizes), None)
    if lost is not None:
        raise PublishError(f"{store.where} has lost {lost}", hint=_MEND)
    pooled = {key: Digest(sha256, sizes[key]) for key, sha256 in hashes.items()}
    return pooled | {key: digest_of(data) for key, data in tree.meanings.items()}


def _key(entry: Entry) -> str:
    return variant_key(entry.name, entry.file)
