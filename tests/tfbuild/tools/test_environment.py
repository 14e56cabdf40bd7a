from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.builders.locked_wheels import HERE, TAG, asked_folder, locked, wheel

from tfbuild.interpreters import is_here
from tfbuild.tools import environment
from tfbuild.tools.environment import (
    Environment,
    create,
    create_from_requirement,
    discard,
    fetch_wheel,
)
from tfbuild.upstream.download import Pin, hash_file
from tfcore.errors import (
    ChecksumError,
    CommandError,
    DownloadError,
    PythonError,
    UsageError,
    WheelError,
)
from tfcore.run import run
from tfcore.settings import ROOT, Paths


def pin_of(path: Path) -> Pin:
    return Pin(name=path.name, sha256=hash_file(path), size=path.stat().st_size)


@pytest.fixture(name="index")
def folder_that_pip_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return asked_folder(tmp_path / "index", monkeypatch)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(root=ROOT, cache=tmp_path / "cache", pool=tmp_path / "pool")


@pytest.mark.toolchain
def test_a_wheel_is_fetched_with_the_users_own_pip_settings(index: Path, paths: Paths) -> None:
    tag = f"{TAG}-{TAG}-manylinux_2_17_x86_64.manylinux2014_x86_64"
    index_wheel = wheel(index, "tiny", tag=tag)
    pin = pin_of(index_wheel)
    actual = fetch_wheel("tiny==1.0", pin, paths)
    assert actual == paths.downloads / index_wheel.name
    assert actual.read_bytes() == index_wheel.read_bytes()
    assert [path.name for path in paths.downloads.glob("[!.]*")] == [index_wheel.name]
    index_wheel.unlink()
    assert fetch_wheel("tiny==1.0", pin, paths) == actual  # from the cache


@pytest.mark.toolchain
def test_a_wheel_for_another_python_is_fetched_too(index: Path, paths: Paths) -> None:
    index_wheel = wheel(index, "tiny", tag="cp39-cp39-manylinux2014_aarch64")
    assert fetch_wheel("tiny==1.0", pin_of(index_wheel), paths).is_file()


@pytest.mark.toolchain
def test_a_cached_wheel_that_went_bad_is_fetched_again(index: Path, paths: Paths) -> None:
    index_wheel = wheel(index, "tiny", tag=f"{TAG}-{TAG}-manylinux2014_x86_64")
    path = fetch_wheel("tiny==1.0", pin_of(index_wheel), paths)
    path.write_bytes(path.read_bytes()[:100])
    assert (
        fetch_wheel("tiny==1.0", pin_of(index_wheel), paths).read_bytes()
        == index_wheel.read_bytes()
    )


@pytest.mark.toolchain
def test_other_bytes_under_the_same_name_are_refused(index: Path, paths: Paths) -> None:
    index_wheel = wheel(index, "tiny", tag=f"{TAG}-{TAG}-manylinux2014_x86_64")
    pin = Pin(name=index_wheel.name, sha256="0" * 64)
    with pytest.raises(DownloadError, match=r"tiny==1\.0"):
        fetch_wheel("tiny==1.0", pin, paths)
    assert list(paths.downloads.glob("[!.]*")) == []


@pytest.mark.toolchain
def test_an_index_without_the_wheel_is_a_download_error(index: Path, paths: Paths) -> None:
    pin = Pin(name=f"tiny-1.0-{TAG}-{TAG}-manylinux2014_x86_64.whl", sha256="0" * 64)
    with pytest.raises(DownloadError, match="No matching distribution") as caught:
        fetch_wheel("tiny==1.0", pin, paths)
    assert len(str(caught.value).splitlines()) == 1
    assert "--stock-wheel PATH" in caught.value.hint
    assert list(paths.downloads.glob("[!.]*")) == []


def test_a_given_wheel_must_be_the_pinned_one(tmp_path: Path, paths: Paths) -> None:
    path = wheel(tmp_path, "tiny")
    assert fetch_wheel("tiny==1.0", pin_of(path), paths, path) == path
    with pytest.raises(ChecksumError, match=r"tiny-1\.0"):
        fetch_wheel("tiny==1.0", Pin(name=path.name, sha256="0" * 64), paths, path)
    with pytest.raises(DownloadError, match=r"absent\.whl"):
        fetch_wheel("tiny==1.0", pin_of(path), paths, tmp_path / "absent.whl")
    assert path.exists()


def made(path: Path, lock: str, paths: Paths) -> Environment:
    return create(path, python=HERE, requirements=lock, paths=paths)


def says(arm: Environment, code: str) -> str:
    done = subprocess.run([arm.python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.toolchain
def test_an_environment_holds_the_wheel_and_its_locked_dependencies(
    index: Path, paths: Paths, tmp_path: Path
) -> None:
    dependency = wheel(index, "dependency")
    own_path = wheel(tmp_path / "own", "tiny", needs="dependency")
    arm = made(own_path, locked(dependency), paths)
    assert arm.folder.parent == paths.arms
    assert (arm.wheel, arm.wheel_sha256) == (own_path, hash_file(own_path))
    assert says(arm, "import tiny, dependency; print(tiny.answer + dependency.answer)") == "84"
    assert says(arm, "import sys; print(sys.prefix)") == str(arm.folder)
    assert made(own_path, locked(dependency) + "# another lock\n", paths) != arm


@pytest.mark.slow
@pytest.mark.toolchain
def test_an_environment_is_made_once_and_a_half_made_one_anew(
    index: Path, paths: Paths, tmp_path: Path
) -> None:
    own_path = wheel(tmp_path / "own", "tiny")
    arm = made(own_path, "", paths)
    leftover = arm.folder / "left"
    leftover.touch()
    assert made(own_path, "", paths) == arm
    assert leftover.exists()
    (arm.folder / environment.MARK).unlink()  # what a killed run leaves
    assert made(own_path, "", paths) == arm
    assert not leftover.exists()
    assert says(arm, "import tiny; print(tiny.answer)") == "42"
    discard("0" * 64, paths)
    assert arm.python.exists()
    discard(arm.wheel_sha256, paths)
    assert not arm.folder.exists()


@pytest.mark.toolchain
def test_environments_share_their_dependencies_and_not_their_fate(
    index: Path, paths: Paths, tmp_path: Path
) -> None:
    dependency = wheel(index, "dependency")
    lock = locked(dependency)
    arm_environment = made(wheel(tmp_path / "own", "tiny"), lock, paths)
    dependency.unlink()  # what was installed once is not looked for again
    other_environment = made(wheel(tmp_path / "own", "tinier"), lock, paths)
    ask = "import dependency; print(dependency.__file__)"
    first, second = Path(says(arm_environment, ask)), Path(says(other_environment, ask))
    assert first != second
    assert first.samefile(second)
    discard(arm_environment.wheel_sha256, paths)
    assert not first.exists()
    assert says(other_environment, "import tinier, dependency; print(dependency.answer)") == "42"


@pytest.mark.toolchain
def test_a_missing_dependency_is_said(index: Path, paths: Paths, tmp_path: Path) -> None:
    own_path = wheel(tmp_path / "own", "tiny", needs="dependency>=2")
    with pytest.raises(WheelError, match=r"tiny-1\.0-\S+ lacks dependencies: .*`dependency>=2`"):
        made(own_path, "", paths)
    # Not taken for finished the next time.
    with pytest.raises(WheelError, match="lacks dependencies"):
        made(own_path, "", paths)


@pytest.mark.toolchain
def test_a_broken_wheel_is_said(index: Path, paths: Paths, tmp_path: Path) -> None:
    own_path = wheel(tmp_path / "own", "tiny")
    own_path.write_bytes(own_path.read_bytes()[:200])
    with pytest.raises(WheelError, match=r"tiny-1\.0-py3-none-any\.whl cannot be installed \(.+\)"):
        made(own_path, "", paths)


@pytest.mark.toolchain
def test_a_dependency_with_other_bytes_is_refused(
    index: Path, paths: Paths, tmp_path: Path
) -> None:
    dependency = wheel(index, "dependency")
    lock = locked(dependency)
    dependency.write_bytes(dependency.read_bytes() + b"\0")
    with pytest.raises(CommandError, match="DO NOT MATCH THE HASHES"):
        made(wheel(tmp_path / "own", "tiny"), lock, paths)


@pytest.mark.slow
@pytest.mark.toolchain
def test_a_python_that_is_too_old_for_pip_gets_the_pip_that_came_with_it(
    index: Path, tmp_path: Path, paths: Paths
) -> None:
    """pip 26 serves Python 3.10 and later, and releases up to 2.20 have wheels for 3.9."""
    old = "3.9"
    if not is_here(old):
        pytest.skip(f"no Python {old} is here")
    lock = locked(wheel(index, "dependency"))
    arm_environment = create(wheel(tmp_path, "tiny"), python=old, requirements=lock, paths=paths)
    assert (paths.arms / f"pip-{old}" / environment.MARK).is_file()
    words: list[str | Path] = [
        arm_environment.python,
        "-c",
        "import dependency, sys, tiny; print(sys.version_info[:2])",
    ]
    assert run(words).output.strip() == "(3, 9)"


def required(paths: Paths, requirement: str = "tiny==1.0", python: str = HERE) -> Environment:
    return create_from_requirement(requirement, python=python, paths=paths)


VERSIONS = "from importlib.metadata import version; print(version('tiny'), version('dependency'))"


@pytest.mark.toolchain
def test_a_requirement_becomes_an_environment_with_what_it_needs(index: Path, paths: Paths) -> None:
    wheel(index, "dependency")
    own_path = wheel(index, "tiny", needs="dependency")
    arm = required(paths, " Tiny == 1.0")
    assert arm.wheel_sha256 == hash_file(own_path) == hash_file(arm.wheel)
    assert arm.wheel.name == own_path.name
    assert says(arm, VERSIONS) == "1.0 1.0"
    assert says(arm, "import tiny, dependency; print(tiny.answer + dependency.answer)") == "84"


@pytest.mark.slow
@pytest.mark.toolchain
def test_what_was_found_first_is_kept(index: Path, paths: Paths) -> None:
    wheel(index, "dependency")
    wheel(index, "tiny", needs="dependency")
    arm = required(paths)
    wheel(index, "dependency", version="2.0")
    shutil.rmtree(paths.arms)
    shutil.rmtree(paths.downloads)
    again = required(paths)
    assert again == arm
    assert says(again, VERSIONS) == "1.0 1.0"


@pytest.mark.slow
@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("tiny", ChecksumError, r"tiny==1\.0"),
        ("dependency", CommandError, "DO NOT MATCH THE HASHES"),
    ],
)
def test_bytes_that_changed_since_are_refused(
    index: Path, paths: Paths, name: str, error: type[Exception], message: str
) -> None:
    wheel(index, "dependency")
    wheel(index, "tiny", needs="dependency")
    required(paths)
    shutil.rmtree(paths.arms)
    shutil.rmtree(paths.downloads)
    changed = index / f"{name}-1.0-py3-none-any.whl"
    changed.write_bytes(changed.read_bytes() + b"\0")
    with pytest.raises(error, match=message):
        required(paths)


@pytest.mark.slow
@pytest.mark.toolchain
def test_a_required_wheel_in_the_cache_that_went_bad_is_fetched_again(
    index: Path, paths: Paths
) -> None:
    wheel(index, "tiny")
    arm = required(paths)
    whole = arm.wheel.read_bytes()
    arm.wheel.write_bytes(whole[:100])
    assert required(paths) == arm
    assert arm.wheel.read_bytes() == whole


@pytest.mark.toolchain
def test_a_requirement_that_no_index_has_is_a_download_error(index: Path, paths: Paths) -> None:
    with pytest.raises(DownloadError, match=r"tiny==1\.0 .*No matching") as caught:
        required(paths)
    assert len(str(caught.value).splitlines()) == 1
    wheel(index, "tiny", needs="dependency")
    with pytest.raises(DownloadError, match="dependency"):
        required(paths)
    assert not (paths.cache / "locks").exists()


def test_a_range_is_no_requirement_for_an_environment(paths: Paths) -> None:
    with pytest.raises(UsageError, match="tiny>=1"):
        required(paths, "tiny>=1")
    with pytest.raises(PythonError, match=r"Python 3\.98"):
        required(paths, python="3.98")


@pytest.mark.toolchain
def test_a_release_of_the_table_must_be_the_published_file(index: Path, paths: Paths) -> None:
    wheel(index, "tensorflow_cpu", version="2.13.1", tag="cp311-cp311-manylinux2014_x86_64")
    with pytest.raises(ChecksumError, match=r"tensorflow-cpu==2\.13\.1 .*87be6e61"):
        required(paths, "tensorflow-cpu==2.13.1", python="3.11")
    assert not (paths.cache / "locks").exists()
    assert not paths.downloads.exists()


@pytest.mark.toolchain
def test_a_shipped_lock_is_taken_before_anything_is_resolved(index: Path, paths: Paths) -> None:
    wheel(index, "tensorflow_cpu", version="2.14.1", tag="cp311-cp311-manylinux2014_x86_64")
    with pytest.raises(DownloadError, match=r"could not download tensorflow-cpu==2\.14\.1"):
        required(paths, "tensorflow-cpu==2.14.1", python="3.11")
    assert not (paths.cache / "locks").exists()
