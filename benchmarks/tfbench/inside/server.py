"""A model that answers requests, from one client or from several at once.

This file runs inside each arm's own environment: the standard library, NumPy and TensorFlow only.

A request is one call of a concrete `tf.function` of the model, as a SavedModel's serving signature
is, on a batch that lies in memory, and ends when the answer can be read.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tfbench.inside.bins import bin_of

TensorFlow: TypeAlias = Any
Model: TypeAlias = Any
Batch: TypeAlias = Any
Array: TypeAlias = NDArray[Any]


class Server:
    """`clients` threads, each of which sends its next request when the last one is answered."""

    def __init__(
        self, ask: Callable[[Batch], object], batches: Sequence[Batch], clients: int
    ) -> None:
        self._ask = ask
        self._batches = itertools.cycle(batches)
        self._lock = threading.Lock()
        self.clients = clients
        self._pool = ThreadPoolExecutor(clients) if clients > 1 else None
        self.answered: Counter[int] = Counter()
        """Requests since `forget`, by how long they took, see `bins`."""

    def forget(self) -> None:
        self.answered = Counter()

    def request(self) -> float:
        """One request; the seconds that it took."""
        with self._lock:
            batch = next(self._batches)
        began = time.perf_counter()
        self._ask(batch)
        took = time.perf_counter() - began
        with self._lock:
            self.answered[bin_of(took)] += 1
        return took

    def requests(self, count: int) -> float:
        """So many, from all clients together; the seconds of the longest."""
        if self._pool is None:
            return max(self.request() for _ in range(count))
        each, more = divmod(count, self.clients)
        shares = [each + (client < more) for client in range(self.clients)]
        return max(self._pool.map(self._many, shares))

    def _many(self, count: int) -> float:
        return max((self.request() for _ in range(count)), default=0.0)


def serve(
    tf: TensorFlow, model: Model, batches: Sequence[Batch], clients: int, *, compiled: bool = False
) -> Server:
    """The batches are alike in shape and type; the function is traced for the first, and `compiled`
    by XLA if that is asked for."""
    tensors = [tf.nest.map_structure(tf.constant, batch) for batch in batches]

    @tf.function(reduce_retracing=True, jit_compile=compiled or None)  # type: ignore[untyped-decorator]
    def answer(batch: Batch) -> object:
        return model(batch, training=False)

    traced = answer.get_concrete_function(tensors[0])

    def ask(batch: Batch) -> object:
        return [each.numpy() for each in tf.nest.flatten(traced(batch))]

    return Server(ask, tensors, clients)


def rebatched(arrays: Array, batch: int, most: int) -> Array:
    """The examples of batches, whose first axis counts batches and the second examples, in up to
    `most` batches of another size; where they are too few, they come again."""
    rows = arrays.reshape(-1, *arrays.shape[2:])
    count = max(1, min(most, len(rows) // batch))
    return np.resize(rows, (count, batch, *rows.shape[1:]))
