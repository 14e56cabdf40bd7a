"""This machine's CPU: the only place where an integration test may ask for it.

With three variables a CPU with AVX-512 stands in for one with AVX2 only: TENSORWRIGHT_MASK hides
features from Tensorwright, ONEDNN_MAX_CPU_ISA=AVX2 from oneDNN, and TF_ENABLE_ONEDNN_OPTS=0 is
stock's default there (.github/workflows/nightly.yml).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tfbuild.planning.defaults import load_levers
from tfcore.cpus.cpu import Cpu, read_cpu
from tfcore.cpus.targets import Match, match_cpu

ONEDNN_FEATURES = next(lever.unless for lever in load_levers() if lever.name == "onednn")
"""A CPU with one of these has oneDNN on in stock TensorFlow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnCpu:
    """`cpu` is without what TENSORWRIGHT_MASK hides. `onednn_by_default` is what stock TensorFlow,
    which knows no mask, does where TF_ENABLE_ONEDNN_OPTS is not set: in workers, for example."""

    cpu: Cpu
    match: Match
    onednn_by_default: bool

    @property
    def has_avx512(self) -> bool:
        return "avx512f" in self.cpu.features

    @property
    def two_targets(self) -> str:
        """A fleet that every CPU with AVX2 can show whole: what it is itself, and one that is older
        and that QEMU has."""
        return f"native,{'x86_64_v3' if self.match.native.name == 'haswell' else 'haswell'}"


@functools.cache
def own_cpu() -> OwnCpu:
    cpu = read_cpu()
    return OwnCpu(
        cpu=cpu,
        match=match_cpu(cpu),
        onednn_by_default=not read_cpu(env={}).features.isdisjoint(ONEDNN_FEATURES),
    )
