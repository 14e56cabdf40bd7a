"""A process that trains one small model with `fit` in several forms, and says how long each took.

Started as `ARM_PYTHON -P -m tfbench.inside.fitting`: one JSON request comes in on stdin, one JSON
answer goes out (see `worker.serve`). This file runs inside each arm's own environment: the standard
library, NumPy and TensorFlow only.

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

from tfbench.inside.epochs import rows
from tfbench.inside.steps import NOT_HERE, OK, REFUSED, refused
from tfbench.inside.worker import Answer, environment, main, only, started

TensorFlow: TypeAlias = Any
Model: TypeAlias = Any
Array: TypeAlias = Any
Examples: TypeAlias = Any
"""Inputs and targets, one row per example."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """`fit(data.repeat(repeat).batch(…), epochs=epochs)` of a model that was compiled with
    `steps_per_execution`."""

    epochs: int
    repeat: int
    steps_per_execution: int


def run(request: Mapping[str, Any]) -> Answer:
    """Train in every form once to trace it, then `rounds` times in an order of chance.

    The answer has, for each form, the `steps` of one fit and the `seconds` of every round; or the
    outcome's reason where the device or the TensorFlow cannot do it.
    """
    os.sched_setaffinity(0, request["vcpus"])
    try:
        return _run(request)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (what says nothing goes on)
        return refused(error)


def _run(request: Mapping[str, Any]) -> Answer:
    tf = importlib.import_module("tensorflow")
    known = [device.name for device in tf.config.list_logical_devices()]
    wanted = request["device"]
    if wanted and not any(name.endswith(wanted.upper()) for name in known):
        return _marked(NOT_HERE, f"TensorFlow sees no {wanted}, only {', '.join(known)}")
    forms = [Form(**form) for form in request["forms"]]
    with tf.device(wanted) if wanted else contextlib.nullcontext():
        trained = _Trained(tf, request)
        if not hasattr(trained.models[forms[0].steps_per_execution], "compile_from_config"):
            return _marked(NOT_HERE, f"TensorFlow {tf.__version__} is older than 2.13")
        problem = trained.warm_up(forms)
        if problem:
            return _marked(REFUSED, problem)
        seconds = _rounds(trained, forms, int(request["rounds"]), int(request["seed"]))
    return {
        "outcome": OK,
        "reason": "",
        "rows": trained.rows,
        "batch": trained.batch,
        "steps": [trained.steps(form) for form in forms],
        "seconds": [list(each) for each in seconds],
        "devices": known,
        **environment(tf),
    }


def _marked(outcome: str, reason: str) -> Answer:
    return {"outcome": outcome, "reason": reason}


def _rounds(
    trained: _Trained, forms: Sequence[Form], rounds: int, seed: int
) -> list[tuple[float, ...]]:
    """Seconds by form, of each round."""
    chance = random.Random(seed)  # noqa: S311  (an order, not a secret)
    taken: list[list[float]] = [[] for _ in forms]
    for _ in range(rounds):
        for number in chance.sample(range(len(forms)), len(forms)):
            taken[number].append(trained.fit(forms[number]))
    return [tuple(each) for each in taken]


class _Trained:
    """A model for each number of steps per execution, all on the same rows."""

    def __init__(self, tf: TensorFlow, request: Mapping[str, Any]) -> None:
        self.tf = tf
        together = {int(form["steps_per_execution"]) for form in request["forms"]}
        built = [_model(tf, request["workload"], int(request["seed"])) for _ in together]
        self.models: dict[int, Model] = {}
        for number, (model, examples, batch) in zip(together, built, strict=True):
            self.models[number] = _compiled(model, number)
            self.examples, self.batch = examples, batch
        self.rows = len(tf.nest.flatten(self.examples)[0])
        self._data: dict[int, Any] = {}

    def steps(self, form: Form) -> int:
        return form.epochs * -(-self.rows * form.repeat // self.batch)

    def fit(self, form: Form) -> float:
        """Seconds of one fit."""
        model, data = self.models[form.steps_per_execution], self._dataset(form.repeat)
        began = time.perf_counter()
        model.fit(data, epochs=form.epochs, verbose=0)
        return time.perf_counter() - began

    def warm_up(self, forms: Iterable[Form]) -> str:
        """Trace every form. Says what is wrong if one takes another number of steps than its
        formula has."""
        for form in forms:
            optimizer = self.models[form.steps_per_execution].optimizer
            before = int(optimizer.iterations.numpy())
            self.fit(form)
            taken = int(optimizer.iterations.numpy()) - before
            if taken != self.steps(form):
                return f"{form} took {taken} steps, not {self.steps(form)}"
        return ""

    def _dataset(self, repeat: int) -> Any:  # noqa: ANN401
        """Rows in order; without the autotuner, whose end `fit` would wait for."""
        if repeat not in self._data:
            tf = self.tf
            options = tf.data.Options()
            options.autotune.enabled = False
            rows = tf.data.Dataset.from_tensor_slices(self.examples)
            self._data[repeat] = rows.repeat(repeat).batch(self.batch).with_options(options)
        return self._data[repeat]


def _model(tf: TensorFlow, name: str, seed: int) -> tuple[Model, Examples, int]:
    """A model of its own, the rows that it is trained on, and its batch."""
    from tfbench.inside import iris  # noqa: PLC0415  (NumPy, after the affinity)
    from tfbench.inside.programs import read_program  # noqa: PLC0415
    from tfbench.inside.workload import synthetic_data  # noqa: PLC0415
    from tfbench.inside.workloads import PROGRAM, find, is_own  # noqa: PLC0415

    if is_own(name):
        own = read_program(tf, Path(os.environ[PROGRAM]), seed)
        return own.model, tf.nest.map_structure(rows, own.examples), own.batch
    workload = find(name)
    model, _ = started(tf.keras, workload, seed)
    if workload.build is iris.built:
        return model, iris.split()[0], workload.batch
    inputs, targets = synthetic_data(workload, seed)
    return model, (rows(inputs), rows(targets)), workload.batch


def _compiled(model: Model, together: int) -> Model:
    config = model.get_compile_config() if hasattr(model, "get_compile_config") else None
    if config is not None:
        model.compile_from_config({**config, "steps_per_execution": together})
    return model


if __name__ == "__main__":
    main(only(run))
