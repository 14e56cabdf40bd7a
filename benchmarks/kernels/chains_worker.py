"""Time chains and their gradients, with fused/chains and without it (turns.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from kernels.alternation import Call, answer
from tfbuild.probe.fusing import Tensor, in_graph


def apply_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return tf.nn.gelu(tf.nn.bias_add(x, bias))


def normalize_layer(x: Tensor, scale: Tensor) -> Tensor:
    """Compute the layer normalization of Keras 2, without an offset."""
    rows = tf.reshape(x, [1, -1, x.shape[-1], 1])
    ones = tf.ones([tf.shape(rows)[1]])
    normal = tf.compat.v1.nn.fused_batch_norm(rows, ones, 0 * ones, data_format="NCHW")[0]
    return tf.reshape(normal, tf.shape(x)) * scale


def normalize_mean_square(x: Tensor, scale: Tensor) -> Tensor:
    return x * tf.math.rsqrt(tf.reduce_mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def mask_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return tf.nn.softmax(scores + (1 - mask) * -1e9)


def drop(x: Tensor, bias: Tensor, residual: Tensor, uniform: Tensor) -> Tensor:
    """Compute a bias, dropout and a residual connection."""
    x = tf.nn.bias_add(x, bias)
    return residual + tf.where(uniform >= 0.1, x * (1 / 0.9), 0.0)  # noqa: PLR2004


CHAINS: Mapping[str, tuple[Callable[..., Tensor], int]] = {
    "GELU": (apply_gelu, 2),
    "layer normalization": (normalize_layer, 2),
    "root mean square": (normalize_mean_square, 2),
    "softmax": (mask_softmax, 1),
    "dropout": (drop, 3),
}
"""Chains, and how many of their inputs have gradients."""


def trace(shape: tuple[str, Sequence[Sequence[int]]], switch: str) -> tuple[Call, Call]:
    """Return what computes a chain, and what trains: the result, then all gradients."""
    name, sizes = shape
    chain, differentiable = CHAINS[name]
    rng = np.random.default_rng(1)
    inputs = [tf.constant(rng.random(size), "float32") for size in sizes]
    signature = [tf.TensorSpec([None, *size[1:]]) for size in sizes]

    @in_graph(tf, input_signature=signature)
    def compute(*tensors: Tensor) -> Tensor:
        return chain(*tensors)

    @in_graph(tf, input_signature=signature)
    def train(*tensors: Tensor) -> list[Tensor]:
        watched = tensors[:differentiable]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            result = chain(*tensors)
        # As in a model, gradients come from an op that is no part of the chain.
        return [result, *tape.gradient(result, watched, tf.nn.softsign(result))]

    calls: tuple[Call, Call] = (lambda: compute(*inputs), lambda: train(*inputs))
    os.environ["TENSORWRIGHT_FUSE"] = switch
    for call in calls:
        call()
    return calls


if __name__ == "__main__":
    answer(trace, "chains")
