"""One build for several Pythons: what is asked for, before anything is built."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tfbuild.commands import Request
from tfbuild.handlers import describe_plan
from tfbuild.planning.plan import make_kernels_plan
from tfbuild.planning.request import resolve_fleets
from tfcore.errors import PythonError, UsageError

REQUEST = Request(
    arch="haswell", release="2.20.0", kernels="mini", compiler="clang@16.0.6", python="3.12,3.10"
)


def pythons(request: Request) -> list[str]:
    return [fleet.first.python for fleet in resolve_fleets(request, make_kernels_plan)[0]]


def test_each_python_is_a_plan_that_differs_in_the_stock_wheel_only() -> None:
    (fleet, second), _ = resolve_fleets(REQUEST, make_kernels_plan)
    assert (fleet.first.python, second.first.python) == ("3.12", "3.10")
    assert fleet.key != second.key
    assert dataclasses.replace(fleet.first, python="3.10", stock=second.first.stock) == second.first


def test_all_are_those_that_the_release_has_wheels_for() -> None:
    assert pythons(dataclasses.replace(REQUEST, python="all")) == [
        *("3.9", "3.10", "3.11", "3.12", "3.13"),
    ]
    assert pythons(dataclasses.replace(REQUEST, release="2.14", python="all")) == [
        *("3.9", "3.10", "3.11"),
    ]


def test_one_that_is_named_twice_is_one() -> None:
    assert pythons(dataclasses.replace(REQUEST, python="3.11, 3.11")) == ["3.11"]


def test_one_without_a_wheel_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(PythonError, match=r"3\.8") as caught:
        resolve_fleets(dataclasses.replace(REQUEST, python="3.11,3.8"), make_kernels_plan)
    assert "3.9, 3.10, 3.11, 3.12, 3.13" in caught.value.hint


def test_no_version_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="names no version"):
        resolve_fleets(dataclasses.replace(REQUEST, python=" , "), make_kernels_plan)


def test_a_full_build_is_for_one_python() -> None:
    with pytest.raises(UsageError, match="one Python only"):
        resolve_fleets(dataclasses.replace(REQUEST, scope="full"), make_kernels_plan)


def test_a_plan_names_all_of_them() -> None:
    text = describe_plan(REQUEST, "2", as_json=False)
    assert "tensorflow-cpu 2.20.0+haswell for Python 3.12, 3.10\n" in text
    fields = json.loads(describe_plan(REQUEST, "2", as_json=True))
    assert fields["plans"][0]["python"] == "3.12"
    assert fields["others"].keys() == {"3.10"}
