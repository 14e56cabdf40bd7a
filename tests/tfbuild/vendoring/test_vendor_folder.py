from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.vendor_folders import FILES, make_folder

from tfbuild.tools import bazel
from tfbuild.vendoring import vendor_folder
from tfbuild.vendoring.vendor_folder import BEFORE, LOCK
from tfcore import settings
from tfcore.errors import ToolError, VendorError
from tfcore.settings import Paths

PATHS = Paths(root=settings.ROOT, cache=Path("/nonexistent"), pool=Path("/nonexistent"))


def test_a_whole_folder_gives_its_lock(tmp_path: Path) -> None:
    lock = make_folder(tmp_path)
    (tmp_path / ".lock").write_text("process 1")  # (what settings.lock_folder leaves)
    assert vendor_folder.check_folder(tmp_path) == lock
    assert lock.size == sum(map(len, FILES.values()))


def test_a_copy_of_the_folder_is_as_good(tmp_path: Path) -> None:
    """The lock knows no place: two machines make the same one."""
    assert make_folder(tmp_path / "one") == make_folder(tmp_path / "two")


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_flipped_bit_in_any_file_is_found(tmp_path: Path, name: str) -> None:
    make_folder(tmp_path)
    data = bytearray(FILES[name])
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(VendorError, match=f"^{name} .*[0-9a-f]{{64}}, but {LOCK}"):
        vendor_folder.check_folder(tmp_path)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_is_missing_or_cut_short_is_found(tmp_path: Path, name: str) -> None:
    make_folder(tmp_path)
    (tmp_path / name).write_bytes(FILES[name][:-1])
    with pytest.raises(VendorError, match=f"^{name} .* {len(FILES[name]) - 1} bytes"):
        vendor_folder.check_folder(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(VendorError, match=f"^{name} is missing"):
        vendor_folder.check_folder(tmp_path)


def test_of_several_faults_the_first_by_path_is_named(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / "sources/tensorflow.tar.gz").unlink()
    (tmp_path / "repository_cache/aa").write_bytes(b"extra")
    with pytest.raises(VendorError, match="repository_cache/aa"):
        vendor_folder.check_folder(tmp_path)


@pytest.mark.parametrize("name", ["repository_cache/c", "x", "wheels/.hidden", "sources/deep/er"])
def test_an_extra_file_anywhere_is_found(tmp_path: Path, name: str) -> None:
    make_folder(tmp_path)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(VendorError, match=f"has {name},"):
        vendor_folder.check_folder(tmp_path)


@pytest.mark.parametrize("name", ["repository_cache/link", "sources/tensorflow.tar.gz", "folder"])
def test_a_link_is_refused_wherever_it_leads(tmp_path: Path, name: str) -> None:
    make_folder(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to("/usr" if name == "folder" else tmp_path / next(iter(FILES)))
    with pytest.raises(VendorError, match=f"^{name} .*regular file"):
        vendor_folder.check_folder(tmp_path)


def test_a_folder_without_a_lock_is_not_finished(tmp_path: Path) -> None:
    make_folder(tmp_path)
    (tmp_path / LOCK).rename(tmp_path / BEFORE)
    with pytest.raises(VendorError, match=f"{LOCK}.*invoke vendor"):
        vendor_folder.check_folder(tmp_path)


def test_a_lock_that_was_edited_is_not_believed(tmp_path: Path) -> None:
    make_folder(tmp_path)
    fields = json.loads((tmp_path / LOCK).read_text())
    fields["files"][0]["sha256"] = "0" * 64
    (tmp_path / LOCK).write_text(json.dumps(fields))
    with pytest.raises(VendorError, match="was edited"):
        vendor_folder.check_folder(tmp_path)


@given(st.binary(max_size=60), st.integers(0, 400))
def test_a_torn_lock_is_a_vendor_error(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    make_folder(folder)
    whole = (folder / LOCK).read_bytes()
    torn = whole[:at] + junk
    (folder / LOCK).write_bytes(torn)
    if torn != whole:
        with pytest.raises(VendorError):
            vendor_folder.check_folder(folder)


def test_bazel_is_told_to_download_nothing(tmp_path: Path) -> None:
    lock = make_folder(tmp_path)
    assert vendor_folder.list_bazel_options(tmp_path, lock) == (
        f"--repository_cache={tmp_path}/repository_cache",
        "--repo_env=BAZEL_HTTP_RULES_URLS_AS_DEFAULT_CANONICAL_ID=0",
        "--experimental_repository_disable_download",
    )


def test_pip_is_told_of_the_wheels_where_there_are_any(tmp_path: Path) -> None:
    lock = make_folder(tmp_path, more={"wheels/six-1.16.0-py2.py3-none-any.whl": b"PK"})
    assert vendor_folder.list_bazel_options(tmp_path, lock)[3:] == (
        "--repo_env=RULES_PYTHON_PIP_ISOLATED=0",
        "--repo_env=PIP_NO_INDEX=1",
        f"--repo_env=PIP_FIND_LINKS={tmp_path}/wheels",
    )


@pytest.mark.parametrize(
    "name",
    ["bazel/bazel-6.1.0", "bazel/downloads/sha256/ab/bin/bazel", "bazel/downloads/x/bin/bazel"],
)
def test_the_folders_bazel_is_run_by_its_path(tmp_path: Path, name: str) -> None:
    more = {name: b"#!/bin/sh\n", "bazel/bazelisk": b"\x7fELF"}
    bazel_tool = vendor_folder.resolve_bazel(
        tmp_path, make_folder(tmp_path, bazel="6.1.0", more=more), PATHS
    )
    assert (bazel_tool.use, bazel_tool.version) == (str(tmp_path / name), "6.1.0")
    assert (bazel_tool.bazelisk, bazel_tool.debian) == (tmp_path / "bazel/bazelisk", False)


def test_two_bazels_are_one_too_many(tmp_path: Path) -> None:
    more = {"bazel/bazel-6.1.0": b"", "bazel/bazel-6.5.0": b"", "bazel/bazelisk": b"\x7fELF"}
    lock = make_folder(tmp_path, more=more)
    with pytest.raises(VendorError, match="2 Bazel programs"):
        vendor_folder.resolve_bazel(tmp_path, lock, PATHS)


def test_a_bazel_without_a_bazelisk_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = make_folder(tmp_path, more={"bazel/bazel-6.1.0": b""})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="no bazelisk"):
        vendor_folder.resolve_bazel(tmp_path, lock, PATHS)


@pytest.mark.toolchain
def test_the_systems_bazel_must_be_the_version_that_made_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USE_BAZEL_VERSION", str(bazel.DEBIAN_BAZEL))
    paths = dataclasses.replace(settings.paths(), pool=tmp_path)
    lock = make_folder(tmp_path, bazel=bazel.find_bazel(paths, "").version)
    assert vendor_folder.resolve_bazel(tmp_path, lock, paths).use == str(bazel.DEBIAN_BAZEL)
    other_lock = dataclasses.replace(lock, bazel="3.7.2")
    with pytest.raises(VendorError, match=f"3.7.2, .*{lock.bazel}"):
        vendor_folder.resolve_bazel(tmp_path, other_lock, paths)
