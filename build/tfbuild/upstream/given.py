"""Sources that a user gives: the release's own archive, another one, or the folder of a checkout.

What is not the release's own, by its hash, is another pin in the plan, and so another wheel.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tfbuild.errors import ChecksumError, CommandError, DownloadError, KernelError, ToolError
from tfbuild.run import run
from tfbuild.settings import Paths, need_disk
from tfbuild.upstream.download import Pin, sha256_of
from tfbuild.upstream.source import TREE, SourcePin, Staging, scratch, wanted

KIND = "given"
_GIT_S = 60.0
_VERSIONS = {
    "tensorflow/core/public/version.h": r"TF_MAJOR_VERSION (\d+)\s*#define TF_MINOR_VERSION (\d+)",
    "tensorflow/tf_version.bzl": r"\bTF_VERSION *= *\"(\d+)\.(\d+)\.",
}
"""Where a tree says of which release it is: in the first up to 2.19, in the second from 2.20 on."""


def pins(given: Path, own: tuple[SourcePin, ...], staging: Staging) -> tuple[SourcePin, ...]:
    """The release's `own` pins if these bytes are one of them, else a pin of what was given.

    Raises DownloadError when nothing is there, KernelError for a folder without kernels.
    """
    if given.is_file():
        sha256 = sha256_of(given)
        if sha256 in {pin.file.sha256 for pin in own}:
            return own
        return (SourcePin(kind=KIND, origin="", file=Pin(name=given.name, sha256=sha256)),)
    if not given.is_dir():
        raise DownloadError(f"--source {given}: there is no such file or folder")
    digest = hashlib.sha256()
    found = list(_files(given, staging))
    for name, path in found:
        digest.update(f"{name}\0{sha256_of(path)}\n".encode())
    if not found:
        raise KernelError(
            f"--source {given} holds none of {', '.join(staging.prefixes)}",
            hint="Give the folder that has tensorflow/ in it",
        )
    file = Pin(name=given.resolve().name, sha256=digest.hexdigest())
    return (SourcePin(kind=KIND, origin=_commit(given), file=file),)


def stage(given: Path, pin: SourcePin, staging: Staging, paths: Paths) -> Path:
    """A copy of what a kernels build reads of a folder, as `source.stage` makes of an archive.

    Raises ChecksumError when it is no longer what the pin says; DiskError.
    """
    folder = paths.sources / f"{pin.file.sha256[:16]}-staged"
    if folder.is_dir():
        return folder / TREE
    found = list(_files(given, staging))
    need_disk(paths.sources, sum(path.stat().st_size for _, path in found), "copying the sources")
    with scratch(folder) as fresh:
        for name, path in found:
            target = fresh / TREE / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        if pins(fresh / TREE, (), staging)[0].file.sha256 != pin.file.sha256:
            raise ChecksumError(
                f"--source {given} has changed since it was looked at", hint="Run it again"
            )
    return folder / TREE


def _files(tree: Path, staging: Staging) -> Iterator[tuple[str, Path]]:
    """What a kernels build reads, by its path in the tree; no links, which may lead out of it."""
    for prefix in staging.prefixes:
        top = tree / prefix
        for path in sorted(top.rglob("*")) if top.is_dir() else (top,):
            name = path.relative_to(tree).as_posix()
            if path.is_file() and not path.is_symlink() and wanted(name, staging):
                yield name, path


def _commit(tree: Path) -> str:
    """The commit of a checkout, and whether something was changed in it; empty where git does not
    tell, or the folder is only a part of another checkout."""
    git = ("git", "-C", tree)
    try:
        top = run([*git, "rev-parse", "--show-toplevel"], timeout_s=_GIT_S).output.strip()
        if Path(top) != tree.resolve():
            return ""
        commit = run([*git, "rev-parse", "HEAD"], timeout_s=_GIT_S).output.strip()
        status = (*git, "status", "--porcelain", "--untracked-files=no")
        changed = run([*status], timeout_s=_GIT_S).output.strip()
    except (CommandError, ToolError):
        return ""
    return f"commit {commit}{', changed' if changed else ''}"


def need_release(tree: Path, release: str) -> None:
    """Raises KernelError for a tree that says it is of another series than the `release`. One that
    has not the file that says so is let pass: its headers are compared with the wheel's."""
    for name, pattern in _VERSIONS.items():
        path = tree / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        found = re.search(pattern, text)
        series = ".".join(found.groups()) if found else ""
        if series and series != ".".join(release.split(".")[:2]):
            raise KernelError(
                f"the sources are of TensorFlow {series}, and the wheel is of {release}",
                hint=f"Give sources of {release}, or build --release {series}",
            )
