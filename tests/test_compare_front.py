"""What `invoke compare` accepts, before anything is installed or measured."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.test_tuned import wheel, with_library

from tfbench.front import Wanted, describe_comparison
from tfbuild.errors import HostError, UsageError, WheelError

# Every CPU that runs the tests has these; none has the other.
RUNS = with_library(required_features=())
FOREIGN = with_library(target="tomorrow", required_features=("avx99",))


def test_a_wheel_that_this_cpu_cannot_run_is_refused_by_name_and_feature(tmp_path: Path) -> None:
    path = wheel(tmp_path, FOREIGN.to_bytes())
    with pytest.raises(HostError, match=r"tomorrow, .* avx99"):
        describe_comparison(Wanted(candidate=str(path)))


def test_a_dry_run_says_what_would_be_compared(tmp_path: Path) -> None:
    path = wheel(tmp_path, RUNS.to_bytes())
    wanted = Wanted(candidate=str(path), workloads="mnist_mlp, lstm_text", vcpus="1", out="there")
    said = describe_comparison(wanted)
    assert str(path) in said
    assert "mnist_mlp, lstm_text" in said
    assert not Path("there").exists()


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (Wanted(candidate="no-such.whl"), WheelError),
        (Wanted(vcpus="two"), UsageError),
        (Wanted(vcpus="-1"), UsageError),
        (Wanted(vcpus="4096"), UsageError),
        (Wanted(workloads="mnist_mlp,mnist_mpl"), UsageError),
        (Wanted(seed="x"), UsageError),
        (Wanted(budget="soon"), UsageError),
        (Wanted(budget="nan"), UsageError),
        (Wanted(precision="-1"), UsageError),
        (Wanted(threshold="much"), UsageError),
        (Wanted(arms="stock"), UsageError),
        (Wanted(phase="inference"), UsageError),
        (Wanted(phase="infer", thorough=True), UsageError),
        (Wanted(workloads="mnist_mlp:clients=2"), UsageError),
        (Wanted(arms="stock,tuned:onednn=maybe"), UsageError),
        (Wanted(baseline="no-such.whl"), WheelError),
    ],
)
def test_bad_options_are_refused_before_anything_is_done(
    wanted: Wanted, error: type[Exception], tmp_path: Path
) -> None:
    path = wheel(tmp_path, RUNS.to_bytes())
    candidate = wanted.candidate or str(path)
    with pytest.raises(error):
        describe_comparison(dataclasses.replace(wanted, candidate=candidate))


def test_a_line_up_is_told_with_its_settings(tmp_path: Path) -> None:
    path = wheel(tmp_path, RUNS.to_bytes())
    said = describe_comparison(
        Wanted(arms="stock,plain=stock:onednn=off,tuned", candidate=str(path), precision="0.5%")
    )
    assert "TF_ENABLE_ONEDNN_OPTS=0" in said
    assert "±0.5%" in said
    assert [line.split()[0] for line in said.splitlines()[:3]] == ["stock", "plain", "tuned"]


def test_a_workload_of_ones_own_is_compared_alone(tmp_path: Path) -> None:
    path, own = wheel(tmp_path, RUNS.to_bytes()), tmp_path / "model.py"
    own.write_text("def build(): ...\n", "utf-8")
    said = describe_comparison(Wanted(candidate=str(path), workload=str(own)))
    assert "workloads  own:model.py\n" in said
    with pytest.raises(UsageError, match="--workloads mnist_mlp"):
        describe_comparison(Wanted(candidate=str(path), workload="mnist_mlp"))


def test_requests_are_of_one_example_of_many_and_from_many(tmp_path: Path) -> None:
    path = wheel(tmp_path, RUNS.to_bytes())
    said = describe_comparison(
        Wanted(candidate=str(path), workloads="mnist_mlp", phase="infer", vcpus="1")
    )
    assert "mnist_mlp 1, mnist_mlp 32\n" in said
