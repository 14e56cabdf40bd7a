"""Wheels and their lock files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.builders.index_wheels import wheel_of

from tfbuild.upstream import releases
from tfbuild.upstream.download import hash_file

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"

TAG = releases.format_python_tag(HERE)


def asked_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The new folder, the only index that pip asks."""
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def wheel(
    folder: Path,
    name: str,
    *,
    needs: str = "",
    tag: str = "py3-none-any",
    version: str = "1.0",
) -> Path:
    """A real wheel with one module, `answer` = 42."""
    files = {f"{name}.py": "answer = 42\n"}
    return wheel_of(folder, f"{name}-{version}", files, needs=needs, tag=tag)


def locked(*paths: Path) -> str:
    return "".join(
        f"{path.name.split('-')[0]}==1.0 --hash=sha256:{hash_file(path)}\n" for path in paths
    )
