from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.measured import sample

from tfbench.measuring.gates import CANARY, CLOCK_S, CLOCK_SHARE, OTHERS, STEAL, counted, reasons
from tfbench.measuring.samples import Sample

LITTLE = 1 + 1e-6
WALL_S = 0.25
BLOCK_S = 4 * WALL_S * 2  # (what two vCPUs have in a block)
USED_S = 1.5 * WALL_S  # (what the worker took of it in a sample)


def block(**changed: Any) -> tuple[Sample, ...]:  # noqa: ANN401
    """ABBA; what is changed is one sample of the second arm."""
    names = ("stock", "tuned", "tuned", "stock")
    clean = [sample(name, position=place, wall_s=WALL_S) for place, name in enumerate(names)]
    return (*clean[:2], dataclasses.replace(clean[2], **changed), clean[3])


def test_a_clean_block_counts() -> None:
    assert reasons(block()) == ()


@pytest.mark.parametrize(
    ("within", "beyond", "reason"),
    [
        (
            {"busy_s": USED_S + OTHERS * BLOCK_S / LITTLE},
            {"busy_s": USED_S + OTHERS * BLOCK_S * LITTLE},
            "other processes",
        ),
        (
            {"steal_s": STEAL * BLOCK_S / LITTLE},
            {"steal_s": STEAL * BLOCK_S * LITTLE},
            "steal",
        ),
        ({"throttled_s": 0.0}, {"throttled_s": 1e-6}, "throttled"),
        (
            {"canary_s": 0.001 * (1 + CANARY)},
            {"canary_s": 0.001 * (1 + CANARY) * LITTLE},
            "speed changed",
        ),
        (
            {"canary_s": 0.001 / (1 + CANARY) * LITTLE},
            {"canary_s": 0.001 / (1 + CANARY) / LITTLE},
            "speed changed",
        ),
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
    assert reasons(block(**within)) == ()
    assert reasons(block(**beyond)) == (reason,)


@given(
    meters=st.fixed_dictionaries(
        {},
        optional={
            "busy_s": st.just(0.6),
            "steal_s": st.just(0.1),
            "throttled_s": st.just(0.1),
            "canary_s": st.just(0.002),
            "elapsed_s": st.just(0.5),
        },
    )
)
def test_gates_do_not_know_of_each_other(meters: dict[str, float]) -> None:
    alone = {reason for name, value in meters.items() for reason in reasons(block(**{name: value}))}
    assert set(reasons(block(**meters))) == alone
    assert len(alone) == len(meters)


def test_what_others_took_is_a_share_of_all_vcpus() -> None:
    """On four vCPUs twice as much may be lost as on two."""
    lost = {
        "busy_s": USED_S + 1.5 * OTHERS * BLOCK_S,
        "steal_s": 1.5 * STEAL * BLOCK_S,
    }
    assert reasons(block(**lost)) == ("other processes", "steal")
    wide = tuple(dataclasses.replace(each, vcpus=4) for each in block(**lost))
    assert reasons(wide) == ()


def test_ticks_that_one_sample_has_too_many_of_and_another_too_few_are_nobodys() -> None:
    first, *rest = block(busy_s=USED_S + 0.12)
    assert reasons((first, *rest)) == ("other processes",)
    assert reasons((dataclasses.replace(first, busy_s=USED_S - 0.12), *rest)) == ()


def test_threads_of_the_worker_that_wait_for_each_other_are_no_reason() -> None:
    assert reasons(block(run_delay_s=0.2)) == ()


def test_two_arms_may_have_two_canaries() -> None:
    pythons = {"stock": 0.001, "tuned": 0.002}
    found = tuple(dataclasses.replace(each, canary_s=pythons[each.arm]) for each in block())
    assert reasons(found) == ()


def test_reasons_are_counted_with_the_most_frequent_first() -> None:
    found = [("steal",), (), ("clock", "steal"), ("steal",), ("clock",), ("throttled",)]
    assert counted(found) == (("steal", 3), ("clock", 2), ("throttled", 1))
    assert counted([(), ()]) == ()
