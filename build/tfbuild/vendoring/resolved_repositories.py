"""Parses Bazel's list of fetched repositories (--experimental_repository_resolved_file)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfbuild.upstream.download import strip_login
from tfcore.errors import VendorError


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchedRepository:
    """A repository that Bazel's downloader filled. `pinned` is False if its rule has no hash."""

    name: str
    urls: tuple[str, ...]
    sha256: str
    pinned: bool


def parse_resolved(text: str) -> tuple[FetchedRepository, ...]:
    """Parse the file of --experimental_repository_resolved_file, and return the repositories
    with one list of addresses.

    The file is Starlark with literals only, `resolved = [...]`. `original_attributes` are the
    rule's attributes, `repositories` those that the rule reports as making it reproducible.
    Raises VendorError.
    """
    try:
        entries: list[dict[str, Any]] = ast.literal_eval(text.partition("=")[2])
        return tuple(repository for entry in entries for repository in _parse_entry(entry))
    except (ValueError, SyntaxError, AttributeError, KeyError, TypeError) as error:
        raise VendorError(f"Bazel's list of repositories cannot be read: {error}") from error


def _parse_entry(entry: Mapping[str, Any]) -> Iterator[FetchedRepository]:
    original = entry["original_attributes"]
    for repository in entry.get("repositories", ()):
        attributes = repository["attributes"]
        urls = (
            attributes.get("urls")
            or attributes.get("url")
            or original.get("urls")
            or original.get("url")
        )
        sha256 = attributes.get("sha256") or original.get("sha256")
        if urls and sha256:
            addresses = (urls,) if isinstance(urls, str) else tuple(urls)
            pinned = bool(original.get("sha256") or original.get("integrity"))
            yield FetchedRepository(
                name=original["name"],
                urls=tuple(map(strip_login, addresses)),
                sha256=sha256,
                pinned=pinned,
            )
