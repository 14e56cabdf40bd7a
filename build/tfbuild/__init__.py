"""Builds tuned TensorFlow wheels."""

__version__ = "0.1.0"
