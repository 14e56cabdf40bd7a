"""What admission found is recalled for the same library, the same judge and the same CPU only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from tfbuild.kernelbuild import admission
from tfbuild.kernelbuild.admission import RefusedKernel, UnitVerdict
from tfbuild.kernelbuild.verdicts import VerdictCache, open_verdicts
from tfbuild.tools.environment import Environment
from tfcore.comparisons.kernels import TypedOp
from tfcore.cpus.cpu import Cpu, read_cpu

FOUND = UnitVerdict(
    unit="cwise_op_tanh",
    registrations=(TypedOp(op="Tanh", types="T=1"),),
    refused=(RefusedKernel(op="Tanh", types="T=2", reason="too far"),),
    cases=12,
    ulps={"Tanh": 1.5},
    state=("guard variable for x",),
)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "cwise_op_tanh.so"
    path.write_bytes(b"code")
    return path


def verdicts(folder: Path, judge: str = "today's") -> VerdictCache:
    return VerdictCache(folder=folder / "verdicts", judge=judge)


def test_a_verdict_is_recalled_as_it_was_kept(tmp_path: Path, library: Path) -> None:
    assert verdicts(tmp_path).find("cwise_op_tanh", library) is None
    verdicts(tmp_path).store(library, FOUND)
    assert verdicts(tmp_path).find("cwise_op_tanh", library) == FOUND


def test_another_library_another_unit_and_another_judge_are_looked_at(
    tmp_path: Path, library: Path
) -> None:
    verdicts(tmp_path).store(library, FOUND)
    assert verdicts(tmp_path, judge="tomorrow's").find("cwise_op_tanh", library) is None
    assert verdicts(tmp_path).find("cwise_op_exp", library) is None
    library.write_bytes(b"other code")
    assert verdicts(tmp_path).find("cwise_op_tanh", library) is None


LOST = admission.parse_verdict("cwise_op_tanh", {"lost": "its worker was ended by SIGKILL"}, ())


def test_a_unit_that_the_probe_did_not_reach_is_looked_at_again(
    tmp_path: Path, library: Path
) -> None:
    verdicts(tmp_path).store(library, LOST)
    assert verdicts(tmp_path).find("cwise_op_tanh", library) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', '{"schema": 1, "verdict": {}}'])
def test_a_damaged_record_is_none(tmp_path: Path, library: Path, text: str) -> None:
    verdicts(tmp_path).store(library, FOUND)
    (record,) = (tmp_path / "verdicts").iterdir()
    record.write_text(text, encoding="utf-8")
    assert verdicts(tmp_path).find("cwise_op_tanh", library) is None


def without_a_feature(cpu: Cpu) -> Cpu:
    return dataclasses.replace(cpu, features=frozenset(sorted(cpu.features)[1:]))


@pytest.mark.parametrize(
    "change",
    [
        lambda inputs: {**inputs, "cpu": without_a_feature(inputs["cpu"])},
        lambda inputs: {**inputs, "copts": ("-O3",)},
        lambda inputs: {**inputs, "staged": Path("/sources/other/tree")},
        lambda inputs: {
            **inputs,
            "environment": dataclasses.replace(inputs["environment"], folder=Path("/arms/other")),
        },
    ],
)
def test_what_the_judge_stands_on_is_part_of_it(
    tmp_path: Path, change: Callable[[dict[str, object]], dict[str, object]]
) -> None:
    stock = Environment(folder=Path("/arms/one"), wheel=Path("x.whl"), wheel_sha256="0" * 64)
    record: dict[str, object] = {
        "folder": tmp_path,
        "environment": stock,
        "staged": Path("/sources/one/tree"),
        "copts": ("-O2",),
        "cpu": read_cpu(),
    }
    changed = change(record)
    assert open_verdicts(**changed).judge != open_verdicts(**record).judge  # type: ignore[arg-type]
    assert open_verdicts(**dict(record)).judge == open_verdicts(**record).judge  # type: ignore[arg-type]
