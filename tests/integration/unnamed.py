"""Runs inside TensorFlow: a case of products where TENSORWRIGHT_FUSE names no part."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tensorflow as tf

from tfbuild.native.ops.products import cases as products
from tfbuild.probe import registry

if __name__ == "__main__":
    out, threads, library, case = sys.argv[1:]
    tf.config.threading.set_intra_op_parallelism_threads(int(threads))
    fused = registry.Library(Path(library))
    products.cases()[case](tf)
    Path(out).write_text(json.dumps({case: fused.count_fused_events()}), "utf-8")
