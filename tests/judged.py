"""Comparisons that speak for stand-in wheels."""

from __future__ import annotations

import json
from pathlib import Path

from tfbuild.packing.tuned import read_tuned
from tfbuild.upstream.download import sha256_of
from tfwheels.gate import Judgement, judge


def compared(folder: Path, wheel: Path) -> Judgement:
    """What the gate says of a tuned wheel with a comparison of its own in `folder`, in which its
    first library is 1.3 times as fast."""
    tuned = read_tuned(wheel)
    assert tuned is not None
    library = tuned.libraries[0]
    stock: dict[str, object] = {
        "name": "stock",
        "wheel_sha256": tuned.stock_sha256,
        "kernel_library": None,
        "raised_kernels": 0,
        "env": [],
    }
    own: dict[str, object] = {
        "name": "tuned",
        "wheel_sha256": sha256_of(wheel),
        "kernel_library": library.file,
        "raised_kernels": len(library.registrations),
        "env": [],
    }
    speedup = {
        "arm": "tuned",
        "verdict": "faster",
        "interval": {"value": 1.3, "low": 1.2, "high": 1.4},
    }
    comparison = {
        "schema": 3,
        "made": "2020-02-28",
        "complete": True,
        "host": {"cpu": {"name": "a CPU", "features": library.required_features}},
        "arms": [stock, own],
        "cells": [],
        "overall": [{"vcpus": 1, "speedup": speedup}],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "comparison.json"
    path.write_text(json.dumps(comparison), encoding="utf-8")
    return judge(wheel.name, sha256_of(wheel), tuned, [path])
