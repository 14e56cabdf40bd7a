"""The experiment of `invoke strategies`: strategies on several devices."""

from __future__ import annotations

from collections.abc import Sequence

from tfbench.arms.arm import TOLERANCE
from tfbench.experiments.cell import CellResult
from tfbench.experiments.experiment import CellExperiment, ExperimentRun
from tfbench.experiments.strategies import text
from tfbench.experiments.strategies.matrix import Matrix, parse_options
from tfbench.experiments.strategies.results import StrategiesResult, build_rows
from tfcore.records import format_now


def _build_result(
    matrix: Matrix, run: ExperimentRun, measured: Sequence[CellResult]
) -> StrategiesResult:
    return StrategiesResult(
        made=format_now(),
        host=run.host,
        vcpus=run.host.usable,
        arms=run.wheels,
        matrix=matrix,
        tolerance=TOLERANCE,
        rows=build_rows(measured),
    )


STRATEGIES = CellExperiment(
    kind=text.KEY, parse_options=parse_options, build_result=_build_result, text=text
)
