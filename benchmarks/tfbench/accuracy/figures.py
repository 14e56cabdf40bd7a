"""Learning curves. Pure: records in, SVG out."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from tfbench.accuracy.curve import CurvePoint, best, share
from tfbench.accuracy.results import Accuracy, ImportedCurve
from tfbench.reports.canvas import Drawing, drawing
from tfbench.reports.charts import Track, learning

KEY = "accuracy"
"""Of the figure, and of the section that it stands in."""
_HOUR_S = 3600


def curves(result: Accuracy) -> Iterator[Drawing]:
    """Accuracy over training seconds, a line per seed; no figure where nothing was trained."""
    arms = [arm.arm for arm in result.arms]
    named: set[str] = set()
    lines, ends = [], []
    for run in result.runs:
        if not run.epochs:
            continue
        label = "" if run.arm in named else run.arm
        named.add(run.arm)
        end = "reached" if run.reached else "not reached"
        lines.append(_line(run.points, label, arms.index(run.arm), 1, reached=bool(run.reached)))
        ends.append(f"{run.arm}, seed {run.seed}, {_ends(run.points)}, {end}")
    if lines:
        yield _drawn(lines, result.asked.target, "seconds of training", "; ".join(ends))


def curve(result: ImportedCurve) -> Iterator[Drawing]:
    """The same of one curve that was read, over hours, up to the end of the file."""
    points = result.curve.points
    known = result.reached is not None
    line = _line(points, result.curve.name, 0, _HOUR_S, reached=known)
    yield _drawn([line], result.target, "hours", f"{result.curve.name}, {_ends(points)}")


def _line(
    points: Sequence[CurvePoint], label: str, series: int, unit_s: int, *, reached: bool
) -> Track:
    return Track(
        label=label,
        series=series,
        passed=tuple(point.seconds / unit_s for point in points),
        values=tuple(100 * point.accuracy for point in points),
        solid=reached,
    )


def _ends(points: Sequence[CurvePoint]) -> str:
    first, highest = points[0], best(points)
    return f"from {share(first.accuracy)} to {share(highest.accuracy)}"


def _drawn(lines: Sequence[Track], target: float, axis: str, ends: str) -> Drawing:
    return drawing(
        functools.partial(learning, lines, 100 * target, axis),
        key=f"{KEY}-curves",
        title="Accuracy over training time",
        caption=(
            "One line per training; a filled mark at its end where the target, the line across, "
            "was reached."
        ),
        description=f"Accuracy over {axis}, target {share(target)}: {ends}.",
    )
