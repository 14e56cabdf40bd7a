"""Runs inside TensorFlow: the cases of a part of the library, fused and as TensorFlow has them,
held against float64."""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfbuild.probe import float64, fusing, registry
from tfbuild.probe.fusing import Case


def bits(fused: fusing.State | str) -> str:
    """The SHA-256 of what came out in float32."""
    half = [] if isinstance(fused, str) else fused[: len(fused) // 2]
    return hashlib.sha256(b"".join(each.tobytes() for each in half)).hexdigest()


def hold(part: str, cases: Mapping[str, Case]) -> None:
    """PROGRAM OUT THREADS LIBRARY [CASE...]: writes, as JSON, per case what lies too far away, and
    what the library counted."""
    out, threads, library = sys.argv[1:4]
    tf.get_logger().setLevel("ERROR")  # (functions are traced again and again, as is meant here)
    tf.config.threading.set_intra_op_parallelism_threads(int(threads))
    fused = registry.Library(Path(library))
    chosen = sys.argv[4:]
    answer: dict[str, Any] = {}
    for name, case in cases.items():
        if chosen and name not in chosen:
            continue
        before = fused.fused()
        outcomes = fusing.both(functools.partial(case, tf), part)
        after = fused.fused()
        answer[name] = {
            "unlike": float64.difference(*outcomes),
            "ulps": float64.ulps(*outcomes),
            "bits": bits(outcomes[1]),
            "events": {key: after[key] - before[key] for key in after if after[key] != before[key]},
        }
    Path(out).write_text(json.dumps(answer), "utf-8")
