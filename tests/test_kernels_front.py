"""Options of `invoke profile` and `invoke select` that make no sense, before anything is done."""

from __future__ import annotations

import pytest

from tfbench.kernels import front
from tfbench.kernels.front import ToProfile, ToSelect
from tfbuild.errors import TensorwrightError, UsageError


def test_unknown_workloads_are_told_with_what_is_near() -> None:
    with pytest.raises(UsageError, match="unknown workload mnist_mpl") as caught:
        front.describe_profiling(ToProfile(workloads="mnist_mpl"))
    assert "mnist_mlp" in caught.value.hint


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(UsageError, match="no such file"):
        front.describe_profiling(ToProfile(program="/nowhere/model.py"))


@pytest.mark.parametrize("steps", ["0", "-1", "many", "1.5"])
def test_steps_are_a_whole_number(steps: str) -> None:
    with pytest.raises(UsageError, match="--steps"):
        front.describe_profiling(ToProfile(steps=steps))


def test_a_dry_run_says_what_would_be_profiled() -> None:
    said = front.describe_profiling(ToProfile(workloads="mnist_mlp,lstm_text", steps="3"))
    assert said == "profile mnist_mlp, lstm_text: 3 steps each on the stock wheel\n"


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("launches", "2", "2 launches give no interval"),
        ("launches", "x", "--launches x"),
        ("rate", "0", "--rate 0"),
        ("rate", "nan", "--rate nan"),
        ("budget", "-1", "--budget -1"),
        ("budget", "nan", "--budget nan"),
        ("seed", "x", "--seed x"),
        ("vcpus", "0", "0 vCPUs cannot be measured"),
        ("vcpus", "one", "--vcpus one"),
        ("profile", "/nowhere/profile.json", "cannot read /nowhere/profile.json"),
    ],
)
def test_options_of_a_selection_are_looked_at(option: str, value: str, told: str) -> None:
    with pytest.raises(TensorwrightError, match=told):
        front.describe_selecting(ToSelect(**{option: value}))
