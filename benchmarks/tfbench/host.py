"""The machine of a comparison: what must be equal before two comparisons are put together."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from tfbuild.cpu import Cpu, Vcpus, read_cpu, read_vcpus

_HUGEPAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """`affinity` are the numbers of the CPUs that this process may run on. `hugepages` is the mode
    of transparent huge pages, empty where the kernel does not say.
    """

    cpu: Cpu
    vcpus: Vcpus
    affinity: tuple[int, ...]
    kernel: str
    memory_bytes: int
    hugepages: str


def read_host() -> Host:
    """Raises CpuError."""
    return Host(
        cpu=read_cpu(),
        vcpus=read_vcpus(),
        affinity=tuple(sorted(os.sched_getaffinity(0))),
        kernel=platform.release(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        hugepages=hugepages(_HUGEPAGES),
    )


def hugepages(path: Path) -> str:
    """The value in brackets, as in `always [madvise] never`."""
    try:
        words = path.read_text(encoding="ascii").split()
    except OSError:
        return ""
    return next((word.strip("[]") for word in words if word.startswith("[")), "")
