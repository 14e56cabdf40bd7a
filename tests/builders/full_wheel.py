"""A small wheel of a full build: the workspace of tests/data/tensorflow_like without Bazel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.builders.plans import planned_full
from tests.builders.trees import LIKE, PIP_PACKAGE

PLAN = planned_full("haswell")
LICENCE = b"Apache License, Version 2.0\n"


def raw_wheel(
    folder: Path,
    *flags: str,
    extra: str = "",
    env: dict[str, str] | None = None,
) -> Path:
    """What `bazel build` leaves, compiled with `flags`; `extra` is C++ behind ops.cc."""
    folder.mkdir(parents=True, exist_ok=True)
    built = _library(folder, flags, extra)
    setup, init = LIKE / PIP_PACKAGE / "setup.py", LIKE / "tensorflow" / "__init__.py"
    words: list[str | Path] = [sys.executable, setup, built, init, "tensorflow_cpu", folder]
    subprocess.run(words, check=True, env={**os.environ, **(env or {})})
    (wheel,) = folder.glob("*.whl")
    return wheel


def _library(folder: Path, flags: tuple[str, ...], extra: str) -> Path:
    core, table = LIKE / "tensorflow" / "core", folder / "tensorflow" / "core" / "table.h"
    table.parent.mkdir(parents=True)
    compiler = "clang++-16"
    subprocess.run([compiler, core / "op_gen.cc", "-o", folder / "op_gen"], check=True)
    table.write_bytes(subprocess.run([folder / "op_gen"], check=True, capture_output=True).stdout)
    ops = folder / "ops.cc"
    ops.write_text((core / "ops.cc").read_text() + extra)
    sources = [ops, LIKE / "third_party" / "XNNPACK" / "src" / "vmul.cc"]
    built = folder / "libtensorflow_cc.so.2"
    words: list[str | Path] = [
        compiler,
        "-shared",
        "-fPIC",
        "-O3",
        "-I",
        folder,
        *flags,
        *sources,
        "-o",
        built,
    ]
    subprocess.run(words, check=True)
    return built
