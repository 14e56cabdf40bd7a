"""Numbers of parameters of layers, worked out by hand."""

from __future__ import annotations


def dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def convolution(size: int, channels: int, filters: int) -> int:
    return size * size * channels * filters + filters


def lstm(inputs: int, units: int) -> int:
    return 4 * ((inputs + units) * units + units)
