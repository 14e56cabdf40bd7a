from __future__ import annotations

import pytest
from tests.priced import price

from tfbench.costs.runs import TrainingRun, gather
from tfbuild.errors import SampleError, UsageError


def run(arm: str, vcpus: int | None, seconds: float = 1.0, workload: str = "w") -> TrainingRun:
    return TrainingRun(workload=workload, vcpus=vcpus, arm=arm, seconds=seconds, price=price())


RUNS = gather([run("gpu", None), run("pip", 2), run("pip", 8), run("tuned", 8, 0.5)], "pip")


@pytest.mark.parametrize(
    ("text", "name"),
    [("gpu", "gpu"), ("pip@2", "pip@2"), ("pip", "pip@8"), ("tuned", "tuned@8")],
)
def test_a_baseline_is_a_run_or_an_arm_at_most_vcpus(text: str, name: str) -> None:
    assert RUNS.baseline(text).name == name


@pytest.mark.parametrize("text", ["", "gpu@8", "pip@4", "pip@8 "])
def test_another_baseline_is_told(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        RUNS.baseline(text)
    assert caught.value.hint == "There are gpu, pip@2, pip@8, tuned@8"


def test_beside_a_run_is_the_references_of_its_size() -> None:
    assert RUNS.beside(run("tuned", 8)) == run("pip", 8)
    assert RUNS.beside(run("tuned", 4)) is None
    assert RUNS.beside(run("gpu", None)) is None
    assert RUNS.beside(run("tuned", 8, workload="v")) is None


def test_a_run_stands_once() -> None:
    with pytest.raises(SampleError, match="pip@8 of w is there twice"):
        gather([run("pip", 8), run("pip", 8)], "pip")
    assert len(gather([run("pip", 8), run("pip", 8, workload="v")], "pip").all) == 2
