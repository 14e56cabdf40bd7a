"""The articles' page: a section for each, what failed said, nothing measured by the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorwright.program import collect_commands
from tfbench.commands import ArticlesOptions, ThroughputOptions
from tfbench.experiments import articles
from tfbench.experiments.articles import (
    EXPERIMENTS,
    SectionPart,
    choose_sizes,
    read_articles,
    recompute_cloud_cpus,
)
from tfbench.reports import page, report
from tfbench.reports.document import BulletList, Table
from tfcore.errors import UsageError, WheelError, WorkerError
from tfcore.settings import TEMPLATES, Paths

ARTICLES = read_articles()


def parts(**failures: str) -> dict[str, SectionPart]:
    return {
        article.key: SectionPart(
            blocks=(BulletList(items=(f"measured of {article.key}",)),),
            lines=(f"found of {article.key}",),
            failure=failures.get(article.key.replace("-", "_"), ""),
        )
        for article in ARTICLES
    }


def test_there_are_five_articles_and_each_can_be_measured() -> None:
    assert [article.key for article in ARTICLES] == list(articles.ARTICLES)
    assert [kind for kinds in articles.ARTICLES.values() for kind in kinds] == list(EXPERIMENTS)
    assert len(ARTICLES) == 5
    for article in ARTICLES:
        assert article.claims
        assert article.missing
        assert article.command.startswith("invoke ")


def test_every_command_that_an_article_names_is_a_task() -> None:
    names = collect_commands().task_names
    for article in ARTICLES:
        for words in article.command.split(";"):
            assert words.split()[1] in names, words


def test_a_section_says_what_was_claimed_measured_and_could_not_be() -> None:
    document = articles.build_document(ARTICLES, parts(), subject="here", quick=True)
    assert [section.key for section in document.sections] == list(articles.ARTICLES)
    for article, section in zip(ARTICLES, document.sections, strict=True):
        assert BulletList(items=article.claims) in section.blocks
        assert BulletList(items=(f"measured of {article.key}",)) in section.blocks
        assert any(article.missing in block for block in section.blocks if isinstance(block, str))
    assert document.warnings == ()
    assert document.notes
    markdown = report.render_markdown(document, TEMPLATES)
    html = page.render_html(document, {}, TEMPLATES)
    for article in ARTICLES:
        assert f"measured of {article.key}" in html
        assert article.title.split(":")[0] in markdown


def test_what_failed_is_a_warning_and_stands_in_its_section() -> None:
    section_parts = parts(sizing="the disk is full")
    document = articles.build_document(ARTICLES, section_parts, subject="here", quick=False)
    assert len(document.warnings) == 1
    assert "the disk is full" in document.warnings[0]
    (section,) = [
        report_section for report_section in document.sections if report_section.key == "sizing"
    ]
    assert any("the disk is full" in block for block in section.blocks if isinstance(block, str))
    assert "the disk is full" in articles.format_summary(ARTICLES, section_parts)
    assert document.notes == ()


def test_the_first_article_is_computed_again_from_its_logs(tmp_path: Path) -> None:
    paths = Paths(root=tmp_path, cache=tmp_path / "cache", pool=tmp_path / "wheels")
    part = recompute_cloud_cpus(paths)
    (table,) = [block for block in part.blocks if isinstance(block, Table)]
    means = {row[0]: row[2] for row in table.rows if row[1] == "compiled"}
    assert {vcpus: mean[:4] for vcpus, mean in means.items()} == {
        "8": "1.43",
        "16": "1.28",
        "32": "0.97",
        "64": "1.04",
    }
    assert "no comparison" in " ".join(part.lines)


def test_one_experiment_that_fails_does_not_take_the_others_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(kind: str, options: ThroughputOptions, _: Paths) -> SectionPart:
        if kind == "throughput":
            raise WheelError(f"no wheel for {Path(options.out).parent.name}")
        return SectionPart(lines=("found",))

    monkeypatch.setattr(articles, "_measure_part", measure)
    monkeypatch.setattr(articles, "recompute_cloud_cpus", lambda _: SectionPart(lines=("found",)))
    monkeypatch.setenv("TENSORWRIGHT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(WorkerError) as caught:
        articles.measure_articles(ArticlesOptions(quick=True, arms="", out=str(tmp_path / "out")))
    assert "no wheel for out" in str(caught.value)
    assert str(caught.value).count("  found") == 4
    assert (tmp_path / "out" / "report.html").is_file()
    assert not (tmp_path / "out" / "articles.json").exists(), "it goes on with the next run"


def test_sizes_go_with_the_wheels_that_are_asked() -> None:
    sizes = choose_sizes(ArticlesOptions(quick=True, arms="stock,tuned"))
    assert {kind: own.arms for kind, own in sizes.items() if kind != "sizing"} == dict.fromkeys(
        ("throughput", "accuracy", "strategies", "overhead"), "stock,tuned"
    )
    assert sizes["sizing"].arms == "stock", "sizes are of one wheel"


@pytest.mark.parametrize("quick", [True, False])
def test_a_dry_run_names_every_experiment(
    quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORWRIGHT_CACHE", str(tmp_path))
    text = articles.describe_plan(ArticlesOptions(quick=quick, out="here"))
    for name in ("throughput", "accuracy", "sizing", "strategies", "overhead"):
        assert f"{name}\n" in text
        assert f"here/{name}\n" in text
    assert not any(tmp_path.iterdir())


def test_a_wheel_that_there_is_not_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises((UsageError, WheelError)):
        articles.measure_articles(
            ArticlesOptions(quick=True, arms="nowhere.whl", out=str(tmp_path / "out"))
        )
    assert not (tmp_path / "out").exists()
