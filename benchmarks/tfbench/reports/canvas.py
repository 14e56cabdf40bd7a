"""Create figures in the report's style and convert them to SVG: inline for a page, or as a
standalone file with its own style sheet.

Figures of a page are narrow, so that their text stays readable on a phone. They are drawn in the
colours of the light scheme. In the SVG each colour becomes a CSS variable, so that one figure works
in both schemes.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH_IN = 4.2
WIDE_IN = 7.0
"""The width of a standalone file, for pages as wide as a table."""
MARGIN_PT = 8
"""The margin around the figure of a standalone file."""
TEXT_PT, SMALL_PT = 10, 9
SERIES = 6
"""The number of arms with distinct colours; further arms differ by marker and hatch."""
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "*")
HATCHES = ("", "////", "\\\\\\\\", "xxxx", "----", "||||", "++++", "//", "\\\\")
DASHES = ("-", "--", ":", "-.")
PALETTE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "paper": ("#fcfbf9", "#14171b"),
        "card": ("#ffffff", "#1b1f25"),
        "ink": ("#1d2227", "#e8e6e1"),
        "muted": ("#59616b", "#a3abb5"),
        "rule": ("#dcd8d0", "#343b44"),
        "band": ("#e9e2d3", "#333a33"),
        "accent": ("#24557f", "#8fbce6"),
        "good": ("#1f6f4f", "#7ccaa2"),
        "bad": ("#a5431f", "#ee9a78"),
        "doubt": ("#7c5c10", "#dcb866"),
        "series0": ("#3d6a94", "#7fb0dd"),
        "series1": ("#b5701f", "#e2a456"),
        "series2": ("#3f7f6b", "#74c0a6"),
        "series3": ("#8a4f7d", "#cf95c2"),
        "series4": ("#6c7078", "#b2b8c0"),
        "series5": ("#93483f", "#e0928a"),
    }
)
"""Colours by role, in the light and the dark scheme. All light colours differ."""

_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tensorwright",
    "font.family": "DejaVu Sans",
    "font.size": SMALL_PT,
    # A name may contain dollar signs.
    "text.parse_math": False,
    "axes.unicode_minus": False,
    "hatch.linewidth": 0.7,
}
_FONT = re.compile(r"\s*font-family:[^;]*;?")
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_VARIABLES = {light: f"var(--{role})" for role, (light, _) in PALETTE.items()}
_TYPE = "text { font-family: system-ui, -apple-system, 'Segoe UI', Arial, sans-serif }"

ET.register_namespace("", _SVG)


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """A figure of a page as SVG: `caption` explains how to read it, `description` what it shows."""

    key: str
    """Unique on the page, and valid in an id."""
    title: str
    caption: str
    description: str
    svg: str


def get_colour(role: str) -> str:
    return PALETTE[role][0]


def get_series_colour(number: int) -> str:
    """Return the colour of an arm, by its number."""
    return get_colour(f"series{number % SERIES}")


def get_marker(number: int) -> str:
    return MARKERS[number % len(MARKERS)]


def get_hatch(number: int) -> str:
    return HATCHES[number % len(HATCHES)]


def get_dashes(number: int) -> str:
    return DASHES[number % len(DASHES)]


def create_drawing(
    paint: Callable[[], Figure], *, key: str, title: str, caption: str, description: str
) -> Drawing:
    """Call `paint` in the report's style and convert its figure to SVG."""
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        # The browser uses other fonts than Matplotlib.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        text = _save_svg(paint())
    return Drawing(
        key=key,
        title=title,
        caption=caption,
        description=description,
        svg=_adapt_svg(text, key, clean_text(title), clean_text(description)),
    )


def render_standalone(drawn: Drawing) -> str:
    """Render a drawing as an SVG file for an `img`, with a background and a style sheet for the
    light and the dark colour scheme.
    """
    root = ET.fromstring(drawn.svg)  # noqa: S314  (our own)
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    box = (left - MARGIN_PT, top - MARGIN_PT, width + 2 * MARGIN_PT, height + 2 * MARGIN_PT)
    places = dict(
        zip(("x", "y", "width", "height"), (f"{number:g}" for number in box), strict=True)
    )
    root.set("viewBox", " ".join(places.values()))
    for name in ("width", "height"):
        root.set(name, f"{places[name]}pt")
    style = ET.Element(f"{{{_SVG}}}style")
    light, dark = map(_format_css_variables, (0, 1))
    style.text = f"{light} @media (prefers-color-scheme: dark) {{ {dark} }} {_TYPE}"
    ground = ET.Element(
        f"{{{_SVG}}}rect", places | {"style": f"fill: {_VARIABLES[get_colour('card')]}"}
    )
    root[2:2] = [style, ground]  # after the title and the description
    return ET.tostring(root, encoding="unicode") + "\n"


def _format_css_variables(scheme: int) -> str:
    """Format the palette's colours of one scheme as a CSS rule."""
    return (
        f":root {{ "
        f"{'; '.join(f'--{role}: {colours[scheme]}' for role, colours in PALETTE.items())} }}"
    )


def create_panel(
    height_in: float,
    *,
    left_in: float,
    right_in: float = 0.15,
    top_in: float = 0.08,
    width_in: float = WIDTH_IN,
) -> tuple[Figure, Axes]:
    """Create a figure with one plot of `height_in` inches and margins for the text around it."""
    bottom_in = 0.52
    total_in = top_in + height_in + bottom_in
    figure = Figure(figsize=(width_in, total_in))
    axes = figure.add_axes(
        (
            left_in / width_in,
            bottom_in / total_in,
            (width_in - left_in - right_in) / width_in,
            height_in / total_in,
        ),
        facecolor="none",
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(get_colour("muted"))
    axes.tick_params(colors=get_colour("muted"), labelsize=SMALL_PT, length=3)
    axes.xaxis.label.set(color=get_colour("ink"), fontsize=SMALL_PT)
    axes.yaxis.label.set(color=get_colour("ink"), fontsize=SMALL_PT)
    axes.set_axisbelow(True)
    return figure, axes


def clean_text(text: str, longest: int | None = None) -> str:
    """Replace characters that XML cannot hold, and cut the text to `longest` characters."""
    cleaned = "".join(character if character.isprintable() else " " for character in text)
    if longest is None or len(cleaned) <= longest:
        return cleaned
    return cleaned[: longest - 1] + "…"


def _save_svg(figure: Figure) -> str:
    buffer = io.StringIO()
    metadata: dict[str, Any] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    return buffer.getvalue()


def _adapt_svg(text: str, key: str, title: str, description: str) -> str:
    """Convert Matplotlib's SVG file to an element of a page: with a title and a description,
    without its own ids, fonts and sizes.
    """
    root = ET.fromstring(text)  # noqa: S314  (our own)
    for name in ("width", "height", "version"):
        del root.attrib[name]
    root.remove(root[0])  # a style for all elements, which would apply to the whole page
    _rename_ids(root, key)
    for element in root.iter():
        _style_element(element)
    _shorten_svg(root)
    root.set("role", "img")
    root.set("aria-labelledby", f"{key}-title {key}-desc")
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")
    for position, (name, content) in enumerate((("title", title), ("desc", description))):
        element = ET.Element(f"{{{_SVG}}}{name}", {"id": f"{key}-{name}"})
        element.text = content
        root.insert(position, element)
    return ET.tostring(root, encoding="unicode")


def _rename_ids(root: ET.Element, key: str) -> None:
    """Prefix ids with the figure's key, since several figures share a page, and drop ids that
    nothing refers to.
    """
    link = f"{{{_XLINK}}}href"
    used = set()
    for element in root.iter():
        if link in element.attrib:
            used.add(element.attrib[link][1:])
            element.set("href", f"#{key}-{element.attrib.pop(link)[1:]}")
        for name, value in element.attrib.items():
            references = re.findall(r"url\(#(\w+)\)", value)
            used.update(references)
            if references:
                element.set(name, value.replace("url(#", f"url(#{key}-"))
    for element in root.iter():
        name = element.attrib.pop("id", "")
        if name in used:
            element.set("id", f"{key}-{name}")


def _style_element(element: ET.Element) -> None:
    """Replace colours by CSS variables, drop fonts and round numbers to two decimals, a
    hundredth of a point.
    """
    if "fill" in element.attrib:
        element.set("style", f"fill: {element.attrib.pop('fill')}")
    if "style" in element.attrib:
        style = _FONT.sub("", element.attrib["style"])
        element.set("style", _COLOUR.sub(lambda hit: _VARIABLES[hit[0]], style))
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for name in {"d", "x", "y", "transform"} & set(element.attrib):
        value = " ".join(element.attrib[name].split())
        element.set(name, _LONG_NUMBER.sub(lambda hit: f"{float(hit[0]):.2f}", value))


def _shorten_svg(root: ET.Element) -> None:
    """Move a style that all marks of a group share to the group, and drop the indentation."""
    for element in root.iter():
        styles = {child.get("style", "") for child in element}
        if len(styles) == 1 and all(child.tag == f"{{{_SVG}}}use" for child in element):
            element.set("style", styles.pop())
            for child in element:
                child.attrib.pop("style", None)
        element.tail = None
        if element.text and not element.text.strip():
            element.text = None
