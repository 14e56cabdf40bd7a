from __future__ import annotations

import re

import pytest

from tfbuild.upstream.lock_files import LOCKS, filter_requirements, load_requirements
from tfbuild.upstream.releases import StockWheel, load_releases, require_stock_wheel
from tfcore.errors import WheelError

LOCKED = [release for release in load_releases() if release.kernels]
WHEELS = [wheel for release in LOCKED for wheel in release.wheels]


def versions(requirements: str) -> dict[str, str]:
    return dict(re.findall(r"(?m)^([a-z0-9-]+)==(\S+) \\$", requirements))


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: f"{wheel.file.partition('-many')[0]}")
def test_each_wheel_of_a_release_with_kernels_has_one_version_of_each(wheel: StockWheel) -> None:
    requirements = load_requirements(wheel)
    lines = [line for line in requirements.splitlines() if "==" in line]
    fields = versions(requirements)
    assert len(lines) == len(fields)
    assert {"keras", "numpy", "protobuf", "setuptools", "wheel"} <= fields.keys()
    assert not {"tensorflow", "tensorflow-cpu", "tensorflow-cpu-aws"} & fields.keys()
    assert ";" not in requirements
    blocks = re.split(r"(?m)^(?=\w)", requirements)[1:]
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in blocks)


@pytest.mark.parametrize("release", LOCKED, ids=lambda release: release.version)
def test_keras_is_of_the_release_s_time(release: object) -> None:
    """TensorFlow's Keras is 2 up to 2.15 and 3 from 2.16 on."""
    version = release.version  # type: ignore[attr-defined]
    (wheel, *_) = release.wheels  # type: ignore[attr-defined]
    major = "2" if version < "2.16" else "3"
    assert versions(load_requirements(wheel))["keras"].startswith(f"{major}.")


LOCK = """\
# a comment
one==1 ; python_full_version < '3.10' \\
    --hash=sha256:aa \\
    --hash=sha256:ab
one==2 ; python_full_version >= '3.10' \\
    --hash=sha256:bb
two==3 \\
    --hash=sha256:cc
three==4 ; platform_machine == 'aarch64' \\
    --hash=sha256:dd
"""


@pytest.mark.parametrize(
    ("python", "machine", "expected"),
    [
        ("3.9", "x86_64", ["one==1", "two==3"]),
        ("3.10", "x86_64", ["one==2", "two==3"]),
        ("3.13", "aarch64", ["one==2", "two==3", "three==4"]),
    ],
)
def test_the_lines_of_a_place(python: str, machine: str, expected: list[str]) -> None:
    text = filter_requirements(LOCK, python, machine)
    assert re.findall(r"(?m)^\S+", text) == expected
    assert text.count("--hash") == len(expected) + (python == "3.9")
    assert "#" not in text


def test_a_release_without_a_lock_is_an_error_that_names_those_with_one() -> None:
    release = next(release for release in load_releases() if not release.kernels)
    wheel = require_stock_wheel(release, "tensorflow-cpu", release.wheels[0].python_tag, "x86_64")
    with pytest.raises(WheelError, match=r"tensorflow-cpu 2\.") as caught:
        load_requirements(wheel)
    assert all(path.stem in caught.value.hint for path in LOCKS.glob("*.txt"))
