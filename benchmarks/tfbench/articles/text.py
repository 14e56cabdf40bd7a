"""One page of all experiments: per article what it claimed, what was measured, what could not be.
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfbench.articles.article import Article
from tfbench.reports.canvas import Drawing
from tfbench.reports.document import Block, Document, Points, Section


@dataclass(frozen=True, kw_only=True, slots=True)
class SectionPart:
    """What stands in an article's section beside its claims. `failure` says why nothing does."""

    blocks: tuple[Block, ...] = ()
    figures: tuple[Drawing, ...] = ()
    lines: tuple[str, ...] = ()
    """The findings in sentences, for a terminal."""
    failure: str = ""


def document(
    articles: Sequence[Article], parts: Mapping[str, SectionPart], *, subject: str, quick: bool
) -> Document:
    failures = ((each.title, parts[each.key].failure) for each in articles)
    failed = [f"{title}: {failure}" for title, failure in failures if failure]
    small = ("A quick look: few processes and few steps per cell. Intervals are wide, and say so.",)
    return Document(
        title="Five articles, measured here",
        subject=subject,
        notes=small if quick else (),
        warnings=tuple(failed),
        sections=tuple(_section(each, parts[each.key]) for each in articles),
    )


def _section(article: Article, part: SectionPart) -> Section:
    link = f" {article.link}" if article.link else ""
    measured: tuple[Block, ...] = part.blocks
    if part.failure:
        measured = (*measured, f"Not all could be measured: {part.failure}")
    return Section(
        key=article.key,
        heading=article.title,
        blocks=(
            f"{article.source}.{link}",
            "It claimed:",
            Points(items=article.claims),
            "Measured here:",
            *measured,
            f"What could not be: {article.missing}",
            f"At any size: {article.command}",
        ),
    )


def summary(articles: Sequence[Article], parts: Mapping[str, SectionPart]) -> str:
    """What a terminal shows: the findings of each article."""
    found: list[str] = []
    for article in articles:
        part = parts[article.key]
        found += [article.title, *(f"  {line}" for line in part.lines)]
        if part.failure:
            found.append(f"  not all could be measured: {part.failure}")
    return "\n".join(found) + "\n"


def figures(parts: Mapping[str, SectionPart]) -> dict[str, tuple[Drawing, ...]]:
    return {key: part.figures for key, part in parts.items()}
