"""Agreement of arms; tests/tfbuild/probe/test_agreement.py tests that of kernels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.journals import LOSSES, PREDICTIONS, REPEAT, STOCK, TUNED, start

from tfbench.arms.arm import TOLERANCE
from tfbench.inside import parameters
from tfbench.measuring.agreement import compare_losses, compare_predictions, compute_agreements
from tfbench.measuring.samples import Start
from tfcore.comparisons.comparison import Agreement
from tfcore.errors import SampleError, WorkerError

TOLERANCES = {STOCK.name: TOLERANCE, REPEAT: TOLERANCE, TUNED.name: TOLERANCE}
numbers = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6)


def tuned(agreements: Sequence[Agreement]) -> Agreement:
    (agreement,) = (
        arm_agreement for arm_agreement in agreements if arm_agreement.arm == TUNED.name
    )
    return agreement


# --- differences ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other_values", "expected"),
    [
        (LOSSES, 0.0),
        ((2.30, 2.25, 2.21, 2.15, 2.205), 0.105 / 2.205),
        ((2.30, -2.25, 2.21, 2.15, 2.10), 2.0),
        ((2.30, 2.25, 2.21, 2.15, None), None),
        ((None,) * 5, None),
    ],
)
def test_the_worst_loss_decides(
    other_values: Sequence[float | None], expected: float | None
) -> None:
    differences = compare_losses(LOSSES, other_values)
    assert differences == (None if expected is None else pytest.approx(expected))
    assert compare_losses(other_values, LOSSES) == differences


def test_losses_that_vanish_in_both_arms_are_equal() -> None:
    assert compare_losses([0.0], [0.0]) == 0
    assert compare_losses([0.0], [1e-13]) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("other_values", "expected"),
    [((0.1, 0.2, 0.7), 0.0), ((0.1, 0.25, 0.65), 0.05), ((0.1, None, 0.7), None)],
)
def test_the_worst_prediction_decides(
    other_values: Sequence[float | None], expected: float | None
) -> None:
    differences = compare_predictions(PREDICTIONS, other_values)
    assert differences == (None if expected is None else pytest.approx(expected))


@given(values=numbers, changed=numbers)
def test_differences_do_not_depend_on_the_direction(
    values: list[float], changed: list[float]
) -> None:
    pairs = list(zip(values, changed, strict=False))
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    for difference in (compare_losses, compare_predictions):
        actual = difference(first, second)
        assert actual is not None
        assert actual >= 0
        assert actual == difference(second, first)
        assert difference(first, first) == 0


@given(values=numbers, share=st.floats(0, 0.5))
def test_a_common_share_is_the_relative_difference(values: list[float], share: float) -> None:
    values = [value if abs(value) > 1e-6 else 1.0 for value in values]
    differences = compare_losses(values, [value * (1 - share) for value in values])
    assert differences is not None
    assert math.isclose(differences, share, abs_tol=1e-12)


@pytest.mark.parametrize("other_values", [(), LOSSES[:4], (*LOSSES, 2.0)])
def test_unequal_numbers_of_them_cannot_be_compared(other_values: Sequence[float]) -> None:
    for difference in (compare_losses, compare_predictions):
        with pytest.raises(SampleError):
            difference(LOSSES, other_values)
        with pytest.raises(SampleError):
            difference(other_values, LOSSES)


def test_models_that_are_not_trained_have_no_losses_to_differ() -> None:
    assert compare_losses((), ()) == 0


def test_models_without_call_have_no_predictions_to_differ() -> None:
    assert compare_predictions((), ()) == 0
    starts = [start(arm, predictions=()) for arm in TOLERANCES]
    starts[1] = dataclasses.replace(starts[1], facts={**starts[1].facts, "nudged": True})
    agreement = tuned(compute_agreements(starts, TOLERANCES))
    assert (agreement.agrees, agreement.predictions) == (True, 0)


# --- arms -----------------------------------------------------------------------------------------


def test_arms_that_compute_the_same_agree() -> None:
    agreements = compute_agreements([start(arm) for arm in TOLERANCES], TOLERANCES)
    assert [agreement.arm for agreement in agreements] == [REPEAT, TUNED.name]
    assert all(
        agreement.agrees and agreement.losses == agreement.predictions == 0
        for agreement in agreements
    )


@pytest.mark.parametrize(("share", "agrees"), [(0.5, True), (1 - 1e-6, True), (1.001, False)])
def test_losses_may_differ_by_the_tolerance(share: float, agrees: bool) -> None:
    off = tuple(loss * (1 - share * TOLERANCE) for loss in LOSSES)
    agreement = tuned(compute_agreements([start("stock"), start("tuned", losses=off)], TOLERANCES))
    assert agreement.agrees is agrees
    assert agreement.losses == pytest.approx(share * TOLERANCE, rel=1e-6)
    assert agreement.predictions == 0


@pytest.mark.parametrize(("share", "agrees"), [(0.5, True), (1.001, False)])
def test_predictions_may_differ_by_the_tolerance(share: float, agrees: bool) -> None:
    off = (*PREDICTIONS[:2], PREDICTIONS[2] + share * TOLERANCE)
    agreement = tuned(
        compute_agreements([start("stock"), start("tuned", predictions=off)], TOLERANCES)
    )
    assert agreement.agrees is agrees
    assert agreement.predictions == pytest.approx(share * TOLERANCE, rel=1e-6)
    assert agreement.losses == 0


def test_each_arm_has_a_tolerance_of_its_own() -> None:
    off = tuple(loss * 1.01 for loss in LOSSES)
    wide = TOLERANCES | {TUNED.name: 0.05}
    starts = [start("stock"), start(REPEAT, losses=off), start("tuned", losses=off)]
    agreements = compute_agreements(starts, wide)
    assert [(agreement.arm, agreement.agrees, agreement.tolerance) for agreement in agreements] == [
        (REPEAT, False, TOLERANCE),
        (TUNED.name, True, 0.05),
    ]


def test_another_generation_of_keras_need_not_compute_the_same_but_numbers() -> None:
    off = tuple(loss * 1.5 for loss in LOSSES)
    newer = start("tuned", losses=off)
    newer = dataclasses.replace(newer, facts={**newer.facts, "keras": 3})
    agreement = tuned(compute_agreements([start("stock"), newer], TOLERANCES))
    assert (agreement.held, agreement.agrees) == (False, True)
    assert agreement.losses == pytest.approx(1 / 3)
    nothing = dataclasses.replace(newer, losses=(None,) * 5)
    assert not tuned(compute_agreements([start("stock"), nothing], TOLERANCES)).agrees


def test_what_is_no_number_in_both_arms_does_not_agree() -> None:
    nothing = (None,) * 5
    starts = [start("stock", losses=nothing), start("tuned", losses=nothing)]
    agreement = tuned(compute_agreements(starts, TOLERANCES))
    assert agreement.losses is None
    assert not agreement.agrees


def test_every_launch_must_agree_and_the_worst_is_told() -> None:
    starts = [
        start(arm, launch, losses=tuple(loss * share for loss in LOSSES))
        for launch, share in enumerate((1.0001, 1.002, 1.0))
        for arm, share in (("stock", 1.0), ("tuned", share))
    ]
    agreement = tuned(compute_agreements(starts, TOLERANCES))
    assert not agreement.agrees
    assert agreement.losses == pytest.approx(0.002, rel=0.01)


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
    other_values = tuple(loss * 2 for loss in LOSSES)
    starts = [start(arm, 0) for arm in TOLERANCES]
    starts += [start(arm, 1, losses=other_values) for arm in TOLERANCES]
    assert all(agreement.losses == 0 for agreement in compute_agreements(starts, TOLERANCES))


def test_launches_without_the_baseline_count_for_nothing() -> None:
    off = tuple(loss * 2 for loss in LOSSES)
    starts = [start("stock", 0), start("tuned", 0), start("tuned", 1, losses=off)]
    assert tuned(compute_agreements(starts, TOLERANCES)).agrees
    assert compute_agreements(starts[2:], TOLERANCES) == ()


def test_arms_that_did_not_start_are_not_told_of() -> None:
    assert [
        agreement.arm
        for agreement in compute_agreements([start("stock"), start(REPEAT)], TOLERANCES)
    ] == [REPEAT]


# --- programs that amplify rounding ---------------------------------------------------------------


def nudged(losses: Sequence[float] = LOSSES, predictions: Sequence[float] = PREDICTIONS) -> Start:
    """The repeat's start, from parameters that are one rounding away."""
    return start(REPEAT, losses=losses, predictions=predictions, facts={"nudged": True})


def moved_by(shares: Sequence[float]) -> tuple[float, ...]:
    return tuple(loss * (1 - share) for loss, share in zip(LOSSES, shares, strict=True))


@pytest.mark.parametrize(
    ("own_values", "agrees"),
    [
        ((0, 0, 0.04, 0.4, 0.6), True),
        ((0, 0, 0.06, 0, 0), False),
        ((0, 2e-3, 0, 0, 0), False),
        ((2e-3, 0, 0, 0, 0), False),
    ],
)
def test_a_loss_may_differ_by_ten_times_what_rounding_does_to_it(
    own_values: Sequence[float], agrees: bool
) -> None:
    once = nudged(moved_by((0, 1e-6, 0.005, 0.05, 0.07)))
    starts = [start("stock"), once, start("tuned", losses=moved_by(own_values))]
    assert tuned(compute_agreements(starts, TOLERANCES)).agrees is agrees


def test_differences_that_rounding_explains_stand_apart_from_those_that_it_does_not() -> None:
    once = nudged(moved_by((0, 0, 1e-5, 0, 0.05)))
    other_start = start("tuned", losses=moved_by((0, 5e-4, 1e-4, 0, 0.1)))
    agreement = tuned(compute_agreements([start("stock"), once, other_start], TOLERANCES))
    assert agreement.losses == pytest.approx(5e-4, rel=1e-3)
    assert agreement.losses_by_rounding == agreement.losses_apart == pytest.approx(0.1)
    assert (agreement.agrees, agreement.is_excused) == (True, True)


def test_predictions_may_differ_by_ten_times_what_rounding_does_to_them() -> None:
    once = nudged(predictions=(*PREDICTIONS[:2], PREDICTIONS[2] + 1e-3))
    for away, agrees in ((9e-3, True), (11e-3, False)):
        other_start = start("tuned", predictions=(PREDICTIONS[0] + away, *PREDICTIONS[1:]))
        agreement = tuned(compute_agreements([start("stock"), once, other_start], TOLERANCES))
        assert (agreement.agrees, agreement.is_excused) == (agrees, agrees)
        assert agreement.predictions_apart == pytest.approx(away)


def test_a_first_loss_that_one_rounding_moves_is_no_program_but_a_broken_machine() -> None:
    starts = [start("stock"), nudged(moved_by((0.01, 0, 0, 0, 0))), start("tuned")]
    (repeat, _) = compute_agreements(starts, TOLERANCES)
    assert (repeat.arm, repeat.agrees) == (REPEAT, False)


@pytest.mark.parametrize(("own_share", "agrees"), [(0.004, True), (0.07, True), (0.09, False)])
def test_the_loss_of_a_first_epoch_may_differ_by_ten_times_what_rounding_does_to_it(
    own_share: float, agrees: bool
) -> None:
    """It is a mean over all updates of the epoch, and the only loss that `fit` has."""
    shares = {STOCK.name: 0.0, REPEAT: 0.008, TUNED.name: own_share}
    starts = [
        start(
            arm,
            workload="own:mobilenet.py:fit=1",
            losses=(1 - share,),
            facts={"nudged": arm == REPEAT},
        )
        for arm, share in shares.items()
    ]
    repeat, agreement = compute_agreements(starts, TOLERANCES)
    assert (repeat.agrees, agreement.agrees) == (True, agrees)
    assert agreement.is_excused is agrees
    assert agreement.losses_apart == pytest.approx(own_share)


def test_a_repeat_that_is_not_nudged_widens_nothing() -> None:
    off = moved_by((0, 0.05, 0, 0, 0))
    starts = [start("stock"), start(REPEAT, losses=off), start("tuned", losses=off)]
    assert [agreement.agrees for agreement in compute_agreements(starts, TOLERANCES)] == [
        False,
        False,
    ]


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
    other_start = start("tuned", facts={"inputs_sha256": "other"})
    with pytest.raises(WorkerError, match=r"stock and tuned .*NumPy") as caught:
        compute_agreements([start("stock"), start(REPEAT), other_start], TOLERANCES)
    assert caught.value.arm == TUNED.name
