"""The pass of native/low_precision.cc, in a stock TensorFlow with oneDNN on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.installed_wheel import Tried
from tests.builders.rint_kernels import library

from tfbuild.kernelbuild import admission
from tfbuild.tools.environment import Environment
from tfcore.run import run
from tfcore.settings import Paths

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
        step(inputs)
        return step(inputs)
    made.build(layer.trainable_variables) if hasattr(made, "build") else step(tf.ones((2, 8)))
    print(float(steps(tf.ones((2, 8)))) > 0)
"""


# Patterns of float32 that the remapper fuses with oneDNN on, and for which there is no kernel.
FUSED = """
import sys
import tensorflow as tf
tf.load_library(sys.argv[1])
layers = tf.keras.layers
left, right, bias = tf.ones([8, 4]), tf.ones([8, 3]), tf.ones([3])
biased = lambda product: tf.nn.bias_add(product, bias)
def transposed(after):
    return tf.function(lambda: after(biased(tf.matmul(left, right, transpose_a=True))))
def turned(after):
    return tf.function(lambda: after(biased(tf.matmul(tf.transpose(left), right))))
add = lambda value: tf.add_n([value, tf.ones([4, 3])])
for after in (tf.tanh, tf.sigmoid, add):
    print(transposed(after)().shape == (4, 3), turned(after)().shape == (4, 3))
model = tf.keras.Sequential([
    layers.Conv2D(8, 3, use_bias=False, input_shape=(12, 12, 3)), layers.BatchNormalization(),
])
block = tf.function(lambda value: model(value, training=False))
image = tf.zeros((1, 12, 12, 3))
print(tf.function(lambda value: tf.tanh(tf.identity(model(value))))(image).shape[0] == 1)
print(tf.function(lambda value: tf.tanh(block(value)))(image).shape[0] == 1)
"""

# TensorFlow adds the functions of the program to the session's again when its graph grows.
SESSION = """
import sys
import tensorflow as tf
tf.load_library(sys.argv[1])
with tf.Graph().as_default():
    inner = tf.function(lambda value: tf.math.rsqrt(value) * 2)
    outer = tf.function(lambda value: inner(value) + 1)
    output = outer(tf.ones([2, 2], tf.float16))
    session = tf.compat.v1.Session()
    print(session.run(output).sum() == 12)
    print(session.run(output + 1).sum() == 16)
"""


@pytest.mark.parametrize(
    ("program", "count"), [(PROGRAM, 3), (FUSED, 8), (SESSION, 2)], ids=["ops", "fused", "session"]
)
def test_programs_run_with_onednn_on(
    guard: Path, stock_arm: Environment, program: str, count: int
) -> None:
    done = run(
        [stock_arm.python, "-c", program, guard],
        env=admission.build_probe_env() | {"TF_ENABLE_ONEDNN_OPTS": "1"},
        timeout_s=600,
        check=False,
    )
    assert done.returncode == 0, done.output
    assert done.output.split().count("True") == count, done.output


@pytest.fixture(scope="module")
def guard(
    native: Tried, staged: Path, paths: Paths, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A library that has only the pass."""
    source = '#include "tensorwright/low_precision.cc"\n'
    folder = tmp_path_factory.mktemp("guard")
    return library("low_precision", source, folder, native, staged, paths)
