"""Time chains with fused/chains and without it; see README.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernels.turns import run_benchmark

Shape = tuple[str, Sequence[Sequence[int]]]
SHAPES: tuple[Shape, ...] = (
    ("GELU", ((2048, 512), (512,))),
    ("GELU", ((1024, 3072), (3072,))),
    ("layer normalization", ((2048, 128), (128,))),
    ("layer normalization", ((1024, 768), (768,))),
    ("root mean square", ((1024, 768), (768,))),
    ("softmax", ((64, 128, 128), (1, 128, 128))),
    ("softmax", ((12, 512, 512), (12, 1, 512))),
    ("dropout", ((2048, 128), (128,), (2048, 128), (2048, 128))),
    ("dropout", ((1024, 768), (768,), (1024, 768), (1024, 768))),
)
HEADINGS = ("chain", *("#stock ms", "#fused ms", "#ratio", "#95% interval") * 2)


def name_shape(shape: Shape) -> str:
    name, sizes = shape
    return f"{name}, {'x'.join(map(str, sizes[0]))}"


if __name__ == "__main__":
    run_benchmark(
        description=__doc__,
        title="fused/chains: results, then results and gradients",
        headings=HEADINGS,
        worker=Path(__file__).with_name("chains_worker.py"),
        shapes=SHAPES,
        name=name_shape,
    )
