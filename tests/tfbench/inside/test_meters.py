"""What Linux says of this process and in files as other kernels write them; no times."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tfbench.inside.meters import (
    compute_growth,
    read_busy_and_steal_s,
    read_run_delay_s,
    read_throttled_s,
    time_canary,
)

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
STAT = """\
cpu  10 20 30 40 50 60 70 900 90 100
cpu0 1 2 3 4 5 6 7 300 9 10
cpu1 101 2 3 4 5 6 7 500 9 10
cpu11 1001 2 3 4 5 6 25 100 9 10
intr 12345 0 0
ctxt 999
"""
OLD_STAT = "cpu  1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6 7\n"  # before Linux 2.6.11
V2 = """\
usage_usec 2000000
user_usec 1500000
system_usec 500000
nr_periods 100
nr_throttled 7
throttled_usec 2500000
"""
V1 = "nr_periods 100\nnr_throttled 7\nthrottled_time 1500000000\n"
ROOT_V2 = "usage_usec 2000000\nuser_usec 1500000\nsystem_usec 500000\n"  # nothing bounds the root


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="ascii")
    return path


# --- run delay ------------------------------------------------------------------------------------


def test_run_delay_is_that_of_all_threads_and_never_falls() -> None:
    """The main thread's alone is less than what it is together with others."""
    release = threading.Event()
    threads = [threading.Thread(target=release.wait) for _ in range(3)]
    before = read_run_delay_s()
    try:
        for thread in threads:
            thread.start()
        own_words = Path("/proc/thread-self/schedstat").read_text("ascii").split()
        together = read_run_delay_s()
    finally:
        release.set()
        for thread in threads:
            thread.join()
    assert 0 <= before <= together
    assert together >= int(own_words[1]) / 1e9


# --- busy and stolen ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpus", "busy", "steal"),
    [
        ((0,), 19, 300),
        ((1,), 119, 500),
        ((0, 1), 138, 800),
        ((0, 1, 11), 1175, 900),
        ((), 0, 0),
        ((7,), 0, 0),
    ],
)
def test_busy_and_stolen_ticks_are_summed_over_the_cells_own_cpus(
    cpus: tuple[int, ...], busy: int, steal: int, tmp_path: Path
) -> None:
    """By hand: user, nice, system, irq and softirq; idle, iowait and guests' time are not busy."""
    busy_and_steal_s = read_busy_and_steal_s(cpus, written(tmp_path / "stat", STAT))
    assert busy_and_steal_s == pytest.approx((busy * TICK_S, steal * TICK_S))


def test_a_kernel_that_does_not_know_steal_saw_none(tmp_path: Path) -> None:
    assert read_busy_and_steal_s((0,), written(tmp_path / "stat", OLD_STAT)) == pytest.approx(
        (19 * TICK_S, 0)
    )
    assert read_busy_and_steal_s((0,), tmp_path / "none") == (0, 0)


def test_this_machines_columns_are_those_that_the_kernel_documents() -> None:
    """proc(5): user nice system idle iowait irq softirq steal guest guest_nice."""
    rows = [line.split() for line in Path("/proc/stat").read_text("ascii").splitlines()]
    cpus = {int(row[0][3:]): [int(n) for n in row[1:]] for row in rows if row[0][3:].isdigit()}
    busy, steal = read_busy_and_steal_s(cpus)
    assert busy >= sum(sum(ticks[:3]) + sum(ticks[5:7]) for ticks in cpus.values()) * TICK_S > 0
    assert steal >= sum(ticks[7] for ticks in cpus.values()) * TICK_S


def test_a_process_that_works_makes_its_cpu_busy() -> None:
    cpu = min(os.sched_getaffinity(0))
    code = (
        f"import os, time\nos.sched_setaffinity(0, [{cpu}])\nwhile time.process_time() < 0.3: pass"
    )
    before, _ = read_busy_and_steal_s([cpu])
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
    assert read_busy_and_steal_s([cpu])[0] - before >= 0.3 - 2 * TICK_S


# --- throttling -----------------------------------------------------------------------------------


def grouped(root: Path, message: str, stats: dict[str, str]) -> Path:
    """A root in which /proc/self/cgroup says that, and these folders have a cpu.stat."""
    (root / "proc/self").mkdir(parents=True)
    written(root / "proc/self/cgroup", message)
    for folder, text in stats.items():
        place = root / "sys/fs/cgroup" / folder
        place.mkdir(parents=True, exist_ok=True)
        written(place / "cpu.stat", text)
    return root


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (V2, 2.5),
        (V1, 1.5),
        (ROOT_V2, 0.0),
        ("", 0.0),
        ("one two three\n", 0.0),
        ("throttled_usec\n", 0.0),
    ],
)
def test_both_versions_of_cgroups_are_read(text: str, seconds: float, tmp_path: Path) -> None:
    root = grouped(tmp_path, "0::/a\n", {"a": text})
    assert read_throttled_s(root) == pytest.approx(seconds)


def test_quotas_of_this_process_and_above_it_count_and_no_others(tmp_path: Path) -> None:
    stats = {"": ROOT_V2, "a": V2, "a/b": V2, "a/b/below": V2, "beside": V2}
    assert read_throttled_s(grouped(tmp_path, "0::/a/b\n", stats)) == pytest.approx(5.0)


def test_a_container_that_cannot_see_its_folder_reads_the_root_it_has(tmp_path: Path) -> None:
    assert read_throttled_s(grouped(tmp_path, "0::/docker/0123\n", {"": V2})) == pytest.approx(2.5)


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
def test_version_1_is_followed_in_the_hierarchy_of_the_cpu(mount: str, tmp_path: Path) -> None:
    text = "5:memory:/x\n4:cpu,cpuacct:/x\n0::/\n"
    stats = {mount: "", f"{mount}/x": V1, "memory/x": V1, "unified": ROOT_V2}
    assert read_throttled_s(grouped(tmp_path, text, stats)) == pytest.approx(1.5)


def test_a_mount_with_two_names_counts_once(tmp_path: Path) -> None:
    root = grouped(tmp_path, "4:cpu,cpuacct:/x\n", {"cpu,cpuacct/x": V1})
    (root / "sys/fs/cgroup/cpu").symlink_to("cpu,cpuacct")
    assert read_throttled_s(root) == pytest.approx(1.5)


def test_a_kernel_without_cgroups_throttles_nobody(tmp_path: Path) -> None:
    assert read_throttled_s(tmp_path) == 0


def test_this_process_is_not_throttled_by_less_than_nothing() -> None:
    assert read_throttled_s() >= 0


# --- counters -------------------------------------------------------------------------------------


def test_a_counter_that_was_set_back_has_not_grown() -> None:
    before, after = {"busy_s": 1.5, "switches": 7}, {"busy_s": 1.25, "switches": 9}
    assert compute_growth(before, after) == {"busy_s": 0, "switches": 2}


# --- the canary -----------------------------------------------------------------------------------


def test_the_canary_takes_time() -> None:
    assert time_canary() > 0
