"""The options of `invoke strategies`, and its cells: a strategy, a net and devices each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench import options
from tfbench.arms import installs
from tfbench.arms.installs import ArmChoice
from tfbench.commands import StrategiesOptions
from tfbench.experiments.cell import Cell
from tfbench.experiments.strategies.strategy import NAMES, find_strategy
from tfbench.inside import replicas
from tfbench.inside.groups import INDEPENDENT, REFERENCE
from tfbench.measuring.statistics import FEWEST_LAUNCHES
from tfcore.comparisons.host import Host
from tfcore.errors import UsageError

MODULE = replicas.__name__
NETS = ("alexnet:image=64:batch=16", "resnet50:image=64:batch=8")
"""A net with many parameters and little computation, and the opposite, in sizes for CPUs."""
DEVICES = (1, 2)
LAUNCHES = 3
SECONDS = 10.0
MOST_DEVICES = 64
MOST_LAUNCHES = 1000
ALONE = 1
_GPUS = ",".join(map(str, range(16)))
"""CUDA uses the GPUs before the first one that does not exist."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """The options of `invoke strategies`. `devices` are numbers of devices of the `kind` that
    `replicas` defines. In each of `launches` every cell is a new process, which times steps
    for `seconds`.
    """

    strategies: tuple[str, ...]
    workloads: tuple[str, ...]
    devices: tuple[int, ...]
    kind: str
    launches: int
    seconds: float
    seed: int

    @property
    def places(self) -> tuple[tuple[str, int], ...]:
        """Return pairs of a strategy and a number of devices, including one device alone, the
        reference of the others.
        """
        requested = [(strategy, number) for number in self.devices for strategy in self.strategies]
        return tuple(dict.fromkeys([(INDEPENDENT, ALONE), *requested]))

    @property
    def references(self) -> tuple[int, ...]:
        """Return the numbers of devices whose global batch one device computes, to compare
        losses with.
        """
        return tuple(
            dict.fromkeys(number for name, number in self.places if is_comparable(name, number))
        )

    def list_cells(self, arms: Sequence[str], host: Host, _: Path) -> tuple[Cell, ...]:
        """List the cells; each has all usable CPUs, and the GPUs that this process may use."""
        return list_cells(self, arms, host.usable, os.environ.get("CUDA_VISIBLE_DEVICES", ""))

    def describe(self, choices: Sequence[ArmChoice], processes: int) -> dict[str, str]:
        setups = ", ".join(f"{name} on {number}" for name, number in self.places)
        return {
            "arms": installs.describe(choices).strip(),
            "workloads": ", ".join(self.workloads),
            "cells": f"{setups} (number of devices, kind {self.kind})",
            "launches": f"{self.launches} of each, with {self.seconds:g} s of steps",
            "processes": f"{processes}, including reference runs",
        }


def parse_options(strategies_options: StrategiesOptions) -> Matrix:
    """Parse and check the options. Raises UsageError."""
    names = options.parse_words(strategies_options.strategies) or NAMES
    kind = options.check_word("kind of devices", strategies_options.kind, replicas.KINDS)
    return Matrix(
        strategies=tuple(find_strategy(name).name for name in names),
        workloads=options.parse_workloads(strategies_options.workloads or ",".join(NETS)),
        devices=_parse_devices(strategies_options.devices),
        kind=kind,
        launches=options.parse_integer(
            strategies_options.launches or str(LAUNCHES),
            "--launches",
            least=FEWEST_LAUNCHES,
            most=MOST_LAUNCHES,
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


def is_comparable(strategy: str, devices: int) -> bool:
    """Return whether the losses must equal those of one device with the whole batch. One device
    alone is synchronous with any strategy.
    """
    return find_strategy(strategy).synchronous or devices == ALONE


def list_cells(
    matrix: Matrix, arms: Sequence[str], vcpus: tuple[int, ...], gpus: str = ""
) -> tuple[Cell, ...]:
    """List the cells; the launches of a place follow each other. `gpus` is the value of
    CUDA_VISIBLE_DEVICES, all GPUs if empty.
    """
    visible = () if matrix.kind == replicas.ON_CPU else (("CUDA_VISIBLE_DEVICES", gpus or _GPUS),)
    # Once is enough for a reference and for a check: the same seed gives the same losses.
    references = [(REFERENCE, devices, 1) for devices in matrix.references]
    measured = [(strategy, devices, matrix.launches) for strategy, devices in matrix.places]
    return tuple(
        Cell(
            arm=arm,
            place=(
                *(("arm", arm), ("workload", workload)),
                *(("strategy", strategy), ("devices", devices)),
            ),
            launch=launch,
            module=MODULE,
            request={
                "strategy": strategy,
                "workload": workload,
                "devices": devices,
                "kind": matrix.kind,
                "seed": matrix.seed,
                "seconds": matrix.seconds,
                "checked": launch == 0,
            },
            vcpus=vcpus,
            env=visible,
        )
        for arm in arms
        for workload in matrix.workloads
        for strategy, devices, launches in (*references, *measured)
        for launch in range(launches)
    )
