"""Settings that may change between two attempts at a build without changing the plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """The settings of one attempt at a build, with `jobs` compiles at once.

    `defines` are --define values that switch off what a compiler cannot do
    (xnn_enable_avx512fp16=false). `fetches` counts how often downloads were tried again. A
    `distrusting` attempt takes nothing from a cache, and overwrites what is there with its
    results.
    """

    jobs: int
    defines: tuple[str, ...] = ()
    fetches: int = 0
    distrusting: bool = False
