"""A package whose import the guard watches."""

from __future__ import annotations

# The lines of TensorFlow 2.14.1 that matter here; loading is done by ctypes.
STAND_IN = b"""\
import os as _os
import sys as _sys

class _ll:
  @staticmethod
  def load_library(folder):
    import importlib
    ctypes = importlib.import_module("ctypes")
    for name in sorted(_os.listdir(folder)):
      if name.endswith(".so"):
        ctypes.CDLL(_os.path.join(folder, name))

if "unloaded" not in _sys.argv:
  _kernel_dir = _os.path.join(_os.path.dirname(__file__), "core", "kernels")
  if _os.path.exists(_kernel_dir):
    _ll.load_library(_kernel_dir)

__all__ = [_s for _s in dir() if not _s.startswith('_')]
"""
