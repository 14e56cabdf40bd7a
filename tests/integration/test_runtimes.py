"""Models that ONNX Runtime, OpenVINO and JAX compute, in real workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.builders.user_workloads import LIMIT_S, TEXTS, TWO_INPUTS, arm, cpus, opened, written

from tfbench.arms.arm import Arm
from tfbench.arms.installs import choose, install
from tfbench.arms.lever_table import LEVERS
from tfbench.arms.lineup import read_lineup
from tfbench.inside.runtimes import BACKEND, RUNTIME
from tfbench.inside.workload_name import format_own_name
from tfbench.inside.workloads import list_request_workloads
from tfbench.measuring.comparing import compare, make_setting
from tfcore.comparisons.effort import Effort
from tfcore.settings import Paths

pytestmark = [pytest.mark.toolchain, pytest.mark.slow]

RUNTIMES = tuple(LEVERS["runtime"].words)


@pytest.fixture(scope="module", name="arms")
def fixture_arms(paths: Paths) -> tuple[Arm, ...]:
    text = ",".join(("stock", *(f"{name}=stock:runtime={name}" for name in RUNTIMES)))
    return install(choose(read_lineup(text), "", paths), paths)


def test_they_are_compared_with_tensorflow(arms: tuple[Arm, ...], tmp_path: Path) -> None:
    """With several clients, so that each has a request under way."""
    vcpus = min(2, len(os.sched_getaffinity(0)))
    names = list_request_workloads("mnist_cnn", vcpus)[::2]
    effort = Effort(looks=(3,), blocks=2)
    setting = make_setting(arms, names, [vcpus], effort=effort, threshold=0.0, seed=5)
    result = compare(setting, tmp_path / "out")
    versions = [facts.threading for facts in result.arms]
    assert versions[0] == "Eigen"
    assert [version.split()[0] for version in versions[1:]] == [*RUNTIMES]
    for cell in result.cells:
        assert cell.failures == ()
        assert [agreement.arm for agreement in cell.agreements] == [*RUNTIMES]
        differences = [agreement.predictions for agreement in cell.agreements]
        assert all(number is not None and number < 1e-4 for number in differences)
        assert all(times.latency and times.latency.median_ms.value > 0 for times in cell.arms)
        assert len(cell.speedups) == len(RUNTIMES)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_model_with_two_inputs_answers_as_in_tensorflow(
    arms: tuple[Arm, ...], runtime: str, tmp_path: Path
) -> None:
    (python,) = (other_arm.python for other_arm in arms if other_arm.name == runtime)
    name, *_ = list_request_workloads(format_own_name("model.py"), 1)
    predictions = []
    for env in ({}, {RUNTIME: runtime}):
        with opened(arm(python, written(tmp_path, TWO_INPUTS), **env), tmp_path) as worker:
            record = worker.request("try", LIMIT_S, workload=name, seed=1, vcpus=cpus())
        assert record["problem"] == ""
        predictions.append(record["predictions"])
    assert predictions[1] == pytest.approx(predictions[0], abs=1e-5)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_model_that_cannot_be_converted_fails_with_a_reason(
    arms: tuple[Arm, ...], runtime: str, tmp_path: Path
) -> None:
    """Texts: the layer that looks words up is no part of the graph's computation."""
    (python,) = (other_arm.python for other_arm in arms if other_arm.name == runtime)
    own_arm = arm(python, written(tmp_path, TEXTS), **{RUNTIME: runtime})
    name, *_ = list_request_workloads(format_own_name("model.py"), 1)
    with opened(own_arm, tmp_path) as worker:
        record = worker.request("try", LIMIT_S, workload=name, seed=1, vcpus=cpus())
    assert record["problem"]


@pytest.fixture(scope="module", name="backends")
def fixture_backends(paths: Paths) -> tuple[Arm, ...]:
    text = "stock=tensorflow-cpu==2.20.0,jax=tensorflow-cpu==2.20.0:backend=jax"
    return install(choose(read_lineup(text), "", paths), paths)


def test_jax_trains_as_tensorflow_does(backends: tuple[Arm, ...], tmp_path: Path) -> None:
    """neumf and fcn_series have no dropout, so all losses must agree; mnist_mlp has dropout."""
    effort = Effort(looks=(3,), blocks=2)
    names = ["neumf", "fcn_series", "mnist_mlp"]
    setting = make_setting(backends, names, [1], effort=effort, threshold=0.0, seed=5)
    result = compare(setting, tmp_path / "out")
    assert [facts.threading.split()[0] for facts in result.arms] == ["Eigen", "jax"]
    for cell in result.cells:
        assert cell.failures == ()
        (agreement,) = cell.agreements
        assert agreement.agrees
        if cell.workload != "mnist_mlp":
            assert agreement.losses is not None
            assert agreement.losses < 1e-3
            assert agreement.predictions is not None
            assert agreement.predictions < 1e-3
        assert len(cell.speedups) == 1


def test_jax_answers_requests_as_tensorflow_does(backends: tuple[Arm, ...], tmp_path: Path) -> None:
    names = list_request_workloads("mnist_cnn", 2)
    effort = Effort(looks=(3,), blocks=2)
    setting = make_setting(backends, names, [1], effort=effort, threshold=0.0, seed=5)
    for cell in compare(setting, tmp_path / "out").cells:
        assert cell.failures == ()
        (agreement,) = cell.agreements
        assert agreement.predictions is not None
        assert agreement.predictions < 1e-4


def test_jax_trains_a_model_of_a_user(backends: tuple[Arm, ...], tmp_path: Path) -> None:
    stock, jax = backends
    for python, env in ((stock.python, {}), (jax.python, {BACKEND: "jax"})):
        with opened(arm(python, written(tmp_path, TWO_INPUTS), **env), tmp_path) as worker:
            record = worker.request(
                "try", LIMIT_S, workload=format_own_name("model.py"), seed=1, vcpus=cpus()
            )
        assert record["problem"] == ""
        assert all(loss is not None for loss in record["losses"])
