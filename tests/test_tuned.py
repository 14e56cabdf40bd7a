from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path

import pytest
from tests.recorded import cpu_of

from tfbuild.errors import HostError, WheelError
from tfbuild.tuned import FILE, Tuned, lacking, need_runnable, read_tuned

SOME = Tuned(
    plan_key="0" * 64,
    release="2.14.1",
    target="haswell",
    required_features=("avx", "avx2"),
    flags=("-march=haswell",),
    compiler="clang 16.0.6",
    bazel="4.2.3",
    kernels=("cwise_op_tanh",),
    registrations=12,
    stay_stock={},
    floors={"GLIBC": "2.14"},
    source_sha256="1" * 64,
    stock_sha256="2" * 64,
)


def wheel(folder: Path, text: bytes | None) -> Path:
    path = folder / "tensorflow_cpu-2.14.1+haswell-cp311-cp311-manylinux_2_17_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tensorflow/__init__.py", "")
        if text is not None:
            archive.writestr(f"tensorflow_cpu-2.14.1+haswell.dist-info/{FILE}", text)
    return path


def test_what_a_wheel_says_is_read_back(tmp_path: Path) -> None:
    assert read_tuned(wheel(tmp_path, SOME.to_bytes())) == SOME


def test_a_stock_wheel_says_nothing(tmp_path: Path) -> None:
    assert read_tuned(wheel(tmp_path, None)) is None


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"{}",
        json.dumps({"schema": 99}).encode(),
        SOME.to_bytes().replace(b'"flags"', b'"flagz"'),
        b"\xff\xfe",
    ],
)
def test_a_torn_or_foreign_one_is_refused_in_one_line(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(WheelError) as caught:
        read_tuned(wheel(tmp_path, text))
    assert len(str(caught.value).splitlines()) == 1


def test_a_cpu_that_lacks_a_feature_is_told_which(tmp_path: Path) -> None:
    cpu = cpu_of("haswell")
    assert lacking(SOME, cpu) == ()
    need_runnable(tmp_path / "a.whl", SOME, cpu)
    newer = dataclasses.replace(SOME, required_features=("avx", "avx512f", "avx512bw"))
    with pytest.raises(HostError, match="lacks avx512bw, avx512f") as caught:
        need_runnable(tmp_path / "a.whl", newer, cpu)
    assert "--arch native" in caught.value.hint
