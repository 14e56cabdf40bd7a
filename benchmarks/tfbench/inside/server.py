"""Inference in the process: a model that answers requests of one or several clients.

This file runs inside each arm's environment: it imports only the standard library, NumPy and
TensorFlow.

A request is one call of a concrete `tf.function` of the model, like a SavedModel's serving
signature, on a batch in memory. It ends when the answer is available.
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

from tfbench.inside.bins import find_bin

TensorFlow: TypeAlias = Any
Model: TypeAlias = Any
Batch: TypeAlias = Any
Array: TypeAlias = NDArray[Any]


class Server:
    """A model and `clients` threads; each sends its next request when its last one is answered."""

    def __init__(
        self, ask: Callable[[Batch], object], batches: Sequence[Batch], clients: int
    ) -> None:
        self._ask = ask
        self._batches = itertools.cycle(batches)
        self._lock = threading.Lock()
        self.clients = clients
        self._pool = ThreadPoolExecutor(clients) if clients > 1 else None
        self.answered: Counter[int] = Counter()
        """Requests since `reset_counts`, by the bin of their time, see `bins`."""

    def reset_counts(self) -> None:
        self.answered = Counter()

    def send_request(self) -> float:
        """Send one request and return its seconds."""
        with self._lock:
            batch = next(self._batches)
        began = time.perf_counter()
        self._ask(batch)
        took = time.perf_counter() - began
        with self._lock:
            self.answered[find_bin(took)] += 1
        return took

    def send_requests(self, count: int) -> float:
        """Send `count` requests from all clients at once; return the seconds of the longest."""
        if self._pool is None:
            return max(self.send_request() for _ in range(count))
        share, extra = divmod(count, self.clients)
        shares = [share + (client < extra) for client in range(self.clients)]
        return max(self._pool.map(self._send_many, shares))

    def _send_many(self, count: int) -> float:
        return max((self.send_request() for _ in range(count)), default=0.0)


def create_server(
    tf: TensorFlow, model: Model, batches: Sequence[Batch], clients: int, *, compiled: bool = False
) -> Server:
    """Create a server of a model.

    The batches have the same shapes and types; the function is traced for the first one. With
    `compiled`, XLA compiles it.
    """
    tensors = [tf.nest.map_structure(tf.constant, batch) for batch in batches]

    @tf.function(reduce_retracing=True, jit_compile=compiled or None)  # type: ignore[untyped-decorator]
    def answer(batch: Batch) -> object:
        return model(batch, training=False)

    traced = answer.get_concrete_function(tensors[0])

    def ask(batch: Batch) -> object:
        return [tensor.numpy() for tensor in tf.nest.flatten(traced(batch))]

    return Server(ask, tensors, clients)


def resize_batches(arrays: Array, batch: int, most: int) -> Array:
    """Regroup examples into up to `most` batches of another size.

    In `arrays` the first axis counts batches and the second examples. Too few examples are
    repeated.
    """
    rows = arrays.reshape(-1, *arrays.shape[2:])
    count = max(1, min(most, len(rows) // batch))
    return np.resize(rows, (count, batch, *rows.shape[1:]))
