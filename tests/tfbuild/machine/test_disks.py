from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.machine import disks
from tfbuild.machine.checklist import CheckVerdict, Finding
from tfbuild.machine.disks import Disk, DiskNeed, DiskProbe, Mount
from tfcore.run import run

# As the kernel writes it: no, one and several optional fields; a space and a backslash in a name.
MOUNTINFO = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
29 27 0:30 / /scratch rw,nosuid,nodev,noexec shared:7 - tmpfs tmpfs rw,size=24684084k
40 27 0:41 / /srv/a\\040b rw,relatime shared:1 master:2 - nfs4 server:/export rw,vers=4.2
41 27 0:42 / /back\\134slash rw - xfs /dev/vdb rw
42 27 0:43 / /mnt rw - ext4 /dev/vdc rw
43 27 0:44 / /mnt rw - btrfs /dev/vdd rw,subvol=/
torn line
"""


def disk(
    kind: str = "ext4",
    *,
    options: str = "rw",
    **changes: Any,
) -> Disk:
    mount = Mount(point=Path("/"), kind=kind, options=frozenset(options.split(",")), device="8:1")
    whole = Disk(
        folder=Path("/work"), mount=mount, free_mb=100_000, inodes=10_000_000, tried=DiskProbe()
    )
    return dataclasses.replace(whole, **changes)


def looked(*given_disks: Disk, mb: int = 1000) -> dict[str, Finding]:
    needs = [
        DiskNeed(purpose="for x", disk=needed_disk, megabytes=mb, runs=True)
        for needed_disk in given_disks
    ]
    return {finding.name: finding for finding in disks.check_disks(needs)}


@pytest.mark.parametrize(
    ("path", "kind", "device"),
    [
        ("/", "ext4", "254:0"),
        ("/usr/lib", "ext4", "254:0"),
        ("/scratch/x", "tmpfs", "0:30"),
        ("/scratchfile", "ext4", "254:0"),  # a name that begins alike is another folder
        ("/srv/a b/cache", "nfs4", "0:41"),
        ("/back\\slash/x", "xfs", "0:42"),
        ("/mnt/x", "btrfs", "0:44"),  # mounted over another
    ],
)
def test_the_mount_that_holds_a_path(path: str, kind: str, device: str) -> None:
    mount = disks.find_mount(Path(path), disks.parse_mounts(MOUNTINFO))
    assert (mount.kind, mount.device) == (kind, device)


def test_options_are_those_of_the_mount_and_of_the_file_system() -> None:
    mount = disks.find_mount(Path("/scratch/x"), disks.parse_mounts(MOUNTINFO))
    assert {"noexec", "nosuid", "size=24684084k"} <= mount.options


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    for mount in disks.parse_mounts(text):
        assert mount.kind


def test_without_mounts_nothing_is_known() -> None:
    assert disks.find_mount(Path("/x"), ()).kind == "unknown"


def test_this_machine_is_read(tmp_path: Path) -> None:
    actual = disks.read_disk(tmp_path / "not" / "yet")
    assert actual.folder == tmp_path / "not" / "yet"
    assert abs(actual.free_mb - shutil.disk_usage(tmp_path).free // 1_000_000) < 5_000
    assert actual.mount.kind != "unknown"
    assert not actual.tried.problem
    assert abs(actual.tried.skew_s) < 10
    assert list(tmp_path.iterdir()) == []  # what was tried is gone


def test_a_machine_without_mountinfo_is_read_all_the_same(tmp_path: Path) -> None:
    assert disks.read_disk(tmp_path, tmp_path / "absent").mount.kind == "unknown"


def test_a_folder_where_nothing_can_be_written_says_why() -> None:
    actual = disks.read_disk(Path("/proc/self/fdinfo"))
    assert actual.tried.problem
    assert looked(actual)["writing in /proc/self/fdinfo"].verdict is CheckVerdict.FATAL


def test_a_good_disk_has_no_bad_finding() -> None:
    assert {finding.verdict for finding in looked(disk()).values()} == {CheckVerdict.OK}


def test_what_shares_a_disk_shares_its_space() -> None:
    whole = looked(disk(free_mb=2_500), disk(folder=Path("/other"), free_mb=2_500), mb=1_250)
    assert whole["disk of /work"].verdict is CheckVerdict.OK
    short = looked(disk(free_mb=2_499), disk(folder=Path("/other"), free_mb=2_499), mb=1_250)
    assert short["disk of /work"].verdict is CheckVerdict.FATAL
    assert short["disk of /work"].wanted == "2.5 GB (1.2 GB for x, 1.2 GB for x)"
    assert "disk of /other" not in short
    mount = Mount(point=Path("/o"), kind="xfs", options=frozenset(), device="8:2")
    apart = looked(
        disk(free_mb=1_250), disk(folder=Path("/o"), mount=mount, free_mb=9_999), mb=1_250
    )
    assert {apart["disk of /work"].verdict, apart["disk of /o"].verdict} == {CheckVerdict.OK}


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("ext4", CheckVerdict.OK),
        ("overlay", CheckVerdict.OK),
        ("btrfs", CheckVerdict.OK),
        ("nfs", CheckVerdict.FATAL),
        ("nfs4", CheckVerdict.FATAL),
        ("lustre", CheckVerdict.WARNING),
        ("tmpfs", CheckVerdict.WARNING),
        ("unknown", CheckVerdict.UNKNOWN),
    ],
)
def test_bazel_wants_a_local_disk(kind: str, verdict: CheckVerdict) -> None:
    assert looked(disk(kind))["file system of /work"].verdict is verdict


@pytest.mark.parametrize(
    ("changed", "name", "verdict"),
    [
        (disk(options="rw,noexec"), "programs in /work", CheckVerdict.FATAL),
        (disk(inodes=30_000), "free inodes of /work", CheckVerdict.FATAL),
        (disk(tried=DiskProbe(skew_s=-3600.0)), "file times of /work", CheckVerdict.WARNING),
        (
            disk(tried=DiskProbe(capitals_differ=False)),
            "FILE and file in /work",
            CheckVerdict.FATAL,
        ),
        (disk(folder=Path("/my work")), "path of /my work", CheckVerdict.WARNING),
    ],
)
def test_each_defect_is_found_alone(changed: Disk, name: str, verdict: CheckVerdict) -> None:
    bad = {
        finding.name: finding
        for finding in looked(changed).values()
        if finding.verdict is not CheckVerdict.OK
    }
    assert {word: finding.verdict for word, finding in bad.items()} == {name: verdict}
    assert bad[name].advice


def test_a_file_system_without_a_count_of_inodes_is_not_judged_by_it() -> None:
    assert "free inodes of /work" not in looked(disk("btrfs", inodes=None))


def test_what_two_folders_of_one_mount_have_in_common_is_said_once() -> None:
    findings = list(
        disks.check_disks(
            [
                DiskNeed(purpose="a", disk=disk(), megabytes=1, runs=True),
                DiskNeed(purpose="b", disk=disk(folder=Path("/b")), megabytes=1),
            ]
        )
    )
    assert len({finding.name for finding in findings}) == len(findings)
    assert not any("/b" in finding.name for finding in findings)


@pytest.mark.toolchain
def test_this_machines_mounts_are_those_that_findmnt_lists() -> None:
    listed = run(["findmnt", "--raw", "--noheadings", "--output", "TARGET,FSTYPE"])
    pairs = [tuple(line.split(" ")) for line in listed.output.splitlines()]
    ours = disks.parse_mounts(Path("/proc/self/mountinfo").read_text())
    assert sorted((str(mount.point), mount.kind) for mount in ours) == sorted(pairs)
