"""Where things stand in the published tree: keys, what they are, and how long they may be kept.

A key is a path below the tree's root with `/` between its parts. All links between pages and wheels
are relative, so the tree can be served under any prefix.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from tfbuild.errors import PublishError
from tfbuild.packing.wheel import is_plain

HTML = "index.html"
JSON = "index.json"
PROVENANCE = ".provenance"
_POOL = "pool"
_SIMPLE = "simple"
VARIANTS = "variants"
_POOLS = (f"{_POOL}/", f"{VARIANTS}/{_POOL}/")

_WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl")
_PROJECT = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_TARGET = re.compile(r"[a-z0-9][a-z0-9_.]*")

_TYPES = {
    HTML: "text/html; charset=utf-8",
    JSON: "application/vnd.pypi.simple.v1+json",
    ".json": "application/json",
    PROVENANCE: "application/vnd.pypi.integrity.v1+json",
}
_ANY_BYTES = "application/octet-stream"
# pip 26.2 and newer keep a page as long as it says; what is in the pool never changes.
_BRIEFLY = "max-age=60"
_FOR_EVER = "public, max-age=31536000, immutable"


class Digest(NamedTuple):
    """`sha256` is hex, `size` in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredObject:
    """An object of an object store: `key` with the bytes of `file`, a path in the tree."""

    key: str
    file: str
    content_type: str
    cache_control: str
    sha256: str
    size: int


def pool_key(project: str, file: str) -> str:
    """Where a wheel stands. Raises PublishError for names that are none."""
    _need(_PROJECT, project, "the normalized name of a package")
    _need(_WHEEL, file, "a plain file name of a wheel")
    return f"{_POOL}/{project}/{file}"


def metadata_key(project: str, file: str) -> str:
    """The wheel's METADATA beside it (PEP 658)."""
    return pool_key(project, file) + ".metadata"


def provenance_key(project: str, file: str) -> str:
    """What the wheel was made from, signed, beside it (PEP 740)."""
    return pool_key(project, file) + PROVENANCE


def folder_key(target: str = "", project: str = "") -> str:
    """The folder of a page, with a slash at its end: the targets, a target's projects, or a
    project's files."""
    if not target:
        return f"{_SIMPLE}/"
    _need(_TARGET, target, "the name of a target")
    if not project:
        return f"{_SIMPLE}/{target}/"
    _need(_PROJECT, project, "the normalized name of a package")
    return f"{_SIMPLE}/{target}/{project}/"


def variant_key(project: str, file: str) -> str:
    """Where a wheel stands that is a variant (PEP 825); its METADATA is beside it."""
    return f"{VARIANTS}/{pool_key(project, file)}"


def meaning_key(project: str, file: str, sha256: str) -> str:
    """Where `file` stands, which says what a release's variants are: its hash is in the key, since
    it changes with each new variant, and a page must never lead to other bytes than it says."""
    _need(_PROJECT, project, "the normalized name of a package")
    return f"{VARIANTS}/{_POOL}/{project}/{sha256[:16]}/{file}"


def variants_folder(project: str = "") -> str:
    """The folder of a page of variants: the projects, or a project's files."""
    if not project:
        return f"{VARIANTS}/{_SIMPLE}/"
    _need(_PROJECT, project, "the normalized name of a package")
    return f"{VARIANTS}/{_SIMPLE}/{project}/"


def link(key: str, *, folder: str) -> str:
    """The URL of a key as a page in `folder` gives it; the `+` of a local version is quoted, since
    some object stores read it as a space."""
    return quote(posixpath.relpath(key, folder))


def place(root: Path, key: str) -> Path:
    """The path of a key in a tree on disk. Raises PublishError when it leaves the tree, also when a
    link does."""
    if not is_plain(key):
        raise PublishError(f"{key!r} is no name for a file of an index")
    path = root
    for part in key.split("/"):
        path /= part
        if path.is_symlink():
            raise PublishError(f"{path} is a link", hint="An index holds its files itself")
    return path


def digest_of(content: bytes) -> Digest:
    return Digest(hashlib.sha256(content).hexdigest(), len(content))


def manifest(files: Mapping[str, Digest]) -> tuple[StoredObject, ...]:
    """What to put into an object store for the files of a tree, in the order to put it: the pool,
    then pages, those last that lead to others.

    Object stores know no folders, so a page is there under its folder's key too.
    """
    return tuple(
        _stored(key, file, files[file])
        for file in sorted(files, key=_order)
        for key in (file, *_folder_of(file))
    )


def _stored(key: str, file: str, digest: Digest) -> StoredObject:
    pooled = file.startswith(_POOLS)
    return StoredObject(
        key=key,
        file=file,
        content_type=next((_TYPES[end] for end in _TYPES if file.endswith(end)), _ANY_BYTES),
        cache_control=_FOR_EVER if pooled else _BRIEFLY,
        sha256=digest.sha256,
        size=digest.size,
    )


def _folder_of(file: str) -> tuple[str, ...]:
    folder, name = posixpath.split(file)
    return (f"{folder}/",) if name == HTML else ()


def _order(file: str) -> tuple[bool, int, str]:
    return not file.startswith(_POOLS), -file.count("/"), file


def _need(pattern: re.Pattern[str], name: str, what: str) -> None:
    if not pattern.fullmatch(name):
        raise PublishError(f"{name!r} is not {what}")
