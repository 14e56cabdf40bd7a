"""The pass of native/low_precision.cc, in a stock TensorFlow with oneDNN on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.installed_wheel import Tried
from tests.builders.rint_kernels import library

from tfbuild.kernelbuild import admission
from tfbuild.run import run
from tfbuild.settings import Paths
from tfbuild.tools.environment import Environment

pytestmark = pytest.mark.toolchain

# Ops without an output, such as ResourceApplyAdam, in functions of a function.
PROGRAM = """
import sys
import tensorflow as tf
tf.load_library(sys.argv[1])
legacy = tf.keras.optimizers.legacy
for made in (legacy.Adam(), legacy.SGD(momentum=0.9), tf.keras.optimizers.Adam()):
    layer = tf.keras.layers.Dense(4, "tanh")
    layer.build((None, 8))
    @tf.function
    def step(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(inputs) ** 2)
        variables = layer.trainable_variables
        made.apply_gradients(zip(tape.gradient(loss, variables), variables))
        return loss
    @tf.function
    def steps(inputs):
        for _ in tf.range(3):
            step(inputs)
        return step(inputs)
    made.build(layer.trainable_variables) if hasattr(made, "build") else step(tf.ones((2, 8)))
    print(float(steps(tf.ones((2, 8)))) > 0)
"""


def test_functions_with_optimizers_run(
    native: Tried, staged: Path, paths: Paths, stock_arm: Environment, tmp_path: Path
) -> None:
    source = '#include "tensorwright/low_precision.cc"\n'
    path = library("low_precision", source, tmp_path, native, staged, paths)
    done = run(
        [stock_arm.python, "-c", PROGRAM, path],
        env=admission.build_probe_env() | {"TF_ENABLE_ONEDNN_OPTS": "1"},
        timeout_s=600,
        check=False,
    )
    assert done.returncode == 0, done.output
    assert done.output.split().count("True") == 3
