"""The machine of a comparison. Comparisons of different machines cannot be merged."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfcore.cpus.cpu import Cpu, Vcpus, read_cpu, read_vcpus

_HUGEPAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_CPUS = Path("/sys/devices/system/cpu")
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
    cores: tuple[int, ...] = ()
    """The physical core of each CPU in `affinity`, counted from 0; empty if not known."""
    nodes: tuple[int, ...] = ()
    """The NUMA node of each CPU in `affinity`; empty in older comparisons."""

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
    places = order_cpus(os.sched_getaffinity(0), _CPUS)
    return Host(
        cpu=read_cpu(),
        vcpus=read_vcpus(),
        affinity=tuple(place.cpu for place in places),
        kernel=platform.release(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        hugepages=read_hugepages(_HUGEPAGES),
        clocksource=_read_text(_CLOCK),
        governor=_read_text(_GOVERNOR),
        cores=count_cores(places),
        nodes=tuple(place.node for place in places),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuPlace:
    """Where a CPU is. `core` is its package and core, None if not known; `node` its NUMA node."""

    cpu: int
    core: tuple[int, int] | None
    node: int


def order_cpus(cpus: Iterable[int], root: Path) -> tuple[CpuPlace, ...]:
    """Return the CPUs in the order in which they are used.

    The CPUs of one NUMA node follow each other, and in it the CPUs of one core, as those of a
    virtual machine do: so the first n of them are what a machine of n vCPUs has. `root` is
    /sys/devices/system/cpu; if it does not say where a CPU is, they are ordered by number.
    """
    places = [_read_place(cpu, root) for cpu in sorted(cpus)]
    if any(place.core is None for place in places):
        return tuple(places)
    return tuple(sorted(places, key=lambda place: (place.node, place.core, place.cpu)))


def _read_place(cpu: int, root: Path) -> CpuPlace:
    folder = root / f"cpu{cpu}"
    package, core = (
        _read_text(folder / "topology" / name) for name in ("physical_package_id", "core_id")
    )
    nodes = [path.name.removeprefix("node") for path in folder.glob("node[0-9]*")]
    return CpuPlace(
        cpu=cpu,
        core=(int(package), int(core)) if package.isdecimal() and core.isdecimal() else None,
        # A kernel without NUMA has no nodes.
        node=int(nodes[0]) if nodes else 0,
    )


def count_cores(places: Sequence[CpuPlace]) -> tuple[int, ...]:
    """Return the number of each CPU's core, counted from 0; empty if a core is not known."""
    if any(place.core is None for place in places):
        return ()
    numbers = {core: number for number, core in enumerate(dict.fromkeys(p.core for p in places))}
    return tuple(numbers[place.core] for place in places)


def read_hugepages(path: Path) -> str:
    """Return the value in brackets, as in `always [madvise] never`; empty without one."""
    words = _read_text(path).split()
    return next((word.strip("[]") for word in words if word.startswith("[")), "")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
