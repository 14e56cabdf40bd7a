"""python -m tfbuild.probe.full_build ANSWER: test a full build like a user.

Writes one JSON object: the version, the path of the imported package, the sum of 512 x 512 ones,
and the losses of two steps of a small Keras model, if the package has Keras.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tfbuild.probe import uncollected

SIDE = 512


def main(answer: Path) -> None:
    tf = uncollected.import_tensorflow()
    results = {
        "version": tf.__version__,
        "file": tf.__file__,
        "sum": float(tf.reduce_sum(tf.ones([SIDE, SIDE]))),
        "losses": measure_losses(tf) if hasattr(tf, "keras") else [],
    }
    answer.write_text(json.dumps(results), encoding="utf-8")


def measure_losses(tf: Any) -> list[float]:
    """Train a dense layer to add, and return its loss after each of two epochs of one batch."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    x = tf.reshape(tf.range(32.0), (8, 4)) / 32
    y = tf.reduce_sum(x, axis=1, keepdims=True)
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    return [float(loss) for loss in history.history["loss"]]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
