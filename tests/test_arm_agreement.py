"""Whether arms compute the same; tests/test_agreement.py is about the probe's kernels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.measured import LOSSES, PREDICTIONS, REPEAT, STOCK, TUNED, start

from tfbench.arms.arm import TOLERANCE
from tfbench.inside import parameters
from tfbench.measuring.agreement import compare_losses, compare_predictions, compute_agreements
from tfbench.measuring.samples import Start
from tfbuild.comparisons.comparison import Agreement
from tfbuild.errors import SampleError, WorkerError

TOLERANCES = {STOCK.name: TOLERANCE, REPEAT: TOLERANCE, TUNED.name: TOLERANCE}
numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6)


def tuned(found: Sequence[Agreement]) -> Agreement:
    (one,) = (each for each in found if each.arm == TUNED.name)
    return one


# --- differences ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (LOSSES, 0.0),
        ((2.30, 2.25, 2.21, 2.15, 2.205), 0.105 / 2.205),
        ((2.30, -2.25, 2.21, 2.15, 2.10), 2.0),
        ((2.30, 2.25, 2.21, 2.15, None), None),
        ((None,) * 5, None),
    ],
)
def test_the_worst_loss_decides(others: Sequence[float | None], expected: float | None) -> None:
    found = compare_losses(LOSSES, others)
    assert found == (None if expected is None else pytest.approx(expected))
    assert compare_losses(others, LOSSES) == found


def test_losses_that_vanish_in_both_arms_are_equal() -> None:
    assert compare_losses([0.0], [0.0]) == 0
    assert compare_losses([0.0], [1e-13]) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("others", "expected"),
    [((0.1, 0.2, 0.7), 0.0), ((0.1, 0.25, 0.65), 0.05), ((0.1, None, 0.7), None)],
)
def test_the_worst_prediction_decides(
    others: Sequence[float | None], expected: float | None
) -> None:
    found = compare_predictions(PREDICTIONS, others)
    assert found == (None if expected is None else pytest.approx(expected))


@given(one=numbers, other=numbers)
def test_differences_do_not_depend_on_the_direction(one: list[float], other: list[float]) -> None:
    pairs = list(zip(one, other, strict=False))
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    for difference in (compare_losses, compare_predictions):
        found = difference(first, second)
        assert found is not None
        assert found >= 0
        assert found == difference(second, first)
        assert difference(first, first) == 0


@given(values=numbers, share=st.floats(0, 0.5))
def test_a_common_share_is_the_relative_difference(values: list[float], share: float) -> None:
    values = [value if abs(value) > 1e-6 else 1.0 for value in values]
    found = compare_losses(values, [value * (1 - share) for value in values])
    assert found is not None
    assert math.isclose(found, share, abs_tol=1e-12)


@pytest.mark.parametrize("others", [(), LOSSES[:4], (*LOSSES, 2.0)])
def test_unequal_numbers_of_them_cannot_be_compared(others: Sequence[float]) -> None:
    for difference in (compare_losses, compare_predictions):
        with pytest.raises(SampleError):
            difference(LOSSES, others)
        with pytest.raises(SampleError):
            difference(others, LOSSES)


def test_models_that_are_not_trained_have_no_losses_to_differ() -> None:
    assert compare_losses((), ()) == 0


# --- arms -----------------------------------------------------------------------------------------


def test_arms_that_compute_the_same_agree() -> None:
    found = compute_agreements([start(arm) for arm in TOLERANCES], TOLERANCES)
    assert [each.arm for each in found] == [REPEAT, TUNED.name]
    assert all(each.agrees and each.losses == each.predictions == 0 for each in found)


@pytest.mark.parametrize(("share", "agrees"), [(0.5, True), (1 - 1e-6, True), (1.001, False)])
def test_losses_may_differ_by_the_tolerance(share: float, agrees: bool) -> None:
    off = tuple(loss * (1 - share * TOLERANCE) for loss in LOSSES)
    found = tuned(compute_agreements([start("stock"), start("tuned", losses=off)], TOLERANCES))
    assert found.agrees is agrees
    assert found.losses == pytest.approx(share * TOLERANCE, rel=1e-6)
    assert found.predictions == 0


@pytest.mark.parametrize(("share", "agrees"), [(0.5, True), (1.001, False)])
def test_predictions_may_differ_by_the_tolerance(share: float, agrees: bool) -> None:
    off = (*PREDICTIONS[:2], PREDICTIONS[2] + share * TOLERANCE)
    found = tuned(compute_agreements([start("stock"), start("tuned", predictions=off)], TOLERANCES))
    assert found.agrees is agrees
    assert found.predictions == pytest.approx(share * TOLERANCE, rel=1e-6)
    assert found.losses == 0


def test_each_arm_has_a_tolerance_of_its_own() -> None:
    off = tuple(loss * 1.01 for loss in LOSSES)
    wide = TOLERANCES | {TUNED.name: 0.05}
    starts = [start("stock"), start(REPEAT, losses=off), start("tuned", losses=off)]
    found = compute_agreements(starts, wide)
    assert [(each.arm, each.agrees, each.tolerance) for each in found] == [
        (REPEAT, False, TOLERANCE),
        (TUNED.name, True, 0.05),
    ]


def test_another_generation_of_keras_need_not_compute_the_same_but_numbers() -> None:
    off = tuple(loss * 1.5 for loss in LOSSES)
    newer = start("tuned", losses=off)
    newer = dataclasses.replace(newer, facts={**newer.facts, "keras": 3})
    found = tuned(compute_agreements([start("stock"), newer], TOLERANCES))
    assert (found.held, found.agrees) == (False, True)
    assert found.losses == pytest.approx(1 / 3)
    nothing = dataclasses.replace(newer, losses=(None,) * 5)
    assert not tuned(compute_agreements([start("stock"), nothing], TOLERANCES)).agrees


def test_what_is_no_number_in_both_arms_does_not_agree() -> None:
    nothing = (None,) * 5
    starts = [start("stock", losses=nothing), start("tuned", losses=nothing)]
    found = tuned(compute_agreements(starts, TOLERANCES))
    assert found.losses is None
    assert not found.agrees


def test_every_launch_must_agree_and_the_worst_is_told() -> None:
    starts = [
        start(arm, launch, losses=tuple(loss * share for loss in LOSSES))
        for launch, share in enumerate((1.0001, 1.002, 1.0))
        for arm, share in (("stock", 1.0), ("tuned", share))
    ]
    found = tuned(compute_agreements(starts, TOLERANCES))
    assert not found.agrees
    assert found.losses == pytest.approx(0.002, rel=0.01)


def test_one_launch_without_numbers_leaves_none() -> None:
    starts = [
        start(arm, launch, predictions=predictions)
        for launch in range(2)
        for arm, predictions in (
            ("stock", PREDICTIONS),
            ("tuned", PREDICTIONS if launch else (None, 0.2, 0.7)),
        )
    ]
    assert tuned(compute_agreements(starts, TOLERANCES)).predictions is None


def test_launches_are_compared_each_with_its_own_baseline() -> None:
    """Two launches that differ from each other, and do not within."""
    other = tuple(loss * 2 for loss in LOSSES)
    starts = [start(arm, 0) for arm in TOLERANCES]
    starts += [start(arm, 1, losses=other) for arm in TOLERANCES]
    assert all(each.losses == 0 for each in compute_agreements(starts, TOLERANCES))


def test_launches_without_the_baseline_count_for_nothing() -> None:
    off = tuple(loss * 2 for loss in LOSSES)
    starts = [start("stock", 0), start("tuned", 0), start("tuned", 1, losses=off)]
    assert tuned(compute_agreements(starts, TOLERANCES)).agrees
    assert compute_agreements(starts[2:], TOLERANCES) == ()


def test_arms_that_did_not_start_are_not_told_of() -> None:
    assert [
        each.arm for each in compute_agreements([start("stock"), start(REPEAT)], TOLERANCES)
    ] == [REPEAT]


# --- programs that amplify rounding ---------------------------------------------------------------


def nudged(losses: Sequence[float] = LOSSES, predictions: Sequence[float] = PREDICTIONS) -> Start:
    """The repeat's start, from parameters that are one rounding away."""
    return start(REPEAT, losses=losses, predictions=predictions, facts={"nudged": True})


def moved_by(shares: Sequence[float]) -> tuple[float, ...]:
    return tuple(loss * (1 - share) for loss, share in zip(LOSSES, shares, strict=True))


@pytest.mark.parametrize(
    ("own", "agrees"),
    [
        ((0, 0, 0.04, 0.4, 0.6), True),
        ((0, 0, 0.06, 0, 0), False),
        ((0, 2e-3, 0, 0, 0), False),
        ((2e-3, 0, 0, 0, 0), False),
    ],
)
def test_a_loss_may_differ_by_ten_times_what_rounding_does_to_it(
    own: Sequence[float], agrees: bool
) -> None:
    once = nudged(moved_by((0, 1e-6, 0.005, 0.05, 0.07)))
    starts = [start("stock"), once, start("tuned", losses=moved_by(own))]
    assert tuned(compute_agreements(starts, TOLERANCES)).agrees is agrees


def test_differences_that_rounding_explains_stand_apart_from_those_that_it_does_not() -> None:
    once = nudged(moved_by((0, 0, 1e-5, 0, 0.05)))
    other = start("tuned", losses=moved_by((0, 5e-4, 1e-4, 0, 0.1)))
    found = tuned(compute_agreements([start("stock"), once, other], TOLERANCES))
    assert found.losses == pytest.approx(5e-4, rel=1e-3)
    assert found.losses_by_rounding == found.losses_apart == pytest.approx(0.1)
    assert (found.agrees, found.is_excused) == (True, True)


def test_predictions_may_differ_by_ten_times_what_rounding_does_to_them() -> None:
    once = nudged(predictions=(*PREDICTIONS[:2], PREDICTIONS[2] + 1e-3))
    for away, agrees in ((9e-3, True), (11e-3, False)):
        other = start("tuned", predictions=(PREDICTIONS[0] + away, *PREDICTIONS[1:]))
        found = tuned(compute_agreements([start("stock"), once, other], TOLERANCES))
        assert (found.agrees, found.is_excused) == (agrees, agrees)
        assert found.predictions_apart == pytest.approx(away)


def test_a_first_loss_that_one_rounding_moves_is_no_program_but_a_broken_machine() -> None:
    starts = [start("stock"), nudged(moved_by((0.01, 0, 0, 0, 0))), start("tuned")]
    (repeat, _) = compute_agreements(starts, TOLERANCES)
    assert (repeat.arm, repeat.agrees) == (REPEAT, False)


def test_a_repeat_that_is_not_nudged_widens_nothing() -> None:
    off = moved_by((0, 0.05, 0, 0, 0))
    starts = [start("stock"), start(REPEAT, losses=off), start("tuned", losses=off)]
    assert [each.agrees for each in compute_agreements(starts, TOLERANCES)] == [False, False]


@given(values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=9))
def test_nudged_numbers_are_at_most_one_rounding_away(values: list[float]) -> None:
    given_ = np.array(values, np.float32)
    with np.errstate(over="ignore", under="ignore"):
        moved = parameters.nudge_values(given_, 1)
        near = [np.nextafter(given_, np.float32(side)) for side in (-np.inf, np.inf)]
    assert moved.dtype == given_.dtype
    assert ((moved == given_) | (moved == near[0]) | (moved == near[1])).all()
    assert (moved[given_ == 0] == 0).all()


def test_nearly_all_parameters_are_nudged_and_what_is_no_float_is_not() -> None:
    drawn = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    moved = parameters.nudge_values(drawn, 1)
    assert np.mean(moved != drawn) > 0.99
    assert 0.3 < np.mean(moved > drawn) / np.mean(moved != drawn) < 0.7
    assert parameters.nudge_values(np.array(1.5, np.float32), 1) != 1.5
    words = np.array(["a", "b"])
    assert parameters.nudge_values(words, 1) is words


def test_unequal_data_or_parameters_are_an_error_that_names_the_arm() -> None:
    other = start("tuned", facts={"inputs_sha256": "other"})
    with pytest.raises(WorkerError, match=r"stock and tuned .*NumPy") as caught:
        compute_agreements([start("stock"), start(REPEAT), other], TOLERANCES)
    assert caught.value.arm == TUNED.name
