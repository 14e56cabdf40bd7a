from __future__ import annotations

import dataclasses
import os
import platform
from pathlib import Path

from tfcore.comparisons.host import Host, read_host, read_hugepages
from tfcore.records import convert_record, decode_record


def test_this_machine_is_read() -> None:
    host = read_host()
    assert host.affinity == tuple(sorted(os.sched_getaffinity(0)))
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
