from __future__ import annotations

import tomllib

import pytest

from tfbench.arms import lineup
from tfbench.reports.ladder import find_ladder

LINEUP = lineup.PRESETS / "ladder.toml"


def test_the_shipped_lineup_is_a_ladder() -> None:
    arms = tomllib.loads(LINEUP.read_text(encoding="utf-8"))["arm"]
    ladder = find_ladder([arm["name"] for arm in arms])
    assert ladder is not None
    assert ladder.wheels == ("stock", "tuned")
    assert ladder.rungs == ("compiled", "gemm", "onednn")
    for arm in arms:
        rung = next(rung for (rung, _), name in ladder.arms.items() if name == arm["name"])
        assert ladder.find_arm(rung, arm["wheel"]) == arm["name"]


def test_a_rung_may_lack_a_wheel() -> None:
    ladder = find_ladder(["stock-a", "stock-b", "tuned-a", "tuned-b", "stock-c"])
    assert ladder is not None
    assert ladder.rungs == ("a", "b", "c")
    assert ladder.find_arm("c", "tuned") == ""


def test_other_arms_may_stand_beside_a_ladder() -> None:
    ladder = find_ladder(["stock-a", "stock-b", "mkl-a", "mkl-b", "old-2.13"])
    assert ladder is not None
    assert (ladder.wheels, ladder.rungs) == (("stock",), ("a", "b"))


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["stock", "tuned"],
        ["stock", "control", "tuned"],
        ["stock-2.13", "tuned-2.14"],
        ["stock-a", "stock-b", "tuned-a"],
        ["-a", "-b", "stock-", "tuned-"],
        ["tensorflow-2.13", "tensorflow-2.14", "intel-2.13", "intel-2.14"],
    ],
)
def test_other_arms_are_no_ladder(names: list[str]) -> None:
    assert find_ladder(names) is None
