"""Seconds of a fit as a sum of its parts. Pure.

    seconds = a * epochs + b * calls + c * steps

`fit` makes a call of a traced function for every `steps_per_execution` steps. `a` is what an epoch
costs beside them (an iterator, callbacks, logs), `b` what a call costs from Python, `c` what a step
costs inside TensorFlow, which is the work itself and what starting its ops takes. The article on
irises and a TPU changed the first two and kept the third.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from tfbench.inside.fitting import Form
from tfbuild.errors import SampleError

CLOSE = 0.05
"""A number of steps per execution is large enough when this share of the time is left to win."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What one fit is made of."""

    epochs: int
    calls: int
    steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """Seconds of one epoch, one call and one step."""

    epoch_s: float
    call_s: float
    step_s: float

    def seconds(self, counts: Counts) -> float:
        return (
            self.epoch_s * counts.epochs + self.call_s * counts.calls + self.step_s * counts.steps
        )

    def dispatch(self, counts: Counts) -> float:
        """The share of a fit's time that epochs and calls take."""
        return 1 - self.step_s * counts.steps / self.seconds(counts)


def counts(form: Form, steps: int) -> Counts:
    """Of a fit with so many steps in all."""
    each = steps // form.epochs
    return Counts(
        epochs=form.epochs,
        calls=form.epochs * -(-each // form.steps_per_execution),
        steps=steps,
    )


def solve(measured: Mapping[Form, tuple[Counts, float]]) -> Terms:
    """The terms, none below 0, with the least relative errors (non-negative least squares: Lawson
    and Hanson, 1974). Raises SampleError for forms that cannot tell the terms apart."""
    rows = np.array(
        [(each.epochs, each.calls, each.steps) for each, _ in measured.values()], dtype=np.float64
    )
    seconds = np.array([value for _, value in measured.values()])
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise SampleError("a fit took no time")
    weighed = rows / seconds[:, None]
    if np.linalg.matrix_rank(weighed) < rows.shape[1]:
        raise SampleError("these forms of fit cannot tell epochs, calls and steps apart")
    scale = weighed.max(axis=0)  # (or the small terms would be lost in rounding)
    found, _ = optimize.nnls(weighed / scale, np.ones(len(seconds)))
    epoch_s, call_s, step_s = (float(each) for each in found / scale)
    return Terms(epoch_s=epoch_s, call_s=call_s, step_s=step_s)


def largest_error(terms: Terms, measured: Mapping[Form, tuple[Counts, float]]) -> float:
    """The largest relative distance of a measured time from the sum."""
    return max(abs(terms.seconds(each) / seconds - 1) for each, seconds in measured.values())


def enough(terms: Terms, form: Form, steps: int) -> int:
    """The smallest power of two as steps per execution with which hardly more can be won; at most
    the steps of an epoch."""
    each = steps // form.epochs
    best = terms.seconds(counts(_with(form, each), steps))
    number = 1
    while number < each and terms.seconds(counts(_with(form, number), steps)) > best * (1 + CLOSE):
        number *= 2
    return min(number, each)


def _with(form: Form, together: int) -> Form:
    return Form(epochs=form.epochs, repeat=form.repeat, steps_per_execution=together)


def forms(epochs: int, steps: int) -> Sequence[Form]:
    """What is timed for a script of so many epochs of so many steps: its own form first, then
    others of about as many steps with fewer epochs, fewer calls or both, and a longer one."""

    def form(epochs: int, repeat: int, together: int = 1) -> Form:
        return Form(epochs=epochs, repeat=repeat, steps_per_execution=together)

    few = max(1, round(epochs**0.5))
    found = [
        form(epochs, 1),
        form(1, epochs),
        form(few, -(-epochs // few)),
        form(epochs, 1, max(2, steps)),
        form(1, epochs, max(2, steps)),
        form(1, epochs, max(2, steps * epochs // 2)),
        form(1, 2 * epochs),
    ]
    return tuple(dict.fromkeys(found))
