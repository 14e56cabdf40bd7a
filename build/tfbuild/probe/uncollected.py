"""TensorFlow as probes import it: Python's garbage collector leaves alone what it is made of. It
would go through a quarter of a million objects again and again while they are made and, in the
children of a fork, have their pages copied (gc.freeze in Python's documentation)."""

from __future__ import annotations

import gc
import importlib
from typing import Any


def import_tensorflow() -> Any:  # noqa: ANN401
    """Import TensorFlow without garbage collection, and exclude its objects from later
    collections.
    """
    gc.disable()
    try:
        tf = importlib.import_module("tensorflow")
        gc.freeze()
    finally:
        gc.enable()
    return tf
