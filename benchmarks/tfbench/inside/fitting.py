"""A process that times several forms of `fit` on one small model.

Started as `ARM_PYTHON -P -m tfbench.inside.fitting`: it reads one JSON request from stdin and
writes one JSON answer (see `worker.serve`). This file runs inside each arm's environment: it
imports only the standard library, NumPy and TensorFlow.

    {"do": "run", "workload": …, "seed": …, "vcpus": […], "forms": […], …}    → see `run`
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tfbench.inside.epochs import flatten_batches
from tfbench.inside.steps import NOT_HERE, OK, REFUSED, convert_error
from tfbench.inside.worker import Answer, build_model, create_responder, describe_environment, main

TensorFlow: TypeAlias = Any
Model: TypeAlias = Any
Array: TypeAlias = Any
Examples: TypeAlias = Any
"""Inputs and targets, one row per example."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """A way of calling `fit`.

    It is `fit(data.repeat(repeat).batch(…), epochs=epochs)` of a model that was compiled with
    `steps_per_execution`.
    """

    epochs: int
    repeat: int
    steps_per_execution: int


def run(request: Mapping[str, Any]) -> Answer:
    """Train once in every form to trace it, then `rounds` times in random order.

    The answer has the `steps` of one fit and the `seconds` of every round for each form, or the
    reason if the device or this TensorFlow does not support it.
    """
    os.sched_setaffinity(0, request["vcpus"])
    try:
        return _run(request)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (other errors are raised again)
        return convert_error(error)


def _run(request: Mapping[str, Any]) -> Answer:
    tf = importlib.import_module("tensorflow")
    device_names = [device.name for device in tf.config.list_logical_devices()]
    requested = request["device"]
    if requested and not any(name.endswith(requested.upper()) for name in device_names):
        return _create_failure(
            NOT_HERE, f"TensorFlow has no device {requested}, only {', '.join(device_names)}"
        )
    forms = [Form(**form) for form in request["forms"]]
    with tf.device(requested) if requested else contextlib.nullcontext():
        trained = _TrainedModels(tf, request)
        if not hasattr(trained.models[forms[0].steps_per_execution], "compile_from_config"):
            return _create_failure(NOT_HERE, f"TensorFlow {tf.__version__} is older than 2.13")
        problem = trained.warm_up(forms)
        if problem:
            return _create_failure(REFUSED, problem)
        seconds = _time_rounds(trained, forms, int(request["rounds"]), int(request["seed"]))
    return {
        "outcome": OK,
        "reason": "",
        "rows": trained.rows,
        "batch": trained.batch,
        "steps": [trained.count_steps(form) for form in forms],
        "seconds": [list(form_seconds) for form_seconds in seconds],
        "devices": device_names,
        **describe_environment(tf),
    }


def _create_failure(outcome: str, reason: str) -> Answer:
    return {"outcome": outcome, "reason": reason}


def _time_rounds(
    trained: _TrainedModels, forms: Sequence[Form], rounds: int, seed: int
) -> list[tuple[float, ...]]:
    """Return the seconds of every round, by form."""
    chance = random.Random(seed)  # noqa: S311  (an order, not a secret)
    seconds: list[list[float]] = [[] for _ in forms]
    for _ in range(rounds):
        for number in chance.sample(range(len(forms)), len(forms)):
            seconds[number].append(trained.fit(forms[number]))
    return [tuple(form_seconds) for form_seconds in seconds]


class _TrainedModels:
    """A model for each number of steps per execution, all trained on the same rows."""

    def __init__(self, tf: TensorFlow, request: Mapping[str, Any]) -> None:
        self.tf = tf
        step_counts = {int(form["steps_per_execution"]) for form in request["forms"]}
        models = [_load_model(tf, request["workload"], int(request["seed"])) for _ in step_counts]
        self.models: dict[int, Model] = {}
        for number, (model, examples, batch) in zip(step_counts, models, strict=True):
            self.models[number] = _recompile_model(model, number)
            self.examples, self.batch = examples, batch
        self.rows = len(tf.nest.flatten(self.examples)[0])
        self._data: dict[int, Any] = {}

    def count_steps(self, form: Form) -> int:
        return form.epochs * -(-self.rows * form.repeat // self.batch)

    def fit(self, form: Form) -> float:
        """Run `fit` in one form and return its seconds."""
        model, data = self.models[form.steps_per_execution], self._create_dataset(form.repeat)
        began = time.perf_counter()
        model.fit(data, epochs=form.epochs, verbose=0)
        return time.perf_counter() - began

    def warm_up(self, forms: Iterable[Form]) -> str:
        """Trace every form.

        Returns an error message if a form takes another number of steps than `count_steps`
        returns, otherwise an empty string.
        """
        for form in forms:
            optimizer = self.models[form.steps_per_execution].optimizer
            before = int(optimizer.iterations.numpy())
            self.fit(form)
            steps = int(optimizer.iterations.numpy()) - before
            if steps != self.count_steps(form):
                return f"{form} took {steps} steps, expected {self.count_steps(form)}"
        return ""

    def _create_dataset(self, repeat: int) -> Any:
        """Return a dataset of the rows in order, repeated.

        Its autotuner is off, because `fit` would wait for the autotuner to stop.
        """
        if repeat not in self._data:
            tf = self.tf
            options = tf.data.Options()
            options.autotune.enabled = False
            rows = tf.data.Dataset.from_tensor_slices(self.examples)
            self._data[repeat] = rows.repeat(repeat).batch(self.batch).with_options(options)
        return self._data[repeat]


def _load_model(tf: TensorFlow, name: str, seed: int) -> tuple[Model, Examples, int]:
    """Return a new model, the rows that it is trained on, and its batch size."""
    from tfbench.inside import iris
    from tfbench.inside.programs import read_program
    from tfbench.inside.workload import draw_synthetic_data
    from tfbench.inside.workload_name import parse_name
    from tfbench.inside.workloads import PROGRAM, find_workload

    if parse_name(name).own:
        program = read_program(tf, Path(os.environ[PROGRAM]), seed)
        return (
            program.model,
            tf.nest.map_structure(flatten_batches, program.examples),
            program.batch,
        )
    workload = find_workload(name)
    model, _ = build_model(tf.keras, workload, seed)
    if workload.build is iris.build_model:
        return model, iris.split_flowers()[0], workload.batch
    inputs, targets = draw_synthetic_data(workload, seed)
    return model, (flatten_batches(inputs), flatten_batches(targets)), workload.batch


def _recompile_model(model: Model, steps_per_execution: int) -> Model:
    config = model.get_compile_config() if hasattr(model, "get_compile_config") else None
    if config is not None:
        model.compile_from_config({**config, "steps_per_execution": steps_per_execution})
    return model


if __name__ == "__main__":
    main(create_responder(run))
