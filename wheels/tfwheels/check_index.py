"""Check a signed index: its signature, and every file that its manifest lists."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tfbuild.upstream.download import hash_file
from tfcore import console
from tfcore.console import format_count
from tfcore.errors import PublishError
from tfcore.records import parse_json, quote_value
from tfwheels.folder import Folder
from tfwheels.keys import PublicKey
from tfwheels.layout import JSON, SIMPLE, VARIANTS, build_folder_key, compute_digest, is_sha256
from tfwheels.publish import MANIFEST
from tfwheels.reader import IndexReader
from tfwheels.signed_catalog import read_catalog

_SAME = "Do not install from it. Its publisher can write it again: publish --reindex --sign KEY"
_MOST_LINES = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedIndex:
    """A signed index, and what is wrong with its files.

    `issued` and `expires` are ISO 8601 in UTC, `key` is the signer's id, `files` is the number of
    files whose bytes were compared, and `faults` has a line for each other one.
    """

    where: str
    revision: int
    issued: str
    expires: str
    key: str
    files: int
    faults: tuple[str, ...]


def check_index(
    reader: IndexReader, trusted: Sequence[PublicKey], *, target: str, now: datetime, history: Path
) -> CheckedIndex:
    """Verify the catalog of an index, then its manifest and files.

    In a folder, these are all files; on a server, the pages of `target`, also under the addresses
    of their folders, which pip asks for. Raises PublishError if the catalog or the manifest is not
    the signed one, expired or went back, or if there are no pages.
    """
    catalog, signature = read_catalog(reader, trusted, now=now, history=history)
    hashes = _read_manifest(reader, signature.manifest)
    folder = reader if isinstance(reader, Folder) else None
    prefix = "" if folder else build_folder_key(target)
    keys = [key for key in hashes if key.startswith(prefix) and not (folder and key[-1] == "/")]
    if not keys:
        raise PublishError(f"{reader.where} has no pages for {target}", hint="Pass --arch TARGET")
    faults = list(_compare_files(reader, folder, {key: hashes[key] for key in keys}))
    if folder:
        faults += _list_unknown(folder, hashes)
    return CheckedIndex(
        where=reader.where,
        revision=catalog.revision,
        issued=signature.issued,
        expires=signature.expires,
        key=signature.key,
        files=len(keys),
        faults=tuple(faults),
    )


def _compare_files(
    reader: IndexReader, folder: Folder | None, hashes: Mapping[str, frozenset[str]]
) -> Iterator[str]:
    """Yield a line for each file that is missing or has other bytes."""
    with console.track_progress("files", len(hashes)) as count:
        for done, (key, expected) in enumerate(hashes.items(), 1):
            actual = _hash(reader, folder, key)
            if actual not in expected:
                yield f"{key} {'is missing' if actual is None else 'was changed'}"
            count.advance(done, detail=key)


def _list_unknown(folder: Folder, hashes: Container[str]) -> Iterator[str]:
    """Yield a line for each page that the manifest does not list, and for each link."""
    for path in sorted(folder.root.rglob("*")):
        key = path.relative_to(folder.root).as_posix()
        is_page = path.is_file() and key.startswith((f"{SIMPLE}/", f"{VARIANTS}/"))
        if path.is_symlink() or (is_page and key not in hashes):
            yield f"{key} is {'a link' if path.is_symlink() else 'not in the manifest'}"


def require_sound(checked: CheckedIndex) -> None:
    """Raise PublishError if the index has faults."""
    if checked.faults:
        raise PublishError(
            f"{format_count(len(checked.faults), 'file')} of {checked.where} differ from what key "
            f"{checked.key} signed",
            hint=_SAME,
        )


def describe(checked: CheckedIndex) -> str:
    """Format the result for users."""
    lines = [
        f"{checked.where}: revision {checked.revision}, signed by key {checked.key}",
        f"signed on {checked.issued}, valid until {checked.expires}",
        (
            f"{format_count(checked.files, 'file')} compared, "
            f"{format_count(len(checked.faults), 'fault')}"
        ),
        *_shorten(checked.faults),
    ]
    return "\n".join(lines) + "\n"


def _shorten(faults: Sequence[str]) -> Iterator[str]:
    yield from (f"  {fault}" for fault in faults[:_MOST_LINES])
    if faults[_MOST_LINES:]:
        yield f"  and {len(faults) - _MOST_LINES} more"


def _read_manifest(reader: IndexReader, sha256: str) -> Mapping[str, frozenset[str]]:
    """Return the hashes that the object at each key may have.

    A folder is served as its HTML page, or as its JSON page to clients that prefer that. Raises
    PublishError if the manifest is missing or is not the signed one.
    """
    data = reader.read(MANIFEST)
    if data is None or compute_digest(data).sha256 != sha256:
        state = "missing" if data is None else "not the signed one"
        raise PublishError(
            f"{MANIFEST} of {reader.where} is {state}",
            hint="If somebody publishes to it now, run the same command again",
        )
    try:
        hashes = dict(_list_hashes(parse_json(data)["objects"]))
        both = {key: {hashes[key], hashes.get(key + JSON, "")} for key in hashes if key[-1] == "/"}
        return {key: frozenset(both.get(key, {hashes[key]})) for key in hashes}
    except (KeyError, TypeError, ValueError) as error:
        raise PublishError(f"cannot read {MANIFEST} of {reader.where} ({error})") from error


def _list_hashes(objects: Iterable[Mapping[str, object]]) -> Iterator[tuple[str, str]]:
    for stored in objects:
        key, sha256 = stored["key"], stored["sha256"]
        if not isinstance(key, str) or not key or not is_sha256(sha256):
            raise ValueError(f"it lists {quote_value(key)} with {quote_value(sha256)}")
        yield key, sha256


def _hash(reader: IndexReader, folder: Folder | None, key: str) -> str | None:
    """Return the SHA-256 of a file; None if it is missing."""
    if folder is not None:
        with folder.open_local(key) as path:
            return hash_file(path) if path.is_file() else None
    data = reader.read(key)
    return None if data is None else compute_digest(data).sha256
