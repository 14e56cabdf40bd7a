"""Tests kernel libraries in a real TensorFlow (python -m tfbuild.probe), in an arm's environment.
Imports only the standard library, NumPy and TensorFlow."""
