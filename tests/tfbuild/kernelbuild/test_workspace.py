from __future__ import annotations

import pytest

from tfbuild.kernelbuild.workspace import parse_failures, parse_steps
from tfbuild.upstream.kernels import FOLDER, KernelUnit

SHARED = f"{FOLDER}/common.cc"
UNITS = (
    KernelUnit(name="add", sources=(f"{FOLDER}/add.cc", SHARED)),
    KernelUnit(name="linalg/qr_op", sources=(f"{FOLDER}/linalg/qr_op.cc",)),
    KernelUnit(name="sub", sources=(f"{FOLDER}/sub.cc", SHARED)),
)

# As Bazel 4.2.3 writes it with --keep_going (shortened).
COMPILING = f"""\
[10 / 20] Compiling tree/{FOLDER}/sub.cc; 1s local
ERROR: workspace/BUILD.bazel:4484:11: Compiling tree/{FOLDER}/NAME failed: (Exit 1): clang-16 failed
  (cd execroot && \\
  /usr/bin/clang-16 -c external/tf_source/tree/{FOLDER}/NAME)
external/tf_source/tree/{FOLDER}/NAME:20:1: error: expected expression
1 error generated.
"""
LINKING = """\
ERROR: workspace/BUILD.bazel:80:10: Linking admission/linalg__qr_op.so failed: (Exit 1): gcc failed
x.pic.o:x.cc:function f: undefined reference to 'g'
collect2: error: ld returned 1 exit status
FAILED: Build did NOT complete successfully
"""


def test_a_source_that_does_not_compile_fails_its_unit_alone() -> None:
    assert parse_failures(UNITS, COMPILING.replace("NAME", "add.cc")) == {
        "add": f"external/tf_source/tree/{FOLDER}/add.cc:20:1: error: expected expression"
    }


def test_a_shared_source_fails_every_unit_that_has_it() -> None:
    assert set(parse_failures(UNITS, COMPILING.replace("NAME", "common.cc"))) == {"add", "sub"}


def test_a_library_that_does_not_link_fails_its_unit() -> None:
    failures = parse_failures(UNITS, COMPILING.replace("NAME", "sub.cc") + LINKING)
    assert set(failures) == {"sub", "linalg/qr_op"}
    assert "undefined reference to 'g'" in failures["linalg/qr_op"]
    assert "undefined" not in failures["sub"]


def test_a_compiler_that_was_killed_is_told() -> None:
    killed = COMPILING.replace("NAME", "add.cc").replace("1 error generated.", "clang: Killed")
    assert "Killed" in parse_failures(UNITS, killed)["add"]


def test_output_without_failures_has_none() -> None:
    assert parse_failures(UNITS, "INFO: Build completed successfully") == {}


@pytest.mark.parametrize(
    ("message", "ran", "cached"),
    [
        ("14 processes: 1 remote cache hit, 10 internal, 3 local", 3, 1),  # Bazel 4.2.3
        ("36 processes: 12 disk cache hit, 22 internal, 2 local", 2, 12),  # Bazel 6.1.0
        ("1 process: 1 internal", 0, 0),
    ],
)
def test_what_was_run_and_what_was_cached_is_read_from_bazels_own_words(
    message: str, ran: int, cached: int
) -> None:
    output = (
        f"INFO: Elapsed time: 5.1s, Critical Path: 2.0s\nINFO: {message}.\nINFO: Build completed"
    )
    assert parse_steps(output) == (ran, cached)
    assert parse_steps("ERROR: nothing was built") == (0, 0)
