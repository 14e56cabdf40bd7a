"""The figures hold what the records say, in marks that can be told apart without colour."""

from __future__ import annotations

import dataclasses
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from tests.builders import report_comparisons
from tests.builders.report_comparisons import ARTICLE, BILL, SOUND, TROUBLED

from tfbench.measuring import gates
from tfbench.reports import charts, plots, wording
from tfbench.reports.canvas import HATCHES, MARKERS, Drawing
from tfbench.reports.charts import ChartGroup, ChartLine, ChartPoint, Track
from tfbench.reports.ladder import find_ladder
from tfcore.comparisons.interval import Interval

SVG = "{http://www.w3.org/2000/svg}"
CLIMBED = report_comparisons.climbed()
SAMPLES = report_comparisons.samples(TROUBLED)


def every() -> list[Drawing]:
    ladder = find_ladder([arm.name for arm in CLIMBED.arms])
    assert ladder is not None
    return [
        *plots.draw_speedups(TROUBLED),
        *plots.draw_scaling(TROUBLED),
        *plots.draw_samples(TROUBLED, SAMPLES),
        *plots.draw_bill_figures(BILL),
        *plots.draw_bill_scaling(ARTICLE, "Speedup"),
        *plots.draw_ladder(CLIMBED, ladder),
    ]


def texts(drawing: Drawing) -> list[str]:
    root = ET.fromstring(drawing.svg)  # noqa: S314  (our own)
    return [element.text or "" for element in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("drawing", every(), ids=lambda case: case.key)
def test_every_figure_is_xml_with_a_title_a_description_and_readable_text(
    drawing: Drawing,
) -> None:
    root = ET.fromstring(drawing.svg)  # noqa: S314  (our own)
    assert root.findtext(f"{SVG}title") == drawing.title
    assert root.findtext(f"{SVG}desc") == drawing.description
    assert len(drawing.description) > 40
    sizes = {float(size) for size in re.findall(r"font-size: ([\d.]+)px", drawing.svg)}
    assert min(sizes) >= 9


def test_a_figure_per_number_of_vcpus_shows_every_arm_of_every_cell() -> None:
    drawing, two = plots.draw_speedups(SOUND)
    assert (drawing.title, two.title) == ("Speedup on 1 vCPU", "Speedup on 2 vCPUs")
    for cell in SOUND.cells:
        shown = drawing if cell.vcpus == 1 else two
        assert cell.workload in texts(shown)
        for speedup in cell.speedups:
            assert f"{speedup.interval.value:.3f}x" in texts(shown)
            assert (
                f"{speedup.arm} {speedup.interval.value:.3f}x "
                f"({speedup.interval.low:.3f} to {speedup.interval.high:.3f})" in shown.description
            )


def test_an_arm_without_an_answer_has_a_row_that_says_so() -> None:
    drawing, _ = plots.draw_speedups(TROUBLED)
    assert texts(drawing).count("no result") == 5
    assert "mkl no result" in drawing.description


def test_the_geometric_means_are_a_group_and_a_figure_of_their_own() -> None:
    (drawing,) = plots.draw_scaling(SOUND)
    for overall in SOUND.overall:
        assert f"{overall.speedup.arm} {overall.speedup.interval.value:.3f}x" in drawing.description
    assert "geometric mean" in texts(next(plots.draw_speedups(SOUND)))
    assert list(plots.draw_scaling(dataclasses.replace(SOUND, overall=()))) == []


def test_times_and_costs_of_a_bill_have_their_intervals_in_words() -> None:
    drawings = {bill_figure.title: bill_figure for bill_figure in plots.draw_bill_figures(BILL)}
    for row in BILL.rows:
        for quantity, amount in (("time", row.relative_time), ("cost", row.relative_cost)):
            shown = drawings[f"{row.workload}: {quantity}"]
            assert f"{row.arm} {wording.format_relative(amount)}" in shown.description


def test_the_articles_times_and_costs_are_shown_as_it_printed_them() -> None:
    drawings = {bill_figure.title: bill_figure for bill_figure in plots.draw_bill_figures(ARTICLE)}
    assert len(drawings) == 12
    times, costs = drawings["mnist_cnn: time"], drawings["mnist_cnn: cost"]
    assert {"6.46", "3.67", "2.36", "2.92", "1.00"} <= set(texts(times))
    assert {"0.55", "0.31", "1.97", "2.00", "1.00"} <= set(texts(costs))
    assert ". gpu 1.00. 8 vCPUs: pip 6.46; compiled 3.67." in times.description
    (scaling,) = plots.draw_bill_scaling(ARTICLE, "Speedup")
    assert "compiled 0.975x on 32 vCPUs" in scaling.description


def test_a_ladder_shows_its_rungs_in_order() -> None:
    ladder = find_ladder([arm.name for arm in CLIMBED.arms])
    assert ladder is not None
    (drawing,) = plots.draw_ladder(CLIMBED, ladder)
    rows = [text for text in texts(drawing) if "-" in text and "speedup" not in text]
    assert rows[:5] == [
        "tuned-compiled",
        "stock-gemm",
        "tuned-gemm",
        "stock-onednn",
        "tuned-onednn",
    ]
    assert "geometric mean" in texts(drawing)


def test_samples_of_every_timed_cell_are_all_there() -> None:
    drawings = list(plots.draw_samples(TROUBLED, SAMPLES))
    timed = [cell for cell in TROUBLED.cells if cell.stopped_by]
    assert [drawn.title for drawn in drawings] == [
        f"{cell.workload} on {cell.vcpus} vCPU{'s' if cell.vcpus > 1 else ''}" for cell in timed
    ]
    for cell, drawing in zip(timed, drawings, strict=True):
        mine = [s for s in SAMPLES if (s.workload, s.vcpus) == (cell.workload, cell.vcpus)]
        blocks = {(s.launch, s.block) for s in mine}
        dropped = sum(
            bool(gates.list_drop_reasons([s for s in mine if (s.launch, s.block) == block]))
            for block in blocks
        )
        assert dropped == 2
        assert drawing.description.startswith(f"{len(mine)} samples in 4 launches")
        assert drawing.description.endswith("2 blocks dropped.")
        assert {"stock", "stock again", "dropped block"} <= set(texts(drawing))
        uses = ET.fromstring(drawing.svg).iter(f"{SVG}use")  # noqa: S314  (our own)
        assert sum(1 for _ in uses) >= len(mine) + dropped


def test_without_samples_there_is_no_figure_of_them() -> None:
    assert list(plots.draw_samples(SOUND, ())) == []
    other_sample = dataclasses.replace(SAMPLES[0], phase="validate")
    assert list(plots.draw_samples(TROUBLED, [other_sample])) == []


# --- charts -------------------------------------------------------------------------------------


def xs(line: Line2D) -> list[float]:
    return [float(value) for value in np.asarray(line.get_xdata())]


def ys(line: Line2D) -> list[float]:
    return [float(value) for value in np.asarray(line.get_ydata())]


def row(value: float, low: float, high: float, *, solid: bool = True) -> ChartPoint:
    interval = Interval(value=value, low=low, high=high)
    return ChartPoint(label="arm", series=1, amount=interval, note="", solid=solid)


def test_an_absurdly_wide_interval_is_cut_off_with_an_arrow() -> None:
    group = ChartGroup(label="w", points=(row(1.1, 0.01, 90.0), row(1.05, 1.0, 1.1)))
    axes = charts.plot_forest([group], "speedup").axes[0]
    low, high = axes.get_xlim()
    assert 0.5 < low < 1
    assert 1.1 < high < 2
    markers = [line.get_marker() for line in axes.lines]
    assert markers.count("<") == markers.count(">") == 1


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.97, 1.05, [0.98, 1, 1.02, 1.04]),
        (0.915, 1.045, [0.92, 0.96, 1, 1.04]),
        (0.995, 1.004, [0.996, 0.998, 1, 1.002, 1.004]),
        (0.79, 1.62, [0.8, 0.9, 1, 1.1, 1.25, 1.5]),
        (0.8, 9, [1, 2, 3, 5, 8]),
        (0.14, 1.2, [0.15, 0.2, 0.3, 0.5, 1]),
        (0.98, 60, [1, 2, 5, 10, 20, 50]),
    ],
)
def test_an_axis_of_ratios_has_ticks_that_people_read(
    low: float, high: float, ticks: list[float]
) -> None:
    assert charts.compute_ratio_ticks(low, high) == pytest.approx(ticks)


@example(low=0.9984754809991345, high=1.0)
@given(low=st.floats(0.001, 1), high=st.floats(1, 1000))
def test_ticks_are_few_within_and_apart_and_1_is_among_them(low: float, high: float) -> None:
    assume(high / low > 1.001)
    ticks = charts.compute_ratio_ticks(low, high)
    assert 2 <= len(ticks) <= 9
    assert low <= ticks[0] < ticks[-1] <= high
    assert min(abs(tick - 1) for tick in ticks) < 1e-9


def test_a_model_far_beyond_the_others_does_not_squeeze_them() -> None:
    rows = (row(6.2, 5.2, 7.4), row(1.25, 1.2, 1.3), row(1.0, 0.95, 1.05))
    for figure in (charts.plot_forest([ChartGroup(label="w", points=rows)], "speedup"), over(rows)):
        axes = figure.axes[0]
        low, high = axes.get_xlim() if axes.get_xscale() == "log" else axes.get_ylim()
        apart = np.log(1.25) / np.log(high / low)
        assert apart > 0.08
        ticks = axes.get_xticks() if axes.get_xscale() == "log" else axes.get_yticks()
        assert {1, 2, 5} <= {round(float(tick), 6) for tick in ticks}


def over(rows: tuple[ChartPoint, ...]) -> Figure:
    amounts = tuple(
        (place, chart_point.amount)
        for place, chart_point in enumerate(rows, 1)
        if chart_point.amount
    )
    return charts.plot_speedups([ChartLine(label="a", series=0, amounts=amounts)], {})


def test_intervals_are_drawn_from_end_to_end() -> None:
    axes = charts.plot_forest(
        [ChartGroup(label="w", points=(row(1.1, 1.05, 1.2),))], "speedup"
    ).axes[0]
    spans = [xs(line) for line in axes.lines]
    assert [1.05, 1.2] in spans
    assert [1.1] in spans


def test_what_is_no_verdict_is_an_open_mark() -> None:
    points = (row(1.1, 1.05, 1.2), row(1.0, 0.9, 1.1, solid=False))
    axes = charts.plot_forest([ChartGroup(label="w", points=points)], "speedup").axes[0]
    solid, hollow = (line for line in axes.lines if line.get_marker() == MARKERS[1])
    assert solid.get_markerfacecolor() == solid.get_color()
    assert hollow.get_markerfacecolor() != hollow.get_color()


def test_bars_begin_at_nothing_and_differ_in_their_hatches() -> None:
    points = tuple(
        ChartPoint(label=str(number), series=number, amount=0.5 + number, note="")
        for number in range(len(HATCHES))
    )
    axes = charts.plot_bars([ChartGroup(label="", points=points)], "time").axes[0]
    assert axes.get_xlim()[0] == 0
    drawn = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert [patch.get_width() for patch in drawn] == [point.amount for point in points]
    assert len({patch.get_hatch() for patch in drawn}) == len(HATCHES)


def test_arms_over_vcpus_have_a_marker_and_a_place_each() -> None:
    lines = [
        ChartLine(label="a", series=0, amounts=((1, 1.5), (8, 1.25))),
        ChartLine(label="b", series=1, amounts=((8, 1.2),)),
    ]
    axes = charts.plot_speedups(lines, {}).axes[0]
    named = {line.get_label(): line for line in axes.lines}
    assert ys(named["a"]) == [1.5, 1.25]
    assert named["a"].get_marker() != named["b"].get_marker()
    assert xs(named["a"])[1] != xs(named["b"])[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "8"]


def test_a_sample_far_beyond_the_rest_stands_at_the_upper_edge() -> None:
    track = Track(label="a", series=0, passed=(0.0, 1.0, 2.0), values=(10.0, 10.5, 400.0))
    axes = charts.plot_samples([track], [0.0], [1.0]).axes[0]
    (drawn,) = (line for line in axes.lines if line.get_label() == "a")
    assert ys(drawn) == [10.0, 10.5, 10.5 * charts.HIGH]
    assert axes.get_ylim()[1] < 20
    (cross,) = (line for line in axes.lines if line.get_label() == "dropped block")
    assert xs(cross) == [1.0]
