"""Shapes of the ops that fused/products replaces."""

from __future__ import annotations

import csv
import dataclasses
import functools
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
_PRODUCTS = {"MatMul": ("transpose_a", "transpose_b"), "BatchMatMulV2": ("adj_x", "adj_y")}
"""Attributes that transpose the left and the right matrix."""
_PROJECTIONS = ("abc,cde->abde", "abde,cde->abc", "abde,abc->cde")
_OUTPUT_PROJECTIONS = ("abcd,cde->abe", "abe,cde->abcd", "abe,abcd->cde")
_ATTENTIONS = (
    *("aecd,abcd->acbe", "acbe,aecd->abcd", "abcd,aecd->acbe"),
    *("abcd,acbe->aecd", "acbe,abcd->aecd"),
)
"""The einsums of Keras's MultiHeadAttention and their gradients."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """An op and its sizes.

    For MatMul and BatchMatMulV2 `rows`, `depth` and `columns`; `turned` is 1 if the left matrix is
    transposed, 2 if the right one is. For Einsum `batch`, `rows`, `depth`, `columns` and `filters`
    are the sizes of the labels a, b, c, d and e. For a convolution NHWC and padding SAME: `rows`
    images of `depth` x `depth` pixels, `columns` channels, `filters` filters of `height` x `width`.
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
    batch: int = 1
    equation: str = "-"

    @property
    def labels(self) -> dict[str, int]:
        """Sizes of an einsum's labels."""
        sizes = (self.batch, self.rows, self.depth, self.columns, self.filters)
        return dict(zip("abcde", sizes, strict=True))

    @property
    def outputs(self) -> int:
        """Pixels along an axis of a convolution's outputs."""
        return -(-self.depth // self.stride)

    @property
    def operations(self) -> float:
        """Additions and multiplications of the direct algorithm."""
        if self.op == "Einsum":
            labels = {*self.equation} & {*self.labels}
            return 2.0 * math.prod(self.labels[label] for label in labels)
        if self.op in _PRODUCTS:
            return 2.0 * self.batch * self.rows * self.depth * self.columns
        taps = self.height * self.width
        return 2.0 * taps * self.rows * self.outputs**2 * self.columns * self.filters

    @property
    def text(self) -> str:
        if self.op == "Einsum":
            sizes = " ".join(f"{label}={size}" for label, size in self.labels.items())
            return f"{self.equation}, {sizes}"
        if self.op in _PRODUCTS:
            batch = f"{self.batch} of " if self.op != "MatMul" else ""
            left, right = ("transposed " if self.turned == side else "" for side in (1, 2))
            sizes = f"{left}{self.rows}x{self.depth} by {right}{self.depth}x{self.columns}"
            return batch + sizes
        stride = f", stride {self.stride}" if self.stride > 1 else ""
        return (
            f"{self.height}x{self.width}, {self.rows} of {self.depth}x{self.depth}, "
            f"{self.columns} to {self.filters}{stride}"
        )

    def create_site(self) -> CallSite:
        if self.op == "Einsum":
            left, right = self.equation.partition("->")[0].split(",")
            shapes = [tuple(self.labels[label] for label in labels) for labels in (left, right)]
            attributes = {"equation": f's: "{self.equation}"', "N": "i: 2"}
            return _create_site(self.op, attributes, shapes)
        if self.op in _PRODUCTS:
            sides = (self.rows, self.depth), (self.depth, self.columns)
            batch = (self.batch,) if self.op != "MatMul" else ()
            shapes = [
                (*batch, *(side[::-1] if self.turned == number else side))
                for number, side in enumerate(sides, 1)
            ]
            attributes = {
                name: f"b: {str(self.turned == number).lower()}"
                for number, name in enumerate(_PRODUCTS[self.op], 1)
            }
            return _create_site(self.op, attributes, shapes)
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
    fields = [field for field in dataclasses.fields(Shape) if field.name not in {"op", "equation"}]
    given = {field.name: int(row[field.name]) for field in fields if row.get(field.name)}
    return Shape(op=row["op"], equation=row.get("equation") or "-", **given)


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
    shapes += _draw(48, lambda: _draw_product(chance, turned=2))
    for turned in (0, 1, 2):
        shapes += _draw(32, functools.partial(_draw_batch, chance, turned=turned))
    shapes += _draw(88, lambda: _draw_einsum(chance))
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


def _draw_batch(chance: Random, *, turned: int) -> Shape:
    rows, columns = (_draw_size(chance, 8, 512, chance.choice((1, 8))) for _ in range(2))
    return Shape(
        op="BatchMatMulV2",
        batch=_draw_size(chance, 2, 256),
        rows=rows,
        depth=_draw_size(chance, 8, 256, chance.choice((1, 8))),
        columns=columns,
        turned=turned,
    )


def _draw_einsum(chance: Random) -> Shape:
    limits = (1, 64), (8, 512), (8, 512), (1, 16), (16, 128), (32, 1024)
    batch, queries, keys, heads, head, width = (_draw_size(chance, *pair) for pair in limits)
    equation = chance.choice(chance.choice((_PROJECTIONS, _OUTPUT_PROJECTIONS, _ATTENTIONS)))
    depth, columns, filters = (
        (width, heads, head)
        if equation in _PROJECTIONS
        else (heads, head, width if equation in _OUTPUT_PROJECTIONS else keys)
    )
    return Shape(
        op="Einsum",
        equation=equation,
        batch=batch,
        rows=queries,
        depth=depth,
        columns=columns,
        filters=filters,
    )


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
