"""What disturbed a process while it was timed, as Linux counts it.

This file runs inside each arm's own environment: the standard library only. Where the kernel is
silent a meter says 0: nothing was seen.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

CANARY_LOOPS = 8000
CANARY_TRIES = 3
_BUSY, _STEAL = (1, 2, 3, 6, 7), (8,)
"""Columns of ticks in /proc/stat, see proc(5): user, nice, system, irq and softirq; stolen."""
_THROTTLED = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
"""Names and units in cpu.stat of cgroups v2 and v1."""


def of_machine(cpus: Collection[int]) -> dict[str, Any]:
    """What goes on beside a process on these CPUs, under the names that samples have for it."""
    busy_s, steal_s = machine_s(cpus)
    return {"busy_s": busy_s, "steal_s": steal_s, "throttled_s": throttled_s()}


def growth(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What each counter has grown by, 0 for one that a kernel has set back."""
    return {name: max(0, after[name] - before[name]) for name in before}


def run_delay_s() -> float:
    """Seconds that this process's threads were ready and had no CPU.

    See "schedstat" in Linux's Documentation/scheduler/sched-stats.rst: the second number, in ns.
    """
    total = 0
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208  (cheaper than Path, and timed)
        try:
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as stat:  # noqa: PTH123
                total += int(stat.read().split()[1])
        except OSError:  # the thread has ended, or there is no such file
            continue
    return total / 1e9


def machine_s(cpus: Collection[int], stat: Path = Path("/proc/stat")) -> tuple[float, float]:
    """Seconds that these CPUs were busy, whoever it was, and that the hypervisor took from them,
    since the start, in ticks of 10 ms."""
    names = {f"cpu{number}" for number in cpus}
    try:
        lines = stat.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0, 0.0
    rows = [row for line in lines if (row := line.split()) and row[0] in names]
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    busy, steal = (
        sum(int(row[column]) for row in rows for column in columns if column < len(row)) * tick_s
        for columns in (_BUSY, _STEAL)
    )
    return busy, steal


def throttled_s(root: Path = Path("/")) -> float:
    """Seconds for which a quota of this process's cgroup, or of one above it, stopped it."""
    return sum(map(_throttled_s, _cpu_stats(root)))


def _throttled_s(stat: Path) -> float:
    try:
        rows = dict(line.split() for line in stat.read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):
        return 0.0
    return next((int(rows[name]) * unit for name, unit in _THROTTLED.items() if name in rows), 0.0)


@functools.cache
def _cpu_stats(root: Path) -> tuple[Path, ...]:
    """The cpu.stat of this process's cgroup and of those above it: each counts its own quota only.

    See cgroups(7): version 2 has a line without controllers, version 1 one for each hierarchy. In a
    container the path may name folders that only the host can see; what is there is read.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return ()
    base = root / "sys/fs/cgroup"
    found: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found += (*_upwards(base, path), *_upwards(base / "unified", path))
        elif "cpu" in controllers.split(","):
            found += (*_upwards(base / controllers, path), *_upwards(base / "cpu", path))
    # One of the two names of a mount is a link to the other.
    return tuple(dict.fromkeys(stat.resolve() for stat in found if stat.is_file()))


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """The cpu.stat of a cgroup and of each one above it, up to where the hierarchy is mounted."""
    folder = mount / path.strip("/")
    for level in (folder, *folder.parents):
        yield level / "cpu.stat"
        if level == mount:
            return


def canary_s() -> float:
    """The fastest of a few runs of a fixed piece of Python: how fast this CPU is just now."""
    return min(_canary() for _ in range(CANARY_TRIES))


def _canary() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(CANARY_LOOPS):
        total += number * number
    return time.perf_counter() - began
