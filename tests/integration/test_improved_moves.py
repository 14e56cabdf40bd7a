"""Slices, splits, choices and variables of ours against NumPy, stock kernels, and in a crowd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builders.compiled_kernels import answered, compiled

from tfbuild.commands import Request
from tfbuild.tools.environment import Environment
from tfcore.settings import Paths

pytestmark = pytest.mark.toolchain

PROGRAM = Path(__file__).with_name("moved.py")
KERNELS = "cwise_op_select,resource_variable_ops,split_op,strided_slice_op"


@pytest.fixture(scope="module")
def stock(stock_arm: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return answered(stock_arm, PROGRAM, tmp_path_factory.mktemp("moves") / "stock.json")


@pytest.fixture(scope="module")
def tuned(
    stock_arm: Environment, paths: Paths, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """With the libraries that admission would see."""
    libraries = compiled(Request(kernels=KERNELS), paths)
    out = tmp_path_factory.mktemp("moves") / "tuned.json"
    return answered(stock_arm, PROGRAM, out, *libraries.values())


@pytest.mark.slow
def test_our_kernels_took_the_place_of_the_stock_ones(
    tuned: dict[str, Any], stock: dict[str, Any]
) -> None:
    assert set(stock["priorities"].values()) == {0}
    assert set(tuned["priorities"].values()) == {1}


@pytest.mark.slow
def test_slices_gradients_assignments_splits_and_choices_are_those_of_numpy(
    tuned: dict[str, Any],
) -> None:
    assert tuned["wrong"] == []


@pytest.mark.slow
def test_a_variable_is_copied_only_while_what_was_read_is_held(
    tuned: dict[str, Any], stock: dict[str, Any]
) -> None:
    assert all(tuned["copies"].values()), tuned["copies"]
    assert not stock["copies"]["two reads share"]
    assert stock["copies"]["a held value stays"]


@pytest.mark.slow
def test_no_read_is_torn_and_no_update_is_lost_among_threads(tuned: dict[str, Any]) -> None:
    assert tuned["crowded"] == [400.0]  # two threads of 100 scatters, two of 100 additions


@pytest.mark.slow
@pytest.mark.parametrize("case", ["function", "mixed", "trained"])
def test_programs_compute_what_they_do_with_stock_kernels_to_the_bit(
    tuned: dict[str, Any], stock: dict[str, Any], case: str
) -> None:
    assert tuned["values"][case] == stock["values"][case]


@pytest.mark.slow
def test_wrong_input_is_refused_in_the_same_words(
    tuned: dict[str, Any], stock: dict[str, Any]
) -> None:
    assert tuned["refused"] == stock["refused"]
    assert len(tuned["refused"]) == 7  # six refusals, and the variable as it was
