"""A process that trains one workload on several devices under one strategy, and times every step.

Started as `ARM_PYTHON -P -m tfbench.inside.replicas`: it reads one JSON request from stdin and
writes one JSON answer (see `worker.serve`). This file runs inside each arm's environment: it
imports only the standard library, NumPy and TensorFlow. A process runs one strategy on one number
of devices: in the same process, collective operations of a second group of another size fail.

    {"do": "run", "strategy": …, "workload": …, "devices": n, "kind": …, …}    → see `run`
"""

from __future__ import annotations

import importlib
import itertools
import math
import os
import resource
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from tfbench.inside import groups
from tfbench.inside.groups import CPU, GPU, HIERARCHICAL, NCCL, REFERENCE, SERVER, Group
from tfbench.inside.steps import NOT_HERE, OK, REFUSED, convert_error
from tfbench.inside.worker import (
    Answer,
    create_responder,
    describe_environment,
    main,
    replace_nonfinite,
)

TensorFlow: TypeAlias = Any
Model: TypeAlias = Any
Examples: TypeAlias = Any

AUTO, ON_CPU, ON_GPU = "auto", "cpu", "gpu"
KINDS = (AUTO, ON_CPU, ON_GPU)
"""Kinds of devices; `auto` means GPUs if TensorFlow detects any, otherwise logical CPUs."""
CHECKED_STEPS = 3
"""Number of checked steps. The first loss depends on the forward pass, later ones on updates."""
ROUNDS = 4
"""Distinct batches per device; training cycles through them."""
WARM_UP = 3
"""Untimed steps at the start; the fastest of them determines the number of timed steps."""
LEAST_STEPS, MOST_STEPS = 5, 100
"""Limits of the number of timed steps; tf_cnn_benchmarks times 100."""


def find_device_count_problem(strategy: str, devices: int) -> str:
    """Return why a strategy does not support that many devices, or an empty string.

    `cross_device_utils.aggregate_gradients_using_hierarchical_copy` adds up two groups of `n // 2`
    devices, as in a DGX-1. With an odd number of devices the last one is in neither.
    """
    if strategy == HIERARCHICAL and devices > 1 and devices % 2:
        return (
            f"TensorFlow's hierarchical copy silently excludes one of {devices} replicas: "
            "use an even number of devices"
        )
    return ""


def find_hardware_problem(strategy: str, kind: str, devices: int, gpus: int) -> str:
    """Return what this machine lacks for a strategy and what to do, or an empty string."""
    if strategy == NCCL and kind == CPU:
        return "NCCL's all-reduce needs GPUs; on CPUs use ring"
    if kind == GPU and strategy == SERVER:
        # (TensorFlow maps GPU:0 to one device per process)
        return "servers in one process cannot use a GPU each; central keeps parameters on the CPU"
    if kind == GPU and devices > gpus:
        return f"{devices} GPU{'s' * (devices > 1)} requested, but TensorFlow detects {gpus}"
    return ""


def run(request: Mapping[str, Any]) -> Answer:
    """Train on the requested devices, within the requested CPUs.

    The answer has an `outcome` and its `reason`, and for OK: `step_s`, the seconds of each
    step of all devices; `batch` of one device; `parameters` and `trainable_bytes` of the
    model; `sums`, the received sums of one gradient (see `Group.measure_sums`);
    `variables_on`, the devices that hold variables; and `losses` and `moved` of the first
    steps if `checked` is requested, see `run_first_steps`.
    """
    os.sched_setaffinity(0, request["vcpus"])
    strategy, devices = request["strategy"], int(request["devices"])
    if reason := find_device_count_problem(strategy, devices):
        return {"outcome": REFUSED, "reason": reason}
    tf = importlib.import_module("tensorflow")
    gpus = len(tf.config.list_physical_devices(GPU))
    kind = _choose_kind(request["kind"], gpus)
    if reason := find_hardware_problem(strategy, kind, devices, gpus):
        return {"outcome": NOT_HERE, "reason": reason}
    try:
        return _run(tf, strategy, _create_devices(tf, kind, strategy, devices), request)
    except Exception as error:  # noqa: BLE001  (raised again unless it concerns the cell)
        return convert_error(error)


def _choose_kind(kind: str, gpus: int) -> str:
    return GPU if kind == ON_GPU or (kind == AUTO and gpus) else CPU


def _create_devices(tf: TensorFlow, kind: str, strategy: str, count: int) -> tuple[str, ...]:
    """Return the names of `count` devices.

    CPUs are logical devices of the one physical CPU, created before TensorFlow is used. A
    reference computes its whole batch on one device.
    """
    count = 1 if strategy == REFERENCE else count
    if kind == CPU and strategy != SERVER:
        configuration = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices(CPU)[0], [configuration] * count
        )
    return tuple(f"{kind}:{number}" for number in range(count))


def _run(
    tf: TensorFlow, strategy: str, devices: Sequence[str], request: Mapping[str, Any]
) -> Answer:
    began = time.perf_counter()
    from tfbench.inside.workload import draw_synthetic_data
    from tfbench.inside.workloads import find_workload

    workload, seed, replicas = (
        find_workload(request["workload"]),
        int(request["seed"]),
        request["devices"],
    )
    tf.keras.utils.set_random_seed(seed)
    examples = draw_synthetic_data(workload, seed)
    group = groups.create_group(tf, strategy, devices, workload, seed)
    sums = group.measure_sums()
    if problem := find_gradient_problem(sums, group.compute_expected_sums()):
        return {"outcome": REFUSED, "reason": problem}
    facts: Answer = {
        "batch": workload.batch,
        "device": _describe_device(tf, devices),
        "parameters": group.model.count_params(),
        "trainable_bytes": count_trainable_bytes(tf, group.model),
        "variables_on": group.list_variable_devices(),
        "sums": sums,
        "losses": [],
        "moved": None,
    }
    if request["checked"]:
        facts |= run_first_steps(group, examples, replicas)
    facts["start_s"] = time.perf_counter() - began
    facts["step_s"] = (
        [] if strategy == REFERENCE else _time_steps(group, examples, replicas, request)
    )
    return {
        "outcome": OK,
        "reason": "",
        **facts,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        **describe_environment(tf),
    }


def find_gradient_problem(sums: Sequence[float], expected: Sequence[float]) -> str:
    """Return how a strategy's gradient sums differ from the expected ones, or an empty string."""
    if list(sums) == list(expected):
        return ""
    actual, correct = (", ".join(f"{value:g}" for value in values) for values in (sums, expected))
    return f"the sum of the gradients is {actual}, not {correct}: this strategy trains incorrectly"


def run_first_steps(group: Group, examples: Examples, replicas: int) -> Answer:
    """Run the first steps; return their `losses` and the distance `moved` by the parameters.

    Each loss is the mean over the global batch before its update; the distance is Euclidean.
    One device with the whole batch gives the same values, except for rounding.

    To make this true for every net, dropout is off, because each replica draws its own masks. If
    the net has BatchNorm, whose statistics are per replica, all replicas get the same examples,
    and the one device gets them once: the mean of equal gradients is the same gradient.
    """
    layers = list(group.model._flatten_layers())  # noqa: SLF001  (Keras 2 and 3; none is public)
    if any(map(is_batch_normalization, layers)):
        group.feed(examples, assign_copies(group.replicas, len(examples[0])))
    else:
        group.feed(examples, assign_shards(replicas, len(examples[0])))
    dropouts = [layer for layer in layers if is_dropout(layer)]
    rates = [dropout.rate for dropout in dropouts]
    for dropout_layer in dropouts:
        dropout_layer.rate = 0.0
    before = [variable.numpy() for variable in group.model.trainable_variables]
    losses = [group.step() for _ in range(CHECKED_STEPS)]
    moved = compute_distance(
        before, (variable.numpy() for variable in group.model.trainable_variables)
    )
    for dropout_layer, rate in zip(dropouts, rates, strict=True):
        dropout_layer.rate = rate
    if dropouts:
        group.retrace()
    return {"losses": replace_nonfinite(losses), "moved": replace_nonfinite([moved])[0]}


def compute_distance(before: Iterable[Any], after: Iterable[Any]) -> float:
    """Return the Euclidean distance between all parameters, taken as one vector."""
    squares = (((b - a).astype("float64") ** 2).sum() for a, b in zip(before, after, strict=True))
    return math.sqrt(math.fsum(map(float, squares)))


def is_dropout(layer: object) -> bool:
    return "Dropout" in type(layer).__name__


def is_batch_normalization(layer: object) -> bool:
    return "BatchNormalization" in type(layer).__name__


def assign_copies(replicas: int, count: int) -> list[list[int]]:
    """Return the batch numbers of each round: all replicas get the same of `count` batches."""
    return [[number] * replicas for number in range(min(ROUNDS, count))]


def assign_shards(replicas: int, count: int) -> list[list[int]]:
    """Return the batch numbers of each round: replicas get different ones of `count` batches.

    Batches are repeated if there are fewer than replicas.
    """
    rounds = max(1, min(ROUNDS, count // replicas))
    numbers = itertools.cycle(range(count))
    return [[next(numbers) for _ in range(replicas)] for _ in range(rounds)]


def _time_steps(
    group: Group, examples: Examples, replicas: int, request: Mapping[str, Any]
) -> list[float]:
    group.feed(examples, assign_shards(replicas, len(examples[0])))
    warm_s = []
    for _ in range(WARM_UP):
        began = time.perf_counter()
        group.step()
        warm_s.append(time.perf_counter() - began)
    return group.time_steps(choose_step_count(float(request["seconds"]), min(warm_s)))


def choose_step_count(seconds: float, step_s: float) -> int:
    return max(LEAST_STEPS, min(MOST_STEPS, math.ceil(seconds / step_s)))


def count_trainable_bytes(tf: TensorFlow, model: Model) -> int:
    return sum(
        int(math.prod(variable.shape) * variable.dtype.size)
        for variable in groups.list_variables(tf, model)
    )


def _describe_device(tf: TensorFlow, devices: Iterable[str]) -> str:
    """Return the name of the hardware that computes."""
    if all(name.startswith(CPU) for name in devices):
        return CPU
    gpu = tf.config.list_physical_devices(GPU)[0]
    return str(tf.config.experimental.get_device_details(gpu).get("device_name", GPU))


if __name__ == "__main__":
    main(create_responder(run))
