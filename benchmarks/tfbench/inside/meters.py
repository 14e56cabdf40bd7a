"""What disturbed a process while it was timed, as Linux counts it.

This file runs inside each arm's own environment: the standard library only. Where the kernel is
silent a meter says 0: nothing was seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path

CANARY_LOOPS = 8000
CANARY_TRIES = 3
_BUSY, _STEAL = (1, 2, 3, 6, 7), (8,)
"""Columns of ticks in /proc/stat, see proc(5): user, nice, system, irq and softirq; stolen."""
_THROTTLED = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
"""Names and units in cpu.stat of cgroups v2 and v1."""
_CPU_STATS = tuple(
    Path("/sys/fs/cgroup") / folder / "cpu.stat" for folder in ("", "cpu", "cpu,cpuacct")
)


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


def throttled_s(places: Collection[Path] = _CPU_STATS) -> float:
    """Seconds for which the quota of this process's cgroup stopped it, seen from inside of it."""
    for place in places:
        try:
            rows = dict(line.split() for line in place.read_text(encoding="ascii").splitlines())
        except (OSError, ValueError):
            continue
        for name, unit in _THROTTLED.items():
            if name in rows:
                return int(rows[name]) * unit
    return 0.0


def canary_s() -> float:
    """The fastest of a few runs of a fixed piece of Python: how fast this CPU is just now."""
    return min(_canary() for _ in range(CANARY_TRIES))


def _canary() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(CANARY_LOOPS):
        total += number * number
    return time.perf_counter() - began
