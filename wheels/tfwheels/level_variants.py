"""Experimental: a tree of variants for levels of CPUs, for installers with PEP 825.

It is beside an index. Its pages list the variants, and the stock wheels and dependencies in the
pool of the index, so an installer needs no other page. Files are written in the order of publish,
so a killed run does no damage: wheels, METADATA, label definitions, pages, manifest, catalog.
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

from tfbuild.packing.tuned import read_tuned
from tfbuild.upstream.download import hash_file
from tfcore import console
from tfcore.errors import PublishError
from tfcore.records import format_json
from tfwheels import catalog
from tfwheels.catalog import CatalogFile
from tfwheels.entry import Entry, WheelKind, WithdrawalKind, read_metadata, require_checked
from tfwheels.layout import (
    METADATA,
    VARIANTS,
    Digest,
    build_link,
    build_meaning_key,
    build_pool_key,
    build_variant_key,
    build_variants_folder,
    compute_digest,
)
from tfwheels.pages import (
    build_provenance_links,
    create_file,
    describe_withdrawal,
    list_caveats,
    prefix_keys,
    render_project_list,
    render_project_page,
)
from tfwheels.publish import TRIES, create_busy_error, write_pages
from tfwheels.store import Store
from tfwheels.variants import (
    build_index_json,
    choose_label,
    format_index_name,
    format_variant_name,
    make_variant,
)

KEY = f"{VARIANTS}/catalog.json"
MANIFEST = f"{VARIANTS}/manifest.json"
_POOL = f"{VARIANTS}/pool"


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A variant in the tree; `source` is the file name of the tuned wheel in the index."""

    entry: Entry
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantCatalog:
    """The variants in the tree; `revision` increases with every change."""

    schema: int = catalog.SCHEMA
    revision: int = 0
    variants: tuple[Variant, ...] = ()


_CATALOG = CatalogFile(
    kind=VariantCatalog,
    key=KEY,
    pool=_POOL,
    mend=f"Remove {VARIANTS}/ and publish the tuned wheels again with --variants",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantTree:
    """The small files by key: `meanings` define labels and never change; `pages` change."""

    meanings: Mapping[str, bytes]
    pages: Mapping[str, bytes]


def publish_variants(
    wheels: Sequence[Path], store: Store, *, now: str, dry_run: bool = False
) -> tuple[str, ...]:
    """Add the tuned wheels that fit a level to the tree, and rebuild its pages.

    The index must contain the wheels, except in a `dry_run`, which writes nothing. A wheel that
    fits no level is skipped, with a note. `now` is ISO 8601 in UTC. Returns the file names of the
    variants. Raises PublishError for two wheels of one level, WheelError, RecordError, BusyError,
    DiskError.
    """
    sources = _collect_sources(wheels)
    _require_free(sources, _CATALOG.parse(store.read(KEY), store.where))
    for file, wheel in sources.items():
        console.print_note(f"variant of {wheel.name}: {file}")
    if dry_run or not sources:
        return tuple(sources)
    with store.lock():
        started = _CATALOG.parse(_CATALOG.start(store), store.where)
        fresh = _add_variants(sources, started, store, now)
        for _ in range(TRIES):
            current = store.read(KEY)
            old = _CATALOG.parse(current, store.where)
            _require_free(sources, old)
            if _write_tree(_merge_variants(old.variants, fresh), old, current, store):
                return tuple(sources)
    raise create_busy_error(store)


def renew_variants(store: Store) -> None:
    """Rebuild the pages of variants, if there are any, after wheels were withdrawn or restored.

    Raises PublishError, RecordError, BusyError, DiskError.
    """
    if store.read(KEY) is None:
        return
    with store.lock():
        for _ in range(TRIES):
            current = store.read(KEY)
            old = _CATALOG.parse(current, store.where)
            if _write_tree(old.variants, old, current, store):
                return
    raise create_busy_error(store)


def _collect_sources(wheels: Iterable[Path]) -> dict[str, Path]:
    """Return the wheels that fit a level, by the file names of their variants."""
    by_variant: dict[str, Path] = {}
    for wheel in wheels:
        facts = read_tuned(wheel)
        if facts is None:
            raise PublishError(
                f"{wheel.name} is not a tuned wheel; only tuned wheels become variants"
            )
        try:
            file = format_variant_name(wheel.name, choose_label(facts, wheel.name))
        except PublishError as error:
            console.print_note(error.message)
            continue
        first = by_variant.setdefault(file, wheel)
        _require_single(first.name, wheel.name, file)
    return by_variant


def _require_free(sources: Mapping[str, Path], known: VariantCatalog) -> None:
    for variant in known.variants:
        wheel = sources.get(variant.entry.file)
        if wheel is not None:
            _require_single(variant.source, wheel.name, variant.entry.file)


def _require_single(first: str, second: str, variant: str) -> None:
    if first != second:
        raise PublishError(
            f"{first} and {second} would both become {variant}",
            hint="Installers cannot distinguish them: pass only one of them with --wheels",
        )


# ---- contents of the tree ----


def _add_variants(
    sources: Mapping[str, Path], old: VariantCatalog, store: Store, now: str
) -> tuple[Variant, ...]:
    """Build the new variants and store them in the pool."""
    present = {variant.entry.file for variant in old.variants}
    known = {entry.file: entry for entry in _read_index(store)}
    added: list[Variant] = []
    for file, wheel in sources.items():
        if file in present:
            continue
        if wheel.name not in known:
            raise PublishError(f"{store.where} does not contain {wheel.name}, the source of {file}")
        with console.report_step(f"build variant {file}"):
            entry = _add_variant(known[wheel.name], wheel, store, now)
        added.append(Variant(entry=entry, source=wheel.name))
    return tuple(added)


def _read_index(store: Store) -> tuple[Entry, ...]:
    return catalog.parse(store.read(catalog.KEY), store.where).entries


def _add_variant(tuned: Entry, wheel: Path, store: Store, now: str) -> Entry:
    with tempfile.TemporaryDirectory() as folder:
        require_checked(wheel, hash_file(wheel), {wheel: tuned.sha256})
        path = make_variant(wheel, Path(folder))
        metadata = read_metadata(path)
        entry = dataclasses.replace(
            tuned,
            file=path.name,
            version=tuned.public,
            size=path.stat().st_size,
            sha256=hash_file(path),
            metadata_sha256=compute_digest(metadata).sha256,
            published=now,
            verdicts=(),  # these, and the signature, are for the tuned wheel's bytes
            provenance=None,
            rebuilt_sha256="",
        )
        store.put_new(_build_key(entry), path, entry.sha256)
    store.put_new(_build_key(entry) + METADATA, metadata, entry.metadata_sha256)
    return entry


def _merge_variants(known: Iterable[Variant], fresh: Iterable[Variant]) -> tuple[Variant, ...]:
    """Merge known and new variants; a known one retains its time."""
    by_file = {variant.entry.file: variant for variant in (*fresh, *known)}
    return tuple(by_file[file] for file in sorted(by_file))


# ---- pages ----


def _write_tree(
    variants: tuple[Variant, ...], old: VariantCatalog, current: bytes | None, store: Store
) -> bool:
    """Write the definitions, pages and catalog; return False if another publisher was faster.

    As in publish, a written page always gives a new revision.
    """
    entries = {entry.file: entry for entry in _read_index(store)}
    plain = [entry for entry in entries.values() if entry.kind is not WheelKind.TUNED]
    tree = render(plain, [_copy_withdrawal(variant, entries) for variant in variants])
    for key, data in tree.meanings.items():
        store.put_new(key, data, compute_digest(data).sha256)
    changed = frozenset(store.find_differing(tree.pages))
    write_pages(tree.pages, changed, _list_pooled(variants, tree, store), MANIFEST, store)
    if variants == old.variants and not changed:
        return True
    new = VariantCatalog(revision=old.revision + 1, variants=variants)
    return store.swap(KEY, format_json(new).encode(), current)


def _copy_withdrawal(variant: Variant, index: Mapping[str, Entry]) -> Entry:
    """Return the entry of a variant, withdrawn if the tuned wheel is."""
    source = index.get(variant.source)
    return dataclasses.replace(variant.entry, withdrawal=source.withdrawal if source else None)


def render(plain: Iterable[Entry], variants: Iterable[Entry]) -> VariantTree:
    """Render the page of every project, with the wheels in the index's pool and the variants.

    Quarantined wheels are on no page; a note says why.
    """
    files: dict[str, list[File]] = defaultdict(list)
    versions: dict[str, set[str]] = defaultdict(set)
    notes: dict[str, tuple[str, ...]] = defaultdict(tuple)
    releases: dict[tuple[str, str], list[str]] = defaultdict(list)
    signed: dict[str, dict[str, str]] = defaultdict(dict)
    for entry in plain:
        listed = files[entry.name]
        if _is_quarantined(entry):
            notes[entry.name] += (describe_withdrawal(entry),)
            continue
        key = build_pool_key(entry.name, entry.file)
        listed.append(create_file(entry, key, build_variants_folder(entry.name)))
        versions[entry.name].add(entry.version)
        signed[entry.name] |= build_provenance_links((entry,), build_variants_folder(entry.name))
    for entry in variants:
        listed = files[entry.name]
        if _is_quarantined(entry):
            notes[entry.name] += (describe_withdrawal(entry),)
            continue
        listed.append(create_file(entry, _build_key(entry), build_variants_folder(entry.name)))
        notes[entry.name] += list_caveats(entry)
        versions[entry.name].add(entry.version)
        releases[entry.name, format_index_name(entry.file)].append(entry.file)
    meanings: dict[str, bytes] = {}
    for (name, file), labelled in releases.items():
        data = build_index_json(labelled)
        key = build_meaning_key(name, file, compute_digest(data).sha256)
        meanings[key] = data
        files[name].append(_create_meaning_file(key, data, build_variants_folder(name)))
    pages = prefix_keys(build_variants_folder(), render_project_list(files))
    for name, shown in files.items():
        ordered = sorted(shown, key=lambda page_file: page_file.filename)
        page = render_project_page(name, ordered, versions[name], notes[name], signed[name])
        pages |= prefix_keys(build_variants_folder(name), page)
    return VariantTree(meanings=meanings, pages={key: text.encode() for key, text in pages.items()})


def _is_quarantined(entry: Entry) -> bool:
    return entry.withdrawal is not None and entry.withdrawal.kind is WithdrawalKind.QUARANTINED


def _create_meaning_file(key: str, data: bytes, folder: str) -> File:
    sha256, size = compute_digest(data)
    return File(
        filename=posixpath.basename(key),
        url=build_link(key, folder=folder),
        hashes={"sha256": sha256},
        size=size,
    )


def _list_pooled(variants: Iterable[Variant], tree: VariantTree, store: Store) -> dict[str, Digest]:
    """Return the digests of the files in the tree's pool.

    Raises PublishError if one is missing.
    """
    sizes = store.list_sizes(_POOL)
    hashes: dict[str, str] = {}
    for variant in variants:
        hashes[_build_key(variant.entry)] = variant.entry.sha256
        hashes[_build_key(variant.entry) + METADATA] = variant.entry.metadata_sha256
    lost = next((key for key in hashes if key not in sizes), None)
    if lost is not None:
        raise PublishError(f"{lost} is missing from {store.where}", hint=_CATALOG.mend)
    pooled = {key: Digest(sha256, sizes[key]) for key, sha256 in hashes.items()}
    return pooled | {key: compute_digest(data) for key, data in tree.meanings.items()}


def _build_key(entry: Entry) -> str:
    return build_variant_key(entry.name, entry.file)
