"""What epochs, calls and steps cost: the terms found again, and what is advised."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.comparisons import host

from tfbench.experiments import overhead
from tfbench.experiments.cell import CellResult, Outcome
from tfbench.experiments.fit_terms import (
    Counts,
    Terms,
    choose_steps_per_execution,
    compute_largest_error,
    count_parts,
    list_forms,
    solve_terms,
)
from tfbench.experiments.overhead import OVERHEAD, Overhead, build_answer, list_lines
from tfbench.inside.fitting import Form
from tfbench.reports.document import Table
from tfcore.errors import SampleError

FORMS = list_forms(20, 6)
TRUE = Terms(epoch_s=0.004, call_s=0.0008, step_s=0.0003)
SECONDS = st.floats(1e-6, 1.0)


def steps(form: Form) -> int:
    """Of 105 rows in batches of 20."""
    return form.epochs * -(-105 * form.repeat // 20)


def timed(true: Terms) -> dict[Form, tuple[Counts, float]]:
    actual = {form: count_parts(form, steps(form)) for form in FORMS}
    return {form: (counts, true.compute_seconds(counts)) for form, counts in actual.items()}


def test_the_articles_forms_have_the_articles_counts() -> None:
    own_form, once = FORMS[:2]
    assert count_parts(own_form, steps(own_form)) == Counts(epochs=20, calls=120, steps=120)
    assert count_parts(once, steps(once)) == Counts(epochs=1, calls=105, steps=105)


def test_calls_are_rounded_up_in_each_epoch() -> None:
    form = Form(epochs=4, repeat=1, steps_per_execution=5)
    assert count_parts(form, 24) == Counts(epochs=4, calls=8, steps=24)


@given(SECONDS, SECONDS, SECONDS)
def test_terms_are_found_again(epoch_s: float, call_s: float, step_s: float) -> None:
    true = Terms(epoch_s=epoch_s, call_s=call_s, step_s=step_s)
    measured = timed(true)
    actual = solve_terms(measured)
    assert compute_largest_error(actual, measured) < 1e-6
    # A term that makes up a share of no form cannot be found better than that share.
    for name in ("epoch_s", "call_s", "step_s"):
        assert getattr(actual, name) == pytest.approx(
            getattr(true, name), rel=1e-3, abs=1e-5 * max(epoch_s, call_s, step_s)
        )


def test_no_term_is_below_nothing() -> None:
    measured = {form: (counts, 0.1 / counts.epochs) for form, (counts, _) in timed(TRUE).items()}
    actual = solve_terms(measured)
    assert min(actual.epoch_s, actual.call_s, actual.step_s) >= 0
    assert compute_largest_error(actual, measured) > 0.1, "such times are no such sum, and it shows"


def test_forms_that_are_alike_tell_nothing_apart() -> None:
    alike = [Form(epochs=number, repeat=1, steps_per_execution=1) for number in (1, 2, 3)]
    measured = {form: (count_parts(form, 6 * form.epochs), 0.1 * form.epochs) for form in alike}
    with pytest.raises(SampleError):
        solve_terms(measured)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_time_is_refused(seconds: float) -> None:
    measured = timed(TRUE)
    measured[FORMS[0]] = (measured[FORMS[0]][0], seconds)
    with pytest.raises(SampleError):
        solve_terms(measured)


def test_dispatch_is_what_is_not_steps() -> None:
    script = count_parts(FORMS[0], 120)
    assert TRUE.compute_dispatch(script) == pytest.approx(
        (0.004 * 20 + 0.0008 * 120) / TRUE.compute_seconds(script)
    )


def test_enough_steps_per_execution_leave_little_to_win() -> None:
    form = Form(epochs=1, repeat=20, steps_per_execution=1)
    number = choose_steps_per_execution(TRUE, form, 105)
    best = TRUE.compute_seconds(Counts(epochs=1, calls=1, steps=105))
    chosen, fewer = (
        TRUE.compute_seconds(Counts(epochs=1, calls=-(-105 // size), steps=105))
        for size in (number, number // 2)
    )
    assert chosen <= best * 1.05 < fewer
    assert choose_steps_per_execution(Terms(epoch_s=1.0, call_s=0.0, step_s=1e-6), form, 105) == 1


# --- launches -------------------------------------------------------------------------------------


def launch(true: Terms, slower: float = 1.0) -> dict[str, Any]:
    measured = timed(true)
    return {
        "rows": 105,
        "batch": 20,
        "steps": [steps(form) for form in FORMS],
        # The median of the rounds counts: one is disturbed.
        "seconds": [[slower * measured[form][1]] * 2 + [9.0] for form in FORMS],
    }


def answered(*launches: dict[str, Any], marks: tuple[tuple[str, str], ...] = ()) -> Overhead:
    cell_result = CellResult(
        place={"arm": "stock", "device": "CPU"},
        outcome=Outcome.OK,
        reason="",
        answers=launches,
    )
    return Overhead(
        made="2026-01-01T00:00:00+00:00",
        host=host(),
        workload="iris_mlp",
        vcpus=2,
        seed=1,
        wheels=(),
        answers=(build_answer(cell_result, FORMS),) if launches else (),
        marks=marks,
    )


def test_launches_give_intervals() -> None:
    (answer,) = answered(launch(TRUE), launch(TRUE, 1.1), launch(TRUE, 0.9)).answers
    assert answer.epoch_s.value == pytest.approx(0.004)
    assert answer.epoch_s.low < 0.004 < answer.epoch_s.high
    # What slows everything alike changes no share and no speedup.
    assert answer.dispatch.high - answer.dispatch.low < 1e-6
    assert answer.forms[0].speedup.value == pytest.approx(1.0)
    once = answer.forms[1]
    assert once.speedup.value == pytest.approx(
        (TRUE.compute_seconds(Counts(epochs=20, calls=120, steps=120)) / 120)
        / (TRUE.compute_seconds(Counts(epochs=1, calls=105, steps=105)) / 105)
    )
    assert answer.error < 1e-6


def test_advice_names_what_to_write() -> None:
    sentences = " ".join(list_lines(answered(launch(TRUE), launch(TRUE, 1.1))))
    assert "steps_per_execution=" in sentences
    assert "data.repeat(20)" in sentences
    assert "of the unchanged script" in sentences


def test_where_nothing_is_won_the_script_is_left_alone() -> None:
    heavy = Terms(epoch_s=1e-9, call_s=1e-9, step_s=1.0)
    sentences = " ".join(list_lines(answered(launch(heavy), launch(heavy, 1.1))))
    assert "leave the script unchanged" in sentences


def test_marks_are_told_and_the_page_has_the_tables_rows() -> None:
    actual = answered(launch(TRUE), launch(TRUE, 1.1), marks=(("other", "not here: no GPU:0"),))
    assert "other: not here: no GPU:0" in OVERHEAD.text.build_table(actual).format_text(
        colour=False
    )
    (table,) = [
        block for block in OVERHEAD.text.build_section(actual).blocks if isinstance(block, Table)
    ]
    assert table.rows == OVERHEAD.text.build_table(actual).rows
    assert len(table.rows) == len(FORMS)
    assert len(list(overhead.draw_figures(actual))) == 1


def test_forms_can_always_tell_the_terms_apart() -> None:
    for epochs in (2, 3, 5, 100):
        for size in (1, 6, 32):
            forms = list_forms(epochs, size)
            measured = {
                form: (count_parts(form, form.epochs * form.repeat * size), 1.0) for form in forms
            }
            solve_terms(measured)
