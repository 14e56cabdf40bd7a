"""Imports TensorFlow for probes without garbage collection. The collector would scan a quarter of a
million objects again and again during the import. In forked children it would also cause copies of
their memory pages (see gc.freeze in Python's documentation)."""

from __future__ import annotations

import gc
import importlib
from typing import Any


def import_tensorflow() -> Any:
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
