"""Experiments of many cells. Each cell is a process, with an answer or a reason for its failure."""
