"""Modules that run inside an arm. They import only the standard library, NumPy and TensorFlow."""
