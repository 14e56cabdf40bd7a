"""Random programs with fused ops that are compiled with AddressSanitizer and UBSan.

TensorFlow itself is not instrumented, but AddressSanitizer replaces its malloc. So it finds where
fused ops access memory beyond the tensors that TensorFlow allocates, or after it was freed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.builders.fused_search import compiled_parts, searched

from tfbuild.tools.environment import Environment
from tfcore.settings import Paths

pytestmark = [pytest.mark.toolchain, pytest.mark.kernels, pytest.mark.slow]

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
    return compiled_parts(paths, COPTS, (*SANITIZERS, "-shared-libsan"))


def test_sanitizers_find_nothing(
    stock_arm: Environment, libraries: tuple[Path, ...], tmp_path: Path
) -> None:
    """Else the log of the process in `tmp_path` says what they found."""
    word = "-print-file-name=libclang_rt.asan-x86_64.so"
    runtime = subprocess.run(["clang-16", word], check=True, text=True, capture_output=True).stdout
    searched(
        stock_arm,
        libraries,
        tmp_path,
        seed=1,
        programs=PROGRAMS,
        LD_PRELOAD=runtime.strip(),
        ASAN_OPTIONS=OPTIONS,
    )
