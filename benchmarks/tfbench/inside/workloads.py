"""All workloads by name: the six of 2017, the modern five, the articles' nets, and users' models.

This file runs inside each arm's environment: it imports only the standard library and NumPy.

Sizes other than the published ones may follow a name: `resnet50:image=64:batch=8`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypedDict

from tfbench.inside import iris
from tfbench.inside.classics import SIX
from tfbench.inside.digits import DIGITS
from tfbench.inside.language import BATCH as SENTENCES
from tfbench.inside.language import SIZES, Size
from tfbench.inside.modern import MODERN
from tfbench.inside.nets import FAMILIES, Family
from tfbench.inside.phases import FIT, TRAIN
from tfbench.inside.workload import TrainingSchedule, Workload
from tfbench.inside.workload_name import parse_name

if TYPE_CHECKING:  # (Python 3.11)
    from typing import Unpack

WORKLOADS: Mapping[str, Workload] = MappingProxyType({workload.name: workload for workload in SIX})
"""The six workloads of 2017, the default of `compare`."""
SETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "six": tuple(WORKLOADS),
        "modern": (*(workload.name for workload in MODERN), "resnet18:image=64:batch=8"),
    }
)
"""Sets of workloads by name."""
IMAGE, BATCH, CLIENTS = "image", "batch", "clients"
_LARGEST = {IMAGE: 4096, BATCH: 1_000_000, CLIENTS: 1024, FIT: 1}
SERVED = (1, 32)
"""Examples per request: a single one, and a batch."""

Make = Callable[[str, Mapping[str, int]], Workload]
"""A function of the workload's name and the requested sizes that returns the workload."""


class WorkloadSizes(TypedDict, total=False):
    """The fields of `WorkloadName` that are sizes."""

    batch: int
    clients: int
    fit: int
    image: int


class UnknownWorkloadError(ValueError):
    """An unknown name or size of a workload; the message names it."""


def _resize_classic(known: Workload, name: str, sizes: Mapping[str, int]) -> Workload:
    """Return a workload with another batch size; an epoch has as many examples as before."""
    batch = sizes.get(BATCH, known.batch)
    schedule = known.schedule
    return dataclasses.replace(
        known,
        name=name,
        inputs=(batch, *known.inputs[1:]),
        targets=(batch, *known.targets[1:]),
        schedule=dataclasses.replace(
            schedule,
            steps=math.ceil(schedule.steps * known.batch / batch),
            validation=math.ceil(schedule.validation * known.batch / batch),
        ),
    )


def _create_net(family: Family, name: str, sizes: Mapping[str, int]) -> Workload:
    image = sizes.get(IMAGE, family.image)
    if image < family.smallest:
        raise UnknownWorkloadError(
            f"{family.name} takes images of at least {family.smallest} pixels, got {image}"
        )
    return family.create_workload(name, batch=sizes.get(BATCH, family.batch), image=image)


def _create_language_model(size: Size, name: str, sizes: Mapping[str, int]) -> Workload:
    return size.create_workload(name, batch=sizes.get(BATCH, SENTENCES))


def _create_iris(name: str, sizes: Mapping[str, int]) -> Workload:
    batch = sizes.get(BATCH, iris.BATCH)
    if batch > iris.TRAINING:
        raise UnknownWorkloadError(
            f"a batch of {batch} is larger than the training set of {iris.TRAINING} irises"
        )
    return iris.create_workload(name, batch=batch)


_MAKERS: Mapping[str, Make] = MappingProxyType(
    {
        **{
            workload.name: functools.partial(_resize_classic, workload)
            for workload in (*SIX, *MODERN)
        },
        **{family.name: functools.partial(_create_net, family) for family in FAMILIES},
        **{size.name: functools.partial(_create_language_model, size) for size in SIZES},
        "iris_mlp": _create_iris,
        DIGITS.name: functools.partial(_resize_classic, DIGITS),
    }
)
NAMES = tuple(_MAKERS)
_IMAGES = frozenset(family.name for family in FAMILIES)


@functools.cache
def find_workload(text: str) -> Workload:
    """Return the workload with this name, which may have sizes.

    Raises UnknownWorkloadError if there is no such name or size.
    """
    name, *words = text.split(":")
    if name not in _MAKERS:
        raise UnknownWorkloadError(f"unknown workload {text}")
    sizes: dict[str, int] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in (*_list_sizes(name), CLIENTS, FIT) or not equals or key in sizes:
            raise UnknownWorkloadError(
                f"{text}: unknown size {word!r}; {name} takes {' and '.join(_list_sizes(name))}"
            )
        if not value.isdecimal() or not 1 <= int(value) <= _LARGEST[key]:
            raise UnknownWorkloadError(f"{text}: {key} must be a number from 1 to {_LARGEST[key]}")
        sizes[key] = int(value)
    return _MAKERS[name](text, sizes)


def expand_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the workloads of names and sets, each once."""
    members = (SETS.get(name, (name,)) for name in names)
    return tuple(dict.fromkeys(itertools.chain.from_iterable(members)))


def set_sizes(name: str, **sizes: Unpack[WorkloadSizes]) -> str:
    """Return the name with these sizes; others stay."""
    return str(dataclasses.replace(parse_name(name), **sizes))


def _list_sizes(name: str) -> tuple[str, ...]:
    return (IMAGE, BATCH) if name in _IMAGES else (BATCH,)


# --- inference, and epochs of `fit` ---------------------------------------------------------------


def list_request_workloads(name: str, vcpus: int) -> tuple[str, ...]:
    """Return the names of the workloads that `--phase infer` measures.

    They are requests of one example, of 32, and of 32 from as many concurrent clients as there are
    vCPUs.
    """
    latency, throughput = (set_sizes(name, batch=batch, clients=1) for batch in SERVED)
    crowd = set_sizes(name, batch=SERVED[-1], clients=vcpus)
    return tuple(dict.fromkeys((latency, throughput, crowd)))


def list_fit_workloads(name: str) -> tuple[str, str]:
    """Return the names of the workloads that `--phase fit` measures.

    They are training steps and epochs of `fit`.
    """
    return name, set_sizes(name, fit=1)


def format_label(name: str) -> str:
    """Return the label of a workload in tables and figures.

    It is the name. For inference the examples per request and the number of clients follow
    (mnist_cnn 32x2), for epochs the word "fit" (mnist_cnn fit).
    """
    parts = parse_name(name)
    if parts.phase == TRAIN:
        return name
    if parts.phase == FIT:
        return f"{parts.without_phase} {FIT}"
    model = dataclasses.replace(parts.without_phase, batch=0)
    crowd = f"x{parts.clients}" if parts.clients > 1 else ""
    return f"{model} {find_batch_size(name)}{crowd}"


# --- users' models --------------------------------------------------------------------------------

PROGRAM = "TENSORWRIGHT_PROGRAM"
"""The worker's environment variable with the path of the user's file."""


def find_batch_size(name: str) -> int:
    """Return the number of examples in a batch or a request.

    Returns 0 for a user's file without a size in its name: only a worker that has read the file
    knows its batch size.
    """
    parts = parse_name(name)
    return parts.batch if parts.own else find_workload(name).batch


def find_schedule(name: str) -> TrainingSchedule:
    """Return the schedule of the whole training run.

    For a user's file it is one training batch, without other phases.
    """
    return (
        TrainingSchedule(epochs=1, steps=1, validation=0)
        if parse_name(name).own
        else find_workload(name).schedule
    )
