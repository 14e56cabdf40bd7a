from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.journals import sample

from tfbench.measuring.gates import (
    CLOCK_S,
    CLOCK_SHARE,
    compute_others_share,
    count_reasons,
    list_drop_reasons,
)
from tfbench.measuring.samples import Sample

LITTLE = 1 + 1e-6
WALL_S = 0.25
USED_S = 1.5 * WALL_S  # (what the worker took of two vCPUs in a sample)


def block(**changed: Any) -> tuple[Sample, ...]:
    """ABBA; what is changed is one sample of the second arm."""
    names = ("stock", "tuned", "tuned", "stock")
    clean = [sample(name, position=place, wall_s=WALL_S) for place, name in enumerate(names)]
    return (*clean[:2], dataclasses.replace(clean[2], **changed), clean[3])


def test_a_clean_block_counts() -> None:
    assert list_drop_reasons(block()) == ()


@pytest.mark.parametrize(
    ("within", "beyond", "reason"),
    [
        ({"throttled_s": 0.0}, {"throttled_s": 1e-6}, "throttled"),
        (
            {"elapsed_s": WALL_S + (CLOCK_S + CLOCK_SHARE * WALL_S) / LITTLE},
            {"elapsed_s": WALL_S + (CLOCK_S + CLOCK_SHARE * WALL_S) * LITTLE},
            "clock",
        ),
        (
            {"elapsed_s": WALL_S - (CLOCK_S + CLOCK_SHARE * WALL_S) / LITTLE},
            {"elapsed_s": WALL_S - (CLOCK_S + CLOCK_SHARE * WALL_S) * LITTLE},
            "clock",
        ),
    ],
)
def test_each_gate_alone_drops_a_block_just_beyond_its_limit(
    within: dict[str, float], beyond: dict[str, float], reason: str
) -> None:
    assert list_drop_reasons(block(**within)) == ()
    assert list_drop_reasons(block(**beyond)) == (reason,)


def test_what_fit_takes_beside_its_epochs_is_no_clock_that_disagrees() -> None:
    late = {"elapsed_s": WALL_S + 5.0}
    assert list_drop_reasons(block(**late)) == ("clock",)
    assert list_drop_reasons(block(**late, beside_s=5.0)) == ()


@given(
    meters=st.fixed_dictionaries(
        {},
        optional={
            "throttled_s": st.just(0.1),
            "elapsed_s": st.just(0.5),
        },
    )
)
def test_gates_do_not_know_of_each_other(meters: dict[str, float]) -> None:
    alone = {
        reason
        for name, value in meters.items()
        for reason in list_drop_reasons(block(**{name: value}))
    }
    assert set(list_drop_reasons(block(**meters))) == alone
    assert len(alone) == len(meters)


@pytest.mark.parametrize(
    "meters",
    [
        {"busy_s": 2 * WALL_S},
        {"steal_s": WALL_S},
        {"run_delay_s": 0.2},
        {"canary_s": 0.01},
        {"switches": 1000},
    ],
)
def test_a_busy_or_a_slow_machine_is_no_reason(meters: dict[str, float]) -> None:
    """Whom virtual machines share a CPU with would choose what is left of a run."""
    assert list_drop_reasons(block(**meters)) == ()


def test_reasons_are_counted_with_the_most_frequent_first() -> None:
    actual = [("throttled",), (), ("clock", "throttled"), ("throttled",), ("clock",), ("other",)]
    assert count_reasons(actual) == (("throttled", 3), ("clock", 2), ("other", 1))
    assert count_reasons([(), ()]) == ()


# --- what others took -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("meters", "share"),
    [
        ({}, 0.0),
        ({"busy_s": USED_S + WALL_S / 4}, 1 / 32),
        ({"steal_s": WALL_S / 2}, 1 / 16),
        ({"busy_s": USED_S + WALL_S / 4, "steal_s": WALL_S / 2}, 3 / 32),
        ({"throttled_s": WALL_S}, 0.0),
        ({"run_delay_s": WALL_S}, 0.0),
    ],
)
def test_others_are_a_share_of_what_all_vcpus_had(meters: dict[str, float], share: float) -> None:
    """One sample of four is disturbed; two vCPUs had eight times its wall time."""
    assert compute_others_share(block(**meters)) == pytest.approx(share, abs=1e-12)
    wide = [dataclasses.replace(timed_sample, vcpus=4) for timed_sample in block(**meters)]
    assert compute_others_share(wide) == pytest.approx(share / 2, abs=1e-12)


def test_ticks_that_one_sample_has_too_many_of_and_another_too_few_are_nobodys() -> None:
    first, *remainder = block(busy_s=USED_S + 0.12)
    assert compute_others_share((first, *remainder)) > 0.05
    assert compute_others_share(
        (dataclasses.replace(first, busy_s=USED_S - 0.12), *remainder)
    ) == pytest.approx(0)
    assert compute_others_share((dataclasses.replace(first, busy_s=USED_S - 0.2), *remainder)) == 0


def test_nobody_took_anything_where_nothing_was_timed() -> None:
    assert compute_others_share(()) == 0
