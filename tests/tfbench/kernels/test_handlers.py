"""Options of `invoke profile` and `invoke select` that make no sense, before anything is done."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.builders.profiles import profile, program

from tfbench.arms import installs
from tfbench.commands import ProfileOptions, SelectOptions
from tfbench.inside.workloads import WORKLOADS
from tfbench.kernels import handlers
from tfbench.kernels.profiles import read_profile
from tfbench.options import hash_path
from tfbuild.commands import Request
from tfbuild.upstream.kernels import RELEASE
from tfcore.errors import TensorwrightError, UsageError, WheelError
from tfcore.records import save
from tfcore.settings import Paths


def test_unknown_workloads_are_told_with_what_is_near() -> None:
    with pytest.raises(UsageError, match="mnist_mpl") as caught:
        handlers.describe_profiling(ProfileOptions(workloads="mnist_mpl"))
    assert "mnist_mlp" in caught.value.hint


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(UsageError, match=r"/nowhere/model\.py"):
        handlers.describe_profiling(ProfileOptions(workload="/nowhere/model.py"))


@pytest.mark.parametrize("workloads", ["", ",", " , "])
def test_no_workload_at_all_is_told(workloads: str) -> None:
    with pytest.raises(UsageError, match="--workloads"):
        handlers.describe_profiling(ProfileOptions(workloads=workloads))


def test_a_workload_is_profiled_once_however_often_it_is_named() -> None:
    description = handlers.describe_profiling(
        ProfileOptions(workloads="lstm_text, mnist_mlp,lstm_text,")
    )
    assert description.startswith("profile lstm_text, mnist_mlp: ")


def test_a_file_and_workloads_exclude_each_other() -> None:
    with pytest.raises(UsageError, match=r"--workload .* --workloads"):
        handlers.describe_profiling(ProfileOptions(workload="model.py", workloads="lstm_text"))


def test_a_folder_that_is_no_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=str(tmp_path)):
        handlers.describe_profiling(ProfileOptions(workload=str(tmp_path)))


def test_a_profile_is_not_written_over_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        handlers.describe_profiling(ProfileOptions(out=str(tmp_path)))
    assert str(tmp_path / "profile.json") in caught.value.hint


def test_the_six_workloads_are_profiled_already() -> None:
    recorded = read_profile(handlers.PROFILED)
    assert [profiled_program.name for profiled_program in recorded.programs] == list(WORKLOADS)
    for one in recorded.programs:
        placed, traced = sum(row.seconds for row in one.places), sum(one.op_s.values())
        assert (
            0.5 * traced < placed <= 1.1 * traced
        )  # (medians: what interrupts an op is not its own)


def test_single_ops_of_a_million_elements_are_a_profile() -> None:
    """What README names for --profile."""
    recorded = read_profile(handlers.PROFILED.with_name("million.json"))
    ops = {row.place.op for one in recorded.programs for row in one.places}
    assert {"Tanh", "Sigmoid", "Exp", "Log", "Erf", "Softplus", "Pow", "RandomUniform"} <= ops


def test_a_selection_for_a_model_says_that_it_profiles_it_first() -> None:
    description = handlers.describe_selecting(SelectOptions(workload="lstm_text"))
    assert description.startswith("profile lstm_text: ")
    assert "then time" in description


@pytest.mark.parametrize(
    ("select_options", "expected"),
    [
        (SelectOptions(workload="lstm_text", profile="profile.json"), "--workload .* --profile"),
        (SelectOptions(phase="infer", profile="profile.json"), "--phase .* --profile"),
        (SelectOptions(phase="inference"), "--phase inference"),
    ],
)
def test_a_profile_and_what_is_to_be_profiled_exclude_each_other(
    select_options: SelectOptions, expected: str
) -> None:
    with pytest.raises(UsageError, match=expected):
        handlers.describe_selecting(select_options)


def test_requests_are_profiled_by_how_many_examples_they_have() -> None:
    description = handlers.describe_profiling(ProfileOptions(workload="lstm_text", phase="infer"))
    names = "lstm_text:batch=1:clients=1, lstm_text:batch=32:clients=1"
    assert description.startswith(f"profile {names}: ")
    selected = handlers.describe_selecting(SelectOptions(workload="lstm_text", phase="infer"))
    assert selected.startswith(f"profile {names}: ")


@pytest.mark.parametrize(
    "named",
    [
        Request(kernels="mini"),
        Request(kernels="cwise_op_tanh,cwise_op_log"),
        Request(selection="selection.json"),
        Request(scope="full"),
    ],
)
def test_a_model_and_kernels_exclude_each_other(named: Request) -> None:
    with pytest.raises(UsageError, match="--workload cannot"):
        handlers.describe_program_kernels("lstm_text", named)
    with pytest.raises(UsageError, match="--workload cannot"):
        handlers.select_program_kernels("lstm_text", named)


def profiled(folder: Path, name: str, sha256: str = "") -> SelectOptions:
    """Options of a selection in a folder with the profile of one program."""
    path = folder / handlers.PROFILE
    save(path, profile(dataclasses.replace(program(name), sha256=sha256)))
    return SelectOptions(workload="lstm_text", out=str(folder))


def test_a_stopped_selection_goes_on_with_the_profile_that_it_made(tmp_path: Path) -> None:
    asked = profiled(tmp_path, "lstm_text")
    here = Paths(root=tmp_path, cache=tmp_path, pool=tmp_path)
    expected = SelectOptions(profile=str(tmp_path / handlers.PROFILE), out=str(tmp_path))
    assert handlers._add_profile(asked, here) == expected
    model = tmp_path / "model.py"
    model.write_text("one")
    own = dataclasses.replace(
        profiled(tmp_path, "own:model.py", hash_path(model)), workload=str(model)
    )
    assert handlers._add_profile(own, here) == expected


def test_a_profile_of_another_model_or_phase_is_not_taken_for_this_one(tmp_path: Path) -> None:
    here = Paths(root=tmp_path, cache=tmp_path, pool=tmp_path)
    with pytest.raises(UsageError, match="profile of mnist_mlp, not of lstm_text") as caught:
        handlers._add_profile(profiled(tmp_path, "mnist_mlp"), here)
    assert "--out" in caught.value.hint
    trained = profiled(tmp_path, "lstm_text")
    with pytest.raises(UsageError, match="not of lstm_text:batch=1:clients=1, "):
        handlers._add_profile(dataclasses.replace(trained, phase="infer"), here)
    model = tmp_path / "model.py"
    model.write_text("one")
    asked = profiled(tmp_path, "own:model.py", hash_path(model))
    model.write_text("two")
    with pytest.raises(UsageError, match=r"another version of .*model\.py"):
        handlers._add_profile(dataclasses.replace(asked, workload=str(model)), here)


def test_a_home_folder_is_found_in_the_path_of_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell does not expand it in --candidate=~/w.whl."""
    monkeypatch.setenv("HOME", str(tmp_path))
    read: list[Path] = []

    def refuse(path: Path, *_: object) -> None:
        read.append(path)
        raise WheelError("enough")

    monkeypatch.setattr(installs, "choose", lambda *_: ())
    monkeypatch.setattr(handlers, "read_wheel_kernels", refuse)
    with pytest.raises(WheelError, match="enough"):
        handlers.describe_selecting(SelectOptions(candidate="~/w.whl"))
    assert read == [tmp_path / "w.whl"]


def test_a_build_for_a_model_says_that_it_profiles_it_first() -> None:
    description = handlers.describe_program_kernels("lstm_text", Request())
    assert description.startswith("profile lstm_text ")


def test_ops_that_matter_and_that_sources_register_are_compiled() -> None:
    seconds = {"Tanh": 0.5, "AddV2": 0.4, "_MklMatMul": 1.0, "Erf": 0.0001}
    assert handlers.list_compilable(seconds, RELEASE) == ("AddV2", "Tanh")
    assert handlers.list_compilable({"_MklMatMul": 1.0}, RELEASE) == ()
    assert handlers.list_compilable(seconds, "2.20.0") == ("AddV2", "Tanh"), "it was not surveyed"
    assert handlers.list_compilable({"_Arg": 1.0, "Identity": 1.0, "Tanh": 1.0}, RELEASE) == (
        "Tanh",
    )


@pytest.mark.parametrize("steps", ["0", "-1", "many", "1.5"])
def test_steps_are_a_whole_number(steps: str) -> None:
    with pytest.raises(UsageError, match="--steps"):
        handlers.describe_profiling(ProfileOptions(steps=steps))


def test_a_dry_run_says_what_would_be_profiled() -> None:
    description = handlers.describe_profiling(
        ProfileOptions(workloads="mnist_mlp,lstm_text", steps="3")
    )
    assert description.startswith("profile mnist_mlp, lstm_text: 3 steps ")


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("launches", "1", "--launches 1"),
        ("launches", "2", "Try --launches 3"),
        ("launches", "x", "--launches x"),
        ("rate", "0", "--rate 0"),
        ("rate", "1", "--rate 1"),
        ("rate", "nan", "--rate nan"),
        ("budget", "-1", "--budget -1"),
        ("budget", "nan", "--budget nan"),
        ("budget", "20", "--budget 20 has no unit. Write 20s or 20m"),
        ("seed", "x", "--seed x"),
        ("vcpus", "0", "0 vCPUs"),
        ("vcpus", "\u00b2", "--vcpus \u00b2"),
        ("vcpus", "one", "--vcpus one"),
        ("profile", "/nowhere/profile.json", "/nowhere/profile.json"),
    ],
)
def test_options_of_a_selection_are_looked_at(option: str, value: str, expected: str) -> None:
    with pytest.raises(TensorwrightError, match=expected):
        handlers.describe_selecting(SelectOptions(**{option: value}))
