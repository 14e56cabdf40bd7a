"""Training steps and requests of a Keras 3 model that JAX computes (KERAS_BACKEND=jax).

This file runs inside each arm's environment. The model, its initial parameters and its batches are
those of TensorFlow's arms. JAX draws other random numbers, so dropout masks differ. It imports only
the standard library and NumPy at the top.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tfbench.inside.epochs import extract_loss

Model: TypeAlias = Any
Examples: TypeAlias = Any
State: TypeAlias = tuple[list[Any], list[Any], list[Any], list[Any]]
"""The trainable, other, optimizer's and metrics' variables, as in Keras's stateless train_step."""


class JaxTrainer:
    """Trains a compiled model with Keras's own train_step, compiled as `fit` compiles it.

    The first axis of every array in `examples` counts batches. A step waits for its result, because
    JAX returns before it is computed.
    """

    def __init__(self, model: Model, examples: Examples) -> None:
        self._jax = importlib.import_module("jax")
        self._model = model
        arrays, structure = self._jax.tree_util.tree_flatten(examples)
        first = structure.unflatten([np.asarray(array)[0] for array in arrays])
        batches = [
            structure.unflatten([self._jax.numpy.asarray(array[at]) for array in arrays])
            for at in range(len(arrays[0]))
        ]
        self._batches = itertools.cycle(batches)
        model.test_on_batch(*first)  # (creates the metrics' variables)
        model.reset_metrics()
        model.optimizer.build(model.trainable_variables)
        self._state = self._read_state()
        self._train = self._jax.jit(model.train_step, donate_argnums=0)
        self._test = self._jax.jit(model.test_step)

    def train(self) -> Any:
        """Run a training step, and return its loss."""
        logs, self._state = self._train(self._state, next(self._batches))
        return extract_loss(logs).block_until_ready()

    def validate(self) -> Any:
        """Run a test step, and return its loss."""
        trainable, others, _, metrics = self._state
        logs, _ = self._test((trainable, others, metrics), next(self._batches))
        return extract_loss(logs).block_until_ready()

    def reset_metrics(self) -> None:
        self._model.reset_metrics()
        self._state = (*self._state[:3], _read_values(self._model.metrics_variables))

    def predict(self, inputs: Examples) -> list[Any]:
        """Return the model's outputs for a batch, with the parameters of the last step."""
        variables = (*self._model.trainable_variables, *self._model.non_trainable_variables)
        for variable, value in zip(variables, (*self._state[0], *self._state[1]), strict=True):
            variable.assign(value)
        outputs = self._model(inputs, training=False)
        return [np.asarray(output) for output in self._jax.tree_util.tree_leaves(outputs)]

    def _read_state(self) -> State:
        return (
            _read_values(self._model.trainable_variables),
            _read_values(self._model.non_trainable_variables),
            _read_values(self._model.optimizer.variables),
            _read_values(self._model.metrics_variables),
        )


def create_ask(
    model: Model, pack_inputs: Callable[[list[Any]], Examples]
) -> Callable[[list[Any]], list[Any]]:
    """Return a function that answers a request: the arrays of a batch in, those of its answer out.

    `pack_inputs` makes the model's inputs of the arrays.
    """
    jax = importlib.import_module("jax")
    trainable, others = map(
        _read_values, (model.trainable_variables, model.non_trainable_variables)
    )

    def compute(trainable: list[Any], others: list[Any], arrays: list[Any]) -> list[Any]:
        outputs, _ = model.stateless_call(trainable, others, pack_inputs(arrays), training=False)
        return list(jax.tree_util.tree_leaves(outputs))

    compiled = jax.jit(compute)
    return lambda arrays: [np.asarray(array) for array in compiled(trainable, others, arrays)]


def _read_values(variables: list[Any]) -> list[Any]:
    return [variable.value for variable in variables]
