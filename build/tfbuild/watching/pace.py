"""Computes the rate of a build and its remaining time from samples of its progress."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tfcore.console import format_duration

_WINDOW_S = 600.0  # window of the recent rate
_LATEST = 0.25  # share of the window for a second rate, which gives the range
_SAMPLE_S = 1.0
_LEAST_S = 60.0
_LEAST_DONE = 50
_GROWTH = 0.02  # growth of the total in a window above which it counts as incomplete


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """The progress of a build: `done` of `total` actions.

    `detail` is the action that Bazel shows. `per_minute` is the recent rate. `left_s` is the
    shortest and longest remaining time, in seconds; None until there is enough data for an
    estimate.
    """

    done: int
    total: int
    detail: str = ""
    per_minute: float | None = None
    left_s: tuple[float, float] | None = None

    @property
    def tempo(self) -> str:
        """Return the rate and the remaining time as text; "" if neither is known."""
        if self.per_minute is None:
            return ""
        rate = f"{self.per_minute:.0f} a minute"
        if self.left_s is None:
            return rate
        least, most = (format_duration(seconds) for seconds in self.left_s)
        return f"{rate}, {least if least == most else f'{least} to {most}'} left"


class Pace:
    """A window of samples (time, done, total) of one build, at most one a second."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def update(self, at: float, done: int, total: int, detail: str = "") -> Progress:
        """Add a sample; return the progress at the time `at`, in seconds of a monotonic clock."""
        if not self._seen or at - self._seen[-1][0] >= _SAMPLE_S:
            self._seen.append((at, done, total))
        while len(self._seen) > 1 and at - self._seen[1][0] >= _WINDOW_S:
            self._seen.popleft()
        per_s = self._compute_rate(at, done, 1.0)
        return Progress(
            done=done,
            total=total,
            detail=detail,
            per_minute=None if per_s is None else per_s * 60,
            left_s=self._estimate_remaining(at, done, total),
        )

    def _compute_rate(self, at: float, done: int, share: float) -> float | None:
        """Return the actions per second over the last `share` of the window."""
        spent = at - self._seen[0][0]
        if spent < _LEAST_S:
            return None
        since, before, _ = next(
            sample for sample in reversed(self._seen) if at - sample[0] >= spent * share
        )
        return max(0, done - before) / (at - since)

    def _estimate_remaining(self, at: float, done: int, total: int) -> tuple[float, float] | None:
        _, first_done, first_total = self._seen[0]
        if done - first_done < _LEAST_DONE or total - first_total > total * _GROWTH:
            return None
        rates = [self._compute_rate(at, done, share) for share in (1.0, _LATEST)]
        known = [rate for rate in rates if rate]
        if len(known) < len(rates):
            return None  # (no action ended recently: one long action gives no rate)
        remaining = max(0, total - done)
        return remaining / max(known), remaining / min(known)
