"""TENSORWRIGHT_VERIFY runs the original ops, too, and uses their results where they differ."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.builders.fused_search import PARTS, compiled_parts
from tests.builders.later import later

from tfbuild.kernelbuild.random_trials import FAMILIES
from tfbuild.planning import plan
from tfbuild.tools.environment import Environment
from tfcore.run import run
from tfcore.settings import ROOT, Paths

pytestmark = [pytest.mark.toolchain, pytest.mark.kernels]

FAULTS = {
    "chains": ("compute/elements.h", "x > 6.0f ? 6.0f", "x > 1.0f ? 1.0f"),
    "loops": ("compute/elements.h", "dy * (1.0f - y * y)", "dy * (1.0f + y * y)"),
    "products": ("ops/products/filter_gradient.h", "(factor, first,", "(factor, second,"),
    "grouped": ("ops/grouped/grouped_outputs.h", ": from[channel * ", ": 2 * from[channel * "),
    "updates": ("ops/updates/nodes.h", "Code::kAssignSub}", "Code::kAssignAdd}"),
}
"""By part: a file below native/, a text in it, and a wrong one."""


@pytest.fixture(scope="module")
def libraries(paths: Paths) -> tuple[Path, ...]:
    return compiled_parts(paths)


@pytest.fixture(scope="module")
def wrong_libraries(paths: Paths, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    native = tmp_path_factory.mktemp("wrong") / "native"
    shutil.copytree(plan.NATIVE, native)
    for name, right, wrong in FAULTS.values():
        text = (native / name).read_text("utf-8")
        assert right in text
        (native / name).write_text(text.replace(right, wrong, 1), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "NATIVE", native)
        built = compiled_parts(paths)
    # The next build of the same plan replaces the files.
    return tuple(Path(shutil.copy(library, native)) for library in built)


def verified(
    arm: Environment,
    libraries: tuple[Path, ...],
    folder: Path,
    interval: str | None,
    *,
    families: tuple[str, ...] = FAMILIES,
    programs: int,
) -> tuple[dict[str, Any], str]:
    """The answer of verified.py, and its log."""
    out = folder / "answer.json"
    words = ["-m", "tests.integration.verified", str(out), str(programs), ",".join(families)]
    env = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'build'}:{ROOT}",
        "TENSORWRIGHT_PRODUCTS": "always",
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }
    if interval is not None:
        env["TENSORWRIGHT_VERIFY"] = interval
    done = run([arm.python, *words, *libraries], env=env, timeout_s=3000)
    answer: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return answer, done.output


@pytest.mark.parametrize("programs", [12, *later(100)])
def test_right_results_agree(
    stock_arm: Environment, libraries: tuple[Path, ...], tmp_path: Path, programs: int
) -> None:
    answer, log = verified(stock_arm, libraries, tmp_path, "1", programs=programs)
    # Products of infinity are not compared.
    assert all(row["executions"] >= row["verified"] > 0 for row in answer.values())
    assert all(row["verified"] > 0.8 * row["executions"] for row in answer.values())
    assert not any(row["differing"] or row["wrong"] for row in answer.values())
    assert "TENSORWRIGHT_VERIFY" not in log


@pytest.mark.parametrize(
    ("interval", "times"), [("1", 7), ("3", 3), ("7", 1), ("1000", 1), ("0", 0), (None, 0)]
)
def test_the_first_and_every_nth_execution(
    stock_arm: Environment,
    libraries: tuple[Path, ...],
    tmp_path: Path,
    interval: str | None,
    times: int,
) -> None:
    answer, _ = verified(
        stock_arm, libraries, tmp_path, interval, families=("repeated",), programs=1
    )
    assert (answer["repeated"]["executions"], answer["repeated"]["verified"]) == (7, times)


def test_a_value_that_is_no_number(
    stock_arm: Environment, libraries: tuple[Path, ...], tmp_path: Path
) -> None:
    answer, log = verified(
        stock_arm, libraries, tmp_path, "often", families=("updates",), programs=1
    )
    assert answer["updates"]["verified"] == 0 < answer["updates"]["executions"]
    assert log.count("TENSORWRIGHT_VERIFY is not a whole number, so nothing is verified") == 1


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_wrong_results_are_replaced(
    part: str, stock_arm: Environment, wrong_libraries: tuple[Path, ...], tmp_path: Path
) -> None:
    """The library has one wrong operation in each part."""

    def run_programs(interval: str | None) -> tuple[dict[str, Any], str]:
        answer, log = verified(
            stock_arm, wrong_libraries, tmp_path, interval, families=(part,), programs=30
        )
        return answer[part], log

    unverified, _ = run_programs(None)
    assert unverified["wrong"]
    answer, log = run_programs("1")
    assert answer["wrong"] == []
    assert answer["differing"] > 0
    assert log.count("TENSORWRIGHT_VERIFY found other results") == 1
    assert f"fused/{part}" in log
