"""Random shapes and integers for a proposal, chosen by the name of an argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfbuild.probe.cases import Array

_LARGEST = 40  # exclusive limit of sizes and counts


@dataclass(frozen=True, slots=True)
class Draw:
    """The random state and the shape plan that the inputs of one case share."""

    rng: np.random.Generator
    base: tuple[int, ...]
    plan: str  # the relation between the shapes of the arrays
    values: str

    def flip_coin(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def choose_one(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def sample_ints(self, low: int, high: int, shape: tuple[int, ...] | int = ()) -> Array:
        return np.asarray(self.rng.integers(low, max(low + 1, high), shape))


def create_draw(rng: np.random.Generator, index: int) -> Draw:
    """Create the index-th draw: ranks take turns, and sizes are equal in every second draw, so
    that most sizes that must match do.
    """
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


def _sample_permutation(draw: Draw) -> Array:
    return draw.rng.permutation(len(draw.base))


def _sample_sorted_ids(draw: Draw) -> Array:
    return np.sort(
        draw.sample_ints(0, max(1, _get_first_size(draw) // 2), (_get_first_size(draw),))
    )


def _sample_indices(draw: Draw) -> Array:
    size = min((*draw.base, 5))
    shape = draw.choose_one(
        (draw.base[:1], draw.base[:1], (), (3, 1), (2, max(1, len(draw.base))), (4,), draw.base)
    )
    if len(shape) == 1 and shape == draw.base[:1] and draw.flip_coin(0.5):
        return draw.rng.permutation(shape[0])
    return draw.sample_ints(0, size, shape)


def _sample_axis(draw: Draw) -> Array:
    rank = max(1, len(draw.base))
    return draw.sample_ints(-rank, rank) if draw.flip_coin(0.8) else draw.sample_ints(0, rank, (1,))


def _sample_axes(draw: Draw) -> Array:
    return (
        np.sort(_sample_permutation(draw)[: max(1, int(draw.sample_ints(0, 3)))])
        if draw.flip_coin(0.8)
        else _sample_axis(draw)
    )


def _sample_dims(draw: Draw) -> Array:
    return np.asarray(
        draw.choose_one(
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


def _sample_paddings(draw: Draw) -> Array:
    high = draw.choose_one((1, 2, 3))
    return draw.sample_ints(
        0, high, (draw.choose_one((len(draw.base), max(0, len(draw.base) - 2), 1, 2)), 2)
    )


def _sample_offsets(draw: Draw) -> Array:
    return (
        np.zeros(len(draw.base), np.int64)
        if draw.flip_coin(0.5)
        else draw.sample_ints(0, 2, len(draw.base))
    )


def _sample_strides(draw: Draw) -> Array:
    return (
        np.ones(len(draw.base), np.int64)
        if draw.flip_coin(0.5)
        else draw.sample_ints(1, 3, len(draw.base))
    )


def _sample_blocks(draw: Draw) -> Array:
    return draw.sample_ints(1, 4, draw.choose_one((1, 2, max(0, len(draw.base) - 2))))


def _sample_small(draw: Draw) -> Array:
    return (
        draw.sample_ints(0, 6)
        if draw.flip_coin(0.7)
        else draw.sample_ints(1, 4, draw.choose_one((1, 2, 3)))
    )


def _sample_large(draw: Draw) -> Array:
    return draw.sample_ints(max((*draw.base, 5)), _LARGEST)


def _sample_scalar(draw: Draw) -> Array:
    return draw.sample_ints(1, 6)


def _sample_row_splits(draw: Draw) -> Array:
    return np.asarray(
        [0, *np.sort(draw.sample_ints(0, _get_first_size(draw), 2)), _get_first_size(draw)]
    )


def _sample_pair(draw: Draw) -> Array:
    return draw.sample_ints(1, 9, 2)


def _sample_lengths(draw: Draw) -> Array:
    return draw.sample_ints(1, min((*draw.base, 5)) + 1, (_get_first_size(draw),))


def _get_first_size(draw: Draw) -> int:
    return (*draw.base, 1)[0]


HINTS: tuple[tuple[str, Callable[[Draw], Array]], ...] = (
    (r"^(num_segments|depth|num_rows|limit|output_dim0|num_classes)", _sample_large),
    (r"^max_|_max$", _sample_scalar),
    (r"segment_ids|^row_ids|^ids", _sample_sorted_ids),
    (r"perm", _sample_permutation),
    (r"axes|reduction_ind|^dims$", _sample_axes),
    (r"axis|^dim|_dim$|^shift|squeeze", _sample_axis),
    (r"pad|crops", _sample_paddings),
    (r"block", _sample_blocks),
    (r"splits", _sample_row_splits),
    (r"begin|start|offset|origin", _sample_offsets),
    (r"strides|multiples|^end|^sizes?$|size_splits", _sample_strides),
    (r"seed|key|counter", _sample_pair),
    (r"shape|_sizes|dims|lengths?_shape", _sample_dims),
    (r"seq|length", _sample_lengths),
    (r"indices|index|ind$|ids|segment|label|target", _sample_indices),
    (
        r"^(k|n|num|size|delta|bins|lower|upper|diag|nbins|max|min|alg|step|count|handle)",
        _sample_small,
    ),
    (r"crop_size|output_size", _sample_pair),
)
