"""What a wheel and its manifest say together; a real pair is read in tests/integration."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.builders.comparisons import host
from tests.builders.index_wheels import stand_in

from tfbench.kernels.wheel_kernels import WheelKernels, read_wheel_kernels
from tfbuild.kernelbuild import pool
from tfbuild.packing.tuned import read_tuned
from tfbuild.upstream.download import hash_file
from tfcore.cpus.cpu import Cpu
from tfcore.cpus.targets import parse_target
from tfcore.errors import RecordError

TARGET = "haswell"
SOURCE, ADDED = "kernels/cwise_op_tanh.cc", "kernels/cwise_op_exp.cc"
IMPROVED = {SOURCE: "improved/tanh.h"}


def cpu() -> Cpu:
    return dataclasses.replace(host(4).cpu, features=parse_target(TARGET).features)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return stand_in(tmp_path, "2.14.1+haswell", targets=(TARGET,))


def described(wheel: Path, **changed: Any) -> Path:
    """Its manifest; `changed` are fields of it, or of its plan."""
    tuned = read_tuned(wheel)
    assert tuned is not None
    library = tuned.libraries[0]
    plan: dict[str, Any] = {
        "release": "2.14.1",
        "compiler": "clang",
        "compiler_version": "16",
        "flags": ["-O2"],
        "sources": [],
        "stock": None,
        "kernels": [{"name": "cwise_op_tanh", "sources": [SOURCE]}],
        "kernel_recipe": {"copts": [], "improved": IMPROVED},
    }
    registrations = [
        {"op": registration.op, "types": registration.types}
        for registration in library.registrations
    ]
    verdict = {"unit": "cwise_op_tanh", "registrations": registrations}
    whole = {
        "schema": pool.SCHEMA,
        "sha256": hash_file(wheel),
        "parts": [{"target": library.target, "size": 1, "verdicts": [verdict]}],
        "plans": [plan | {name: changed.pop(name) for name in [*changed] if name in plan}],
    }
    path = wheel.with_suffix(".json")
    path.write_text(json.dumps(whole | changed), encoding="utf-8")
    return path


def read(wheel: Path, **changed: Any) -> WheelKernels:
    described(wheel, **changed)
    return read_wheel_kernels(wheel, cpu())


def recipe(wheel: Path, **changed: Any) -> str:
    return read(wheel, **changed).recipes["cwise_op_tanh"]


def test_each_registration_has_the_unit_that_it_comes_from(wheel: Path) -> None:
    wheel_kernels = read(wheel)
    assert {*wheel_kernels.units.values()} == {"cwise_op_tanh"}
    assert wheel_kernels.units.keys() == {*wheel_kernels.library.registrations}


@pytest.mark.parametrize("fields", [{"sha256": "5" * 64}, {"sha256": None}])
def test_the_manifest_of_another_wheel_is_refused(wheel: Path, fields: Mapping[str, Any]) -> None:
    with pytest.raises(RecordError, match="another wheel"):
        read(wheel, **fields)


@pytest.mark.parametrize("fields", [{"parts": []}, {"plans": 3}, {"kernel_recipe": None}])
def test_a_manifest_that_says_less_is_refused(wheel: Path, fields: Mapping[str, Any]) -> None:
    with pytest.raises(RecordError, match="not a valid manifest"):
        read(wheel, **fields)


def test_other_kernels_of_the_wheel_do_not_change_what_a_kernel_is_made_of(wheel: Path) -> None:
    units = (("cwise_op_tanh", SOURCE), ("cwise_op_exp", ADDED))
    more = [{"name": unit, "sources": [path]} for unit, path in units]
    both = {"copts": [], "improved": IMPROVED | {ADDED: "improved/exp.h"}}
    assert recipe(wheel) == recipe(wheel, kernels=more, kernel_recipe=both)


@pytest.mark.parametrize(
    "changed",
    [
        {"compiler_version": "17"},
        {"flags": ["-O3"]},
        {"kernel_recipe": {"copts": ["-g"], "improved": IMPROVED}},
        {"kernel_recipe": {"copts": [], "improved": {}}},
    ],
)
def test_another_compiler_flag_or_header_makes_another_kernel(
    wheel: Path, changed: Mapping[str, Any]
) -> None:
    assert recipe(wheel) != recipe(wheel, **changed)
