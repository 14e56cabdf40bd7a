"""What is timed beside other libraries (benchmarks/libraries) is the right result."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tfbuild.planning.plan import NATIVE
from tfbuild.settings import ROOT

pytestmark = pytest.mark.toolchain

SOURCE = ROOT / "benchmarks" / "libraries" / "timed.cc"
Array = NDArray[np.float32]


def drawn(*shape: int) -> Array:
    """As timed.cc draws."""
    state, values = 1, []
    for _ in range(int(np.prod(shape))):
        state = (state * 1664525 + 1013904223) % 2**32
        values.append(np.float32(state >> 8) * np.float32(2.0 / 2**24) - np.float32(1))
    return np.array(values, np.float32).reshape(shape)


def convolved(images: Array, filters: Array) -> Array:
    """3x3, with a border of zeros."""
    size = images.shape[1]
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    out = sum(
        padded[:, i : i + size, j : j + size] @ filters[i, j] for i in range(3) for j in range(3)
    )
    return np.asarray(out)


def filter_gradient(images: Array, back: Array) -> Array:
    size = images.shape[1]
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [
        np.einsum("nhwc,nhwf->cf", padded[:, i : i + size, j : j + size], back)
        for i in range(3)
        for j in range(3)
    ]
    return np.array(taps)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "tensorwright").symlink_to(NATIVE)
    path = folder / "ours"
    flags = ("-std=c++17", "-O2", "-march=haswell", "-ffp-contract=off", "-DOURS", f"-I{folder}")
    subprocess.run(["clang++-16", *flags, SOURCE, "-o", path], check=True)
    return path


def expected(words: str) -> Array:
    operand, *numbers = words.split()
    if operand == "product":
        m, k, n = map(int, numbers[:3])
        left = drawn(k, m).T if numbers[3:] else drawn(m, k)
        return left @ drawn(k, n)
    images, size, channels, filters = map(int, numbers)
    inputs, taps = drawn(images, size, size, channels), drawn(3, 3, channels, filters)
    if operand == "outputs":
        return convolved(inputs, taps)
    # What comes back is what was drawn as outputs.
    back = drawn(images, size, size, filters)
    if operand == "inputs":
        return convolved(back, taps[::-1, ::-1].transpose(0, 1, 3, 2))
    return filter_gradient(inputs, back)


@pytest.mark.parametrize(
    "words",
    [
        *("product 33 70 65", "product 48 40 64 t"),
        *("outputs 2 8 16 32", "inputs 2 8 32 16", "filter 2 8 16 32"),
    ],
)
def test_what_is_timed_is_computed(program: Path, words: str) -> None:
    completed = subprocess.run(
        [program, "0.001", *words.split()], check=True, capture_output=True, text=True
    )
    milliseconds, total = map(float, completed.stdout.split())
    assert milliseconds > 0
    assert total == pytest.approx(np.abs(expected(words)).sum(), rel=1e-4)
