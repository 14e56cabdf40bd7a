"""Disks that are full: a limit of the size of files, which needs no rights, and small disks."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def file_limit(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size` bytes: a write fails, as Python ignores the
    signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def mounted_disk(folder: Path, size: str) -> Iterator[Path]:
    """A new file system of that size ("64k"); skips the test where nobody may mount one."""
    if shutil.which("mount") is None:
        pytest.skip("the program mount is not installed")
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tensorwright-test", str(folder)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
