"""Draws of shapes and of whole numbers for a proposal, steered by what an argument is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfbuild.probe.cases import Array

_LARGEST = 40  # no size or count that is drawn reaches this


@dataclass(frozen=True, slots=True)
class Draw:
    """What the inputs of one case share."""

    rng: np.random.Generator
    base: tuple[int, ...]
    plan: str  # how the shapes of the arrays go together
    values: str

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one_of(self, options: Any) -> Any:  # noqa: ANN401
        return options[int(self.rng.integers(len(options)))]

    def ints(self, low: int, high: int, shape: tuple[int, ...] | int = ()) -> Array:
        return np.asarray(self.rng.integers(low, max(low + 1, high), shape))


def draw_of(rng: np.random.Generator, index: int) -> Draw:
    """Ranks in turn; equal sizes in every second draw, which make most matched sizes match."""
    rank = (4, 2, 1, 3, 0, 5)[index // 2 % 6]
    if index % 2 == 0:
        base = (int(rng.choice((2, 3, 5, 7) if rank > 2 else (3, 7, 37))),) * rank  # noqa: PLR2004
    else:
        sizes = (1, 2, 3, 5, 7) if rank > 2 else (1, 2, 3, 5, 17, 37)  # noqa: PLR2004
        base = tuple(int(size) for size in rng.choice(sizes, rank))
    if rank and index % 16 == 15:  # noqa: PLR2004
        base = (0, *base[1:])
    plan = str(rng.choice(("same", "same", "same", "scalars", "vectors", "firsts", "mixed")))
    values = str(rng.choice(("normal", "normal", "positive", "unit", "definite")))
    return Draw(rng, base, "same" if index < 12 else plan, values)  # noqa: PLR2004


def _permutation(draw: Draw) -> Array:
    return draw.rng.permutation(len(draw.base))


def _sorted_ids(draw: Draw) -> Array:
    return np.sort(draw.ints(0, max(1, _first(draw) // 2), (_first(draw),)))


def _indices(draw: Draw) -> Array:
    size = min((*draw.base, 5))
    shape = draw.one_of(
        (draw.base[:1], draw.base[:1], (), (3, 1), (2, max(1, len(draw.base))), (4,), draw.base)
    )
    if len(shape) == 1 and shape == draw.base[:1] and draw.chance(0.5):
        return draw.rng.permutation(shape[0])
    return draw.ints(0, size, shape)


def _axis(draw: Draw) -> Array:
    rank = max(1, len(draw.base))
    return draw.ints(-rank, rank) if draw.chance(0.8) else draw.ints(0, rank, (1,))


def _axes(draw: Draw) -> Array:
    return (
        np.sort(_permutation(draw)[: max(1, int(draw.ints(0, 3)))])
        if draw.chance(0.8)
        else _axis(draw)
    )


def _dims(draw: Draw) -> Array:
    return np.asarray(
        draw.one_of(
            (
                draw.base,
                draw.base,
                draw.base[::-1],
                (*draw.base[:-1], 1),
                (int(np.prod(draw.base)),),
                (3, 5),
                (2, 3, 4),
                (-1,),
                (2, 2),
            )
        ),
        np.int64,
    )


def _pairs(draw: Draw) -> Array:
    high = draw.one_of((1, 2, 3))
    return draw.ints(0, high, (draw.one_of((len(draw.base), max(0, len(draw.base) - 2), 1, 2)), 2))


def _offsets(draw: Draw) -> Array:
    return (
        np.zeros(len(draw.base), np.int64) if draw.chance(0.5) else draw.ints(0, 2, len(draw.base))
    )


def _ones(draw: Draw) -> Array:
    return (
        np.ones(len(draw.base), np.int64) if draw.chance(0.5) else draw.ints(1, 3, len(draw.base))
    )


def _blocks(draw: Draw) -> Array:
    return draw.ints(1, 4, draw.one_of((1, 2, max(0, len(draw.base) - 2))))


def _small(draw: Draw) -> Array:
    return draw.ints(0, 6) if draw.chance(0.7) else draw.ints(1, 4, draw.one_of((1, 2, 3)))


def _large(draw: Draw) -> Array:
    return draw.ints(max((*draw.base, 5)), _LARGEST)


def _scalar(draw: Draw) -> Array:
    return draw.ints(1, 6)


def _row_splits(draw: Draw) -> Array:
    return np.asarray([0, *np.sort(draw.ints(0, _first(draw), 2)), _first(draw)])


def _pair(draw: Draw) -> Array:
    return draw.ints(1, 9, 2)


def _lengths(draw: Draw) -> Array:
    return draw.ints(1, min((*draw.base, 5)) + 1, (_first(draw),))


def _first(draw: Draw) -> int:
    return (*draw.base, 1)[0]


HINTS: tuple[tuple[str, Callable[[Draw], Array]], ...] = (
    (r"^(num_segments|depth|num_rows|limit|output_dim0|num_classes)", _large),
    (r"^max_|_max$", _scalar),
    (r"segment_ids|^row_ids|^ids", _sorted_ids),
    (r"perm", _permutation),
    (r"axes|reduction_ind|^dims$", _axes),
    (r"axis|^dim|_dim$|^shift|squeeze", _axis),
    (r"pad|crops", _pairs),
    (r"block", _blocks),
    (r"splits", _row_splits),
    (r"begin|start|offset|origin", _offsets),
    (r"strides|multiples|^end|^sizes?$|size_splits", _ones),
    (r"seed|key|counter", _pair),
    (r"shape|_sizes|dims|lengths?_shape", _dims),
    (r"seq|length", _lengths),
    (r"indices|index|ind$|ids|segment|label|target", _indices),
    (r"^(k|n|num|size|delta|bins|lower|upper|diag|nbins|max|min|alg|step|count|handle)", _small),
    (r"crop_size|output_size", _pair),
)
