"""Cross entropies of ours against float64, stock kernels, and on several threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builders.compiled_kernels import answered, compiled

from tfbuild.commands import Request
from tfbuild.tools.environment import Environment
from tfcore.settings import Paths

pytestmark = [pytest.mark.toolchain, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("crossed.py")
ROUNDING = {"float32": 2**-23, "float64": 2**-52, "float16": 2**-10, "bfloat16": 2**-7}


@pytest.fixture(scope="module")
def stock(stock_arm: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return answered(stock_arm, PROGRAM, tmp_path_factory.mktemp("crossed") / "stock.json", "1")


@pytest.fixture(scope="module")
def tuned(
    stock_arm: Environment, paths: Paths, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """On one thread and on four, with the libraries that admission would see."""
    libraries = compiled(Request(kernels="sparse_xent_op,xent_op"), paths)
    folder = tmp_path_factory.mktemp("crossed")
    return [
        answered(stock_arm, PROGRAM, folder / f"{threads}.json", threads, *libraries.values())
        for threads in ("1", "4")
    ]


def test_our_kernels_took_the_place_of_the_stock_ones(
    tuned: list[dict[str, Any]], stock: dict[str, Any]
) -> None:
    assert set(stock["priorities"].values()) == {0}
    assert set(tuned[0]["priorities"].values()) == {1}


def test_results_are_as_near_to_float64_as_stocks(
    tuned: list[dict[str, Any]], stock: dict[str, Any]
) -> None:
    assert len(tuned[0]["errors"]) == len(stock["errors"]) > 100
    for name, error in tuned[0]["errors"].items():
        unit = next((ROUNDING[word] for word in name.split() if word in ROUNDING), 2**-23)
        assert error <= 1.5 * stock["errors"][name] + 2 * unit, name


def test_results_do_not_depend_on_the_number_of_threads(tuned: list[dict[str, Any]]) -> None:
    assert tuned[0] == tuned[1]


def test_logits_that_are_left_out_or_large_do_no_harm(
    tuned: list[dict[str, Any]], stock: dict[str, Any]
) -> None:
    assert tuned[0]["masked"] <= max(stock["masked"], 2**-22)


def test_a_gradient_may_take_the_place_of_its_logits(tuned: list[dict[str, Any]]) -> None:
    assert tuned[0]["in place"]


def test_nothing_and_wrong_input_are_answered_as_by_stock(
    tuned: list[dict[str, Any]], stock: dict[str, Any]
) -> None:
    assert tuned[0]["no columns"] == stock["no columns"] == [[3], [3, 0]]
    assert tuned[0]["refused"] == stock["refused"]
    assert len(stock["refused"]) == 6
