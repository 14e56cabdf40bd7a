"""The HTML file as a browser reads it: whole, alone, described, and safe from what it shows."""

from __future__ import annotations

import dataclasses
import functools
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from tests.builders import report_comparisons
from tests.builders.report_comparisons import ARTICLE, BILL, SOUND, TROUBLED, article_html, html

from tfbench.costs import article, catalog
from tfbench.costs.bill import compute_bill_from_totals
from tfbench.costs.runs import TrainingRun
from tfcore.comparisons.comparison import ArmFailure
from tfcore.settings import TEMPLATES

VOID = {"meta", "br", "link", "img", "input", "hr", "base", "col", "embed", "source"}
HOSTILE = '<script>alert("x")</script>&amp;\'"><svg onload=1>'


class Outline(HTMLParser):
    """Elements with their attributes, the text in them, and whether all were closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.by_tag: dict[str, list[str]] = {}
        self.inside: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.inside.setdefault(tag, []).append(" ".join(self.open))
        if tag not in VOID:
            self.open.append(tag)
            self.by_tag.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.by_tag[tag][-1] += data
        if not {"style", "svg"} & set(self.open):
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@functools.cache
def page(name: str) -> str:
    match name:
        case "sound":
            return html(SOUND, TEMPLATES, bill=BILL, samples=report_comparisons.samples(SOUND))
        case "troubled":
            return html(TROUBLED, TEMPLATES, samples=report_comparisons.samples(TROUBLED))
        case "climbed":
            return html(report_comparisons.climbed(), TEMPLATES)
        case _:
            return article_html(ARTICLE, TEMPLATES, shipped=True)


PAGES = ("sound", "troubled", "climbed", "article")


@pytest.mark.parametrize("name", PAGES)
def test_every_element_is_closed_and_every_id_is_there_once(name: str) -> None:
    outline = Outline(page(name))
    assert outline.open == []
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", PAGES)
def test_nothing_comes_from_elsewhere_and_nothing_runs(name: str) -> None:
    outline = Outline(page(name))
    tags = {tag for tag, _ in outline.elements}
    assert not tags & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "foreignobject",
    }
    ids = {attributes["id"] for _, attributes in outline.elements if "id" in attributes}
    for _, attributes in outline.elements:
        for attribute, value in attributes.items():
            assert not attribute.startswith("on")
            assert attribute not in {"src", "srcset", "data", "action"}
            if attribute in {"href", "xlink:href"}:
                assert value.startswith("#")
                assert value[1:] in ids
            if not attribute.startswith("xmlns"):
                assert "http" not in value
                assert "//" not in value
    style = page(name).partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.parametrize(("name", "figures"), list(zip(PAGES, (16, 9, 2, 13), strict=True)))
def test_every_figure_has_a_heading_and_a_text_alternative(name: str, figures: int) -> None:
    outline = Outline(page(name))
    drawings = outline.all("svg")
    assert len(drawings) == len(outline.all("figure")) == figures
    ids = [attributes.get("id") for _, attributes in outline.elements]
    for drawing in drawings:
        assert drawing["role"] == "img"
        title, description = drawing["aria-labelledby"].split()
        assert title in ids
        assert description in ids
    assert all("figure" in word for word in outline.inside["h3"])
    assert len(outline.by_tag["desc"]) == figures
    assert all(len(word) > 40 for word in outline.by_tag["desc"])


@pytest.mark.parametrize("name", PAGES)
def test_every_table_is_named_and_scrolls_in_a_place_of_its_own(name: str) -> None:
    outline = Outline(page(name))
    tables = outline.inside["table"]
    assert tables
    assert all(place.endswith("section div") for place in tables)
    regions = [row for row in outline.all("div") if row.get("class") == "scroll"]
    assert len(regions) == len(tables) == len(outline.all("caption"))
    for region in regions:
        assert region["role"] == "region"
        assert region["tabindex"] == "0"
        assert region["aria-label"]
    assert all(row["scope"] == "col" for row in outline.all("th"))


@pytest.mark.parametrize("name", PAGES)
def test_headings_come_in_order_and_the_contents_lead_to_all_sections(name: str) -> None:
    outline = Outline(page(name))
    assert len(outline.all("h1")) == 1
    sections = [attributes["id"] for attributes in outline.all("section")]
    assert [row["href"] for row in outline.all("a")] == [f"#{section}" for section in sections]
    (viewport,) = (row for row in outline.all("meta") if row.get("name") == "viewport")
    assert viewport["content"] == "width=device-width, initial-scale=1"


def test_the_answer_comes_first_and_then_what_to_doubt() -> None:
    words = Outline(page("troubled")).words
    order = [
        "control, tuned and mkl against stock",
        "tuned, 1 vCPU 1.031x computes something else",
        "mkl, 2 vCPUs 0.951x slower",
        "Warnings Incomplete",
        "Speedup of a training step",
    ]
    places = [words.index(name) for name in order[:1] + order[1:]]
    assert places == sorted(places)
    assert "Warnings" not in Outline(page("sound")).words


def test_figures_of_the_page_are_those_of_the_records() -> None:
    words = Outline(page("sound")).words
    comparison = SOUND
    for mean in comparison.overall:
        interval = mean.speedup.interval
        shown = f"{interval.value:.3f}x {mean.speedup.verdict} {interval.low:.3f} to"
        assert f"{mean.speedup.arm}, {mean.vcpus} vCPU" in words
        assert shown in words
    for cell in comparison.cells:
        for speedup in cell.speedups:
            low, high = speedup.interval.low, speedup.interval.high
            assert (
                f"{cell.workload} {cell.vcpus} {speedup.arm} {speedup.verdict} "
                f"{speedup.interval.value:.3f}x ({low:.3f} to {high:.3f})"
            ) in words


def test_a_failure_is_a_marked_row_with_its_reason_below() -> None:
    words = Outline(page("troubled")).words
    assert "mnist_mlp 1 mkl failed" in words
    assert "mkl failed: the worker of arm mkl was killed (signal 9): no memory?" in words
    assert "mnist_cnn 1 tuned computes something else" in words
    marks = [row["class"] for row in Outline(page("troubled")).all("span") if "class" in row]
    assert {"verdict failed", "verdict computes", "verdict inconclusive"} <= set(marks)


def test_the_article_page_shows_its_four_means_and_the_cheapest() -> None:
    words = Outline(page("article")).words
    for vcpus, figure in ((8, "1.430x"), (16, "1.282x"), (32, "0.975x"), (64, "1.041x")):
        assert f"compiled over pip, {vcpus} vCPUs {figure}" in words
    assert "The cheapest for all 6 models: compiled on 8 vCPUs." in words
    assert "mnist_cnn 8 1116.2 634.1 1.760x 6.46 3.67 0.55 0.31" in words


def test_hostile_names_are_shown_and_do_nothing() -> None:
    arms = (
        dataclasses.replace(report_comparisons.arm("stock"), label=HOSTILE),
        report_comparisons.arm(HOSTILE, library=report_comparisons.LIBRARY, env={"A": HOSTILE}),
    )
    cell = report_comparisons.cell("mnist_mlp", 2, {HOSTILE: 1.1})
    cell = dataclasses.replace(cell, failures=(ArmFailure(arm="x", reason=HOSTILE),))
    comparison = dataclasses.replace(
        report_comparisons.comparison(cell, arms=arms), parts=(HOSTILE,), made=HOSTILE
    )
    text = html(comparison, TEMPLATES, samples=report_comparisons.samples(comparison))
    outline = Outline(text)
    assert not outline.all("script")
    assert len(outline.all("svg")) == len(outline.all("figure"))
    assert not any(name.startswith("on") for _, row in outline.elements for name in row)
    assert HOSTILE in outline.words
    assert outline.words.count(HOSTILE) > 10


def test_hostile_models_of_a_log_are_shown_and_do_nothing() -> None:
    book = catalog.find_book(article.PRICES)
    totals = [
        TrainingRun(
            workload=HOSTILE, vcpus=vcpus, arm=build, seconds=9.0, price=book.find_price(platform)
        )
        for build, platform, vcpus in (("gpu", "gpu", None), ("pip", "cpu8", 8))
    ]
    bill = compute_bill_from_totals(totals, book)
    outline = Outline(article_html(bill, TEMPLATES))
    assert not outline.all("script")
    assert HOSTILE in outline.words


def test_a_run_in_which_nothing_started_has_a_page_that_says_so() -> None:
    cell = report_comparisons.baseline_failed(
        report_comparisons.cell("mnist_mlp", 2, {"tuned": 1.1})
    )
    comparison = dataclasses.replace(report_comparisons.comparison(cell), arms=(), overall=())
    outline = Outline(html(comparison, TEMPLATES))
    assert outline.by_tag["h1"] == ["No arm started on Example CPU @ 2.00GHz"]
    assert "stock failed: the worker of arm stock hangs: 600 s" in outline.words
    assert not outline.all("svg")


def test_an_arm_that_never_started_is_named() -> None:
    arms = (report_comparisons.arm("stock"),)
    cell = report_comparisons.failed(
        report_comparisons.cell("mnist_mlp", 2, {"tuned": 1.1}), "tuned", "no such file"
    )
    outline = Outline(html(report_comparisons.comparison(cell, arms=arms), TEMPLATES))
    assert outline.by_tag["h1"] == ["tuned against stock on Example CPU @ 2.00GHz"]
    assert "No result for tuned: it was not timed." in outline.words
    assert "mnist_mlp on 2 vCPUs: tuned failed: no such file" in outline.words


def test_the_same_comparison_gives_the_same_page() -> None:
    page.cache_clear()
    single_text = page("climbed")
    page.cache_clear()
    assert page("climbed") == single_text


def test_both_schemes_name_every_colour() -> None:
    style = page("climbed").partition("<style>")[2].partition("</style>")[0]
    used = set(re.findall(r"var\((--[\w]+)\)", page("climbed")))
    for name in used:
        expected = 1 if name in {"--serif", "--sans"} else 2
        assert len(re.findall(rf"{name}: ", style)) == expected, name


def test_a_template_that_asks_for_an_unknown_name_is_an_error(tmp_path: Path) -> None:
    for name, text in (("report.html.j2", "{{ nonsense }}"), ("method.txt.j2", "text")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UndefinedError, match="nonsense"):
        html(report_comparisons.climbed(), tmp_path)
