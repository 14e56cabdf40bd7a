"""Seconds of a fit as a sum of its parts. Pure.

    seconds = a * epochs + b * calls + c * steps

`fit` calls a traced function once for every `steps_per_execution` steps. `a` is the cost of an
epoch in addition to its calls (an iterator, callbacks, logs). `b` is the cost of a call from
Python. `c` is the cost of a step inside TensorFlow: the computation, and the start of its ops. The
article on irises and a TPU changed the first two terms, not the third.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from tfbench.inside.fitting import Form
from tfcore.errors import SampleError

CLOSE = 0.05
"""A number of steps per execution is large enough if more gains at most this share of the time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """The numbers of epochs, calls and steps of one fit."""

    epochs: int
    calls: int
    steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """The seconds of one epoch, one call and one step."""

    epoch_s: float
    call_s: float
    step_s: float

    def compute_seconds(self, counts: Counts) -> float:
        return (
            self.epoch_s * counts.epochs + self.call_s * counts.calls + self.step_s * counts.steps
        )

    def compute_dispatch(self, counts: Counts) -> float:
        """Return the share of a fit's time that epochs and calls take."""
        return 1 - self.step_s * counts.steps / self.compute_seconds(counts)


def count_parts(form: Form, steps: int) -> Counts:
    """Count the epochs, calls and steps of a fit with `steps` steps in total."""
    steps_per_epoch = steps // form.epochs
    return Counts(
        epochs=form.epochs,
        calls=form.epochs * -(-steps_per_epoch // form.steps_per_execution),
        steps=steps,
    )


def solve_terms(measured: Mapping[Form, tuple[Counts, float]]) -> Terms:
    """Return the terms, none below 0, with the least relative errors.

    By non-negative least squares (Lawson and Hanson, 1974). Raises SampleError if a time is not a
    positive number, or if the forms cannot separate the terms.
    """
    rows = np.array(
        [(counts.epochs, counts.calls, counts.steps) for counts, _ in measured.values()],
        dtype=np.float64,
    )
    seconds = np.array([value for _, value in measured.values()])
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise SampleError("the time of a fit is not a positive number")
    weighted = rows / seconds[:, None]
    if np.linalg.matrix_rank(weighted) < rows.shape[1]:
        raise SampleError("these forms of fit cannot separate the costs of epochs, calls and steps")
    scale = weighted.max(axis=0)  # (so that rounding does not hide the small terms)
    solution, _ = optimize.nnls(weighted / scale, np.ones(len(seconds)))
    epoch_s, call_s, step_s = (float(term) for term in solution / scale)
    return Terms(epoch_s=epoch_s, call_s=call_s, step_s=step_s)


def compute_largest_error(terms: Terms, measured: Mapping[Form, tuple[Counts, float]]) -> float:
    """Return the largest relative error of the predicted seconds."""
    return max(
        abs(terms.compute_seconds(fit_counts) / seconds - 1)
        for fit_counts, seconds in measured.values()
    )


def choose_steps_per_execution(terms: Terms, form: Form, steps: int) -> int:
    """Return the smallest power of two as steps per execution beyond which there is hardly any
    gain; at most the steps of an epoch.
    """
    steps_per_epoch = steps // form.epochs
    best_s = terms.compute_seconds(
        count_parts(_set_steps_per_execution(form, steps_per_epoch), steps)
    )
    number = 1
    while number < steps_per_epoch and terms.compute_seconds(
        count_parts(_set_steps_per_execution(form, number), steps)
    ) > best_s * (1 + CLOSE):
        number *= 2
    return min(number, steps_per_epoch)


def _set_steps_per_execution(form: Form, together: int) -> Form:
    return Form(epochs=form.epochs, repeat=form.repeat, steps_per_execution=together)


def list_forms(epochs: int, steps: int) -> tuple[Form, ...]:
    """List the forms to time for a script of `epochs` epochs of `steps` steps: its own form
    first, then others of about as many steps with fewer epochs, fewer calls or both, and a
    longer one.
    """

    def build_form(epochs: int, repeat: int, together: int = 1) -> Form:
        return Form(epochs=epochs, repeat=repeat, steps_per_execution=together)

    fewer_epochs = max(1, round(epochs**0.5))
    candidates = [
        build_form(epochs, 1),
        build_form(1, epochs),
        build_form(fewer_epochs, -(-epochs // fewer_epochs)),
        build_form(epochs, 1, max(2, steps)),
        build_form(1, epochs, max(2, steps)),
        build_form(1, epochs, max(2, steps * epochs // 2)),
        build_form(1, 2 * epochs),
    ]
    return tuple(dict.fromkeys(candidates))
