"""Requests to models in real workers: the six's, users' own, one client and several."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.builders.user_workloads import (
    DATA,
    DATASET,
    LIMIT_S,
    MODEL,
    TEXTS,
    TWO_INPUTS,
    cpus,
    opened,
    plain_arm,
    written,
)
from tests.builders.user_workloads import arm as own_arm

from tfbench.engine.journal import read_entries
from tfbench.inside.compile_arguments import JIT
from tfbench.inside.phases import INFER
from tfbench.inside.worker import SLOWDOWN
from tfbench.inside.workload_name import format_own_name
from tfbench.inside.workloads import list_request_workloads
from tfbench.kernels.profiles import profile_program
from tfbench.measuring.comparing import KIND, compare, make_setting
from tfbench.measuring.samples import KINDS, Sample
from tfcore.comparisons.comparison import load
from tfcore.comparisons.effort import Effort

pytestmark = pytest.mark.toolchain

NOT_COMPILED = """
def build():
    return tf.keras.Sequential([tf.keras.Input((8,)), layers.Dense(16, "tanh"), layers.Dense(3)])
"""


def test_requests_are_compared_and_counted(stock_python: Path, tmp_path: Path) -> None:
    """The slowed arm answers half as many again in a sample."""
    vcpus = min(2, len(os.sched_getaffinity(0)))
    names = list_request_workloads("mnist_mlp", vcpus)[-1:]
    arms = [
        plain_arm("stock", stock_python),
        plain_arm("slowed", stock_python, **{SLOWDOWN: "0.5"}),
    ]
    effort = Effort(looks=(3,), blocks=2)
    setting = make_setting(arms, names, [vcpus], effort=effort, threshold=0.0, seed=5)
    result = compare(setting, tmp_path / "out")
    assert load(tmp_path / "out" / KIND.result) == result
    assert tuple(compared_cell.workload for compared_cell in result.cells) == names
    for cell in result.cells:
        (speedup,) = cell.speedups
        # Two thirds; on a busy machine the interval of three launches is wide.
        assert speedup.interval.low < 0.9
        assert speedup.interval.high > 0.5
        assert [agreement.agrees for agreement in cell.agreements] == [True] * len(cell.agreements)
        for times in cell.arms:
            assert [phase.phase for phase in times.phases] == [INFER]
            assert times.losses == ()
            assert times.latency is not None
            assert times.latency.median_ms.value > 0
    for entry in read_entries(tmp_path / "out" / KIND.journal, KINDS):
        if isinstance(entry, Sample):
            more = round(0.5 * entry.steps) if entry.arm == "slowed" else 0
            assert sum(entry.answered.values()) == entry.steps + more


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [MODEL, NOT_COMPILED, MODEL + DATA.format(width=8), MODEL + DATASET, TEXTS, TWO_INPUTS],
    ids=["made up", "not compiled", "arrays", "dataset", "texts", "two inputs"],
)
def test_a_users_model_answers(stock_python: Path, content: str, tmp_path: Path) -> None:
    own_arm_ = own_arm(stock_python, written(tmp_path, content))
    batches = []
    for name in list_request_workloads(format_own_name("model.py"), 2):
        with opened(own_arm_, tmp_path) as worker:
            record = worker.request("try", LIMIT_S, workload=name, seed=1, vcpus=cpus())
        assert record["problem"] == ""
        assert record["losses"] == []
        assert record["predictions"]
        assert record["step_s"] > 0
        batches.append(record["batch"])
    assert batches == [1, 32, 32]


@pytest.mark.slow
def test_what_xla_cannot_compile_is_said(stock_python: Path, tmp_path: Path) -> None:
    """Strings: so the asked model is what XLA was given."""
    own_arm_ = own_arm(stock_python, written(tmp_path, TEXTS), **{JIT: "True"})
    with opened(own_arm_, tmp_path) as worker:
        name = list_request_workloads(format_own_name("model.py"), 1)[0]
        record = worker.request("try", LIMIT_S, workload=name, seed=1, vcpus=cpus())
    assert "tf2xla" in record["problem"]


@pytest.mark.slow
def test_requests_are_profiled_by_their_own_shapes(stock_python: Path, tmp_path: Path) -> None:
    """The first product of a request of one example has one row, and nothing is trained."""
    for name, rows in zip(list_request_workloads("mnist_mlp", 1), (1, 32), strict=True):
        program = profile_program(
            plain_arm("stock", stock_python), (name, None), cpus(), steps=5, logs=tmp_path
        )
        shapes = [
            row.place.inputs[0].shape for row in program.places if row.place.op.endswith("MatMul")
        ]
        assert {shape[0] for shape in shapes} == {rows}
        assert not any(op.startswith(("ResourceApply", "AssignSub")) for op in program.op_s)
