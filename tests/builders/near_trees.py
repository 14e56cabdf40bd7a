"""Source trees of other releases than 2.14.1, in the folder that TENSORWRIGHT_TREES names."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

TREES = os.environ.get("TENSORWRIGHT_TREES", "")
"""A folder of source trees of releases that Debian has none of, if the machine has one."""

NEAR = {
    "2.15.1": "tensorflow-2.15.0",
    "2.16.2": "tensorflow-2.16-near",
    "2.17.1": "tensorflow-2.17-near",
    "2.20.0": "tensorflow-2.20-near",
    "2.21.0": "tensorflow-2.20-near",
}
"""Release → the tree that is nearest to its sources."""


def path_of(name: str) -> Path:
    return Path(TREES) / f"{name}.tar.xz"


def tree_of(name: str, folder: Path) -> Path:
    """The unpacked tree of an archive in TREES; skips where there is none."""
    path = path_of(name)
    if not TREES or not path.is_file():
        pytest.skip(f"TENSORWRIGHT_TREES names no folder with {path.name}")
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    return folder / name
