"""Shapes of the ops that fused/products replaces."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from tfbench.inside.call_sites import CallSite, CallSiteInput
from tfcore.errors import RecordError

_FLOAT = 1
"""DT_FLOAT in TensorFlow's types.proto."""
_OPERATIONS = (4e5, 1.5e9)
"""Limits of the operations of a drawn shape: 10 us to 30 ms at 50 GFLOP/s."""
_DEEP = ((64, 320), (128, 768), (128, 768))
_DEEPEST = ((64, 160), (384, 1024), (384, 1024))
"""Limits of 32 times the rows of an image, of channels and of filters, in deep layers."""
_CONVOLUTIONS = ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """An op and its sizes.

    For MatMul `rows`, `depth` and `columns`; `turned` is 1 if the left matrix is transposed. For a
    convolution NHWC and padding SAME: `rows` images of `depth` x `depth` pixels, `columns`
    channels, `filters` filters of `height` x `width`.
    """

    op: str
    rows: int
    depth: int
    columns: int
    turned: int = 0
    filters: int = 0
    height: int = 0
    width: int = 0
    stride: int = 1

    @property
    def outputs(self) -> int:
        """Pixels along an axis of a convolution's outputs."""
        return -(-self.depth // self.stride)

    @property
    def operations(self) -> float:
        """Additions and multiplications of the direct algorithm."""
        if self.op == "MatMul":
            return 2.0 * self.rows * self.depth * self.columns
        taps = self.height * self.width
        return 2.0 * taps * self.rows * self.outputs**2 * self.columns * self.filters

    @property
    def text(self) -> str:
        if self.op == "MatMul":
            turned = "transposed " if self.turned else ""
            return f"{turned}{self.rows}x{self.depth} by {self.depth}x{self.columns}"
        stride = f", stride {self.stride}" if self.stride > 1 else ""
        return (
            f"{self.height}x{self.width}, {self.rows} of {self.depth}x{self.depth}, "
            f"{self.columns} to {self.filters}{stride}"
        )

    def create_site(self) -> CallSite:
        if self.op == "MatMul":
            left = (self.depth, self.rows) if self.turned else (self.rows, self.depth)
            attributes = {"transpose_a": f"b: {str(bool(self.turned)).lower()}"}
            return _create_site(self.op, attributes, [left, (self.depth, self.columns)])
        inputs = (self.rows, self.depth, self.depth, self.columns)
        outputs = (self.rows, self.outputs, self.outputs, self.filters)
        filters = (self.height, self.width, self.columns, self.filters)
        strides = f"list {{ i: 1 i: {self.stride} i: {self.stride} i: 1 }}"
        attributes = {"strides": strides, "padding": 's: "SAME"'}
        match self.op:
            case "Conv2D":
                return _create_site(self.op, attributes, [inputs, filters])
            case "Conv2DBackpropInput":
                return _create_site(self.op, attributes, [filters, outputs], {0: inputs})
            case _:
                return _create_site(self.op, attributes, [inputs, outputs], {1: filters})


def _create_site(
    op: str,
    attributes: dict[str, str],
    shapes: Sequence[tuple[int, ...]],
    sizes: dict[int, tuple[int, ...]] | None = None,
) -> CallSite:
    """Create a call site with inputs of float; `sizes` are inputs of int32, by position."""
    inputs = [CallSiteInput(dtype="float", shape=shape) for shape in shapes]
    for position, values in (sizes or {}).items():
        inputs.insert(position, CallSiteInput(dtype="int32", shape=(len(values),), values=values))
    return CallSite(op=op, types={"T": (_FLOAT,)}, attributes=attributes, inputs=tuple(inputs))


def read_shapes(path: Path) -> tuple[Shape, ...]:
    """Read the shapes of a CSV file; its other columns and lines with # are ignored.

    Raises RecordError for a file without shapes, OSError.
    """
    with path.open(encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        try:
            return tuple(parse_shape(row) for row in csv.DictReader(lines))
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{path} is not a table of shapes ({error})") from error


def parse_shape(row: dict[str, str]) -> Shape:
    sizes = [field for field in dataclasses.fields(Shape) if field.name != "op"]
    given = {field.name: int(row[field.name]) for field in sizes if row.get(field.name)}
    return Shape(op=row["op"], **given)


def draw_shapes(seed: int = 1) -> tuple[Shape, ...]:
    """Draw shapes of each kernel at random, with a limited time of a call.

    Sizes are log-uniform. Half of them are powers of two, as in most models: with these, rows of a
    matrix share cache sets, which makes some kernels slower.
    """
    chance = Random(seed)  # noqa: S311  (a sample, not a secret)
    shapes = [
        *_draw(64, lambda: _draw_product(chance, turned=0)),
        *_draw(64, lambda: _draw_product(chance, turned=1)),
        *_draw(50, lambda: _draw_filter_gradient(chance)),
        *_draw(12, lambda: _make_deep(_draw_filter_gradient(chance), chance, _DEEP)),
    ]
    for shape in (
        *_draw(32, lambda: _draw_convolution(chance, 3, 3)),
        *_draw(12, lambda: _make_deep(_draw_convolution(chance, 3, 3), chance, _DEEP)),
        *_draw(24, lambda: _draw_convolution(chance, 1, chance.choice((3, 5)))),
        *_draw(12, lambda: _make_deep(_draw_convolution(chance, 3, 3), chance, _DEEPEST)),
    ):
        shapes += [dataclasses.replace(shape, op=op) for op in _CONVOLUTIONS]
    shapes += _draw(8, lambda: _make_deep(_draw_filter_gradient(chance), chance, _DEEPEST))
    return tuple(dict.fromkeys(shapes))


def _draw(count: int, draw: Callable[[], Shape]) -> Iterator[Shape]:
    low, high = _OPERATIONS
    while count:
        shape = draw()
        if low <= shape.operations <= high:
            count -= 1
            yield shape


def _draw_size(chance: Random, low: int, high: int, multiple: int = 1) -> int:
    """Draw a power of two, or else a multiple of `multiple`."""
    size = math.exp(chance.uniform(math.log(low), math.log(high)))
    if chance.choice((True, False)):
        return max(multiple, 1 << round(math.log2(size)))
    return max(multiple, round(size / multiple) * multiple)


def _draw_product(chance: Random, *, turned: int) -> Shape:
    rows, depth, columns = (
        _draw_size(chance, 8, 3000, chance.choice((1, 8, 64))) for _ in range(3)
    )
    return Shape(op="MatMul", rows=rows, depth=depth, columns=columns, turned=turned)


def _draw_filter_gradient(chance: Random) -> Shape:
    sizes = (1, 1, 1), (1, 1, 2), (2, 2, 2), (3, 3, 2), (5, 5, 1), (1, 7, 1), (1, 7, 2), (7, 7, 2)
    height, width, stride = chance.choice(sizes)
    return Shape(
        op="Conv2DBackpropFilter",
        rows=_draw_size(chance, 1, 128),
        depth=_draw_size(chance, 4, 64),
        columns=_draw_size(chance, 3, 512, chance.choice((1, 8))),
        filters=_draw_size(chance, 8, 512, chance.choice((1, 8))),
        height=height,
        width=width,
        stride=stride,
    )


def _make_deep(shape: Shape, chance: Random, limits: Sequence[tuple[int, int]]) -> Shape:
    """Change a convolution to one with small images and a filter that hardly fits in a cache."""
    depth, columns, filters = (_draw_size(chance, *sizes, 32) for sizes in limits)
    return dataclasses.replace(shape, depth=depth // 32, columns=columns, filters=filters)


def _draw_convolution(chance: Random, height: int, width: int) -> Shape:
    return Shape(
        op="Conv2D",
        rows=_draw_size(chance, 1, 128),
        depth=_draw_size(chance, 3, 64),
        columns=_draw_size(chance, 16, 512, 16),
        filters=_draw_size(chance, 16, 512, 16),
        height=height,
        width=width,
    )
