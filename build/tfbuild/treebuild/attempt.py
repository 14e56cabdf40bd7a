"""What may change between two attempts at the same build without changing the wheel's plan."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """`jobs` compiles at once, `memory_mb` for all that runs locally. `defines` are --define values
    that switch off what a compiler cannot do (xnn_enable_avx512fp16=false). `fetches` counts how
    often downloads were tried again.
    """

    jobs: int
    memory_mb: int
    defines: tuple[str, ...] = ()
    fetches: int = 0
