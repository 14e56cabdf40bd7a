"""A line of the file that a kit writes."""

from __future__ import annotations

from typing import Any

from tfbench.inside import kit as inside


def line(phase: str = "train", launch: int = 0, **fields: Any) -> dict[str, Any]:
    whole = {
        "schema": inside.SCHEMA,
        "arm": "K80",
        "host": {"cpu": "Example", "cpus": 8},
        "workload": "mnist_mlp",
        "phase": phase,
        "launch": launch,
        "outcome": "ok",
        "reason": "",
        "device": "Tesla K80",
        "backend": "tensorflow",
        "step_s": [0.01, 0.03],
    }
    return whole | fields
