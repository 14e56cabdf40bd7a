from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.index_wheels import stand_in

from tfbuild.tools.requirement import ExactRequirement
from tfbuild.upstream import lock_files, releases
from tfbuild.upstream.download import hash_file
from tfcore import settings
from tfcore.errors import BusyError, ChecksumError, DownloadError, RecordError, WheelError
from tfcore.run import run
from tfcore.settings import ROOT, Paths
from tfwheels.dependencies import (
    PinnedPackage,
    WheelUse,
    fetch_locked,
    fetch_stock_and_dependencies,
    parse_lock,
)

USE = WheelUse(python="3.11", machine=platform.machine())
NOWHERE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(root=ROOT, cache=tmp_path / "cache", pool=tmp_path / "pool")


@pytest.fixture(name="index")
def folder_that_pip_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a wheel of plain Python, and one for this Python and the machine."""
    folder = tmp_path / "index"
    stand_in(folder, "1.0", name="one", python="py3")
    stand_in(folder, "2.5", name="two", machine=platform.machine())
    for name, value in (NOWHERE | {"PIP_FIND_LINKS": str(folder)}).items():
        monkeypatch.setenv(name, value)
    return folder


def lock_of(folder: Path) -> str:
    """As uv writes it, with the hash of a source archive too."""
    lines = ["# made by uv"]
    for path in sorted(folder.glob("*.whl")):
        name, version, _ = path.name.split("-", 2)
        lines += [f"{name}=={version} \\", f"    --hash=sha256:{hash_file(path)} \\"]
        lines += [f"    --hash=sha256:{'0' * 64}", f"    # via {name}"]
    return "\n".join(lines) + "\n"


@pytest.mark.toolchain
def test_locked_wheels_are_fetched_with_the_users_own_pip_settings(
    index: Path, paths: Paths
) -> None:
    locked = fetch_locked(lock_of(index), USE, paths)
    assert [path.name for path in locked] == sorted(path.name for path in index.glob("*.whl"))
    assert all(path.is_relative_to(paths.downloads) for path in locked)
    assert [hash_file(path) for path in locked] == [hash_file(index / path.name) for path in locked]


@pytest.mark.toolchain
def test_what_is_there_is_not_fetched_again(index: Path, paths: Paths) -> None:
    lock = lock_of(index)
    locked = fetch_locked(lock, USE, paths)
    shutil.rmtree(index)
    assert fetch_locked(lock, USE, paths) == locked


@pytest.mark.toolchain
def test_only_what_went_bad_or_is_lost_is_fetched_again(
    index: Path, paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = lock_of(index)
    single_path, two = fetch_locked(lock, USE, paths)
    single_path.write_bytes(single_path.read_bytes()[:100])  # a download that was killed
    (index / two.name).unlink()
    assert fetch_locked(lock, USE, paths) == (single_path, two)
    assert single_path.read_bytes() == (index / single_path.name).read_bytes()
    assert "does not have a locked hash" in capsys.readouterr().err


@pytest.mark.toolchain
def test_another_lock_has_another_folder(index: Path, paths: Paths) -> None:
    first = fetch_locked(lock_of(index), USE, paths)
    (index / first[1].name).unlink()
    second = fetch_locked(lock_of(index), USE, paths)
    assert first[0].parent != second[0].parent
    assert len(second) == 1


@pytest.mark.toolchain
def test_wheels_for_a_python_that_is_not_here_are_fetched_too(index: Path, paths: Paths) -> None:
    stand_in(index, "3.0", name="three", python="cp39", machine=platform.machine())
    lock = "".join(line for line in lock_of(index).partition("two==")[0])
    assert fetch_locked(lock, dataclasses.replace(USE, python="3.9"), paths)[-1].name.startswith(
        "three-3.0-cp39"
    )


@pytest.mark.toolchain
def test_other_bytes_than_the_locked_ones_are_refused(index: Path, paths: Paths) -> None:
    lock = lock_of(index)
    stand_in(index, "2.5", name="two", machine=platform.machine(), content=b"other")
    with pytest.raises(ChecksumError, match=r"two==2\.5") as caught:
        fetch_locked(lock, USE, paths)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.toolchain
def test_an_index_without_a_wheel_is_a_download_error(index: Path, paths: Paths) -> None:
    lock = lock_of(index)
    next(index.glob("two*")).unlink()
    with pytest.raises(
        DownloadError, match=r"No matching distribution found for two==2\.5"
    ) as caught:
        fetch_locked(lock, USE, paths)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.toolchain
def test_two_downloads_at_once_do_not_meet(index: Path, paths: Paths) -> None:
    lock = lock_of(index)
    folder = paths.downloads / hashlib.sha256(lock.encode()).hexdigest()[:16]
    with settings.lock_folder(folder, "a test"), pytest.raises(BusyError):
        fetch_locked(lock, USE, paths)


def test_a_given_folder_needs_no_network(
    index: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    locked = fetch_locked(lock_of(index), USE, paths, wheel_folder=index)
    assert [path.parent for path in locked] == [index, index]
    assert not paths.cache.exists()


def test_of_wheels_for_several_machines_and_pythons_the_right_one_is_taken(
    tmp_path: Path, paths: Paths
) -> None:
    wheels = {
        (machine, python): stand_in(tmp_path, "2.5", name="two", machine=machine, python=python)
        for machine in ("x86_64", "aarch64")
        for python in ("cp310", "cp311")
    }
    hashes = " ".join(f"--hash=sha256:{hash_file(path)}" for path in wheels.values())
    for (machine, python), path in wheels.items():
        use = WheelUse(python=python.replace("cp3", "3."), machine=machine)
        assert fetch_locked(f"two==2.5 {hashes}\n", use, paths, wheel_folder=tmp_path) == (path,)
    wheels["aarch64", "cp311"].unlink()
    use = WheelUse(python="3.11", machine="aarch64")
    with pytest.raises(DownloadError, match=r"Python 3\.11 on aarch64 .* two==2\.5"):
        fetch_locked(f"two==2.5 {hashes}\n", use, paths, wheel_folder=tmp_path)


@pytest.mark.parametrize(
    ("tags", "can"),
    [
        ("py3-none-any", True),
        ("cp311-cp311-manylinux_2_17_aarch64.manylinux2014_aarch64", True),
        ("cp39-abi3-manylinux_2_28_aarch64", True),
        ("cp312-abi3-manylinux_2_28_aarch64", False),
        ("cp311-cp311-manylinux_2_17_x86_64", False),
        ("cp310-cp310-manylinux_2_17_aarch64", False),
    ],
)
def test_tags_say_which_wheel_can_be_installed(tags: str, can: bool) -> None:
    assert WheelUse(python="3.11", machine="aarch64").can_install(f"two-2.5-{tags}.whl") is can


@pytest.mark.toolchain
def test_wheels_for_another_machine_are_fetched_too(index: Path, paths: Paths) -> None:
    """The lock may be the same for both machines, and so the folder."""
    other = "aarch64" if USE.machine == "x86_64" else "x86_64"
    stand_in(index, "2.5", name="two", machine=other)
    hashes = " ".join(f"--hash=sha256:{hash_file(path)}" for path in index.glob("two-*.whl"))
    for machine in (USE.machine, other):
        use = dataclasses.replace(USE, machine=machine)
        (path,) = fetch_locked(f"two==2.5 {hashes}\n", use, paths)
        assert path.name.endswith(f"_{machine}.whl")


def test_a_given_folder_must_have_all_of_them_with_the_locked_bytes(
    index: Path, paths: Paths
) -> None:
    lock = lock_of(index)
    path = next(index.glob("two*"))
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(DownloadError, match=r"two==2\.5"):
        fetch_locked(lock, USE, paths, wheel_folder=index)
    assert path.exists()  # the folder is the user's


def test_a_given_folder_names_the_first_few_that_it_has_not(tmp_path: Path, paths: Paths) -> None:
    lock = "".join(f"p{i}==1 --hash=sha256:{i:064x}\n" for i in range(8))
    with pytest.raises(DownloadError, match="p0==1, p1==1, p2==1, p3==1, p4==1 and 3"):
        fetch_locked(lock, USE, paths, wheel_folder=tmp_path)


def test_the_shipped_locks_are_read_whole() -> None:
    for path in lock_files.LOCKS.glob("*.txt"):
        text = lock_files.filter_requirements(path.read_text("utf-8"), "3.11", "x86_64")
        pinned = parse_lock(text)
        assert sum(len(pinned_package.sha256s) for pinned_package in pinned) == text.count(
            "--hash=sha256:"
        )
        assert len(pinned) == text.count("==")
        assert {"numpy", "keras", "protobuf"} <= {
            pinned_package.exact.name for pinned_package in pinned
        }


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True),
            st.from_regex(r"[1-9][0-9]?(\.[0-9]){0,2}", fullmatch=True),
            st.frozensets(st.from_regex(r"[0-9a-f]{64}", fullmatch=True), min_size=1, max_size=3),
        ),
        max_size=5,
    ),
    st.sampled_from([" ", " \\\n    ", "\t"]),
)
def test_a_lock_is_read_as_it_was_written(
    rows: list[tuple[str, str, frozenset[str]]], between: str
) -> None:
    lines = [
        between.join((f"{name}=={version}", *(f"--hash=sha256:{key}" for key in sorted(hashes))))
        for name, version, hashes in rows
    ]
    text = "# head\n\n" + "\n    # via x\n".join(lines) + "\n"
    assert parse_lock(text) == tuple(
        PinnedPackage(exact=ExactRequirement(name=name, version=version), sha256s=hashes)
        for name, version, hashes in rows
    )


@pytest.mark.parametrize(
    "line",
    [
        "numpy==1.26.4",
        "numpy>=1 --hash=sha256:" + "0" * 64,
        "numpy==1 --hash=md5:" + "0" * 32,
        "numpy==1 --hash=sha256:" + "0" * 63,
        "--index-url https://example.org",
        "-e .",
        "numpy==1 ; python_version > '3' --hash=sha256:" + "0" * 64,
        "numpy @ https://example.org/numpy.whl",
    ],
)
def test_a_line_that_pins_no_file_is_refused(line: str) -> None:
    with pytest.raises(RecordError):
        parse_lock(f"six==1 --hash=sha256:{'1' * 64}\n{line}\n")


def test_a_release_without_a_lock_is_an_error(paths: Paths) -> None:
    release = releases.find_release("2.13")
    with pytest.raises(WheelError, match="no lock file"):
        fetch_stock_and_dependencies(release, "tensorflow-cpu", USE, paths)


@pytest.mark.toolchain
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the lock is for x86-64")
def test_pip_installs_tensorflow_from_what_is_fetched_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The real lock and the real stock wheel, from the user's cache or pip's own index."""
    release = releases.find_release("2.14.1")
    stock, *other_paths = fetch_stock_and_dependencies(
        release, "tensorflow-cpu", USE, settings.paths()
    )
    assert stock.name.startswith("tensorflow_cpu-2.14.1-cp311-")
    assert len(other_paths) == len(
        parse_lock(
            lock_files.load_requirements(
                releases.require_stock_wheel(release, "tensorflow-cpu", "cp311", "x86_64")
            )
        )
    )
    for name, value in NOWHERE.items():
        monkeypatch.setenv(name, value)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    report = tmp_path / "report.json"
    links = [word for path in other_paths for word in ("--find-links", path.parent)][:2]
    words = ["--dry-run", "--ignore-installed", "--quiet", "--report", report, *links]
    run([sys.executable, "-m", "pip", "install", *words, stock], timeout_s=300)
    chosen = json.loads(report.read_text("utf-8"))["install"]
    assert len(chosen) == 1 + len(other_paths)
