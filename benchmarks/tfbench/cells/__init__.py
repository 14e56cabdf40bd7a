"""Experiments of many cells: each a process of its own, with an answer or the reason of none."""
