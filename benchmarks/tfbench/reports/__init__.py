"""A comparison or a bill for people and other programs."""
