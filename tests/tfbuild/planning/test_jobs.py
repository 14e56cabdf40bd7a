from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.planning.jobs import Jobs, choose_jobs, read_available_mb
from tfcore.errors import UsageError

GB = 1_000_000_000


def machine(
    root: Path, free: int, limit: str = "", used: int = 0, inactive: int | None = 0
) -> Path:
    """A /proc and a /sys with this much memory, in bytes."""
    (root / "proc").mkdir()
    text = f"MemTotal:       99999999 kB\nMemAvailable:   {free // 1024} kB\nHugePages_Total:   0\n"
    (root / "proc/meminfo").write_text(text)
    if limit:
        group = root / "sys/fs/cgroup"
        group.mkdir(parents=True)
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text(f"{used}\n")
        if inactive is not None:
            (group / "memory.stat").write_text(f"anon 5\nfile 7\ninactive_file {inactive}\n")
    return root


@pytest.mark.parametrize(
    ("limit", "used", "inactive", "expected"),
    [
        ("", 0, 0, 16_000),  # no cgroup
        ("max", 5 * GB, 0, 16_000),
        (str(8 * GB), 1 * GB, 0, 7_000),
        (str(64 * GB), 1 * GB, 0, 16_000),  # the machine has less than the group may use
        (str(8 * GB), 7 * GB, 6 * GB, 7_000),  # most of it is files that were read once
        (str(8 * GB), 9 * GB, 0, 0),
        (str(8 * GB), 1 * GB, None, 16_000),  # unreadable: as if there were none
    ],
)
def test_memory_is_what_the_machine_and_the_cgroup_give(
    tmp_path: Path, limit: str, used: int, inactive: int | None, expected: int
) -> None:
    available_mb = read_available_mb(machine(tmp_path, 16 * GB, limit, used, inactive))
    assert abs(available_mb - expected) <= 1


def test_this_machine_has_memory() -> None:
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024 // 1_000_000
    assert 0 < read_available_mb() <= total


@pytest.mark.parametrize(
    ("cpus", "memory", "per_job", "expected"),
    [
        (2, 24_000, 3_000, Jobs(count=2, limited_by="the number of CPUs")),
        (8, 8_500, 3_000, Jobs(count=2, limited_by="memory (8500 MB free)")),
        (8, 8_499, 3_000, Jobs(count=1, limited_by="memory (8499 MB free)")),
        (2, 0, 3_000, Jobs(count=1, limited_by="memory (0 MB free)")),
        (1, 0, 3_000, Jobs(count=1, limited_by="the number of CPUs")),
        (4, 24_000, 0, Jobs(count=4, limited_by="the number of CPUs")),
    ],
)
def test_jobs_keep_to_memory(cpus: int, memory: int, per_job: int, expected: Jobs) -> None:
    assert choose_jobs(cpus, memory, per_job) == expected


@given(st.integers(1, 512), st.integers(-(10**6), 10**6), st.integers(0, 10**4))
def test_there_is_always_a_job_and_never_more_than_fit(
    cpus: int, memory: int, per_job: int
) -> None:
    jobs = choose_jobs(cpus, memory, per_job)
    assert 1 <= jobs.count <= cpus
    assert jobs.count == 1 or jobs.count * per_job < memory


def test_the_user_has_the_last_word() -> None:
    assert choose_jobs(2, 0, 3_000, "16") == Jobs(count=16, limited_by="--jobs")


@pytest.mark.parametrize("expected", ["0", "-1", "two", "1.5", " ", "²", "1e3", "0x2", "+2"])
def test_a_number_of_jobs_that_is_none_is_refused(expected: str) -> None:
    with pytest.raises(UsageError, match="--jobs"):
        choose_jobs(2, 24_000, 3_000, expected)
