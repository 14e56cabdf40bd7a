"""Handler of `invoke strategies`: measure strategies on several devices and write a report."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tfbench import options
from tfbench.arms import installs
from tfbench.arms.arm import TOLERANCE
from tfbench.commands import StrategiesOptions
from tfbench.experiments import experiment
from tfbench.experiments.cell import Cell, CellResult
from tfbench.experiments.experiment import CellExperiment, ExperimentRun
from tfbench.experiments.strategies import strategy, text
from tfbench.experiments.strategies.matrix import Matrix, list_cells
from tfbench.experiments.strategies.results import StrategiesResult, build_rows
from tfbench.inside.replicas import KINDS
from tfbench.measuring.statistics import FEWEST_LAUNCHES
from tfcore import console, settings
from tfcore.comparisons.host import Host, read_host
from tfcore.errors import UsageError
from tfcore.records import format_now

KIND = "strategies"
NETS = ("alexnet:image=64:batch=16", "resnet50:image=64:batch=8")
"""A net with many parameters and little computation, and the opposite, in sizes for CPUs."""
DEVICES = (1, 2)
LAUNCHES = 3
SECONDS = 10.0
MOST_DEVICES = 64
MOST_LAUNCHES = 1000


QUICK = StrategiesOptions(
    strategies="central,server,ring,one_device,independent",
    workloads="alexnet:image=64:batch=8,resnet50:image=64:batch=4",
    devices="2",
    launches="3",
    seconds="1",
)
"""The options of `invoke articles --quick`: 40 processes, which spend most of their time starting
TensorFlow and tracing the nets."""


def _list_cells(matrix: Matrix, arms: Sequence[str], host: Host) -> tuple[Cell, ...]:
    """List the cells; each has all usable CPUs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return list_cells(matrix, arms, host.usable, visible)


def describe_plan(strategies_options: StrategiesOptions) -> str:
    """Describe what would be measured. Nothing is installed."""
    paths = settings.paths()
    matrix, choices = (
        parse_options(strategies_options),
        experiment.choose_arms(strategies_options.arms, paths),
    )
    planned = _list_cells(matrix, experiment.list_names(choices), read_host())
    setups = ", ".join(f"{name} on {number}" for name, number in matrix.places)
    return (
        f"arms       {installs.describe(choices).strip()}\n"
        f"workloads  {', '.join(matrix.workloads)}\n"
        f"cells      {setups} (number of devices, kind {matrix.kind})\n"
        f"launches   {matrix.launches} of each, with {matrix.seconds:g} s of steps\n"
        f"processes  {len(planned)}, including reference runs\n"
        f"out        {strategies_options.out or paths.choose_report_folder(KIND)}\n"
    )


def parse_options(strategies_options: StrategiesOptions) -> Matrix:
    """Parse and check the options. Raises UsageError."""
    names = options.parse_words(strategies_options.strategies) or strategy.NAMES
    workloads = strategies_options.workloads or ",".join(NETS)
    launches = strategies_options.launches or str(LAUNCHES)
    if strategies_options.kind not in KINDS:
        hint = (
            console.suggest_spelling(strategies_options.kind, KINDS)
            or f"Available: {', '.join(KINDS)}"
        )
        raise UsageError(f"unknown kind of devices {strategies_options.kind!r}", hint=hint)
    return Matrix(
        strategies=tuple(strategy.find_strategy(name).name for name in names),
        workloads=options.parse_workloads(workloads),
        devices=_parse_devices(strategies_options.devices),
        kind=strategies_options.kind,
        launches=options.parse_integer(
            launches, "--launches", least=FEWEST_LAUNCHES, most=MOST_LAUNCHES
        ),
        seconds=options.parse_positive(strategies_options.seconds, "--seconds")
        if strategies_options.seconds
        else SECONDS,
        seed=options.parse_integer(strategies_options.seed, "--seed", least=0),
    )


def _parse_devices(words: str) -> tuple[int, ...]:
    counts = options.parse_counts(words, "--devices") or DEVICES
    for number in counts:
        if not 1 <= number <= MOST_DEVICES:
            raise UsageError(
                f"--devices {words}: {number} is not a valid number of devices",
                hint=f"Give 1 to {MOST_DEVICES}",
            )
    return counts


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
    kind=KIND,
    read=parse_options,
    cells=lambda matrix, run: _list_cells(matrix, run.names, run.host),
    result=_build_result,
    text=text,
)
