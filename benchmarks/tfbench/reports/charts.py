"""The kinds of charts in a report: rows around 1, bars, lines over vCPUs, samples over time.

What is measured has its interval, what is known about noise is shaded. Rows carry their names and
figures, and arms have markers and hatches of their own, so that nothing rests on colour.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from tfbench.costs.cost import Amount, get_ends, get_value
from tfbench.reports import canvas
from tfbench.reports.canvas import ink, panel, printable
from tfbuild.measured.interval import Interval

ROW_IN = 0.19
LETTER_IN = 0.08
"""Of ten points; names are measured by it, and the browser's letters are narrower."""
LONGEST = 24
SHORT = 14
"""Headings of so many letters have room beside the plot; longer ones reach into it."""
LEGEND_COLUMNS = 3
FAR = 1.5
"""An end of an interval this much beyond all estimates is cut off, with an arrow."""
NEAR = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 4, 5, 10])
"""Few round ratios, 1 among them, for an axis that does not reach far from it."""
ROUND = (1, 2, 5, 3, 1.5, 8, 1.25, 9, 1.1)
"""Ratios that are read at a glance, times powers of ten; where room is short the first ones win."""
WIDE = 2.0
"""An axis of ratios whose end is so many times its beginning has ticks of these."""
APART = 0.12
"""Of the length of an axis, between two of its ticks."""
HIGH = 1.5
"""A sample this many times the slowest arm's median, or longer, is drawn at the upper edge."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartPoint:
    """A row: `note` is its figure as text, or why it has no amount. `series` numbers the arm."""

    label: str
    series: int
    amount: Amount | None
    note: str
    tone: str = ""
    """A role of the palette; empty for the colour of the arm."""
    solid: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartGroup:
    """Rows under one heading, or under none. `band` is the A/A interval, shaded behind them."""

    label: str
    points: tuple[ChartPoint, ...]
    band: Interval | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartLine:
    """An arm's amounts by numbers of vCPUs, or of something else that is counted."""

    label: str
    series: int
    amounts: tuple[tuple[int, Amount], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """What was seen over what had passed until then, such as minutes. One without a label is not in
    the legend, one that is not solid ends in an open mark."""

    label: str
    series: int
    passed: tuple[float, ...]
    values: tuple[float, ...]
    solid: bool = True


def described(groups: Iterable[ChartGroup], shown: Callable[[Amount], str] | None = None) -> str:
    """Rows in words: their notes, or their amounts as `shown` writes them."""

    def words(row: ChartPoint) -> str:
        if shown is None or row.amount is None:
            return f"{row.label} {row.note}"
        return f"{row.label} {shown(row.amount)}"

    return " ".join(
        (f"{group.label}: " if group.label else "") + f"{'; '.join(map(words, group.points))}."
        for group in groups
    )


# --- rows ---------------------------------------------------------------------------------------


def forest(groups: Sequence[ChartGroup], axis: str, width_in: float = canvas.WIDTH_IN) -> Figure:
    """Ratios with their intervals around 1, one row each, and the figures at the right. The axis is
    logarithmic: twice as fast and half as fast are as far from 1."""
    figure, axes = _rows(groups, axis, width_in)
    low, high = _limits(_ends(groups))
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    _ratio_scale(axes.xaxis)
    axes.axvline(1, color=ink("ink"), linewidth=0.8, zorder=1)
    for group, places in _placed(groups):
        if group.band:
            box = (places[0] - 0.55, len(places) + 0.1)
            _shade(axes, (group.band.low, box[0]), group.band.high - group.band.low, box[1])
        for row, y in zip(group.points, places, strict=True):
            if row.amount is not None:
                _estimate(axes, row, row.amount, y, (low, high))
    return figure


def bars(groups: Sequence[ChartGroup], axis: str) -> Figure:
    """Amounts from 0 on, with intervals where they have one, and the baseline at 1."""
    figure = _barred(groups, axis, max([1.0, *(high for _, _, high in _ends(groups))]))
    figure.axes[0].axvline(1, color=ink("ink"), linewidth=0.8, zorder=3)
    return figure


def amounts(groups: Sequence[ChartGroup], axis: str) -> Figure:
    """Amounts from 0 on, with intervals where they have one, as far as these are not absurdly
    wide; rows without an amount show their note alone."""
    seen = _ends(groups)
    largest = max((value for _, value, _ in seen), default=1.0)
    return _barred(groups, axis, min(max([largest, *(high for _, _, high in seen)]), 2 * largest))


def _barred(groups: Sequence[ChartGroup], axis: str, end: float) -> Figure:
    figure, axes = _rows(groups, axis, canvas.WIDTH_IN)
    axes.set_xlim(0, 1.04 * end)
    for group, places in _placed(groups):
        for row, y in zip(group.points, places, strict=True):
            if row.amount is not None:
                _bar(axes, row, row.amount, y)
    return figure


def _rows(groups: Sequence[ChartGroup], axis: str, width_in: float) -> tuple[Figure, Axes]:
    """A plot with its names on the left and its figures on the right, and nothing in it."""
    every = [row for group in groups for row in group.points]
    name = min(max(len(row.label) for row in every), LONGEST)
    heading = min(max(len(group.label) for group in groups), SHORT)
    left_in = 0.12 + LETTER_IN * max(name + 1, heading)
    right_in = 0.12 + LETTER_IN * max(len(row.note) for row in every)
    height = _height(groups)
    figure, axes = panel(height * ROW_IN, left_in=left_in, right_in=right_in, width_in=width_in)
    axes.set_ylim(height - 0.4, -0.6)
    axes.set_yticks([])
    axes.set_xlabel(printable(axis))
    _scale(axes.xaxis)
    edge = -(left_in - 0.04) / (width_in - left_in - right_in)
    for group, places in _placed(groups):
        if group.label:
            _write(axes, edge, places[0] - 1, group.label, "left", weight="bold")
        for row, y in zip(group.points, places, strict=True):
            _write(axes, -0.03, y, printable(row.label, LONGEST), "right")
            _write(axes, 1.03, y, row.note, "left")
    return figure, axes


def _write(axes: Axes, x: float, y: float, text: str, align: str, weight: str = "normal") -> None:
    """At a height of the data, beside the plot: `x` counts its widths."""
    axes.text(
        x,
        y,
        printable(text),
        transform=axes.get_yaxis_transform(),
        horizontalalignment=align,
        verticalalignment="center_baseline",
        fontsize=canvas.TEXT_PT,
        fontweight=weight,
        color=ink("ink"),
    )


def _placed(groups: Sequence[ChartGroup]) -> Iterator[tuple[ChartGroup, list[float]]]:
    """Each group and the heights of its rows; a heading stands one above the first."""
    top = 0.0
    for group in groups:
        first = top + 1 if group.label else top
        yield group, [first + number for number in range(len(group.points))]
        top = first + len(group.points) + 0.4


def _height(groups: Sequence[ChartGroup]) -> float:
    *_, (_, places) = _placed(groups)
    return places[-1] + 1


def _ends(groups: Sequence[ChartGroup]) -> list[tuple[float, float, float]]:
    """Low end, value, high end of everything that is to be seen."""
    amounts = [row.amount for group in groups for row in group.points if row.amount is not None]
    return [get_ends(each) for each in (*amounts, *(group.band for group in groups if group.band))]


def _limits(seen: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Around 1 and all estimates, and their intervals as far as they are not absurdly wide."""
    lows, values, highs = zip((1.0, 1.0, 1.0), *seen, strict=True)
    low = max(min(lows), min(values) / FAR)
    high = min(max(highs), max(values) * FAR)
    room = max((high / low) ** 0.06, 1.002)
    return low / room, high * room


def _estimate(
    axes: Axes, row: ChartPoint, amount: Amount, y: float, limits: tuple[float, float]
) -> None:
    colour = ink(row.tone) if row.tone else canvas.series(row.series)
    if isinstance(amount, Interval):
        _whisker(axes, amount, y, limits, colour)
    axes.plot(
        [get_value(amount)],
        [y],
        marker=canvas.marker(row.series),
        markersize=5.5,
        color=colour,
        markerfacecolor=colour if row.solid else ink("card"),
        markeredgewidth=1.1,
        zorder=3,
    )


def _whisker(
    axes: Axes, amount: Interval, y: float, limits: tuple[float, float], colour: str
) -> None:
    """The interval as a line; an arrow where it goes on beyond the plot."""
    low, high = max(amount.low, limits[0]), min(amount.high, limits[1])
    axes.plot([low, high], [y, y], color=colour, linewidth=1.4, zorder=2)
    marks = (low, "<" if low > amount.low else "|"), (high, ">" if high < amount.high else "|")
    for end, mark in marks:
        axes.plot([end], [y], mark, markersize=5, color=colour, clip_on=False, zorder=2)


def _bar(axes: Axes, row: ChartPoint, amount: Amount, y: float) -> None:
    axes.barh(
        [y],
        [get_value(amount)],
        height=0.78,
        color=canvas.series(row.series),
        hatch=canvas.hatch(row.series),
        edgecolor=ink("card"),
        linewidth=0,
        zorder=2,
    )
    if isinstance(amount, Interval):
        reach = [amount.low, amount.high]
        axes.plot(reach, [y, y], "-|", color=ink("ink"), linewidth=1.1, markersize=5, zorder=4)


# --- lines --------------------------------------------------------------------------------------


def over_vcpus(lines: Sequence[ChartLine], bands: Mapping[int, Interval]) -> Figure:
    """Speedups with their intervals around 1, on a logarithmic axis."""
    figure = over_counts(lines, "vCPUs", "speedup")
    axes = figure.axes[0]
    axes.set_yscale("log")
    axes.axhline(1, color=ink("ink"), linewidth=0.8, zorder=1)
    for place, vcpus in enumerate(_counts(lines)):
        if vcpus in bands:
            band = bands[vcpus]
            _shade(axes, (place - 0.4, band.low), 0.8, band.high - band.low)
    axes.margins(y=0.12)
    _ratio_scale(axes.yaxis)
    return figure


def over_counts(lines: Sequence[ChartLine], across: str, up: str) -> Figure:
    """Amounts with their intervals; the counts stand evenly, whatever they are."""
    counts = _counts(lines)
    figure, axes = _plot(len(lines), across, up, height_in=1.9)
    for number, line in enumerate(lines):
        shift = 0.6 * ((number + 0.5) / len(lines) - 0.5)
        places = [counts.index(count) + shift for count, _ in line.amounts]
        for place, (_, amount) in zip(places, line.amounts, strict=True):
            if isinstance(amount, Interval):
                reach = [amount.low, amount.high]
                colour = canvas.series(line.series)
                axes.plot([place, place], reach, "-_", color=colour, linewidth=1.4, markersize=5)
        values = [get_value(amount) for _, amount in line.amounts]
        _curve(axes, line.label, line.series, places, values, markersize=5.5)
    axes.set_xlim(-0.5, len(counts) - 0.5)
    axes.set_xticks(range(len(counts)), [str(count) for count in counts])
    axes.xaxis.grid(visible=False)
    axes.margins(y=0.12)
    _legend(figure, axes)
    return figure


def _counts(lines: Sequence[ChartLine]) -> list[int]:
    return sorted({count for line in lines for count, _ in line.amounts})


def over_time(
    tracks: Sequence[Track], launches: Sequence[float], dropped: Sequence[float]
) -> Figure:
    """Samples in milliseconds per step as they came.

    `launches` are the minutes at which launches began, `dropped` those at which blocks were that
    are no measurement: they have a cross at the lower edge.
    """
    entries = len(tracks) + bool(dropped)
    figure, axes = _plot(entries, "minutes; a line where a launch begins", "ms per step")
    every = [value for track in tracks for value in track.values]
    ceiling = HIGH * max(statistics.median(track.values) for track in tracks)
    for start in launches:
        axes.axvline(start, color=ink("rule"), linewidth=0.8, zorder=0)
    for track in tracks:
        values = [min(value, ceiling) for value in track.values]
        marks = {"linestyle": "none", "markersize": 3, "markeredgewidth": 0}
        _curve(axes, track.label, track.series, track.passed, values, **marks)
    low, high = min(every), min(max(every), ceiling)
    room = 0.1 * max(high - low, 0.01 * low)
    axes.set_ylim(low - 2 * room, high + room)
    if dropped:
        heights = [low - 1.4 * room] * len(dropped)
        axes.plot(dropped, heights, "x", markersize=4, color=ink("bad"), label="no measurement")
    axes.margins(x=0.02)
    axes.xaxis.grid(visible=False)
    _legend(figure, axes, markerscale=1.8)
    return figure


def learning(tracks: Sequence[Track], target: float, axis: str) -> Figure:
    """Accuracies in per cent, the target as a line. A training ends in its arm's marker, filled
    where it has reached the target."""
    entries = sum(bool(track.label) for track in tracks)
    figure, axes = _plot(entries, axis, "accuracy in %", height_in=2.1)
    axes.axhline(target, color=ink("ink"), linewidth=0.8, zorder=1)
    for track in tracks:
        style = {
            "markersize": 5,
            "markevery": [len(track.passed) - 1],
            "markerfacecolor": canvas.series(track.series) if track.solid else ink("card"),
            "linewidth": 0.9,
        }
        _curve(axes, track.label, track.series, track.passed, track.values, **style)
    axes.margins(x=0.02, y=0.06)
    axes.set_xlim(left=0)
    _legend(figure, axes)
    return figure


def _plot(entries: int, across: str, up: str, height_in: float = 1.7) -> tuple[Figure, Axes]:
    """An empty plot below the room that a legend of so many entries needs."""
    legend_in = 0.12 + 0.2 * -(-entries // LEGEND_COLUMNS)
    figure, axes = panel(height_in, left_in=0.6, top_in=legend_in)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    _scale(axes.xaxis)
    _scale(axes.yaxis)
    return figure, axes


def _curve(
    axes: Axes,
    label: str,
    series: int,
    across: Sequence[float],
    up: Sequence[float],
    **style: Any,  # noqa: ANN401  (Matplotlib's)
) -> None:
    """A line in an arm's colour, marker and dashes; one without a label is not in the legend."""
    own: dict[str, Any] = {
        "marker": canvas.marker(series),
        "color": canvas.series(series),
        "linewidth": 0.8,
        "linestyle": canvas.dashes(series),
        "label": printable(label, LONGEST) if label else None,
    }
    axes.plot(across, up, **own | style)


# --- in several ---------------------------------------------------------------------------------


def _scale(axis: Axis) -> None:
    """Few round numbers, without zeros at their ends, and a faint grid."""
    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    _readable(axis)


def _ratio_scale(axis: Axis) -> None:
    """The same of a logarithmic axis whose limits are set."""
    axis.set_major_locator(FixedLocator(ratio_ticks(*axis.get_view_interval())))
    axis.set_minor_locator(NullLocator())
    _readable(axis)


def _readable(axis: Axis) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))
    axis.grid(visible=True, color=ink("rule"), linewidth=0.6)


def ratio_ticks(low: float, high: float) -> list[float]:
    """Where a logarithmic axis around 1 has its ticks. What is nearly 1 has equal steps."""
    if high / low < WIDE:
        # (of differences from 1: the locator has 0 among its ticks, and other numbers by chance)
        ticks = (1 + float(tick) for tick in NEAR.tick_values(low - 1, high - 1))
        return [tick for tick in ticks if low <= tick <= high]
    tens = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    nearest = sorted(tens, key=abs)
    found: list[float] = []
    for value in (float(f"{each}e{ten}") for each, ten in itertools.product(ROUND, nearest)):
        apart = [abs(math.log(value / other)) for other in found]
        if low <= value <= high and min(apart, default=math.inf) > APART * math.log(high / low):
            found.append(value)
    return sorted(found)


def _shade(axes: Axes, corner: tuple[float, float], width: float, height: float) -> None:
    """What the baseline shows against itself."""
    box = Rectangle(
        corner,
        width,
        height,
        facecolor=ink("band"),
        edgecolor=ink("muted"),
        linewidth=0.5,
        linestyle=":",
        zorder=0.5,
    )
    axes.add_patch(box)


def _legend(figure: Figure, axes: Axes, markerscale: float = 1.0) -> None:
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="upper left",
        ncols=LEGEND_COLUMNS,
        markerscale=markerscale,
        frameon=False,
        borderaxespad=0.1,
        handletextpad=0.4,
        columnspacing=1.2,
        fontsize=canvas.SMALL_PT,
        labelcolor=ink("ink"),
    )
