"""Finished wheels: the choice of a wheel for a CPU, and the private index."""
