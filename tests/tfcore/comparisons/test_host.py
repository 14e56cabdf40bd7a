from __future__ import annotations

import dataclasses
import os
import platform
from pathlib import Path

import pytest

from tfcore.comparisons.host import Host, count_cores, order_cpus, read_host, read_hugepages
from tfcore.records import convert_record, decode_record


def test_this_machine_is_read() -> None:
    host = read_host()
    assert sorted(host.affinity) == sorted(os.sched_getaffinity(0))
    assert len(host.cores) in {0, len(host.affinity)}
    assert 1 <= host.vcpus.usable <= len(host.affinity) == host.vcpus.affinity
    assert host.kernel == platform.release()
    assert host.memory_bytes > 2**28
    total = next(
        line for line in Path("/proc/meminfo").read_text("ascii").splitlines() if "MemTotal" in line
    )
    assert host.memory_bytes == 1024 * int(total.split()[1])


def test_reading_twice_gives_the_same_machine() -> None:
    """Or no run could go on from its journal."""
    assert read_host() == read_host()


def test_a_host_comes_back_from_its_json() -> None:
    host = read_host()
    assert decode_record(Host, convert_record(host)) == host
    masked = dataclasses.replace(host, clocksource="", governor="", hugepages="")
    assert decode_record(Host, convert_record(masked)) == masked


def test_the_mode_of_huge_pages_is_the_one_in_brackets(tmp_path: Path) -> None:
    path = tmp_path / "enabled"
    path.write_text("always [madvise] never\n", encoding="ascii")
    assert read_hugepages(path) == "madvise"
    path.write_text("always madvise never\n", encoding="ascii")
    assert read_hugepages(path) == ""
    assert read_hugepages(tmp_path / "none") == ""


def make_cpus(root: Path, places: list[tuple[int, int, int]]) -> Path:
    """/sys/devices/system/cpu with a package, a core and a node per CPU."""
    for cpu, (package, core, node) in enumerate(places):
        topology = root / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
        (topology / "core_id").write_text(f"{core}\n")
        (root / f"cpu{cpu}" / f"node{node}").mkdir()
    return root


TWO_SOCKETS = [(n % 8 // 4, n % 4, n % 8 // 4) for n in range(16)]
"""A server with 2 x 4 cores: CPUs 0 and 8 are the threads of one core."""
INTERLEAVED = [(n % 2, n // 2, n % 2) for n in range(8)]
"""A server whose sockets have the even and the odd CPUs, and no second threads."""
VIRTUAL = [(0, n // 2, 0) for n in range(8)]
"""A virtual machine: CPUs 0 and 1 are one core."""


@pytest.mark.parametrize(
    ("places", "cpus", "order", "cores"),
    [
        (
            TWO_SOCKETS,
            range(16),
            (0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15),
            (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
        ),
        (TWO_SOCKETS, (1, 4, 8, 9, 12), (8, 1, 9, 4, 12), (0, 1, 1, 2, 2)),
        (INTERLEAVED, range(8), (0, 2, 4, 6, 1, 3, 5, 7), (0, 1, 2, 3, 4, 5, 6, 7)),
        (VIRTUAL, range(8), (0, 1, 2, 3, 4, 5, 6, 7), (0, 0, 1, 1, 2, 2, 3, 3)),
    ],
)
def test_cpus_of_a_core_and_of_a_node_follow_each_other(
    tmp_path: Path,
    places: list[tuple[int, int, int]],
    cpus: range | tuple[int, ...],
    order: tuple[int, ...],
    cores: tuple[int, ...],
) -> None:
    """So the first n are what a machine of n vCPUs has."""
    found = order_cpus(cpus, make_cpus(tmp_path, places))
    assert tuple(place.cpu for place in found) == order
    assert count_cores(found) == cores


def test_a_kernel_that_does_not_say_leaves_the_order(tmp_path: Path) -> None:
    found = order_cpus({3, 1, 2}, tmp_path)
    assert tuple(place.cpu for place in found) == (1, 2, 3)
    assert count_cores(found) == ()
    make_cpus(tmp_path, VIRTUAL)
    (tmp_path / "cpu2" / "topology" / "core_id").write_text("-1\n")
    assert count_cores(order_cpus({3, 1, 2}, tmp_path)) == ()
