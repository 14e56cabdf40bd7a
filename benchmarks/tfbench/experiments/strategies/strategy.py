"""The strategies by name, and their properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from tfbench.inside import groups
from tfcore.console import suggest_spelling
from tfcore.errors import UsageError


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
    synchronous: bool = True


_ALL = (
    Strategy(
        name=groups.CENTRAL,
        family=StrategyFamily.PARAMETER_SERVER,
        means="CentralStorageStrategy, parameters on CPU:0",
    ),
    Strategy(
        name=groups.SERVER,
        family=StrategyFamily.PARAMETER_SERVER,
        means="ParameterServerStrategy, workers and one server in one process; asynchronous",
        synchronous=False,
    ),
    Strategy(
        name=groups.RING,
        family=StrategyFamily.ALL_REDUCE,
        means="MirroredStrategy, CollectiveAllReduce in a ring",
    ),
    Strategy(
        name=groups.ONE_DEVICE,
        family=StrategyFamily.ALL_REDUCE,
        means="MirroredStrategy, ReductionToOneDevice on CPU:0",
    ),
    Strategy(
        name=groups.HIERARCHICAL,
        family=StrategyFamily.ALL_REDUCE,
        means="MirroredStrategy, HierarchicalCopyAllReduce",
    ),
    Strategy(
        name=groups.NCCL,
        family=StrategyFamily.ALL_REDUCE,
        means="MirroredStrategy, NcclAllReduce",
    ),
    Strategy(
        name=groups.INDEPENDENT,
        family=StrategyFamily.APART,
        means="a model per device, no gradients exchanged: the upper bound",
        synchronous=False,
    ),
)
STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {strategy.name: strategy for strategy in _ALL}
)
NAMES = tuple(STRATEGIES)


def find_strategy(name: str) -> Strategy:
    """Return the strategy of that name. Raises UsageError if it is unknown."""
    if name not in STRATEGIES:
        hint = suggest_spelling(name, NAMES) or f"Available: {', '.join(NAMES)}"
        raise UsageError(f"unknown strategy {name!r}", hint=hint)
    return STRATEGIES[name]
