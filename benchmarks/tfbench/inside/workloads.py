"""All workloads by name: the six of 2017, the modern five, the nets of the other articles, and a
user's own.

This file runs inside each arm's own environment: the standard library and NumPy only.

A name may be followed by sizes that are not the published ones: `resnet50:image=64:batch=8`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from tfbench.inside import iris
from tfbench.inside.classics import SIX
from tfbench.inside.digits import DIGITS
from tfbench.inside.language import BATCH as SENTENCES
from tfbench.inside.language import SIZES, Size
from tfbench.inside.modern import MODERN
from tfbench.inside.nets import FAMILIES, Family
from tfbench.inside.phases import FIT, INFER, TRAIN
from tfbench.inside.workload import TrainingSchedule, Workload

WORKLOADS: Mapping[str, Workload] = MappingProxyType({each.name: each for each in SIX})
"""Those of 2017, which `compare` trains unless others are asked for."""
SETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "six": tuple(WORKLOADS),
        "modern": (*(each.name for each in MODERN), "resnet18:image=64:batch=8"),
    }
)
"""Names that stand for several workloads."""
IMAGE, BATCH, CLIENTS = "image", "batch", "clients"
_LARGEST = {IMAGE: 4096, BATCH: 1_000_000, CLIENTS: 1024, FIT: 1}
SERVED = (1, 32)
"""Examples of a request: of one who waits for it, and of many that are answered together."""

Make = Callable[[str, Mapping[str, int]], Workload]
"""From what the workload is called and the sizes that were asked for to the workload."""


class UnknownWorkloadError(ValueError):
    """A name or a size that there is not; the message says which."""


def _classic(known: Workload, name: str, sizes: Mapping[str, int]) -> Workload:
    """Its schedule goes through as many examples at any batch size."""
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


def _net(family: Family, name: str, sizes: Mapping[str, int]) -> Workload:
    image = sizes.get(IMAGE, family.image)
    if image < family.smallest:
        raise UnknownWorkloadError(
            f"{family.name} takes images of {family.smallest} pixels and more, not {image}"
        )
    return family.workload(name, batch=sizes.get(BATCH, family.batch), image=image)


def _language(size: Size, name: str, sizes: Mapping[str, int]) -> Workload:
    return size.workload(name, batch=sizes.get(BATCH, SENTENCES))


def _iris(name: str, sizes: Mapping[str, int]) -> Workload:
    batch = sizes.get(BATCH, iris.BATCH)
    if batch > iris.TRAINING:
        raise UnknownWorkloadError(
            f"a batch of {batch} is larger than the data: {iris.TRAINING} irises are trained on"
        )
    return iris.workload(name, batch=batch)


_MAKERS: Mapping[str, Make] = MappingProxyType(
    {
        **{each.name: functools.partial(_classic, each) for each in (*SIX, *MODERN)},
        **{each.name: functools.partial(_net, each) for each in FAMILIES},
        **{size.name: functools.partial(_language, size) for size in SIZES},
        "iris_mlp": _iris,
        DIGITS.name: functools.partial(_classic, DIGITS),
    }
)
NAMES = tuple(_MAKERS)
_IMAGES = frozenset(family.name for family in FAMILIES)


@functools.cache
def find(text: str) -> Workload:
    """The workload of that name, with its sizes behind it. Raises UnknownWorkloadError."""
    name, *words = text.split(":")
    if name not in _MAKERS:
        raise UnknownWorkloadError(f"unknown workload {text}")
    sizes: dict[str, int] = {}
    for word in words:
        what, equals, value = word.partition("=")
        if what not in (*_sizes(name), CLIENTS, FIT) or not equals or what in sizes:
            raise UnknownWorkloadError(
                f"{text}: {word!r} is no size of {name}, which has {' and '.join(_sizes(name))}"
            )
        if not value.isdecimal() or not 1 <= int(value) <= _LARGEST[what]:
            raise UnknownWorkloadError(f"{text}: {what} is a number from 1 to {_LARGEST[what]}")
        sizes[what] = int(value)
    return _MAKERS[name](text, sizes)


def expanded(names: Iterable[str]) -> tuple[str, ...]:
    """The workloads that names and sets stand for, each once."""
    members = (SETS.get(name, (name,)) for name in names)
    return tuple(dict.fromkeys(itertools.chain.from_iterable(members)))


def sized(name: str, **sizes: int | None) -> str:
    """The name with sizes that are not None behind it, instead of those that it has."""
    own, _, program = name.partition(":") if is_own(name) else ("", "", name)
    bare, *words = program.split(":")
    kept = dict(word.split("=", 1) for word in words)
    kept |= {what: str(value) for what, value in sizes.items() if value is not None}
    shown = (f"{what}={value}" for what, value in sorted(kept.items()))
    return ":".join([*filter(None, [own]), bare, *shown])


def _sizes(name: str) -> tuple[str, ...]:
    return (IMAGE, BATCH) if name in _IMAGES else (BATCH,)


# --- requests to a model that is trained already, and epochs of `fit` -----------------------------


def requests(name: str, vcpus: int) -> tuple[str, ...]:
    """What `--phase infer` asks of a workload, as names of workloads: requests of one example, of
    32, and of 32 from as many clients at once as there are vCPUs."""
    latency, throughput = (sized(name, batch=batch, clients=1) for batch in SERVED)
    crowd = sized(name, batch=SERVED[-1], clients=vcpus)
    return tuple(dict.fromkeys((latency, throughput, crowd)))


def fitted(name: str) -> tuple[str, str]:
    """What `--phase fit` asks of a workload, as names of workloads: training steps, and epochs."""
    return name, sized(name, fit=1)


def is_fitted(name: str) -> bool:
    return bool(_size_in(name, FIT))


def clients_of(name: str) -> int:
    """Requests that are under way at once; 0 for a workload that is trained."""
    return _size_in(name, CLIENTS)


def label_of(name: str) -> str:
    """As people read it: the name. Of requests their examples stand behind it, and how many are
    under way: mnist_cnn 32x2. Of epochs: mnist_cnn fit."""
    clients = clients_of(name)
    if is_fitted(name):
        return f"{re.sub(rf':{FIT}=1(?=:|$)', '', name)} {FIT}"
    if not clients:
        return name
    model = re.sub(rf":(?:{BATCH}|{CLIENTS})=\d+", "", name)
    crowd = f"x{clients}" if clients > 1 else ""
    return f"{model} {batch_of(name)}{crowd}"


def batch_in(name: str) -> int:
    """The examples in a batch that the name itself asks for; 0 where it does not."""
    return _size_in(name, BATCH)


def phase_of(name: str) -> str:
    """What its steps are: batches in training, epochs of `fit`, or answers to requests."""
    if is_fitted(name):
        return FIT
    return INFER if clients_of(name) else TRAIN


def _size_in(name: str, what: str) -> int:
    """Also of a user's own, which `find` does not know; 0 where the name does not say."""
    found = re.search(rf":{what}=(\d+)(?=:|$)", name)
    return int(found[1]) if found else 0


# --- a user's own ---------------------------------------------------------------------------------

PROGRAM = "TENSORWRIGHT_PROGRAM"
"""The worker's variable with the path of the user's file."""
_OWN = "own:"


def own_name(file: str) -> str:
    """What a user's file is called among workloads; its path is in the worker's environment."""
    return f"{_OWN}{file}"


def is_own(name: str) -> bool:
    return name.startswith(_OWN)


def batch_of(name: str) -> int:
    """Examples in a batch, or a request; 0 where only a worker knows, which has read the user's
    file."""
    return batch_in(name) if is_own(name) else find(name).batch


def schedule_of(name: str) -> TrainingSchedule:
    """The whole training run; of a user's file one batch, as it has no other phase."""
    return (
        TrainingSchedule(epochs=1, steps=1, validation=0) if is_own(name) else find(name).schedule
    )
