"""Runs inside an arm's environment (python -m tfbuild.probe): what a kernel library does in a real
TensorFlow. Imports only the standard library, NumPy and TensorFlow."""
