"""The modern set in the stock TensorFlow, with Keras 2 and Keras 3."""

from __future__ import annotations

import json
import math
import os
import subprocess
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from tests.builders.later import later

from tfbench.arms.arm import TOLERANCE
from tfbench.inside import steps
from tfbench.inside.workload import BATCHES
from tfbench.inside.workloads import SETS, find_workload
from tfbench.measuring.agreement import compare_losses, compare_predictions
from tfbench.measuring.measurement import CHECKED_STEPS

pytestmark = pytest.mark.toolchain

ROOT = Path(steps.__file__).parents[2]
OPTIMIZERS = ("AdamW", "Adam", "Adam", "Adam", "SGD")
COUNT = """
    import json
    import numpy as np
    import tensorflow as tf
    from tfbench.inside.workloads import SETS, find_workload
    found = {}
    for name in SETS["modern"]:
        workload = find_workload(name)
        model = workload.build(tf.keras, 1)
        shape = model(np.zeros(workload.inputs, workload.inputs_dtype), training=False).shape
        found[name] = [model.count_params(), int(shape[0]), type(model.optimizer).__name__]
    print(json.dumps(found))
"""
TRAIN = """
    import json, sys
    import tensorflow as tf
    from tfbench.inside.worker import build_trainer
    found = {}
    checked, steps, *names = sys.argv[1:]
    for name in names:
        trainer, facts = build_trainer(tf, name, 1)
        found[name] = facts | trainer.check(int(checked))
        found[name]["later"] = trainer.check(int(steps))["losses"] if int(steps) else []
        tf.keras.backend.clear_session()
    print(json.dumps(found))
"""


@pytest.fixture(scope="module", params=["2.14.1", *later("2.20.0")])
def python(request: pytest.FixtureRequest, python_of: Callable[[str], Path]) -> Path:
    return python_of(request.param)


def said(python: Path, script: str, *words: str, onednn: str = "1") -> dict[str, Any]:
    done = subprocess.run(
        [python, "-P", "-c", textwrap.dedent(script), *words],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "CUDA_VISIBLE_DEVICES": "",
            "TF_ENABLE_ONEDNN_OPTS": onednn,
            "TF_NUM_INTRAOP_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


def trained(python: Path, *names: str, steps: int = 0, onednn: str = "1") -> dict[str, Any]:
    return said(python, TRAIN, str(CHECKED_STEPS), str(steps), *names, onednn=onednn)


def check(first: Mapping[str, Any], second: Mapping[str, Any], tolerance: float) -> None:
    """What `compare` asks of two arms."""
    assert first["inputs_sha256"] == second["inputs_sha256"]
    losses = compare_losses(first["losses"], second["losses"])
    predictions = compare_predictions(first["predictions"], second["predictions"])
    assert losses is not None
    assert losses <= tolerance
    assert predictions is not None
    assert predictions <= tolerance
    assert len(set(first["losses"])) == CHECKED_STEPS, "each step changes the model"


def test_models_have_the_stated_parameters_and_shapes(python: Path) -> None:
    net = SETS["modern"][-1]
    parameters = {name: find_workload(name).parameters for name in SETS["modern"]}
    parameters[net] = find_workload(
        net.partition(":")[0]
    ).parameters  # (no weight depends on the size)
    assert said(python, COUNT) == {
        name: [parameters[name], find_workload(name).batch, optimizer]
        for name, optimizer in zip(SETS["modern"], OPTIMIZERS, strict=True)
    }


@pytest.mark.slow
def test_two_processes_compute_the_same(python: Path) -> None:
    """With dropout (bert_tiny) and with updates of single rows (neumf)."""
    single_record, again = (trained(python, "bert_tiny", "neumf") for _ in range(2))
    for name, actual in single_record.items():
        check(actual, again[name], 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS["modern"])
def test_other_kernels_compute_the_same_and_the_loss_falls(python: Path, name: str) -> None:
    """oneDNN's sum in another order. bert_tiny learns in its fifth round through the batches."""
    actual = trained(python, name, steps=6 * BATCHES)[name]
    check(actual, trained(python, name, onednn="0")[name], TOLERANCE)
    rounds = [fmean(actual["later"][at : at + BATCHES]) for at in (0, 5 * BATCHES)]
    assert all(map(math.isfinite, actual["later"]))
    assert rounds[1] < 0.95 * rounds[0]
