"""A ladder among the arms: the same wheels on rungs, each of which adds one thing. Pure.

Arms named WHEEL-RUNG form one: `stock-gemm`, `tuned-gemm`, `stock-onednn`, `tuned-onednn`, where
WHEEL is a word of line-ups; other arms may stand beside it. A
difference between rungs is what the rung adds; one between wheels is what compiling gives there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfbench.arms.lineup import WHEELS

FEWEST = 2
"""Rungs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ladder:
    """Rungs and wheels in the order in which the arms came. Not every rung has every wheel."""

    rungs: tuple[str, ...]
    wheels: tuple[str, ...]
    arms: Mapping[tuple[str, str], str]
    """Names by rung and wheel."""

    def arm(self, rung: str, wheel: str) -> str:
        """Its name; empty where the rung has no such wheel."""
        return self.arms.get((rung, wheel), "")


def find_ladder(names: Sequence[str]) -> Ladder | None:
    """The ladder that arms of these names form; None where a wheel stands on one rung only."""
    split = [(*name.partition("-")[::2], name) for name in names]
    arms = {(rung, wheel): name for wheel, rung, name in split if rung and wheel in WHEELS}
    standing = Counter(wheel for _, wheel in arms)
    if not standing or min(standing.values()) < FEWEST:
        return None
    rungs = tuple(dict.fromkeys(rung for rung, _ in arms))
    return Ladder(rungs=rungs, wheels=tuple(standing), arms=arms)
