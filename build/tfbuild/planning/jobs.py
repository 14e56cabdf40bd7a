"""The number of parallel compiles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tfcore.errors import UsageError

_RESERVED_MB = 2500  # for Bazel's Java heap and the linker


@dataclass(frozen=True, kw_only=True, slots=True)
class Jobs:
    """The number of parallel compiles, and what limits it."""

    count: int
    limited_by: str


def read_available_mb(root: Path = Path("/")) -> int:
    """Return the memory available without swapping, in megabytes.

    It is the machine's, or less in a cgroup. Source: proc(5), MemAvailable; cgroup v2
    memory.max, memory.current and memory.stat. The cgroup counts the page cache of files that
    were read once (inactive_file) as used, but the kernel reclaims it.
    """
    text = (root / "proc/meminfo").read_text(encoding="ascii")
    rows = dict(line.split(":", 1) for line in text.splitlines())
    machine = int(rows["MemAvailable"].split()[0]) * 1024
    group = root / "sys/fs/cgroup"
    try:
        allowed = int((group / "memory.max").read_text())
        allowed -= int((group / "memory.current").read_text()) - _read_reclaimable(group)
    except (OSError, ValueError):
        allowed = machine
    return max(0, min(machine, allowed)) // 1_000_000


def _read_reclaimable(group: Path) -> int:
    rows = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return int(rows.get("inactive_file", 0))


def choose_jobs(cpus: int, memory_mb: int, per_job_mb: int, jobs_option: str = "") -> Jobs:
    """Choose the number of jobs: one per CPU, but no more than fit into memory; at least one.

    Raises UsageError if `jobs_option` is not a positive number.
    """
    if jobs_option:
        if not jobs_option.isdecimal() or int(jobs_option) < 1:
            raise UsageError(
                f"--jobs {jobs_option} is not a positive whole number", hint="Try --jobs 2"
            )
        return Jobs(count=int(jobs_option), limited_by="--jobs")
    by_memory = max(1, (memory_mb - _RESERVED_MB) // max(1, per_job_mb))
    if by_memory < cpus:
        return Jobs(count=by_memory, limited_by=f"memory ({memory_mb} MB free)")
    return Jobs(count=cpus, limited_by="the number of CPUs")
