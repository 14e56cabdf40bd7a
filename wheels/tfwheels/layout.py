"""The layout of the published tree: keys, content types and cache lifetimes.

A key is a path below the tree's root, with `/` between its parts. All links between pages and
wheels are relative, so the tree can be served under any prefix.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeGuard
from urllib.parse import quote

from tfbuild.packing.wheel import is_plain
from tfcore.errors import PublishError

HTML = "index.html"
JSON = "index.json"
METADATA = ".metadata"
PROVENANCE = ".provenance"
REBUILT = ".rebuilt"
SIMPLE = "simple"
_POOL = "pool"
VARIANTS = "variants"
_POOLS = (f"{_POOL}/", f"{VARIANTS}/{_POOL}/")

_WHEEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*\.whl")
_PROJECT = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TARGET = re.compile(r"[a-z0-9][a-z0-9_.]*")

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PAGE = re.compile(
    rf"{SIMPLE}/(?:(?P<target>{_TARGET.pattern})/(?:(?P<project>{_PROJECT.pattern})/)?)?"
    rf"(?P<file>{HTML}|{JSON})?"
)

_TYPES = {
    HTML: "text/html; charset=utf-8",
    JSON: "application/vnd.pypi.simple.v1+json",
    ".json": "application/json",
    PROVENANCE: "application/vnd.pypi.integrity.v1+json",
    REBUILT: "application/vnd.pypi.integrity.v1+json",
}
_ANY_BYTES = "application/octet-stream"
# pip 26.2 and newer cache a page for its max-age; files in the pool never change.
_BRIEFLY = "max-age=60"
_FOR_EVER = "public, max-age=31536000, immutable"


def is_sha256(value: object) -> TypeGuard[str]:
    """Return whether the value is a SHA-256 in lower-case hex."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


class Digest(NamedTuple):
    """The SHA-256 (hex) and the size (bytes) of a file."""

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


def build_pool_key(project: str, file: str) -> str:
    """Return the key of a wheel in the pool.

    Raises PublishError for invalid names.
    """
    _require_match(_PROJECT, project, "a normalized package name")
    _require_match(_WHEEL, file, "a plain file name of a wheel")
    return f"{_POOL}/{project}/{file}"


def build_metadata_key(project: str, file: str) -> str:
    """Return the key of the wheel's METADATA, beside it (PEP 658)."""
    return build_pool_key(project, file) + METADATA


def build_provenance_key(project: str, file: str) -> str:
    """Return the key of the wheel's signed provenance, beside it (PEP 740)."""
    return build_pool_key(project, file) + PROVENANCE


def build_rebuilt_key(project: str, file: str) -> str:
    """Return the key of a rebuilder's statement, beside the wheel."""
    return build_pool_key(project, file) + REBUILT


def build_folder_key(target: str = "", project: str = "") -> str:
    """Return the folder of a page, with a slash at its end.

    The page lists the targets, the projects of a target, or the files of a project.
    """
    if not target:
        return f"{SIMPLE}/"
    _require_match(_TARGET, target, "a target name")
    if not project:
        return f"{SIMPLE}/{target}/"
    _require_match(_PROJECT, project, "a normalized package name")
    return f"{SIMPLE}/{target}/{project}/"


class PageKey(NamedTuple):
    """The parts of a page's key; `target` and `project` are empty for a page of several."""

    target: str
    project: str
    file: str

    @property
    def key(self) -> str:
        return build_folder_key(self.target, self.project) + self.file


def parse_page_key(key: str) -> PageKey | None:
    """Return the parts of a page's key, or None if it is not the key of a page.

    The key of a folder is that of its HTML page.
    """
    match = _PAGE.fullmatch(key)
    return match and PageKey(match["target"] or "", match["project"] or "", match["file"] or HTML)


def build_variant_key(project: str, file: str) -> str:
    """Return the key of a variant (PEP 825); its METADATA is beside it."""
    return f"{VARIANTS}/{build_pool_key(project, file)}"


def build_meaning_key(project: str, file: str, sha256: str) -> str:
    """Return the key of `file`, which defines the variants of a release.

    The key contains the hash, because the file changes with each new variant, and the link on a
    page must always lead to the listed bytes.
    """
    _require_match(_PROJECT, project, "a normalized package name")
    return f"{VARIANTS}/{_POOL}/{project}/{sha256[:16]}/{file}"


def build_variants_folder(project: str = "") -> str:
    """Return the folder of a page of variants: the projects, or a project's files."""
    if not project:
        return f"{VARIANTS}/{SIMPLE}/"
    _require_match(_PROJECT, project, "a normalized package name")
    return f"{VARIANTS}/{SIMPLE}/{project}/"


def build_link(key: str, *, folder: str) -> str:
    """Return the URL of a key, relative to a page in `folder`.

    The `+` of a local version is quoted, because some object stores read it as a space.
    """
    return quote(posixpath.relpath(key, folder))


def resolve_key(root: Path, key: str) -> Path:
    """Return the path of a key in a tree on disk.

    Raises PublishError if it leaves the tree, also through a link.
    """
    if not is_plain(key):
        raise PublishError(f"{key!r} is not a valid file name in an index")
    path = root
    for part in key.split("/"):
        path /= part
        if path.is_symlink():
            raise PublishError(
                f"{path} is a link", hint="Replace it with the file: an index has no links"
            )
    return path


def compute_digest(content: bytes) -> Digest:
    return Digest(hashlib.sha256(content).hexdigest(), len(content))


def build_manifest(files: Mapping[str, Digest]) -> tuple[StoredObject, ...]:
    """List the objects of a tree in the order to upload them: pool, then pages.

    Pages that link to others come last. Object stores have no folders, so a page is also stored
    under its folder's key.
    """
    return tuple(
        _build_object(key, file, files[file])
        for file in sorted(files, key=_get_sort_key)
        for key in (file, *_list_folder_keys(file))
    )


def _build_object(key: str, file: str, digest: Digest) -> StoredObject:
    pooled = file.startswith(_POOLS)
    return StoredObject(
        key=key,
        file=file,
        content_type=next((_TYPES[end] for end in _TYPES if file.endswith(end)), _ANY_BYTES),
        cache_control=_FOR_EVER if pooled else _BRIEFLY,
        sha256=digest.sha256,
        size=digest.size,
    )


def _list_folder_keys(file: str) -> tuple[str, ...]:
    folder, name = posixpath.split(file)
    return (f"{folder}/",) if name == HTML else ()


def _get_sort_key(file: str) -> tuple[bool, int, str]:
    return not file.startswith(_POOLS), -file.count("/"), file


def _require_match(pattern: re.Pattern[str], name: str, description: str) -> None:
    if not pattern.fullmatch(name):
        raise PublishError(f"{name!r} is not {description}")
