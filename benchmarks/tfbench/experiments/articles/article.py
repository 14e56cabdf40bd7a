"""The articles: their claims, and what cannot be measured here."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("articles.toml")


@dataclass(frozen=True, kw_only=True, slots=True)
class Article:
    """An article. `key` names its section of the report; `command` reproduces it at any size."""

    key: str
    title: str
    source: str
    link: str
    command: str
    claims: tuple[str, ...]
    missing: str


def read_articles() -> tuple[Article, ...]:
    """Read the five articles, ordered by year."""
    rows = tomllib.loads(_FILE.read_text(encoding="utf-8"))["article"]
    return tuple(Article(**{**row, "claims": tuple(row["claims"])}) for row in rows)
