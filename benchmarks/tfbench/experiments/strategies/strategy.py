"""The strategies by name, their properties, and the bytes of variables that they exchange. Pure.

The formulas follow from each strategy's algorithm, for n devices and B bytes of trainable
parameters, without non-trainable parameters and losses. Synchronous strategies move 2 (n - 1) B in
total if CPU:0 is one of the devices; they differ in how much one device sends and receives.

    ring          every device sends and receives 2 (n - 1) / n B: a reduce-scatter, then an
                  all-gather (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
                  clusters of workstations", JPDC 2009); NCCL's rings, too
    one_device    n - 1 gradients to the device that adds them up, n - 1 sums back
    hierarchical  two groups of n / 2: in each, n / 2 - 1 gradients to its first device; one sum
                  across, one total back, n / 2 - 1 totals to the others of each group
    central       n - 1 times the parameters to the devices, n - 1 gradients back; n of each
                  if the parameters' device does not compute
    server        each of n workers fetches the parameters and sends its gradients, asynchronously
    independent   nothing
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from tfbench import options
from tfbench.inside import groups


class StrategyFamily(StrEnum):
    """The location of the parameters."""

    PARAMETER_SERVER = "parameter server"
    """In one place, from which all devices read."""
    ALL_REDUCE = "all-reduce"
    """On every device, with gradients summed over all."""
    APART = "no exchange"


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategy:
    """A strategy. `means` is TensorFlow's name for it. In a `synchronous` one every step uses
    the gradients of all devices.
    """

    name: str
    family: StrategyFamily
    means: str
    synchronous: bool


_SERVER, _REDUCE = StrategyFamily.PARAMETER_SERVER, StrategyFamily.ALL_REDUCE
_ROWS = (
    (groups.CENTRAL, _SERVER, True, "CentralStorageStrategy, parameters on CPU:0"),
    (
        *(groups.SERVER, _SERVER, False),
        "ParameterServerStrategy, workers and one server in one process; asynchronous",
    ),
    (groups.RING, _REDUCE, True, "MirroredStrategy, CollectiveAllReduce in a ring"),
    (groups.ONE_DEVICE, _REDUCE, True, "MirroredStrategy, ReductionToOneDevice on CPU:0"),
    (groups.HIERARCHICAL, _REDUCE, True, "MirroredStrategy, HierarchicalCopyAllReduce"),
    (groups.NCCL, _REDUCE, True, "MirroredStrategy, NcclAllReduce"),
    (
        *(groups.INDEPENDENT, StrategyFamily.APART, False),
        "a model per device, no gradients exchanged: the upper bound",
    ),
)
STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        name: Strategy(name=name, family=family, synchronous=synchronous, means=means)
        for name, family, synchronous, means in _ROWS
    }
)
NAMES = tuple(STRATEGIES)


def find_strategy(name: str) -> Strategy:
    """Return the strategy of that name. Raises UsageError if it is unknown."""
    return STRATEGIES[options.check_word("strategy", name, NAMES)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """Bytes per step: `total` counts each transfer once, `busiest` is what the device with the
    most traffic sends and receives.
    """

    total: float
    busiest: float


def compute_traffic(strategy: str, devices: int, parameter_bytes: int, *, apart: bool) -> Traffic:
    """Compute the bytes of variables that devices exchange per step. `apart` is true if CPU:0,
    which holds or sums the central variables, is not one of the devices.

    Raises ValueError if the strategy is unknown.
    """
    central = devices if apart else devices - 1
    match strategy:
        case groups.INDEPENDENT:
            total, busiest = 0.0, 0.0
        case groups.SERVER:
            total = busiest = 2.0 * devices
        case groups.CENTRAL:
            total = busiest = 2.0 * central
        case groups.ONE_DEVICE if devices > 1:
            total = busiest = 2.0 * central
        case groups.HIERARCHICAL if devices > 1:
            total, busiest = 2.0 * (devices - 1), float(devices)
        case groups.RING | groups.NCCL if devices > 1:
            total, busiest = 2.0 * (devices - 1), 4.0 * (devices - 1) / devices
        case groups.ONE_DEVICE | groups.HIERARCHICAL | groups.RING | groups.NCCL:
            total, busiest = 0.0, 0.0
        case unknown:
            raise ValueError(f"unknown strategy {unknown}")
    return Traffic(total=total * parameter_bytes, busiest=busiest * parameter_bytes)
