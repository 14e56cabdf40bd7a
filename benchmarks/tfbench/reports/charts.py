"""Draw the charts of a report: forest plots, bars, lines over vCPUs, samples over time.

Measured values have intervals, and A/A intervals are shaded. Rows have names and values, and each
arm has its own marker and hatch, so that charts can be read without colour.
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
from tfbench.reports.canvas import clean_text, create_panel, get_colour
from tfcore.comparisons.interval import Interval

ROW_IN = 0.19
LETTER_IN = 0.08
"""The width of a letter of ten points, for the space of names; a browser's letters are narrower."""
LONGEST = 24
SHORT = 14
"""The longest heading, in letters, that fits beside the plot; longer ones extend into it."""
LEGEND_COLUMNS = 3
FAR = 1.5
"""An interval is cut off, with an arrow, at this factor beyond the outermost estimate."""
NEAR = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 4, 5, 10])
"""A few round ratios, including 1, for an axis close to 1."""
ROUND = (1, 2, 5, 3, 1.5, 8, 1.25, 9, 1.1)
"""Round ratios, to be multiplied by powers of ten, in order of preference."""
WIDE = 2.0
"""An axis whose end is at least this many times its beginning has ticks of ROUND."""
APART = 0.12
"""The smallest distance between two ticks, as a share of the axis."""
HIGH = 1.5
"""Samples above this many times the slowest arm's median are drawn at the upper edge."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartPoint:
    """A row of a chart. `note` is its value as text, or the reason why it has no amount.
    `series` numbers the arm.
    """

    label: str
    series: int
    amount: Amount | None
    note: str
    tone: str = ""
    """A role of the palette; empty for the colour of the arm."""
    solid: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartGroup:
    """Rows under a common heading, which may be empty. `band` is the A/A interval, shaded behind
    them.
    """

    label: str
    points: tuple[ChartPoint, ...]
    band: Interval | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartLine:
    """An arm's amounts by number of vCPUs or by another count."""

    label: str
    series: int
    amounts: tuple[tuple[int, Amount], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """Values over elapsed time or another quantity, such as minutes. A track without a label is
    not in the legend; one that is not solid ends in an open marker.
    """

    label: str
    series: int
    passed: tuple[float, ...]
    values: tuple[float, ...]
    solid: bool = True


def describe_rows(
    groups: Iterable[ChartGroup], shown: Callable[[Amount], str] | None = None
) -> str:
    """Describe rows in words: by their notes, or by their amounts as `shown` formats them."""

    def describe_row(row: ChartPoint) -> str:
        if shown is None or row.amount is None:
            return f"{row.label} {row.note}"
        return f"{row.label} {shown(row.amount)}"

    return " ".join(
        (f"{group.label}: " if group.label else "")
        + f"{'; '.join(map(describe_row, group.points))}."
        for group in groups
    )


# --- rows ---------------------------------------------------------------------------------------


def plot_forest(
    groups: Sequence[ChartGroup], axis: str, width_in: float = canvas.WIDTH_IN
) -> Figure:
    """Plot ratios with their intervals around 1, one per row, with the values on the right. The
    axis is logarithmic: twice as fast and half as fast are equally far from 1.
    """
    figure, axes = _create_row_plot(groups, axis, width_in)
    low, high = _compute_limits(_collect_ends(groups))
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    _set_ratio_scale(axes.xaxis)
    axes.axvline(1, color=get_colour("ink"), linewidth=0.8, zorder=1)
    for group, heights in _place_rows(groups):
        if group.band:
            box = (heights[0] - 0.55, len(heights) + 0.1)
            _shade_band(axes, (group.band.low, box[0]), group.band.high - group.band.low, box[1])
        for row, y in zip(group.points, heights, strict=True):
            if row.amount is not None:
                _draw_estimate(axes, row, row.amount, y, (low, high))
    return figure


def plot_bars(groups: Sequence[ChartGroup], axis: str) -> Figure:
    """Plot amounts as bars from 0, with their intervals if they have one, and a line at 1 for
    the baseline.
    """
    figure = _plot_bar_rows(
        groups, axis, max([1.0, *(high for _, _, high in _collect_ends(groups))])
    )
    figure.axes[0].axvline(1, color=get_colour("ink"), linewidth=0.8, zorder=3)
    return figure


def plot_amounts(groups: Sequence[ChartGroup], axis: str) -> Figure:
    """Plot amounts as bars from 0, with their intervals if they have one. Intervals beyond twice
    the largest amount are cut off; rows without an amount show only their note.
    """
    extents = _collect_ends(groups)
    largest = max((value for _, value, _ in extents), default=1.0)
    return _plot_bar_rows(
        groups, axis, min(max([largest, *(high for _, _, high in extents)]), 2 * largest)
    )


def _plot_bar_rows(groups: Sequence[ChartGroup], axis: str, end: float) -> Figure:
    figure, axes = _create_row_plot(groups, axis, canvas.WIDTH_IN)
    axes.set_xlim(0, 1.04 * end)
    for group, heights in _place_rows(groups):
        for row, y in zip(group.points, heights, strict=True):
            if row.amount is not None:
                _draw_bar(axes, row, row.amount, y)
    return figure


def _create_row_plot(
    groups: Sequence[ChartGroup], axis: str, width_in: float
) -> tuple[Figure, Axes]:
    """Create an empty plot with the rows' names on the left and their values on the right."""
    rows = [row for group in groups for row in group.points]
    name = min(max(len(row.label) for row in rows), LONGEST)
    heading = min(max(len(group.label) for group in groups), SHORT)
    left_in = 0.12 + LETTER_IN * max(name + 1, heading)
    right_in = 0.12 + LETTER_IN * max(len(row.note) for row in rows)
    height = _compute_height(groups)
    figure, axes = create_panel(
        height * ROW_IN, left_in=left_in, right_in=right_in, width_in=width_in
    )
    axes.set_ylim(height - 0.4, -0.6)
    axes.set_yticks([])
    axes.set_xlabel(clean_text(axis))
    _set_scale(axes.xaxis)
    edge = -(left_in - 0.04) / (width_in - left_in - right_in)
    for group, heights in _place_rows(groups):
        if group.label:
            _write_text(axes, edge, heights[0] - 1, group.label, "left", weight="bold")
        for row, y in zip(group.points, heights, strict=True):
            _write_text(axes, -0.03, y, clean_text(row.label, LONGEST), "right")
            _write_text(axes, 1.03, y, row.note, "left")
    return figure, axes


def _write_text(
    axes: Axes, x: float, y: float, text: str, align: str, weight: str = "normal"
) -> None:
    """Write text beside the plot at height `y` of the data; `x` is in widths of the plot."""
    axes.text(
        x,
        y,
        clean_text(text),
        transform=axes.get_yaxis_transform(),
        horizontalalignment=align,
        verticalalignment="center_baseline",
        fontsize=canvas.TEXT_PT,
        fontweight=weight,
        color=get_colour("ink"),
    )


def _place_rows(groups: Sequence[ChartGroup]) -> Iterator[tuple[ChartGroup, list[float]]]:
    """Yield each group with the heights of its rows; a heading is one row above the first."""
    top = 0.0
    for group in groups:
        first = top + 1 if group.label else top
        yield group, [first + number for number in range(len(group.points))]
        top = first + len(group.points) + 0.4


def _compute_height(groups: Sequence[ChartGroup]) -> float:
    *_, (_, heights) = _place_rows(groups)
    return heights[-1] + 1


def _collect_ends(groups: Sequence[ChartGroup]) -> list[tuple[float, float, float]]:
    """Return the low end, value and high end of every amount and band."""
    amounts = [row.amount for group in groups for row in group.points if row.amount is not None]
    return [
        get_ends(amount) for amount in (*amounts, *(group.band for group in groups if group.band))
    ]


def _compute_limits(estimates: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return axis limits that hold 1, all estimates and their intervals, which are cut off
    beyond FAR times the outermost estimate.
    """
    lows, values, highs = zip((1.0, 1.0, 1.0), *estimates, strict=True)
    low = max(min(lows), min(values) / FAR)
    high = min(max(highs), max(values) * FAR)
    padding = max((high / low) ** 0.06, 1.002)
    return low / padding, high * padding


def _draw_estimate(
    axes: Axes, row: ChartPoint, amount: Amount, y: float, limits: tuple[float, float]
) -> None:
    colour = get_colour(row.tone) if row.tone else canvas.get_series_colour(row.series)
    if isinstance(amount, Interval):
        _draw_interval(axes, amount, y, limits, colour)
    axes.plot(
        [get_value(amount)],
        [y],
        marker=canvas.get_marker(row.series),
        markersize=5.5,
        color=colour,
        markerfacecolor=colour if row.solid else get_colour("card"),
        markeredgewidth=1.1,
        zorder=3,
    )


def _draw_interval(
    axes: Axes, amount: Interval, y: float, limits: tuple[float, float], colour: str
) -> None:
    """Draw the interval as a line, with an arrow where it continues beyond the plot."""
    low, high = max(amount.low, limits[0]), min(amount.high, limits[1])
    axes.plot([low, high], [y, y], color=colour, linewidth=1.4, zorder=2)
    marks = (low, "<" if low > amount.low else "|"), (high, ">" if high < amount.high else "|")
    for end, mark in marks:
        axes.plot([end], [y], mark, markersize=5, color=colour, clip_on=False, zorder=2)


def _draw_bar(axes: Axes, row: ChartPoint, amount: Amount, y: float) -> None:
    axes.barh(
        [y],
        [get_value(amount)],
        height=0.78,
        color=canvas.get_series_colour(row.series),
        hatch=canvas.get_hatch(row.series),
        edgecolor=get_colour("card"),
        linewidth=0,
        zorder=2,
    )
    if isinstance(amount, Interval):
        reach = [amount.low, amount.high]
        axes.plot(
            reach, [y, y], "-|", color=get_colour("ink"), linewidth=1.1, markersize=5, zorder=4
        )


# --- lines --------------------------------------------------------------------------------------


def plot_speedups(lines: Sequence[ChartLine], bands: Mapping[int, Interval]) -> Figure:
    """Plot speedups by number of vCPUs with their intervals around 1, on a logarithmic axis."""
    figure = plot_counts(lines, "vCPUs", "speedup")
    axes = figure.axes[0]
    axes.set_yscale("log")
    axes.axhline(1, color=get_colour("ink"), linewidth=0.8, zorder=1)
    for position, vcpus in enumerate(_list_counts(lines)):
        if vcpus in bands:
            band = bands[vcpus]
            _shade_band(axes, (position - 0.4, band.low), 0.8, band.high - band.low)
    axes.margins(y=0.12)
    _set_ratio_scale(axes.yaxis)
    return figure


def plot_counts(lines: Sequence[ChartLine], across: str, up: str) -> Figure:
    """Plot amounts by count with their intervals; counts are evenly spaced."""
    counts = _list_counts(lines)
    figure, axes = _create_line_plot(len(lines), across, up, height_in=1.9)
    for number, line in enumerate(lines):
        shift = 0.6 * ((number + 0.5) / len(lines) - 0.5)
        positions = [counts.index(count) + shift for count, _ in line.amounts]
        for position, (_, amount) in zip(positions, line.amounts, strict=True):
            if isinstance(amount, Interval):
                reach = [amount.low, amount.high]
                colour = canvas.get_series_colour(line.series)
                axes.plot(
                    [position, position], reach, "-_", color=colour, linewidth=1.4, markersize=5
                )
        values = [get_value(amount) for _, amount in line.amounts]
        _draw_line(axes, line.label, line.series, positions, values, markersize=5.5)
    axes.set_xlim(-0.5, len(counts) - 0.5)
    axes.set_xticks(range(len(counts)), [str(count) for count in counts])
    axes.xaxis.grid(visible=False)
    axes.margins(y=0.12)
    _draw_legend(figure, axes)
    return figure


def _list_counts(lines: Sequence[ChartLine]) -> list[int]:
    return sorted({count for line in lines for count, _ in line.amounts})


def plot_samples(
    tracks: Sequence[Track], launches: Sequence[float], dropped: Sequence[float]
) -> Figure:
    """Plot samples in milliseconds per step over time.

    `launches` are the minutes at which launches began. `dropped` are the minutes of blocks
    that gates dropped, drawn as crosses at the lower edge.
    """
    entries = len(tracks) + bool(dropped)
    figure, axes = _create_line_plot(entries, "minutes (lines: start of a launch)", "ms per step")
    all_values = [value for track in tracks for value in track.values]
    ceiling = HIGH * max(statistics.median(track.values) for track in tracks)
    for start in launches:
        axes.axvline(start, color=get_colour("rule"), linewidth=0.8, zorder=0)
    for track in tracks:
        values = [min(value, ceiling) for value in track.values]
        marks = {"linestyle": "none", "markersize": 3, "markeredgewidth": 0}
        _draw_line(axes, track.label, track.series, track.passed, values, **marks)
    low, high = min(all_values), min(max(all_values), ceiling)
    padding = 0.1 * max(high - low, 0.01 * low)
    axes.set_ylim(low - 2 * padding, high + padding)
    if dropped:
        heights = [low - 1.4 * padding] * len(dropped)
        axes.plot(
            dropped, heights, "x", markersize=4, color=get_colour("bad"), label="dropped block"
        )
    axes.margins(x=0.02)
    axes.xaxis.grid(visible=False)
    _draw_legend(figure, axes, markerscale=1.8)
    return figure


def plot_accuracy(tracks: Sequence[Track], target: float, axis: str) -> Figure:
    """Plot accuracies in per cent and the target as a line. Each training ends in its arm's
    marker, filled if it reached the target.
    """
    entries = sum(bool(track.label) for track in tracks)
    figure, axes = _create_line_plot(entries, axis, "accuracy in %", height_in=2.1)
    axes.axhline(target, color=get_colour("ink"), linewidth=0.8, zorder=1)
    for track in tracks:
        style = {
            "markersize": 5,
            "markevery": [len(track.passed) - 1],
            "markerfacecolor": canvas.get_series_colour(track.series)
            if track.solid
            else get_colour("card"),
            "linewidth": 0.9,
        }
        _draw_line(axes, track.label, track.series, track.passed, track.values, **style)
    axes.margins(x=0.02, y=0.06)
    axes.set_xlim(left=0)
    _draw_legend(figure, axes)
    return figure


def _create_line_plot(
    entries: int, across: str, up: str, height_in: float = 1.7
) -> tuple[Figure, Axes]:
    """Create an empty plot below the space for a legend of `entries` entries."""
    legend_in = 0.12 + 0.2 * -(-entries // LEGEND_COLUMNS)
    figure, axes = create_panel(height_in, left_in=0.6, top_in=legend_in)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    _set_scale(axes.xaxis)
    _set_scale(axes.yaxis)
    return figure, axes


def _draw_line(
    axes: Axes,
    label: str,
    series: int,
    across: Sequence[float],
    up: Sequence[float],
    **style: Any,  # noqa: ANN401  (Matplotlib's)
) -> None:
    """Draw a line in an arm's colour, marker and dashes. A line without a label is not in the
    legend.
    """
    defaults: dict[str, Any] = {
        "marker": canvas.get_marker(series),
        "color": canvas.get_series_colour(series),
        "linewidth": 0.8,
        "linestyle": canvas.get_dashes(series),
        "label": clean_text(label, LONGEST) if label else None,
    }
    axes.plot(across, up, **defaults | style)


# --- shared -------------------------------------------------------------------------------------


def _set_scale(axis: Axis) -> None:
    """Set a few round ticks without trailing zeros, and a faint grid."""
    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    _format_ticks(axis)


def _set_ratio_scale(axis: Axis) -> None:
    """Set the ticks and the grid of a logarithmic axis whose limits are set."""
    axis.set_major_locator(FixedLocator(compute_ratio_ticks(*axis.get_view_interval())))
    axis.set_minor_locator(NullLocator())
    _format_ticks(axis)


def _format_ticks(axis: Axis) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))
    axis.grid(visible=True, color=get_colour("rule"), linewidth=0.6)


def compute_ratio_ticks(low: float, high: float) -> list[float]:
    """Return the ticks of a logarithmic axis around 1. A short axis, whose end is less than WIDE
    times its beginning, has equal steps.
    """
    if high / low < WIDE:
        # (as differences from 1, because the locator always includes 0)
        ticks = (1 + float(tick) for tick in NEAR.tick_values(low - 1, high - 1))
        return [tick for tick in ticks if low <= tick <= high]
    tens = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    nearest = sorted(tens, key=abs)
    chosen: list[float] = []
    for value in (float(f"{factor}e{ten}") for factor, ten in itertools.product(ROUND, nearest)):
        apart = [abs(math.log(value / tick)) for tick in chosen]
        if low <= value <= high and min(apart, default=math.inf) > APART * math.log(high / low):
            chosen.append(value)
    return sorted(chosen)


def _shade_band(axes: Axes, corner: tuple[float, float], width: float, height: float) -> None:
    """Shade the A/A interval."""
    box = Rectangle(
        corner,
        width,
        height,
        facecolor=get_colour("band"),
        edgecolor=get_colour("muted"),
        linewidth=0.5,
        linestyle=":",
        zorder=0.5,
    )
    axes.add_patch(box)


def _draw_legend(figure: Figure, axes: Axes, markerscale: float = 1.0) -> None:
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
        labelcolor=get_colour("ink"),
    )
