"""From a CPU to a tuned TensorFlow wheel."""

__version__ = "0.1.0"
