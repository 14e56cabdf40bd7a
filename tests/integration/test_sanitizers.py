"""Random programs with fused ops that are compiled with AddressSanitizer and UBSan.

TensorFlow itself is not instrumented, but AddressSanitizer replaces its malloc. So it finds where
fused ops access memory beyond the tensors that TensorFlow allocates, or after it was freed.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.builders.compiled_kernels import compiled

from tfbuild.commands import Request
from tfbuild.kernelbuild.random_trials import FAMILIES, SearchRequest, search_results
from tfbuild.tools.environment import Environment
from tfcore.settings import Paths

pytestmark = [pytest.mark.toolchain, pytest.mark.kernels, pytest.mark.slow]

UNITS = tuple(f"fused/{name}" for name in ("updates", "loops", "products", "grouped", "chains"))
SANITIZERS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize=vptr",
    "-fno-sanitize-recover=undefined",
)
# Abseil's tables have another layout in code that is compiled with AddressSanitizer.
COPTS = (*SANITIZERS, "-gline-tables-only", "-D__has_feature(feature)=0")
PROGRAMS = 40
"""Of each family: one process."""
OPTIONS = "detect_leaks=0:quarantine_size_mb=64:detect_odr_violation=0"


@pytest.fixture(scope="module")
def libraries(paths: Paths) -> tuple[Path, ...]:
    built = compiled(
        Request(kernels=",".join(UNITS)),
        paths,
        copts=COPTS,
        linkopts=(*SANITIZERS, "-shared-libsan"),
    )
    return tuple(built.values())


def test_sanitizers_find_nothing(
    stock_arm: Environment, libraries: tuple[Path, ...], tmp_path: Path
) -> None:
    word = "-print-file-name=libclang_rt.asan-x86_64.so"
    runtime = subprocess.run(["clang-16", word], check=True, text=True, capture_output=True).stdout
    counts = search_results(
        SearchRequest(
            python=stock_arm.python,
            folder=tmp_path,
            env={**os.environ, "LD_PRELOAD": runtime.strip(), "ASAN_OPTIONS": OPTIONS},
            seed=1,
            seconds=3600,
            programs=PROGRAMS,
            libraries=libraries,
            threads=2,
        )
    )
    assert {name: (row.found, row.crashed) for name, row in counts.items()} == dict.fromkeys(
        FAMILIES, ((), ())
    )
