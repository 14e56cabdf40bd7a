"""Find a ladder among the arms: the same wheels on several rungs, each of which adds one setting.
Pure.

Arms named WHEEL-RUNG form a ladder: `stock-gemm`, `tuned-gemm`, `stock-onednn`, `tuned-onednn`,
where WHEEL is a wheel of the line-ups; other arms may be measured, too. The difference between two
rungs is the effect of the added setting, the difference between two wheels on one rung the effect
of compiling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfbench.arms.lineup import WHEELS

FEWEST = 2
"""The fewest rungs of a ladder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ladder:
    """A ladder of arms: rungs and wheels in the order of the arms. A rung may lack some wheels."""

    rungs: tuple[str, ...]
    wheels: tuple[str, ...]
    arms: Mapping[tuple[str, str], str]
    """Names of arms by rung and wheel."""

    def find_arm(self, rung: str, wheel: str) -> str:
        """Return the name of the arm; empty if the rung has no such wheel."""
        return self.arms.get((rung, wheel), "")


def find_ladder(names: Sequence[str]) -> Ladder | None:
    """Return the ladder that arms of these names form; None if a wheel has fewer than FEWEST
    rungs.
    """
    parsed = [(*name.partition("-")[::2], name) for name in names]
    arms = {(rung, wheel): name for wheel, rung, name in parsed if rung and wheel in WHEELS}
    rung_counts = Counter(wheel for _, wheel in arms)
    if not rung_counts or min(rung_counts.values()) < FEWEST:
        return None
    rungs = tuple(dict.fromkeys(rung for rung, _ in arms))
    return Ladder(rungs=rungs, wheels=tuple(rung_counts), arms=arms)
