"""Check the file systems that a build writes to: type, free space and mount options."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbuild.machine.checklist import CheckVerdict, Finding, build_finding, build_unknown
from tfcore.console import format_size

_NETWORK = frozenset({"nfs", "nfs4"})
_REMOTE = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "smb3"}
)
_IN_MEMORY = frozenset({"ramfs", "tmpfs"})
# TensorFlow 2.14.1's tree has 30,126 files (counted); downloads and outputs are additional.
_LEAST_INODES = 30_126
_SKEW_S = 2.0  # FAT stores times in steps of 2 s.
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """One line of mountinfo: the mount point, the type of the file system, and the options."""

    point: Path
    kind: str
    options: frozenset[str]
    device: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskProbe:
    """The result of writing a file.

    `skew_s` is the clock minus the file's time, in seconds, `capitals_differ` whether the file
    system distinguishes capitals in names, `problem` the reason if no file could be written.
    """

    skew_s: float = 0.0
    capitals_differ: bool = True
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """A folder and its file system.

    `free_mb` is the space that this user can use, in megabytes. `inodes` is the number of free
    inodes; None if the file system creates them as needed (btrfs).
    """

    folder: Path
    mount: Mount
    free_mb: int
    inodes: int | None
    tried: DiskProbe


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskNeed:
    """The space that a folder needs, in megabytes. `runs` is whether programs run from it."""

    purpose: str
    disk: Disk
    megabytes: int
    runs: bool = False


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """Parse /proc/self/mountinfo, in its order.

    Source: proc(5): ID, parent, device number, root, mount point, options, any number of
    optional fields, a hyphen, type, device, the file system's own options.
    """
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) >= 6 and kinds:  # noqa: PLR2004  (the fields named above)
            options = frozenset(fields[5].split(",")) | frozenset(",".join(kinds[2:]).split(","))
            point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
            mounts.append(
                Mount(point=Path(point), kind=kinds[0], options=options, device=fields[2])
            )
    return tuple(mounts)


def find_mount(path: Path, mounts: tuple[Mount, ...]) -> Mount:
    """Return the mount of an absolute path: the deepest, and of two at one point the later."""
    fitting = (mount for mount in reversed(mounts) if path.is_relative_to(mount.point))
    fallback = Mount(point=Path("/"), kind="unknown", options=frozenset(), device="")
    return max(fitting, key=lambda mount: len(mount.point.parts), default=fallback)


def read_disk(folder: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> Disk:
    """Read the file system of `folder`; for a missing folder, that of its nearest parent."""
    present = folder.absolute()
    while not os.path.exists(present):  # noqa: PTH110  (Path.exists raises below a closed folder)
        present = present.parent
    try:
        mounts = parse_mounts(mountinfo.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        mounts = ()
    stat = os.statvfs(present)
    return Disk(
        folder=folder,
        mount=find_mount(present.resolve(), mounts),
        free_mb=stat.f_bavail * stat.f_frsize // 1_000_000,
        inodes=stat.f_favail if stat.f_files else None,
        tried=_probe_folder(present),
    )


def _probe_folder(folder: Path) -> DiskProbe:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".tensorwright-look-") as file:
            skew = time.time() - os.fstat(file.fileno()).st_mtime
            path = Path(file.name)
            return DiskProbe(
                skew_s=skew, capitals_differ=not path.with_name(path.name.upper()).exists()
            )
    except OSError as error:
        return DiskProbe(problem=error.strerror or str(error))


def check_disks(needs: Sequence[DiskNeed]) -> Iterator[Finding]:
    """Check the folders that a build needs.

    The space is checked for all folders on one file system together. Each mount is reported
    once.
    """
    for sharing in _group_needs(needs, lambda need: need.disk.mount.device):
        yield _check_space(sharing)
    for sharing in _group_needs(needs, lambda need: str(need.disk.mount.point)):
        disk = next((need.disk for need in sharing if need.runs), sharing[0].disk)
        if any(need.runs for need in sharing):
            yield from _check_programs(disk)
        yield from _check_files(disk)
    for need in needs:
        yield from _check_folder(need)


def _group_needs(
    needs: Sequence[DiskNeed], key: Callable[[DiskNeed], str]
) -> Iterator[tuple[DiskNeed, ...]]:
    """Yield the needs that share a key, in their own order."""
    for shared in dict.fromkeys(map(key, needs)):
        yield tuple(need for need in needs if key(need) == shared)


def _check_space(needs: Sequence[DiskNeed]) -> Finding:
    """Check the free space of needs on one file system.

    Gentoo's tensorflow ebuild checks for 10 GB and 6 GB per Python; EasyBuild notes 2 GB of
    temporary files.
    """
    required = sum(need.megabytes for need in needs)
    free = min(need.disk.free_mb for need in needs)
    parts = ", ".join(f"{format_size(need.megabytes * 1e6)} {need.purpose}" for need in needs)
    folder = needs[0].disk.folder
    return build_finding(
        f"disk of {folder}",
        f"{format_size(free * 1e6)} free",
        f"{format_size(required * 1e6)} ({parts})",
        CheckVerdict.FATAL if free < required else None,
        "Free some space, or set TENSORWRIGHT_CACHE and TMPDIR to folders on a larger disk.",
    )


def _check_files(disk: Disk) -> Iterator[Finding]:
    name = disk.folder
    if disk.inodes is not None:
        few = CheckVerdict.FATAL if disk.inodes < _LEAST_INODES else None
        required = f"more than {_LEAST_INODES}, the number of files in TensorFlow's sources"
        advice = "Delete files there, or use another disk."
        yield build_finding(f"free inodes of {name}", str(disk.inodes), required, few, advice)
    yield build_finding(
        f"file times of {name}",
        f"{disk.tried.skew_s:+.1f} s from the clock",
        f"within {_SKEW_S:g} s",
        CheckVerdict.WARNING if abs(disk.tried.skew_s) > _SKEW_S else None,
        "Set the clocks of this machine and of the file server: Bazel compares file times.",
    )


def _check_folder(need: DiskNeed) -> Iterator[Finding]:
    """Yield the problems of a folder."""
    disk, name = need.disk, need.disk.folder
    if disk.tried.problem:
        problem, advice = disk.tried.problem, "Use a folder that this user can write to."
        yield build_finding(f"writing in {name}", problem, "permitted", CheckVerdict.FATAL, advice)
    if need.runs and any(mark.isspace() for mark in str(name)):
        advice = "Some commands in TensorFlow's rules do not quote paths: use another folder."
        yield build_finding(
            f"path of {name}", "has spaces", "no spaces", CheckVerdict.WARNING, advice
        )
    if need.runs and not disk.tried.capitals_differ:
        advice = "Use another disk: some sources have names that differ only in capitals."
        yield build_finding(
            f"FILE and file in {name}", "the same file", "two files", CheckVerdict.FATAL, advice
        )


def _check_programs(disk: Disk) -> Iterator[Finding]:
    kind, name = disk.mount.kind, disk.folder
    required = "a local disk"
    if kind == "unknown":
        yield build_unknown(f"file system of {name}", "not in /proc/self/mountinfo", required)
    else:
        yield build_finding(
            f"file system of {name}",
            kind,
            required,
            _rate_file_system(kind),
            _describe_file_system(kind),
        )
    noexec = "noexec" in disk.mount.options
    advice = "Bazel runs the tools that it builds: mount it without noexec, or use another folder."
    actual = f"mounted at {disk.mount.point}" + (" with noexec" if noexec else "")
    bad = CheckVerdict.FATAL if noexec else None
    yield build_finding(f"programs in {name}", actual, "permitted", bad, advice)


def _rate_file_system(kind: str) -> CheckVerdict | None:
    if kind in _NETWORK:
        return CheckVerdict.FATAL
    return CheckVerdict.WARNING if kind in _REMOTE | _IN_MEMORY else None


def _describe_file_system(kind: str) -> str:
    if kind in _IN_MEMORY:
        return "Files there use memory: set TENSORWRIGHT_CACHE to a disk."
    return (
        "Bazel warns that NFS may lead to surprising failures and undetermined behavior "
        "(bazel#2042): set TENSORWRIGHT_CACHE to a local disk."
    )
