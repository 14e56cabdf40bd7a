"""Draw learning curves as SVG. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from tfbench.experiments.accuracy.curve import CurvePoint, find_best, format_accuracy
from tfbench.experiments.accuracy.results import Accuracy, ImportedCurve
from tfbench.reports.canvas import Drawing, create_drawing
from tfbench.reports.charts import Track, plot_accuracy

KEY = "accuracy"
"""The key of the figure and of its section."""
_HOUR_S = 3600


def draw_curves(result: Accuracy) -> Iterator[Drawing]:
    """Draw accuracy over training seconds, a line per seed; nothing if nothing was trained."""
    arms = [arm.arm for arm in result.arms]
    labelled: set[str] = set()
    lines, ends = [], []
    for run in result.runs:
        if not run.epochs:
            continue
        label = "" if run.arm in labelled else run.arm
        labelled.add(run.arm)
        end = "reached" if run.reached else "not reached"
        lines.append(
            _build_track(run.points, label, arms.index(run.arm), 1, reached=bool(run.reached))
        )
        ends.append(f"{run.arm}, seed {run.seed}, {_describe_ends(run.points)}, {end}")
    if lines:
        yield _draw_tracks(lines, result.asked.target, "seconds of training", "; ".join(ends))


def draw_curve(result: ImportedCurve) -> Iterator[Drawing]:
    """Draw an imported curve over hours, up to the end of the file."""
    points = result.curve.points
    is_reached = result.reached is not None
    line = _build_track(points, result.curve.name, 0, _HOUR_S, reached=is_reached)
    yield _draw_tracks(
        [line], result.target, "hours", f"{result.curve.name}, {_describe_ends(points)}"
    )


def _build_track(
    points: Sequence[CurvePoint], label: str, series: int, unit_s: int, *, reached: bool
) -> Track:
    return Track(
        label=label,
        series=series,
        passed=tuple(point.seconds / unit_s for point in points),
        values=tuple(100 * point.accuracy for point in points),
        solid=reached,
    )


def _describe_ends(points: Sequence[CurvePoint]) -> str:
    first, highest = points[0], find_best(points)
    return f"from {format_accuracy(first.accuracy)} to {format_accuracy(highest.accuracy)}"


def _draw_tracks(lines: Sequence[Track], target: float, axis: str, ends: str) -> Drawing:
    return create_drawing(
        functools.partial(plot_accuracy, lines, 100 * target, axis),
        key=f"{KEY}-curves",
        title="Accuracy over training time",
        caption=(
            "One line per training run. A filled marker at its end means that it reached the "
            "target (horizontal line)."
        ),
        description=f"Accuracy over {axis}, target {format_accuracy(target)}: {ends}.",
    )
