from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.comparisons import arm, cell, comparison, host

from tfbench.measuring.merging import Part, merge_comparisons
from tfcore.comparisons.comparison import Agreement, Comparison
from tfcore.comparisons.deciding import decide
from tfcore.comparisons.decision import Reason
from tfcore.comparisons.effort import Effort
from tfcore.comparisons.interval import Verdict
from tfcore.errors import HostError, UsageError
from tfcore.records import format_canonical

WORKLOADS = ("mnist_mlp", "mnist_cnn", "lstm_text")


def machine(vcpus: int, *workloads: str, **fields: object) -> Comparison:
    cells = (cell(name, vcpus) for name in workloads or WORKLOADS[:2])
    return decide(comparison(*cells, **fields))


def test_machines_of_several_sizes_make_one_comparison() -> None:
    effort = Effort(looks=(3,), blocks=6)
    small = machine(2, seconds=60.0, made="2026-01-03", effort=effort)
    large = machine(16, seconds=30.0, made="2026-01-02")
    measured_comparison = merge_comparisons([("a16", large), ("a2", small)])
    assert [
        (compared_cell.workload, compared_cell.vcpus) for compared_cell in measured_comparison.cells
    ] == [
        ("mnist_mlp", 2),
        ("mnist_cnn", 2),
        ("mnist_mlp", 16),
        ("mnist_cnn", 16),
    ]
    assert measured_comparison.cells == (*small.cells, *large.cells)
    assert measured_comparison.overall == (*small.overall, *large.overall)
    assert measured_comparison.parts == ("a16", "a2")
    assert (measured_comparison.seconds, measured_comparison.made) == (90.0, "2026-01-03")
    assert measured_comparison.host == large.host
    assert measured_comparison.effort == effort
    assert measured_comparison.complete


def test_a_mean_is_decided_again_with_the_cells_of_the_other_parts() -> None:
    wrong = Agreement(arm="tuned", losses=1.0, predictions=1.0, tolerance=1e-3)
    small = machine(2)
    different = decide(
        dataclasses.replace(
            machine(4),
            cells=(dataclasses.replace(cell(vcpus=4), agreements=(wrong,)),),
        )
    )
    merged = merge_comparisons([("a", small), ("b", different)])
    reasons = [overall.decision and overall.decision.reason for overall in merged.overall]
    assert reasons == [Reason.DIFFERENT] * 2


def test_one_part_that_is_not_complete_leaves_the_whole_incomplete() -> None:
    assert not merge_comparisons([("a", machine(2)), ("b", machine(4, complete=False))]).complete


def test_workloads_may_be_shared_out_between_machines_of_one_size() -> None:
    measured_comparison = merge_comparisons(
        [("a", machine(2, "mnist_mlp")), ("b", machine(2, "lstm_text"))]
    )
    assert [compared_cell.workload for compared_cell in measured_comparison.cells] == [
        "mnist_mlp",
        "lstm_text",
    ]
    (mean,) = measured_comparison.overall
    assert (mean.vcpus, mean.workloads, mean.speedup.arm) == (2, 2, "tuned")


def test_a_mean_over_several_parts_has_a_weight_per_workload() -> None:
    first, second = machine(2, "mnist_mlp", "mnist_cnn"), machine(2, "lstm_text")
    (row,) = first.overall
    first = dataclasses.replace(first, overall=(dataclasses.replace(row, workloads=2),))
    (mean,) = merge_comparisons([("a", first), ("b", second)]).overall
    values = [part.overall[0].speedup.interval for part in (first, second)]
    expected = (2 * math.log(values[0].value) + math.log(values[1].value)) / 3
    assert mean.workloads == 3
    assert math.log(mean.speedup.interval.value) == pytest.approx(expected)
    half = math.hypot(2 * values[0].half_width, values[1].half_width) / 3
    assert mean.speedup.interval.half_width == pytest.approx(half)
    assert mean.noise.half_width < max(part.overall[0].noise.half_width for part in (first, second))
    assert mean.decision is not None
    assert mean.decision.verdict == mean.speedup.verdict


def test_dropped_blocks_of_one_part_leave_the_mean_without_a_verdict() -> None:
    first, second = machine(2, "mnist_mlp"), machine(2, "lstm_text")
    (row,) = first.overall
    unclear = dataclasses.replace(row.speedup, verdict=Verdict.INCONCLUSIVE, confidence=0.0)
    first = dataclasses.replace(
        first, overall=(dataclasses.replace(row, speedup=unclear, decision=None),)
    )
    (mean,) = merge_comparisons([("a", first), ("b", second)]).overall
    assert (mean.speedup.verdict, mean.speedup.confidence) == (Verdict.INCONCLUSIVE, 0.0)


def test_what_was_merged_merges_again_under_its_own_parts() -> None:
    two = merge_comparisons([("a", machine(2)), ("b", machine(4))])
    three = merge_comparisons([("ignored", two), ("c", machine(8))])
    assert three.parts == ("a", "b", "c")
    assert three == merge_comparisons([("a", machine(2)), ("b", machine(4)), ("c", machine(8))])


def ordered(merged: Comparison) -> str:
    """Everything, in an order that is not that of the parts."""
    return format_canonical(
        dataclasses.replace(
            merged,
            parts=tuple(sorted(merged.parts)),
            cells=tuple(sorted(merged.cells, key=format_canonical)),
            overall=tuple(sorted(merged.overall, key=format_canonical)),
        )
    )


@given(
    seconds=st.lists(st.floats(0, 1e6), min_size=4, max_size=4),
    sizes=st.lists(st.integers(1, 4), min_size=4, max_size=4),
    complete=st.lists(st.booleans(), min_size=4, max_size=4),
    order=st.permutations(range(4)),
)
def test_the_order_of_parts_is_only_that_of_their_names(
    seconds: list[float], sizes: list[int], complete: list[bool], order: list[int]
) -> None:
    parts: list[Part] = [
        (
            f"p{number}",
            machine(
                sizes[number],
                f"w{number}",
                seconds=seconds[number],
                complete=complete[number],
                made=f"2026-0{number + 1}",
                arms=(arm("stock", label=f"of p{number}"), arm("tuned")),
                effort=Effort(looks=(3, 6 + number % 2), blocks=6 + number // 2),
            ),
        )
        for number in range(4)
    ]
    measured_comparison, second = (
        merge_comparisons(parts),
        merge_comparisons([parts[number] for number in order]),
    )
    assert ordered(measured_comparison) == ordered(second)
    assert [compared_cell.vcpus for compared_cell in measured_comparison.cells] == sorted(sizes)
    assert measured_comparison.complete == all(complete)
    assert math.isclose(measured_comparison.seconds, sum(seconds))


@pytest.mark.parametrize("parts", [[], [("a", machine(2))]])
def test_one_is_not_merged(parts: list[Part]) -> None:
    with pytest.raises(UsageError, match="cannot merge"):
        merge_comparisons(parts)


def test_a_part_is_not_merged_with_itself() -> None:
    with pytest.raises(UsageError, match="itself"):
        merge_comparisons([("a", machine(2)), ("a", machine(4))])


def test_a_cell_stands_once() -> None:
    with pytest.raises(UsageError, match=r"mnist_cnn on 2 vCPUs .* a and c"):
        merge_comparisons(
            [
                ("a", machine(2, "mnist_mlp", "mnist_cnn")),
                ("b", machine(4)),
                ("c", machine(2, "mnist_cnn")),
            ]
        )


def test_machines_of_two_kinds_are_refused_and_every_difference_is_named() -> None:
    other_host = host(4, kernel="6.2.0", clocksource="hpet")
    with pytest.raises(HostError) as caught:
        merge_comparisons(
            [("a", machine(2)), ("b", machine(4)), ("c", machine(8, host=other_host))]
        )
    assert caught.value.message.startswith("cannot merge a and c: ")
    assert caught.value.message.endswith(": kernel (6.1.0 vs. 6.2.0); clocksource (tsc vs. hpet)")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"seed": 2}, "seed differs (1 vs. 2)"),
        ({"margin": 0.05}, "margin differs (0.02 vs. 0.05)"),
        ({"threshold": 0.0}, "threshold differs (0.01 vs. 0.0)"),
        ({"level": 0.99}, "level differs (0.95 vs. 0.99)"),
        ({"arms": (arm("stock"),)}, "their arms differ (stock, tuned vs. stock)"),
        (
            {"arms": (arm("tuned"), arm("stock"))},
            "their arms differ (stock, tuned vs. tuned, stock)",
        ),
        (
            {"arms": (arm("stock", numpy="2.0"), arm("tuned", wheel_sha256="abc"))},
            "stock: numpy (1.26.4 vs. 2.0); tuned: wheel_sha256 (tuned-sha256 vs. abc)",
        ),
    ],
)
def test_what_was_asked_otherwise_is_refused_and_named(
    fields: dict[str, object], expected: str
) -> None:
    with pytest.raises(UsageError) as caught:
        merge_comparisons([("a", machine(2)), ("b", machine(4, **fields))])
    assert expected in caught.value.message


def test_runs_in_which_no_arm_started_merge() -> None:
    parts = [("a", machine(2, arms=())), ("b", machine(4, arms=()))]
    assert merge_comparisons(parts).arms == ()
    with pytest.raises(UsageError, match="their arms differ"):
        merge_comparisons([parts[0], ("b", machine(4))])


def test_candidates_may_stand_in_another_order() -> None:
    names = ("stock", "control", "tuned")
    measured_comparison = machine(2, arms=tuple(map(arm, names)))
    second = machine(4, arms=tuple(map(arm, ("stock", "tuned", "control"))))
    assert [
        facts.name for facts in merge_comparisons([("a", measured_comparison), ("b", second)]).arms
    ] == [
        "stock",
        "tuned",
        "control",
    ]
