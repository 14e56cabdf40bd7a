"""How many compiles may run at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tfbuild.errors import UsageError

_RESERVED_MB = 2500  # Bazel's Java heap and the linker beside the compiles.


@dataclass(frozen=True, kw_only=True, slots=True)
class Jobs:
    """The number, and what set it."""

    count: int
    limited_by: str


def available_mb(root: Path = Path("/")) -> int:
    """Memory that can be had without swapping, in megabytes: the machine's, or less in a cgroup.

    Source: proc(5), MemAvailable; cgroup v2 memory.max and memory.current.
    """
    text = (root / "proc/meminfo").read_text(encoding="ascii")
    rows = dict(line.split(":", 1) for line in text.splitlines())
    machine = int(rows["MemAvailable"].split()[0]) // 1024
    limit = root / "sys/fs/cgroup/memory.max"
    used = root / "sys/fs/cgroup/memory.current"
    try:
        allowed = int(limit.read_text()) - int(used.read_text())
    except (OSError, ValueError):
        return machine
    return min(machine, allowed // 1_000_000)


def choose(cpus: int, memory_mb: int, per_job_mb: int, wanted: str = "") -> Jobs:
    """As many jobs as there are CPUs, but no more than memory holds; at least one.

    Raises UsageError when `wanted` is not a positive number.
    """
    if wanted:
        if not wanted.isdigit() or int(wanted) < 1:
            raise UsageError(f"--jobs {wanted} is not a positive number", hint="Try --jobs 2")
        return Jobs(count=int(wanted), limited_by="--jobs")
    by_memory = max(1, (memory_mb - _RESERVED_MB) // max(1, per_job_mb))
    if by_memory < cpus:
        return Jobs(count=by_memory, limited_by=f"memory ({memory_mb} MB free)")
    return Jobs(count=cpus, limited_by="CPUs")
