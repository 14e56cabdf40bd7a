"""What measures on TensorFlow 2.20, which comes with Keras 3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tfbench.arms.arm import Arm
from tfbench.kernels.profiles import profile_program
from tfcore.comparisons.host import read_host

pytestmark = [pytest.mark.toolchain, pytest.mark.slow]


def test_a_profile_tells_the_shapes_of_every_product(
    python_of: Callable[[str], Path], tmp_path: Path
) -> None:
    """2.20's profiler drops the level that it is asked for, and traces no shapes by itself."""
    arm = Arm(name="new", python=python_of("2.20.0"), label="2.20.0")
    program = ("mnist_mlp", None)
    profiled_program = profile_program(
        arm, program, read_host().affinity[:1], steps=3, logs=tmp_path
    )
    products = [row.place for row in profiled_program.places if row.place.op.endswith("MatMul")]
    assert products
    assert {
        len(call_site_input.shape) for place in products for call_site_input in place.inputs[:2]
    } == {2}
