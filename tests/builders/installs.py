"""Programs that install from an index."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"

TAG = f"cp{PYTHON.replace('.', '')}"

on_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the wheels are for x86-64")


def made_venv(folder: Path) -> dict[str, str]:
    """The variables of a shell with pip and uv in a new virtual environment, `folder`/venv."""
    venv, pip = folder / "venv", folder / "bin" / "pip"
    uv = [sys.executable, "-m", "uv", "venv", "--quiet", "--offline", "--python", sys.executable]
    subprocess.run([*uv, venv], check=True)
    pip.parent.mkdir()
    pip.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip --python {venv}/bin/python "$@"\n')
    pip.chmod(0o755)
    path = f"{pip.parent}:{Path(sys.executable).parent}:/usr/bin:/bin"
    return {"PATH": path, "VIRTUAL_ENV": str(venv), "UV_CACHE_DIR": str(folder / "uv")}


def installed(tmp_path: Path) -> dict[str, bytes]:
    """What the virtual environment has: the version of each package and what makes it ours."""
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    actual = {}
    for folder in site.glob("*.dist-info"):
        name, _, version = folder.name.removesuffix(".dist-info").partition("-")
        actual[f"{name} {version}"] = (site / name / "content").read_bytes()
    return actual
