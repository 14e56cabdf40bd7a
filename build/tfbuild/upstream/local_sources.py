"""Sources of --source: the release's archive, another archive, or the folder of a checkout.

Sources with another hash than the release's get a new pin in the plan, so they make another wheel.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tfbuild.upstream.download import Pin, hash_file
from tfbuild.upstream.source import TREE, SourcePin, Staging, create_folder, is_staged
from tfcore.errors import ChecksumError, CommandError, DownloadError, KernelError, ToolError
from tfcore.run import run
from tfcore.settings import Paths

KIND = "given"
_GIT_S = 60.0
_VERSIONS = {
    "tensorflow/core/public/version.h": r"TF_MAJOR_VERSION (\d+)\s*#define TF_MINOR_VERSION (\d+)",
    "tensorflow/tf_version.bzl": r"\bTF_VERSION *= *\"(\d+)\.(\d+)\.",
}
"""The files with the release of a tree: the first up to 2.19, the second from 2.20 on."""


def create_pins(
    source: Path, pins: tuple[SourcePin, ...], staging: Staging
) -> tuple[SourcePin, ...]:
    """Return the release's `pins` if the file has one of their hashes, else a new pin.

    Raises DownloadError if `source` does not exist, KernelError for a folder without kernels.
    """
    if source.is_file():
        sha256 = hash_file(source)
        if sha256 in {pin.file.sha256 for pin in pins}:
            return pins
        return (SourcePin(kind=KIND, origin="", file=Pin(name=source.name, sha256=sha256)),)
    if not source.is_dir():
        raise DownloadError(f"--source {source}: no such file or folder")
    digest = hashlib.sha256()
    files = list(_list_files(source, staging))
    for name, path in files:
        digest.update(f"{name}\0{hash_file(path)}\n".encode())
    if not files:
        raise KernelError(
            f"--source {source} contains none of {', '.join(staging.prefixes)}",
            hint="Pass the folder that contains tensorflow/",
        )
    file = Pin(name=source.resolve().name, sha256=digest.hexdigest())
    return (SourcePin(kind=KIND, origin=_read_commit(source), file=file),)


def stage(source: Path, pin: SourcePin, staging: Staging, paths: Paths) -> Path:
    """Copy the files of a kernels build from a folder, as `source.stage` does from an archive.

    Raises ChecksumError if it no longer matches the pin; DiskError.
    """
    files = list(_list_files(source, staging))
    needed_bytes = sum(path.stat().st_size for _, path in files)

    def fill(scratch_folder: Path) -> None:
        for name, path in files:
            target = scratch_folder / TREE / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        if create_pins(scratch_folder / TREE, (), staging)[0].file.sha256 != pin.file.sha256:
            raise ChecksumError(
                f"--source {source} changed after it was hashed", hint="Run the command again"
            )

    folder = paths.sources / f"{pin.file.sha256[:16]}-staged"
    return create_folder(folder, needed_bytes, "copying the sources", fill) / TREE


def _list_files(tree: Path, staging: Staging) -> Iterator[tuple[str, Path]]:
    """Yield the files that a kernels build reads, with their paths in the tree.

    Links are excluded, as they may lead out of it.
    """
    for prefix in staging.prefixes:
        top = tree / prefix
        for path in sorted(top.rglob("*")) if top.is_dir() else (top,):
            name = path.relative_to(tree).as_posix()
            if path.is_file() and not path.is_symlink() and is_staged(name, staging):
                yield name, path


def _read_commit(tree: Path) -> str:
    """Return the commit of a checkout, and whether it has changes.

    Empty if git fails, or the folder is only a part of another checkout.
    """
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


def require_release(tree: Path, release: str) -> None:
    """Raise KernelError if a tree is of another series than the `release`.

    A tree without the file that has its version is accepted: its headers are compared with
    the wheel's.
    """
    for name, pattern in _VERSIONS.items():
        path = tree / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        match = re.search(pattern, text)
        series = ".".join(match.groups()) if match else ""
        if series and series != ".".join(release.split(".")[:2]):
            raise KernelError(
                f"the sources are of TensorFlow {series}, but the wheel is of {release}",
                hint=f"Pass sources of {release}, or build with --release {series}",
            )
