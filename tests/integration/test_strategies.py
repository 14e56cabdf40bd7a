"""Every strategy of CPUs, in the stock TensorFlow; and what TensorFlow does wrong with one."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tfbench.arms.arm import Arm
from tfbench.engine.journal import JOURNAL
from tfbench.experiments.cell import Cell, LaunchResult, Outcome
from tfbench.experiments.cell_schedule import run_cells
from tfbench.experiments.experiment import ExperimentRun
from tfbench.experiments.strategies import handler, text
from tfbench.experiments.strategies.matrix import Matrix, list_cells
from tfbench.experiments.strategies.results import Parity, compare_steps
from tfbench.inside.groups import (
    CENTRAL,
    HIERARCHICAL,
    INDEPENDENT,
    NCCL,
    ONE_DEVICE,
    REFERENCE,
    RING,
    SERVER,
    STRATEGIES,
)
from tfbench.inside.replicas import CHECKED_STEPS, LEAST_STEPS, MOST_STEPS, ON_CPU
from tfcore.comparisons.host import read_host
from tfcore.settings import ROOT

pytestmark = pytest.mark.toolchain

NET = "iris_mlp:batch=4"
PARAMETERS = 4 * 32 + 32 + 32 * 3 + 3
WAIT_S = 120.0
SYNCHRONOUS = (CENTRAL, RING, ONE_DEVICE, HIERARCHICAL)

# With TensorFlow's own strategy, past our refusal.
THREE = """
import json
import tensorflow as tf
from tfbench.inside import groups
from tfbench.inside.workloads import find_workload
one = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [one] * 3)
devices = ["CPU:0", "CPU:1", "CPU:2"]
iris = find_workload("iris_mlp")
sums = lambda name: groups.create_group(tf, name, devices, iris, 1).measure_sums()
print(json.dumps([sums("hierarchical"), sums("one_device")]))
"""
LOSSES = """
import json
import tensorflow as tf
from tfbench.inside.groups import resolve_example_loss, align_targets
from tfbench.inside.worker import build_model
from tfbench.inside.workload import draw_synthetic_data
from tfbench.inside.workloads import find_workload
pairs = []
for name in ("iris_mlp", "mnist_mlp", "imdb_fasttext", "lstm_text", "ptb_lstm_small"):
    workload = find_workload(name + ":batch=4")
    model, _ = build_model(tf.keras, workload, 1)
    inputs, targets = (tf.constant(each[0]) for each in draw_synthetic_data(workload, 1))
    outputs = model(inputs)
    example_loss = resolve_example_loss(tf.keras, model.loss)
    ours = tf.reduce_mean(example_loss(align_targets(tf, targets, outputs), outputs))
    pairs.append([float(ours), float(model.compute_loss(inputs, targets, outputs))])
print(json.dumps(pairs))
"""


def matrix(*strategies: str, launches: int = 1) -> Matrix:
    return Matrix(
        strategies=strategies,
        workloads=(NET,),
        devices=(2,),
        kind=ON_CPU,
        launches=launches,
        seconds=0.01,
        seed=1,
    )


@pytest.fixture(scope="module", params=["2.14.1", "2.20.0"])
def arm(request: pytest.FixtureRequest, python_of: Callable[[str], Path]) -> Arm:
    """With Keras 2, and with Keras 3."""
    return Arm(name="stock", python=python_of(request.param), label=request.param)


@pytest.fixture(scope="module")
def out(arm: Arm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("strategies")


@pytest.fixture(scope="module")
def measured(arm: Arm, out: Path) -> Mapping[tuple[str, int], LaunchResult]:
    """One launch of every strategy on two devices, by strategy and number of devices."""
    cells = list_cells(matrix(*STRATEGIES), [arm.name], read_host().usable)
    launches = run_cells(cells, {arm.name: arm}, out, seed=1, limit_s=WAIT_S)
    return {(_strategy(cell), cell.request["devices"]): launches[cell.key] for cell in cells}


def _strategy(cell: Cell) -> str:
    return str(cell.request["strategy"])


def scripted(python: Path, program: str) -> object:
    env = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": ""}
    env["PYTHONPATH"] = str(ROOT / "benchmarks")
    done = subprocess.run(
        [python, "-P", "-c", program], env=env, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_every_strategy_of_cpus_trains(measured: Mapping[tuple[str, int], LaunchResult]) -> None:
    for (strategy, devices), launch in measured.items():
        if strategy == NCCL:
            continue
        assert launch.outcome is Outcome.OK, f"{strategy}: {launch.reason}"
        assert launch.answer["parameters"] == PARAMETERS
        assert launch.answer["trainable_bytes"] == 4 * PARAMETERS
        assert len(launch.answer["losses"]) == CHECKED_STEPS
        steps = launch.answer["step_s"]
        if strategy == REFERENCE:
            assert steps == []
        else:
            assert LEAST_STEPS <= len(steps) <= MOST_STEPS
            assert all(step > 0 for step in steps)
        due = [1.0, 2.0] if strategy == INDEPENDENT else [3.0]
        assert launch.answer["sums"] == (due if devices == 2 and strategy != REFERENCE else [1.0])


@pytest.mark.slow
def test_variables_are_where_the_strategy_has_them(
    measured: Mapping[tuple[str, int], LaunchResult],
) -> None:
    record = {name: measured[name, 2].answer["variables_on"] for name in STRATEGIES if name != NCCL}
    both = ["CPU:0", "CPU:1"]
    assert record == {
        CENTRAL: ["CPU:0"],
        SERVER: ["ps:0 CPU:0"],
        RING: both,
        ONE_DEVICE: both,
        HIERARCHICAL: both,
        INDEPENDENT: both,
    }


@pytest.mark.slow
def test_what_is_in_step_trains_as_one_device_does(
    measured: Mapping[tuple[str, int], LaunchResult],
) -> None:
    due = measured[REFERENCE, 2].answer
    for strategy in SYNCHRONOUS:
        answer = measured[strategy, 2].answer
        values, reference = ([*record["losses"], record["moved"]] for record in (answer, due))
        assert compare_steps(values, reference)[0] is Parity.SAME, strategy
    # That is no matter of course: devices that exchange nothing go another way.
    apart = measured[INDEPENDENT, 2].answer
    assert compare_steps([apart["moved"]], [due["moved"]])[0] is Parity.DIFFERENT


@pytest.mark.slow
def test_nccl_is_marked_with_a_way_out(measured: Mapping[tuple[str, int], LaunchResult]) -> None:
    assert measured[NCCL, 2].outcome is Outcome.NOT_HERE
    assert "ring" in measured[NCCL, 2].reason


@pytest.mark.slow
def test_an_odd_hierarchical_copy_is_refused(arm: Arm, out: Path) -> None:
    three = dataclasses.replace(matrix(HIERARCHICAL), devices=(3,))
    cells = list_cells(three, [arm.name], read_host().usable)
    (cell,) = (tested_cell for tested_cell in cells if _strategy(tested_cell) == HIERARCHICAL)
    (launch,) = run_cells([cell], {arm.name: arm}, out / "odd", seed=1, limit_s=WAIT_S).values()
    assert launch.outcome is Outcome.REFUSED
    assert "one of 3 replicas" in launch.reason


@pytest.mark.slow
def test_tensorflow_loses_a_replica_of_three(stock_python: Path) -> None:
    """Should TensorFlow mend this, `refusal` is to let it through."""
    assert scripted(stock_python, THREE) == [[3.0], [6.0]]


def test_losses_are_those_of_keras(stock_python: Path) -> None:
    pairs = scripted(stock_python, LOSSES)
    assert isinstance(pairs, list)
    assert len(pairs) == 5
    for ours, keras in pairs:
        assert ours == pytest.approx(keras, rel=1e-6)


@pytest.mark.slow
def test_a_run_goes_on_from_what_is_known(
    arm: Arm, out: Path, measured: Mapping[tuple[str, int], LaunchResult]
) -> None:
    """The first launches are those of `measured`; only second ones start."""
    before = len((out / JOURNAL).read_text().splitlines())
    assert before == len(measured)
    run = ExperimentRun(kind=text.KEY, arms={arm.name: arm}, host=read_host(), out=out)
    result = handler.STRATEGIES.run_cells(matrix(RING, NCCL, launches=2), run)
    assert len((out / JOURNAL).read_text().splitlines()) == before + 2
    alone, ring, nccl = result.rows
    assert (alone.strategy, alone.devices) == (INDEPENDENT, 1)
    assert ring.figures
    assert len(ring.figures.rates) == 2
    assert ring.figures.parity is Parity.SAME
    assert ring.figures.efficiency
    assert nccl.outcome is Outcome.NOT_HERE
    shown = text.build_table(result).format_text(colour=False)
    assert "only synchronous strategy" in shown
