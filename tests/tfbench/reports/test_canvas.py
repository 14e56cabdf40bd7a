"""Figures as SVG: named, of the page's colours, and without anything that another figure has."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest
from matplotlib.figure import Figure

from tfbench.reports import canvas
from tfbench.reports.canvas import (
    PALETTE,
    clean_text,
    create_drawing,
    create_panel,
    render_standalone,
)

SVG = "{http://www.w3.org/2000/svg}"


def painted(label: str = "a name") -> Figure:
    figure, axes = create_panel(1.0, left_in=0.5)
    axes.plot(
        [1, 2, 3],
        [1, 2, 3],
        "o",
        color=canvas.get_series_colour(1),
        markerfacecolor=canvas.get_colour("card"),
    )
    axes.barh(
        [1, 2],
        [2, 3],
        color=canvas.get_series_colour(2),
        edgecolor=canvas.get_colour("card"),
        hatch="///",
    )
    axes.text(1, 1, label, color=canvas.get_colour("ink"))
    return figure


def drawn(label: str = "a name", key: str = "one", description: str = "seen") -> ET.Element:
    drawing = create_drawing(
        lambda: painted(label), key=key, title="Title", caption="", description=description
    )
    return ET.fromstring(drawing.svg)  # noqa: S314  (our own)


def attributes(root: ET.Element) -> Iterator[str]:
    for element in root.iter():
        yield from element.attrib.values()


def test_a_figure_is_named_and_described() -> None:
    root = drawn(description="a < b & c")
    title, description = root[0], root[1]
    assert (title.tag, title.text) == (f"{SVG}title", "Title")
    assert (description.tag, description.text) == (f"{SVG}desc", "a < b & c")
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"


def test_a_figure_takes_the_size_of_its_place() -> None:
    root = drawn()
    assert root.get("width") is None
    assert root.get("height") is None
    assert float(str(root.get("viewBox")).split()[2]) == pytest.approx(72 * canvas.WIDTH_IN)


def test_every_colour_is_a_variable_of_the_page() -> None:
    names = {f"--{role}" for role in PALETTE}
    used = set()
    for value in attributes(drawn()):
        assert not re.search(r"#[0-9a-f]{6}|rgb|black|white", value)
        used |= set(re.findall(r"var\((--\w+)\)", value))
    assert used <= names
    assert {"--series1", "--series2", "--card", "--ink", "--muted"} <= used


def test_all_that_is_referred_to_is_there_and_nothing_has_an_id_in_vain() -> None:
    root = drawn(key="one")
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert all(str(word).startswith("one-") for word in ids)
    used = set()
    for element in root.iter():
        for name, value in element.attrib.items():
            used |= set(re.findall(r"url\(#([^)]+)\)", value))
            if name == "href":
                used.add(value[1:])
            if name == "aria-labelledby":
                used |= set(value.split())
    assert used == set(ids)


def test_two_figures_share_no_id() -> None:
    actual = [
        {element.get("id") for element in drawn(key=key).iter() if element.get("id")}
        for key in ("one", "two")
    ]
    assert actual[0]
    assert not actual[0] & actual[1]


def test_the_same_figure_is_the_same_text() -> None:
    drawing, two = (
        create_drawing(painted, key="k", title="t", caption="", description="d") for _ in range(2)
    )
    assert drawing.svg == two.svg


def test_a_figure_names_no_font_and_no_place_in_the_network() -> None:
    for element in drawn().iter():
        assert element.tag.startswith(SVG), element.tag
        for value in element.attrib.values():
            assert "font-family" not in value
            assert "http" not in value
    assert drawn().find(f".//{SVG}style") is None
    assert drawn().find(f".//{SVG}metadata") is None


def test_a_file_of_its_own_has_the_colours_of_both_schemes_and_a_ground() -> None:
    text = render_standalone(
        create_drawing(painted, key="k", title="t", caption="", description="d")
    )
    root = ET.fromstring(text)  # noqa: S314  (our own)
    style = str(root.findtext(f"{SVG}style"))
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    for used in set(re.findall(r"var\(--(\w+)\)", text)):
        assert f"--{used}: {PALETTE[used][0]}" in light
        assert f"--{used}: {PALETTE[used][1]}" in dark
    ground = root.find(f"{SVG}rect")
    assert ground is not None
    assert ground.get("style") == "fill: var(--card)"
    places = [ground.get(name) for name in ("x", "y", "width", "height")]
    assert root.get("viewBox") == " ".join(map(str, places))
    assert [root.get(name) for name in ("width", "height")] == [
        f"{place}pt" for place in places[2:]
    ]
    assert [child.tag.removeprefix(SVG) for child in root][:4] == ["title", "desc", "style", "rect"]
    assert not re.search(r"http(?!://www\.w3\.org/2000/svg)|@import|url\((?!#)|<script", text)


@pytest.mark.parametrize(
    "label", ["$x^2$", "$\\frac{", "a < b & c > d", "<script>", "日本", "a\x00b\nc", "\\"]
)
def test_a_name_is_drawn_as_it_is(label: str) -> None:
    texts = [element.text for element in drawn(clean_text(label)).iter(f"{SVG}text")]
    assert clean_text(label) in texts


def test_printable_text_is_cut_with_a_mark() -> None:
    assert clean_text("a\x00b\nc") == "a b c"
    assert clean_text("abcdef", 6) == "abcdef"
    assert clean_text("abcdefg", 6) == "abcde…"


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_text_and_marks_stand_out_in_both_schemes(scheme: int) -> None:
    colours = {role: both[scheme] for role, both in PALETTE.items()}
    for ground in ("paper", "card"):
        for role in ("ink", "muted", "accent", "good", "bad", "doubt"):
            assert contrast(colours[role], colours[ground]) >= 4.5, (role, ground)
        for number in range(canvas.SERIES):
            assert contrast(colours[f"series{number}"], colours[ground]) >= 3, (number, ground)


def test_every_role_has_a_light_colour_of_its_own() -> None:
    lights = [light for light, _ in PALETTE.values()]
    assert len(set(lights)) == len(lights)
    assert all(re.fullmatch(r"#[0-9a-f]{6}", c) for c in itertools.chain(*PALETTE.values()))
