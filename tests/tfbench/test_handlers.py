"""What `invoke compare` accepts, before anything is installed or measured."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.builders.tuned_wheels import wheel, with_library

from tfbench.commands import CompareOptions
from tfbench.handlers import describe_comparison
from tfcore.errors import HostError, UsageError, WheelError

# Every CPU that runs the tests has these; none has the other.
RUNS = with_library(required_features=())
FOREIGN = with_library(target="tomorrow", required_features=("avx99",))


def test_a_wheel_that_this_cpu_cannot_run_is_refused_by_name_and_feature(tmp_path: Path) -> None:
    path = wheel(tmp_path, FOREIGN.to_bytes())
    with pytest.raises(HostError, match=r"tomorrow, .* avx99"):
        describe_comparison(CompareOptions(candidate=str(path)))


def test_a_dry_run_says_what_would_be_compared(tmp_path: Path) -> None:
    path = wheel(tmp_path, RUNS.to_bytes())
    expected = CompareOptions(
        candidate=str(path), workloads="mnist_mlp, lstm_text", vcpus="1", out="there"
    )
    description = describe_comparison(expected)
    assert str(path) in description
    assert "mnist_mlp, lstm_text" in description
    assert not Path("there").exists()


@pytest.mark.parametrize(
    ("expected", "error"),
    [
        (CompareOptions(candidate="no-such.whl"), WheelError),
        (CompareOptions(vcpus="two"), UsageError),
        (CompareOptions(vcpus="-1"), UsageError),
        (CompareOptions(vcpus="4096"), UsageError),
        (CompareOptions(workloads="mnist_mlp,mnist_mpl"), UsageError),
        (CompareOptions(seed="x"), UsageError),
        (CompareOptions(budget="soon"), UsageError),
        (CompareOptions(budget="nan"), UsageError),
        (CompareOptions(budget="20"), UsageError),
        (CompareOptions(precision="-1"), UsageError),
        (CompareOptions(threshold="much"), UsageError),
        (CompareOptions(arms="stock"), UsageError),
        (CompareOptions(phase="inference"), UsageError),
        (CompareOptions(phase="infer", thorough=True), UsageError),
        (CompareOptions(phase="fit", thorough=True), UsageError),
        (CompareOptions(phase="epochs"), UsageError),
        (CompareOptions(workloads="mnist_mlp:clients=2"), UsageError),
        (CompareOptions(arms="stock,tuned:onednn=maybe"), UsageError),
        (CompareOptions(baseline="no-such.whl"), WheelError),
        (CompareOptions(arms="runtimes"), UsageError),
        (CompareOptions(arms="runtimes", phase="fit"), UsageError),
    ],
)
def test_bad_options_are_refused_before_anything_is_done(
    expected: CompareOptions, error: type[Exception], tmp_path: Path
) -> None:
    path = wheel(tmp_path, RUNS.to_bytes())
    candidate = expected.candidate or str(path)
    with pytest.raises(error):
        describe_comparison(dataclasses.replace(expected, candidate=candidate))


def test_a_line_up_is_told_with_its_settings(tmp_path: Path) -> None:
    path = wheel(tmp_path, RUNS.to_bytes())
    description = describe_comparison(
        CompareOptions(
            arms="stock,plain=stock:onednn=off,tuned", candidate=str(path), precision="0.5%"
        )
    )
    assert "TF_ENABLE_ONEDNN_OPTS=0" in description
    assert "±0.5%" in description
    assert [line.split()[0] for line in description.splitlines()[:3]] == ["stock", "plain", "tuned"]


def test_a_workload_of_ones_own_is_compared_alone(tmp_path: Path) -> None:
    path, own_path = wheel(tmp_path, RUNS.to_bytes()), tmp_path / "model.py"
    own_path.write_text("def build(): ...\n", "utf-8")
    description = describe_comparison(CompareOptions(candidate=str(path), workload=str(own_path)))
    assert "workloads  own:model.py\n" in description
    with pytest.raises(UsageError, match="--workloads mnist_mlp"):
        describe_comparison(CompareOptions(candidate=str(path), workload="mnist_mlp"))


def test_requests_are_of_one_example_of_many_and_from_many(tmp_path: Path) -> None:
    path = wheel(tmp_path, RUNS.to_bytes())
    description = describe_comparison(
        CompareOptions(candidate=str(path), workloads="mnist_mlp", phase="infer", vcpus="1")
    )
    assert "mnist_mlp 1, mnist_mlp 32\n" in description


def test_other_runtimes_answer_requests(tmp_path: Path) -> None:
    path = wheel(tmp_path, RUNS.to_bytes())
    description = describe_comparison(
        CompareOptions(candidate=str(path), arms="runtimes", phase="infer")
    )
    assert "2.14.1 with openvino  TENSORWRIGHT_RUNTIME=openvino\n" in description
