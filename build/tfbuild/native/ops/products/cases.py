"""Test programs of fused products: matrix products, convolutions and their gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from tfbuild.probe import float64
from tfbuild.probe.float64 import Program, create_case, draw_as
from tfbuild.probe.fusing import Case, Tensor, in_graph

RUNS = "product executions"
SETTINGS = {"TENSORWRIGHT_PRODUCTS": "always"}
"""Also tests kernels and shapes that are not faster on this CPU."""
difference, ulps = float64.difference, float64.ulps


def create_product(rows: int, depth: int, columns: int) -> Program:
    """Create a program of a matrix product, alone, with a bias, and with a bias and ReLU."""

    def run(tf: ModuleType, dtype: str) -> list[Tensor]:
        draw = functools.partial(draw_as, tf, dtype)

        @in_graph(tf)
        def compute(left: Tensor, right: Tensor, bias: Tensor) -> list[Tensor]:
            alone = tf.matmul(left, right)
            biased = tf.nn.bias_add(tf.matmul(left, -right), bias)
            return [alone, biased, tf.nn.relu(tf.nn.bias_add(tf.matmul(-left, right), bias))]

        return list(compute(draw((rows, depth), 1), draw((depth, columns), 2), draw((columns,), 3)))

    return run


def create_gradients(compute: Callable[..., Tensor], *shapes: Sequence[int]) -> Program:
    """Create a program of a function of tensors with these shapes, and its gradients."""

    def run(tf: ModuleType, dtype: str) -> list[Tensor]:
        @in_graph(tf)
        def compute_gradients(*tensors: Tensor) -> list[Tensor]:
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                output = compute(tf, *tensors)
                loss = tf.reduce_sum(tf.sin(output))
            return [output, *tape.gradient(loss, tensors)]

        return list(
            compute_gradients(
                *(draw_as(tf, dtype, shape, seed) for seed, shape in enumerate(shapes, 1))
            )
        )

    return run


def create_einsum(equation: str, left: Sequence[int], right: Sequence[int]) -> Program:
    return create_gradients(lambda tf, a, b: tf.einsum(equation, a, b), left, right)


def create_product_gradients(
    left: Sequence[int], right: Sequence[int], *, turned: bool = False
) -> Program:
    """Create a program of a matrix product, or of a batch of them, and its gradients; with
    `turned`, of a transposed right matrix.
    """
    return create_gradients(lambda tf, a, b: tf.matmul(a, b, transpose_b=turned), left, right)


def compute_attention(tf: ModuleType, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Compute attention of queries, keys and values, each images x positions x heads x depth, as
    Keras's MultiHeadAttention does.
    """
    scores = tf.einsum("aecd,abcd->acbe", keys, queries)
    return tf.einsum("acbe,aecd->abcd", tf.nn.softmax(scores), values)


def create_convolution_gradients(
    inputs: Sequence[int],
    filters: int,
    taps: Sequence[int],
    padding: str,
    step: int = 1,
) -> Program:
    """Create a program of a layer's gradients of its filter and bias. `inputs` are images, rows,
    columns and channels, `taps` rows and columns, `step` is the stride.
    """

    def run(tf: ModuleType, dtype: str) -> list[Tensor]:
        draw = functools.partial(draw_as, tf, dtype)
        images, bias = draw(inputs, 1), draw((filters,), 3)
        filter_ = draw((*taps, inputs[-1], filters), 2)

        @in_graph(tf)
        def compute_gradients(images: Tensor, filter_: Tensor, bias: Tensor) -> list[Tensor]:
            with tf.GradientTape() as tape:
                tape.watch([filter_, bias])
                output = tf.nn.conv2d(images, filter_, step, padding)
                loss = tf.reduce_sum(tf.sin(tf.nn.bias_add(output, bias)))
            return list(tape.gradient(loss, [filter_, bias]))

        return list(compute_gradients(images, filter_, bias))

    return run


def create_dilated_convolutions(inputs: Sequence[int], filters: int) -> Program:
    """Create a program of a convolution, and of two with a dilation, of which TensorFlow has no
    gradients without oneDNN.
    """

    def run(tf: ModuleType, dtype: str) -> list[Tensor]:
        @in_graph(tf)
        def compute(images: Tensor, filter_: Tensor) -> list[Tensor]:
            return [
                tf.nn.conv2d(images, filter_, 1, "SAME"),
                tf.nn.conv2d(images, filter_, 1, "SAME", dilations=2),
                tf.nn.conv2d(images, filter_, 1, "VALID", dilations=(2, 3)),
            ]

        filter_ = draw_as(tf, dtype, (3, 3, inputs[-1], filters), 2)
        return list(compute(draw_as(tf, dtype, inputs, 1), filter_))

    return run


def create_convolution(
    inputs: Sequence[int], filters: int, padding: str, taps: Sequence[int] = (3, 3)
) -> Program:
    """Create a program of a convolution, alone, with a bias, with a bias and ReLU, and of all
    gradients.
    """

    def run(tf: ModuleType, dtype: str) -> list[Tensor]:
        draw = functools.partial(draw_as, tf, dtype)
        images, bias = draw(inputs, 1), draw((filters,), 3)
        filter_ = draw((*taps, inputs[-1], filters), 2)

        @in_graph(tf)
        def compute(images: Tensor, filter_: Tensor, bias: Tensor) -> list[Tensor]:
            with tf.GradientTape() as tape:
                tape.watch([images, filter_, bias])
                output = tf.nn.conv2d(images, filter_, 1, padding)
                loss = tf.reduce_sum(tf.sin(tf.nn.bias_add(output, bias)))
            biased = tf.nn.bias_add(tf.nn.conv2d(images, -filter_, 1, padding), bias)
            last = tf.nn.bias_add(tf.nn.conv2d(-images, filter_, 1, padding), bias)
            return [output, biased, tf.nn.relu(last), *tape.gradient(loss, [images, filter_, bias])]

        return list(compute(images, filter_, bias))

    return run


def create_normalised_convolution(inputs: Sequence[int], filters: int) -> Program:
    """Create a program of 3x3 convolutions with batch normalisation by given moments, without
    and with ReLU.
    """

    def run(tf: ModuleType, dtype: str) -> list[Tensor]:
        draw = functools.partial(draw_as, tf, dtype)
        vectors = [draw((filters,), seed) for seed in (3, 4, 5)]
        variance = 0.1 + draw((filters,), 6) ** 2

        def normalise(activations: Tensor, scale: Tensor, offset: Tensor, mean: Tensor) -> Tensor:
            if dtype == "float64":  # TensorFlow's fused op has no float64
                return tf.nn.batch_normalization(activations, mean, variance, offset, scale, 1e-3)
            fused = tf.compat.v1.nn.fused_batch_norm
            return fused(activations, scale, offset, mean, variance, 1e-3, is_training=False)[0]

        @in_graph(tf)
        def compute(images: Tensor, filter_: Tensor, *vectors: Tensor) -> list[Tensor]:
            alone = normalise(tf.nn.conv2d(images, filter_, 1, "SAME"), *vectors)
            normalised = normalise(tf.nn.conv2d(images, -filter_, 1, "VALID"), *vectors)
            return [alone, tf.nn.relu(normalised)]

        return list(compute(draw(inputs, 1), draw((3, 3, inputs[-1], filters), 2), *vectors))

    return run


@functools.cache
def build_programs() -> Mapping[str, Program]:
    """Return the programs by name. Sizes are no round numbers, so that tiles and vectors end
    early.
    """
    return {
        "product": create_product(67, 300, 261),
        "product of blocks": create_product(65, 515, 256),
        "layer of a network": create_product_gradients((67, 517), (517, 131)),
        "layer of a network, deep": create_product_gradients((700, 300), (300, 250)),
        "batch": create_product_gradients((5, 3, 33, 70), (5, 3, 70, 39)),
        "batch, turned": create_product_gradients((13, 20, 47), (13, 35, 47), turned=True),
        "batch, broadcast": create_product_gradients((7, 1, 19, 30), (5, 30, 41)),
        "projection": create_einsum("abc,cde->abde", (3, 29, 67), (67, 4, 18)),
        "projection of outputs": create_einsum("abcd,cde->abe", (3, 29, 4, 18), (4, 18, 67)),
        "attention": create_gradients(compute_attention, (3, 29, 4, 18), *[(3, 37, 4, 18)] * 2),
        "einsum of a row": create_einsum("abc,c->ab", (9, 30, 70), (70,)),
        "einsum of two sums": create_einsum("abcd,bd->ac", (3, 29, 37, 18), (29, 18)),
        "valid": create_convolution_gradients((3, 9, 7, 17), 19, (3, 2), "VALID"),
        "same": create_convolution_gradients((2, 5, 6, 12), 32, (3, 3), "SAME"),
        "strided": create_convolution_gradients((2, 11, 10, 23), 16, (3, 5), "SAME", step=2),
        "one tap": create_convolution_gradients((2, 9, 8, 40), 33, (1, 1), "SAME", step=2),
        "one row": create_convolution_gradients((3, 1, 301, 13), 20, (1, 8), "SAME"),
        "layer": create_convolution((3, 13, 9, 32), 48, "SAME"),
        "layer, valid": create_convolution((5, 9, 17, 48), 64, "VALID"),
        "layer, deep": create_convolution((20, 4, 4, 144), 176, "SAME"),
        "dilated": create_dilated_convolutions((3, 13, 9, 32), 48),
        "layer of lines": create_convolution((3, 1, 151, 48), 80, "SAME", (1, 5)),
        "layer of lines, valid": create_convolution((4, 3, 45, 32), 48, "VALID", (1, 3)),
        "normalised": create_normalised_convolution((5, 13, 9, 32), 48),
        "many images": create_convolution_gradients((70, 3, 3, 18), 48, (3, 3), "SAME"),
    }


def cases() -> Mapping[str, Case]:
    return {name: create_case(program) for name, program in build_programs().items()}
