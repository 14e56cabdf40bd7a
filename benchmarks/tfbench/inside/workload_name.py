"""The name of a workload, taken apart: `resnet50:batch=8:image=64`.

This file runs inside each arm's environment: it imports only the standard library.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tfbench.inside.phases import FIT, INFER, TRAIN

_OWN = "own:"
_SIZE = re.compile(r":(batch|clients|fit|image)=(\d+)\Z")


@dataclass(frozen=True)
class WorkloadName:
    """A model and the sizes that follow its name; a size of 0 is the model's own.

    `model` is the name of a known model, or of a user's file if `own` is True. `batch` is the
    number of examples of a step or request, `image` the side of a square image in pixels. A
    workload with `clients`, which send requests at the same time, is inference; one with `fit`
    is epochs of `fit`.
    """

    model: str
    own: bool = False
    batch: int = 0
    clients: int = 0
    fit: int = 0
    image: int = 0

    def __str__(self) -> str:
        sizes = (("batch", self.batch), ("clients", self.clients), ("fit", self.fit))
        words = (f":{key}={value}" for key, value in (*sizes, ("image", self.image)) if value)
        return f"{_OWN if self.own else ''}{self.model}{''.join(words)}"

    @property
    def phase(self) -> str:
        """The phase of its steps: training, inference, or epochs of `fit`."""
        if self.fit:
            return FIT
        return INFER if self.clients else TRAIN

    @property
    def without_phase(self) -> WorkloadName:
        """The same model, without what makes its steps requests or epochs."""
        return replace(self, clients=0, fit=0)


def parse_name(text: str) -> WorkloadName:
    """Parse the name of a workload. What is no known size is part of the model's name."""
    own = text.startswith(_OWN)
    model = text.removeprefix(_OWN)
    sizes: dict[str, int] = {}
    while (match := _SIZE.search(model)) and match[1] not in sizes:
        sizes[match[1]] = int(match[2])
        model = model[: match.start()]
    return WorkloadName(model=model, own=own, **sizes)


def format_own_name(file: str) -> str:
    """Return the workload name of a user's file; its path is in the worker's environment."""
    return str(WorkloadName(model=file, own=True))
