"""List the cells of `invoke strategies`: strategy, net and devices, one process each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tfbench.experiments.cell import Cell
from tfbench.experiments.strategies.strategy import find_strategy
from tfbench.inside import replicas
from tfbench.inside.groups import INDEPENDENT, REFERENCE

MODULE = replicas.__name__
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
    return tuple(
        cell
        for arm in arms
        for workload in matrix.workloads
        for cell in _list_workload_cells(matrix, arm, workload, vcpus, gpus)
    )


def _list_workload_cells(
    matrix: Matrix, arm: str, workload: str, vcpus: tuple[int, ...], gpus: str
) -> Iterator[Cell]:
    def build_cell(strategy: str, devices: int, launch: int) -> Cell:
        return Cell(
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
                # Once is enough: the same seed gives the same losses.
                "checked": launch == 0,
            },
            vcpus=vcpus,
            env=()
            if matrix.kind == replicas.ON_CPU
            else (("CUDA_VISIBLE_DEVICES", gpus or _GPUS),),
        )

    for devices in matrix.references:
        yield build_cell(REFERENCE, devices, 0)
    for strategy, devices in matrix.places:
        for launch in range(matrix.launches):
            yield build_cell(strategy, devices, launch)
