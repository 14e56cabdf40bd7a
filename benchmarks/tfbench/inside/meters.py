"""Linux's counters of disturbances of a timed process.

This file runs inside each arm's environment: it imports only the standard library. A counter that
the kernel does not report is 0.
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
"""Columns of ticks in /proc/stat, see proc(5): user, nice, system, irq and softirq; steal."""
_THROTTLED = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
"""Names in cpu.stat of cgroups v2 and v1, and their units in seconds."""


def read_machine_counters(cpus: Collection[int]) -> dict[str, Any]:
    """Return the counters of the machine on these CPUs, by their names in samples."""
    busy_s, steal_s = read_busy_and_steal_s(cpus)
    return {"busy_s": busy_s, "steal_s": steal_s, "throttled_s": read_throttled_s()}


def compute_growth(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the growth of each counter, 0 for one that the kernel has reset."""
    return {name: max(0, after[name] - before[name]) for name in before}


def read_run_delay_s() -> float:
    """Return the seconds in which this process's threads were runnable but had no CPU.

    See "schedstat" in Linux's Documentation/scheduler/sched-stats.rst: the second number, in ns.
    """
    total = 0
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208  (cheaper than Path, and timed)
        try:
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as stat:  # noqa: PTH123
                total += int(stat.read().split()[1])
        except OSError:  # (the thread has ended, or the file does not exist)
            continue
    return total / 1e9


def read_busy_and_steal_s(
    cpus: Collection[int], stat: Path = Path("/proc/stat")
) -> tuple[float, float]:
    """Return the busy and the steal seconds of these CPUs since boot, in ticks of 10 ms.

    Busy time counts every process. Steal time is time that the hypervisor gave to others.
    """
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


def read_throttled_s(root: Path = Path("/")) -> float:
    """Return the seconds for which the quota of a cgroup of this process throttled it."""
    return sum(map(_read_cgroup_throttled_s, _find_cpu_stats(root)))


def _read_cgroup_throttled_s(stat: Path) -> float:
    try:
        rows = dict(line.split() for line in stat.read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):
        return 0.0
    return next((int(rows[name]) * unit for name, unit in _THROTTLED.items() if name in rows), 0.0)


@functools.cache
def _find_cpu_stats(root: Path) -> tuple[Path, ...]:
    """Return the cpu.stat of this process's cgroup and of those above it.

    Each counts only its own quota. See cgroups(7): version 2 has a line without controllers,
    version 1 a line per hierarchy. In a container the path may name folders that only the host
    can see; only existing ones are returned.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return ()
    base = root / "sys/fs/cgroup"
    candidates: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            candidates += (
                *_list_ancestor_stats(base, path),
                *_list_ancestor_stats(base / "unified", path),
            )
        elif "cpu" in controllers.split(","):
            candidates += (
                *_list_ancestor_stats(base / controllers, path),
                *_list_ancestor_stats(base / "cpu", path),
            )
    # One of the two names of a mount is a link to the other.
    return tuple(dict.fromkeys(stat.resolve() for stat in candidates if stat.is_file()))


def _list_ancestor_stats(mount: Path, path: str) -> Iterator[Path]:
    """Yield the cpu.stat of a cgroup and of each one above it, up to the mount of the hierarchy."""
    folder = mount / path.strip("/")
    for level in (folder, *folder.parents):
        yield level / "cpu.stat"
        if level == mount:
            return


def time_canary() -> float:
    """Return the seconds of the fastest of CANARY_TRIES runs of a fixed Python loop.

    They show how fast this CPU is at the moment.
    """
    return min(_time_canary_once() for _ in range(CANARY_TRIES))


def _time_canary_once() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(CANARY_LOOPS):
        total += number * number
    return time.perf_counter() - began
