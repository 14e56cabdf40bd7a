"""What is typed for options, and what is said of what makes no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfbench import options
from tfbench.inside.workloads import NAMES, SETS, WORKLOADS, find_workload
from tfcore.errors import UsageError


def test_workloads_are_all_or_those_that_are_named_once() -> None:
    assert options.parse_workloads("all") == tuple(WORKLOADS)
    assert options.parse_workloads("lstm_text, mnist_mlp,,lstm_text") == ("lstm_text", "mnist_mlp")


def test_sets_stand_for_their_workloads_beside_names() -> None:
    assert options.parse_workloads("six") == options.parse_workloads("all") == SETS["six"]
    assert options.parse_workloads("modern") == SETS["modern"]
    mixed = options.parse_workloads("neumf,modern,mnist_mlp")
    assert mixed == (*sorted(SETS["modern"], key="neumf".__ne__), "mnist_mlp")
    assert options.parse_workloads("all,modern,six") == (*SETS["six"], *SETS["modern"])
    assert all(find_workload(name) for name in options.parse_workloads("six,modern"))


def test_an_unknown_workload_is_told_which_names_and_sets_there_are() -> None:
    with pytest.raises(UsageError, match="unknown workload transformer") as caught:
        options.parse_workloads("modern,transformer")
    assert {*NAMES, *SETS} <= set(caught.value.hint.replace(",", "").split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--workloads is empty"),
        (" , ", "--workloads is empty"),
        ("mnist_mpl", "Did you mean mnist_mlp"),
        ("own:model.py", "unknown workload own:model.py"),
        ("modren", "Did you mean modern"),
        ("modern:batch=4", "modern is a set, so it takes no sizes"),
    ],
)
def test_other_workloads_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        options.parse_workloads(text)
    assert message in str(caught.value)


def test_numbers_of_cpus_are_those_that_are_here() -> None:
    assert options.parse_vcpus("2,1,2", 4) == (2, 1)
    assert options.parse_vcpus("", 4) == ()


@pytest.mark.parametrize("text", ["0", "5", "1,5", "x", "1.5", "-1", "²"])
def test_other_numbers_of_cpus_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        options.parse_vcpus(text, 4)


@pytest.mark.parametrize("text", ["", "²", "0", "8", "1.0", "-3", "nan"])
def test_a_whole_number_has_its_bounds(text: str) -> None:
    assert options.parse_integer(" 3 ", "--n", most=7) == 3
    with pytest.raises(UsageError, match="--n"):
        options.parse_integer(text, "--n", most=7)


@pytest.mark.parametrize("text", ["", "nan", "inf", "-1", "1e9", "x"])
def test_a_positive_number_is_finite(text: str) -> None:
    assert options.parse_positive("1.5", "--n") == 1.5
    with pytest.raises(UsageError, match="--n"):
        options.parse_positive(text, "--n")


def test_percents_may_have_their_sign() -> None:
    assert options.parse_percent("1.5%", "--n") == options.parse_percent("1.5", "--n") == 0.015
    assert options.parse_percent("0", "--n") == 0.0


def test_a_subject_is_a_workload_or_a_file_that_may_hold_a_model(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.touch()
    assert options.parse_subject("mnist_cnn") == ("mnist_cnn", None)
    assert options.parse_subject(str(model)) == ("own:model.py", model)
    saved = tmp_path / "saved"
    saved.mkdir()
    for text in ("", "own:model.py", str(saved), str(tmp_path / "none.keras"), "mnist_cmn"):
        with pytest.raises(UsageError):
            options.parse_subject(text)
    with pytest.raises(UsageError, match="modern is a set, not one workload"):
        options.parse_subject("modern")
    with pytest.raises(UsageError, match="unknown size 'foo=3'; resnet50 takes image and batch"):
        options.parse_subject("resnet50:foo=3")
    with pytest.raises(UsageError, match=r"~no\.such/model\.py: there is no such home folder"):
        options.parse_subject("~no.such/model.py")
    (saved / "saved_model.pb").touch()
    assert options.parse_subject(str(saved)) == ("own:saved", saved)


def test_one_number_of_vcpus_is_all_usable_ones_if_none_is_typed() -> None:
    assert options.parse_vcpu_count("", 4) == 4
    assert options.parse_vcpu_count("2", 4) == 2
    with pytest.raises(UsageError, match="--vcpus 1,2"):
        options.parse_vcpu_count("1,2", 4)
    with pytest.raises(UsageError, match="4 are usable"):
        options.parse_vcpu_count("5", 4)
