"""Decisions are stored with a comparison, and are the same for an older one, which has none."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders import report_comparisons
from tests.builders.comparisons import spread

from tfcore.comparisons.comparison import Comparison, Gates, load, save
from tfcore.comparisons.deciding import decide, find_decision, find_mean_decision, list_decisions
from tfcore.comparisons.decision import Decision, Reason
from tfcore.comparisons.interval import Verdict
from tfcore.records import convert_record

TROUBLED = report_comparisons.troubled()


def list_all(comparison: Comparison) -> list[Decision]:
    cells = [list_decisions(comparison, cell) for cell in comparison.cells]
    means = [find_mean_decision(comparison, overall) for overall in comparison.overall]
    return [*(decision for decisions in cells for decision in decisions), *means]


def without_decisions(comparison: Comparison) -> dict[str, Any]:
    """The comparison as an older version wrote it."""
    fields: dict[str, Any] = convert_record(comparison)
    for cell in fields["cells"]:
        del cell["decisions"]
    for overall in fields["overall"]:
        del overall["decision"]
    return fields


@pytest.mark.parametrize(
    "comparison", [report_comparisons.sound(), TROUBLED, report_comparisons.climbed()]
)
def test_an_older_comparison_has_the_decisions_that_a_new_one_stores(
    comparison: Comparison, tmp_path: Path
) -> None:
    decided = decide(comparison)
    assert [decision for cell in decided.cells for decision in cell.decisions]
    path = tmp_path / "comparison.json"
    save(path, decided)
    assert load(path) == decided
    path.write_text(json.dumps(without_decisions(decided)), encoding="utf-8")
    older = load(path)
    assert older == comparison
    assert list_all(older) == list_all(decided)
    assert decide(older) == decide(decided) == decided


def test_a_stored_decision_is_not_made_again() -> None:
    decided = decide(report_comparisons.single(spread(1.25, 0.01)))
    (cell,), (overall,) = decided.cells, decided.overall
    stored = dataclasses.replace(cell.decisions[0], reason=Reason.WITHIN_LIMIT, noise_floor=0.5)
    other = dataclasses.replace(
        decided,
        cells=(dataclasses.replace(cell, decisions=(stored,)),),
        overall=(dataclasses.replace(overall, decision=stored),),
    )
    assert list_all(other) == [stored, stored]


@pytest.mark.parametrize(
    ("speedup", "noise", "verdict", "reason"),
    [
        (1.25, 0.006, Verdict.FASTER, Reason.BEYOND_LIMIT),
        (1.25, 0.03, Verdict.FASTER, Reason.BEYOND_LIMIT),
        (0.9, 0.006, Verdict.SLOWER, Reason.BEYOND_LIMIT),
        (1.015, 0.018, Verdict.EQUIVALENT, Reason.WITHIN_LIMIT),
        (1.05, 0.06, Verdict.INCONCLUSIVE, Reason.HIGH_LIMIT),
        (1.009, 0.006, Verdict.EQUIVALENT, Reason.WITHIN_LIMIT),
        (1.001, 0.006, Verdict.EQUIVALENT, Reason.WITHIN_MARGIN),
        (1.03, 0.006, Verdict.INCONCLUSIVE, Reason.LIKELY_FASTER),
        (0.97, 0.006, Verdict.INCONCLUSIVE, Reason.LIKELY_SLOWER),
        (1.015, 0.006, Verdict.INCONCLUSIVE, Reason.WIDE),
    ],
)
def test_the_reason_is_the_rule_that_gave_the_verdict(
    speedup: float, noise: float, verdict: Verdict, reason: Reason
) -> None:
    width = 0.035 if verdict is Verdict.INCONCLUSIVE else 0.004
    comparison = report_comparisons.single(spread(speedup, width), spread(1.0, noise))
    decision = find_decision(comparison, comparison.cells[0], "tuned")
    assert (decision.verdict, decision.reason) == (verdict, reason)
    assert decision.noise_floor == pytest.approx(noise)


def test_an_arm_without_times_has_no_verdict() -> None:
    failed, different, unstarted = (
        {decision.arm: decision for decision in list_decisions(TROUBLED, cell)}
        for cell in TROUBLED.cells[:3]
    )
    assert (failed["mkl"].verdict, failed["mkl"].reason) == (None, Reason.FAILED)
    assert (different["tuned"].verdict, different["tuned"].reason) == (None, Reason.DIFFERENT)
    assert {arm: decision.reason for arm, decision in unstarted.items()} == {
        **dict.fromkeys(("control", "tuned", "mkl"), Reason.NOT_TIMED),
        "stock": Reason.FAILED,
    }
    assert unstarted["tuned"].noise_floor is None


def test_an_arm_that_computes_something_else_in_a_cell_does_so_in_every_mean() -> None:
    means = [find_mean_decision(TROUBLED, overall) for overall in TROUBLED.overall]
    reasons = {mean.reason for mean in means if mean.arm == "tuned"}
    assert [mean.verdict for mean in means if mean.arm == "tuned"] == [Verdict.FASTER] * 2
    assert reasons == {Reason.DIFFERENT}


@pytest.mark.parametrize(("vcpus", "expected"), [(2, Reason.OVER_GATED), (1, Reason.HIGH_LIMIT)])
def test_a_mean_lacks_a_verdict_where_gates_dropped_too_many_blocks(
    vcpus: int, expected: Reason
) -> None:
    """Whatever its interval, and only on that number of vCPUs."""
    cells = [report_comparisons.cell("mnist_mlp", number, {"tuned": 1.5}) for number in (1, 2)]
    comparison = report_comparisons.comparison(cells[0], report_comparisons.dropped(cells[1]))
    unclear = dataclasses.replace(
        comparison.overall[vcpus - 1],
        speedup=report_comparisons.speedup(
            "tuned", spread(1.5, 0.01), spread(1.0, 0.01), fair=False
        ),
    )
    assert find_mean_decision(comparison, unclear).reason is expected


@pytest.mark.parametrize(
    ("dropped", "counting", "expected"),
    [(3, 37, False), (3, 40, True), (17, 40, True), (3, None, False), (17, None, True)],
)
def test_a_cell_is_over_gated_if_all_its_blocks_count(
    dropped: int, counting: int | None, expected: bool
) -> None:
    gates = Gates(dropped=dropped, reasons=(("clock", dropped),), counting=counting)
    cell = dataclasses.replace(report_comparisons.cell("mnist_mlp", 2, {"tuned": 1.5}), gates=gates)
    assert cell.is_over_gated == expected
