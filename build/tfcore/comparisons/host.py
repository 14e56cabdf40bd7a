"""The machine of a comparison. Comparisons of different machines cannot be merged."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from tfcore.cpus.cpu import Cpu, Vcpus, read_cpu, read_vcpus

_HUGEPAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """The machine of a comparison.

    `affinity` are the numbers of the CPUs that this process may run on. `hugepages` is the mode of
    transparent huge pages. Texts are empty if the kernel does not report them.
    """

    cpu: Cpu
    vcpus: Vcpus
    affinity: tuple[int, ...]
    kernel: str
    memory_bytes: int
    hugepages: str
    clocksource: str
    governor: str

    @property
    def usable(self) -> tuple[int, ...]:
        """Return the numbers of the CPUs that a process can keep busy.

        The quota caps the affinity.
        """
        return self.affinity[: self.vcpus.usable]


def read_host() -> Host:
    """Return the facts of this machine.

    Raises CpuError.
    """
    return Host(
        cpu=read_cpu(),
        vcpus=read_vcpus(),
        affinity=tuple(sorted(os.sched_getaffinity(0))),
        kernel=platform.release(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        hugepages=read_hugepages(_HUGEPAGES),
        clocksource=_read_text(_CLOCK),
        governor=_read_text(_GOVERNOR),
    )


def read_hugepages(path: Path) -> str:
    """Return the value in brackets, as in `always [madvise] never`; empty without one."""
    words = _read_text(path).split()
    return next((word.strip("[]") for word in words if word.startswith("[")), "")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
