"""Runs inside TensorFlow: a model whose grouped convolutions Keras has XLA compile."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tensorflow as tf

from tfbuild.probe import registry

if __name__ == "__main__":
    out, library = sys.argv[1:]
    fused = registry.Library(Path(library))
    layers = tf.keras.layers
    convolutions = [layers.Conv2D(4, 3, groups=2) for _ in range(2)]
    model = tf.keras.Sequential([layers.Input((9, 9, 2)), *convolutions])
    model.compile("sgd", "mse")
    model.fit(tf.ones((4, 9, 9, 2)), tf.ones((4, 5, 5, 4)), epochs=2, verbose=0)
    Path(out).write_text(json.dumps(fused.count_fused_events()), "utf-8")
