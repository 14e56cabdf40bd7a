"""Build one page of all experiments: each article's claims, results and limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfbench.experiments.articles.article import Article
from tfbench.reports.canvas import Drawing
from tfbench.reports.document import Block, BulletList, Document, Section


@dataclass(frozen=True, kw_only=True, slots=True)
class SectionPart:
    """The content of an article's section beside its claims, or the `failure` that prevented it."""

    blocks: tuple[Block, ...] = ()
    figures: tuple[Drawing, ...] = ()
    lines: tuple[str, ...] = ()
    """The results in sentences, for a terminal."""
    failure: str = ""


def build_document(
    articles: Sequence[Article], parts: Mapping[str, SectionPart], *, subject: str, quick: bool
) -> Document:
    failures = ((article.title, parts[article.key].failure) for article in articles)
    failed = [f"{title}: {failure}" for title, failure in failures if failure]
    small = ("A short run: few processes and few steps per cell, so intervals are wide.",)
    return Document(
        title="The experiments of five articles",
        subject=subject,
        notes=small if quick else (),
        warnings=tuple(failed),
        sections=tuple(_build_section(article, parts[article.key]) for article in articles),
    )


def _build_section(article: Article, part: SectionPart) -> Section:
    link = f" {article.link}" if article.link else ""
    measured: tuple[Block, ...] = part.blocks
    if part.failure:
        measured = (*measured, f"An experiment failed: {part.failure}")
    return Section(
        key=article.key,
        heading=article.title,
        blocks=(
            f"{article.source}.{link}",
            "Claims:",
            BulletList(items=article.claims),
            "Results:",
            *measured,
            f"Not measured: {article.missing}",
            f"Commands: {article.command}",
        ),
    )


def format_summary(articles: Sequence[Article], parts: Mapping[str, SectionPart]) -> str:
    """Format the findings of each article for a terminal."""
    texts: list[str] = []
    for article in articles:
        part = parts[article.key]
        texts += [article.title, *(f"  {line}" for line in part.lines)]
        if part.failure:
            texts.append(f"  failed: {part.failure}")
    return "\n".join(texts) + "\n"


def collect_figures(parts: Mapping[str, SectionPart]) -> dict[str, tuple[Drawing, ...]]:
    return {key: part.figures for key, part in parts.items()}
