"""Comparisons: launches, blocks, samples, intervals and verdicts."""
