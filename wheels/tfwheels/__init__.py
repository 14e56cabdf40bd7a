"""Finished wheels: which one is right for which CPU, and the private index that says so."""
