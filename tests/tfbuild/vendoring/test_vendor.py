from __future__ import annotations

import dataclasses
import hashlib
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.builders.file_limits import file_limit
from tests.builders.vendor_folders import make_folder
from tests.builders.web_server import Site, serving

from tfbuild.tools import bazel
from tfbuild.tools.bazel import Bazel
from tfbuild.tools.environment import create_bare
from tfbuild.vendoring import vendor, vendor_folder
from tfbuild.vendoring.declarations import DeclaredArchive
from tfbuild.vendoring.resolved_repositories import FetchedRepository
from tfbuild.vendoring.vendor_folder import BEFORE, DEPENDENCIES, LOCK
from tfcore import settings
from tfcore.errors import BusyError, DiskError, VendorError
from tfcore.records import save
from tfcore.run import run
from tfcore.settings import Paths

DATA = random.Random(2).randbytes(200_000)  # noqa: S311  (bytes to carry, no secret)
CACHED = "repository_cache/content_addressable/sha256"


def archive(name: str, *urls: str, data: bytes = DATA) -> DeclaredArchive:
    sha256 = hashlib.sha256(data).hexdigest()
    return DeclaredArchive(name=name, urls=urls, sha256=sha256, origin="WORKSPACE")


def cached(folder: Path, expected: DeclaredArchive) -> Path:
    return folder / CACHED / expected.sha256 / "file"


def names(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def test_archives_come_from_the_first_address_that_has_their_bytes(tmp_path: Path) -> None:
    with serving(Site({"/wrong/a.zip": b"<html>", "/right/a.zip": DATA})) as site:
        urls = [f"{site.url}/{place}/a.zip" for place in ("absent", "wrong", "right", "unused")]
        expected = archive("a", *urls)
        for _ in range(2):  # the second time nothing is asked for
            assert vendor.prefetch([expected], tmp_path) == ()
    assert [path for path, _ in site.asked] == ["/absent/a.zip", "/wrong/a.zip", "/right/a.zip"]
    assert cached(tmp_path, expected).read_bytes() == DATA
    assert names(tmp_path) == [f"{CACHED}/{expected.sha256}/file"]


@pytest.mark.parametrize("kind", ["address", "folder"])
def test_a_mirror_is_asked_first(tmp_path: Path, kind: str) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror/a.zip").write_bytes(DATA)
    with serving(Site({"/mirror/a.zip": DATA, "/home/a.zip": DATA})) as site:
        expected = archive("a", f"{site.url}/home/a.zip")
        mirror = f"{site.url}/mirror/" if kind == "address" else str(tmp_path / "mirror")
        assert vendor.prefetch([expected], tmp_path / "out", mirror=mirror) == ()
    assert "/home/a.zip" not in [path for path, _ in site.asked]
    assert cached(tmp_path / "out", expected).read_bytes() == DATA


def test_an_archive_that_nobody_has_is_named_and_the_rest_is_fetched(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(Site({"/b.zip": DATA})) as site:
        gone = archive("a", f"{site.url}/a.zip", data=b"other")
        available = archive("b", f"{site.url}/b.zip")
        unpinned = dataclasses.replace(archive("c", f"{site.url}/c.zip"), sha256="")
        assert vendor.prefetch([gone, available, unpinned], tmp_path) == ("a",)
    assert cached(tmp_path, available).is_file()
    assert "a cannot" in capfd.readouterr().err


def test_a_download_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    expected = archive("a", "{site}/a.zip")
    with serving(Site({"/a.zip": DATA}, break_after=50_000)) as site:
        expected = dataclasses.replace(expected, urls=(f"{site.url}/a.zip",))
        assert vendor.prefetch([expected], tmp_path) == ("a",)
        assert names(tmp_path) == [f".waiting/{expected.sha256}/a.zip.part"]
        assert vendor.prefetch([expected], tmp_path) == ()
    assert site.asked == [("/a.zip", None), ("/a.zip", "bytes=50000-")]


def test_two_archives_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    with serving(Site({"/x/v1.0.tar.gz": DATA, "/y/v1.0.tar.gz": DATA[::-1]})) as site:
        declared_archive = archive("one", f"{site.url}/x/v1.0.tar.gz")
        two = archive("two", f"{site.url}/y/v1.0.tar.gz", data=DATA[::-1])
        assert vendor.prefetch([declared_archive, two], tmp_path) == ()
    assert cached(tmp_path, declared_archive).read_bytes() == DATA
    assert cached(tmp_path, two).read_bytes() == DATA[::-1]


def test_what_a_killed_run_left_half_is_removed(tmp_path: Path) -> None:
    half = f"{CACHED}/tmp-1234"  # noqa: S108  (so Bazel names what is not whole)
    for name in (half, ".waiting/ab/a.zip.part", "sources/.t.tar.gz.new"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"half")
    vendor._remove_partial(tmp_path)
    assert names(tmp_path) == []


def test_a_cached_archive_that_went_bad_is_fetched_again(tmp_path: Path) -> None:
    with serving(Site({"/a.zip": DATA})) as site:
        expected = archive("a", f"{site.url}/a.zip")
        assert vendor.prefetch([expected], tmp_path) == ()
        cached(tmp_path, expected).write_bytes(DATA[:-1])
        vendor._remove_corrupt(tmp_path)
        assert vendor.prefetch([expected], tmp_path) == ()
    assert cached(tmp_path, expected).read_bytes() == DATA


def test_a_full_disk_leaves_nothing_half_under_a_final_name(tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(DATA)
    with file_limit(len(DATA) // 2), pytest.raises(DiskError, match="sources/given"):
        vendor._copy_file(tmp_path / "given", tmp_path / "sources/given")
    assert names(tmp_path) == ["given"]


def test_what_is_not_the_folders_own_is_copied(tmp_path: Path) -> None:
    (tmp_path / "given").write_bytes(DATA)
    vendor._copy_file(tmp_path / "given", tmp_path / "out/given")
    (tmp_path / "given").write_bytes(b"changed in place")
    assert (tmp_path / "out/given").read_bytes() == DATA


def test_an_archive_that_changed_since_its_first_use_is_refused() -> None:
    new = FetchedRepository(name="a", urls=("https://x.example/a",), sha256="11", pinned=False)
    vendor._check_first_use([new], {})
    vendor._check_first_use([new], {"a": "11", "b": "22"})
    vendor._check_first_use([dataclasses.replace(new, pinned=True)], {"a": "22"})
    with pytest.raises(VendorError, match=f"a .* 11, .* 22.*{BEFORE}"):
        vendor._check_first_use([new], {"a": "22"})


def test_a_folder_that_is_being_filled_has_no_lock_but_remembers_its_hashes(tmp_path: Path) -> None:
    lock = make_folder(tmp_path)
    for _ in range(2):  # as often as a run is killed
        assert vendor._set_lock_aside(tmp_path) == lock.first_use
        assert not (tmp_path / LOCK).exists()
    assert vendor._set_lock_aside(tmp_path / "new") == {}


def fill(folder: Path, tree: Path, bazel_tool: Bazel, paths: Paths) -> None:
    vendor.vendor_targets(
        folder, tree, ("//:x",), release="2.14.1", bazel_tool=bazel_tool, options=(), paths=paths
    )


def test_one_run_at_a_time(tmp_path: Path) -> None:
    paths = Paths(root=settings.ROOT, cache=tmp_path / "cache", pool=tmp_path)
    bazel_tool = Bazel(bazelisk=Path("/bin/true"), use="/bin/true", version="1", debian=True)
    with settings.lock_folder(tmp_path / "out", "vendoring"), pytest.raises(BusyError):
        fill(tmp_path / "out", tmp_path, bazel_tool, paths)


# Answers as bazelisk and Bazel do: no Bazel can be downloaded where these tests run.
STAND_IN = b"#!/bin/sh\necho bazel 6.0.9\n"


def real_bazelisk() -> Path:
    paths = settings.paths()
    return bazel.find_bazelisk(paths) or bazel.install_bazelisk(paths)


@pytest.mark.toolchain
def test_bazelisk_puts_the_bazel_that_it_downloads_into_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bazel_tool = Bazel(bazelisk=real_bazelisk(), use="6.0.9", version="6.0.9", debian=False)
    machine = {"x86_64": "x86_64", "aarch64": "arm64"}[os.uname().machine]
    path = f"/6.0.9/bazel-6.0.9-linux-{machine}"
    with serving(Site({path: STAND_IN})) as site:
        monkeypatch.setenv("BAZELISK_BASE_URL", site.url)
        monkeypatch.setenv("BAZELISK_VERIFY_SHA256", "0" * 64)
        with pytest.raises(VendorError, match=r"bazelisk: .*0{64}"):
            vendor._store_bazel(bazel_tool, tmp_path / "bad/bazel")
        monkeypatch.setenv("BAZELISK_VERIFY_SHA256", hashlib.sha256(STAND_IN).hexdigest())
        vendor._store_bazel(bazel_tool, tmp_path / "vendor/bazel")
    more = {name: (tmp_path / "vendor" / name).read_bytes() for name in names(tmp_path / "vendor")}
    lock = make_folder(tmp_path / "vendor", bazel="6.0.9", more=more)
    assert vendor_folder.check_folder(tmp_path / "vendor") == lock
    paths = Paths(root=settings.ROOT, cache=tmp_path / "cache", pool=tmp_path)
    own_bazel = vendor_folder.resolve_bazel(tmp_path / "vendor", lock, paths)
    assert own_bazel.bazelisk.is_relative_to(tmp_path)
    assert Path(own_bazel.use).read_bytes() == STAND_IN
    cut = ["unshare", "--net", *(() if os.geteuid() == 0 else ("--map-root-user",))]
    env = bazel.build_environment(own_bazel.use, hashlib.sha256(STAND_IN).hexdigest())
    completed = subprocess.run(
        [*cut, own_bazel.bazelisk, "--version"],
        env=env,
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    assert completed.stdout == b"bazel 6.0.9\n"


def test_a_bazel_that_is_given_by_its_path_is_copied(tmp_path: Path) -> None:
    path = tmp_path / "my-bazel"
    path.write_bytes(STAND_IN)
    path.chmod(0o755)
    script = tmp_path / "bazelisk"
    script.write_text("#!/usr/bin/env node\n")
    bazel_tool = Bazel(bazelisk=script, use=str(path), version="6.0.9", debian=False)
    vendor._store_bazel(bazel_tool, tmp_path / "out")
    assert names(tmp_path / "out") == ["bazel-6.0.9"]  # a script needs more than itself
    assert os.access(tmp_path / "out/bazel-6.0.9", os.X_OK)


def small_wheel(folder: Path) -> str:
    """A wheel that pip takes; its SHA-256."""
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr(
            "tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        )
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.toolchain
def test_pip_fetches_what_the_tree_locks_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index").mkdir()
    sha256 = small_wheel(tmp_path / "index")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"])
    python = tmp_path / "bare/bin/python"  # as the one that builds
    locked = tmp_path / f"requirements_lock_{sys.version_info[0]}_{sys.version_info[1]}.txt"
    locked.write_text(f"tiny==1.0 --hash=sha256:{sha256}\n")
    vendor.download_wheels(tmp_path, python, tmp_path / "wheels")
    assert names(tmp_path / "wheels") == ["tiny-1.0-py3-none-any.whl"]
    locked.write_text(f"tiny==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(VendorError, match="pip: "):
        vendor.download_wheels(tmp_path, python, tmp_path / "other")
    locked.unlink()
    vendor.download_wheels(tmp_path, python, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.toolchain
def test_an_environment_is_made_from_the_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index").mkdir()
    requirements = f"tiny==1.0 --hash=sha256:{small_wheel(tmp_path / 'index')}\n"
    out = tmp_path / "vendor"
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with monkeypatch.context() as online:
        online.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
        online.setenv("PIP_NO_INDEX", "1")
        vendor.download_dependencies(requirements, Path(sys.executable), out / DEPENDENCIES)
    assert vendor_folder.read_requirements(out) == requirements
    paths = Paths(root=settings.ROOT, cache=tmp_path / "cache", pool=tmp_path)
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    bare = create_bare(
        python=python, requirements=requirements, paths=paths, links=out / DEPENDENCIES
    )
    run([bare, "-c", "import tiny"])
    with pytest.raises(VendorError, match=r"requirements\.txt.*invoke vendor"):
        vendor_folder.read_requirements(tmp_path)


def test_a_lock_of_an_earlier_run_that_is_torn_is_said(tmp_path: Path) -> None:
    save(tmp_path / BEFORE, {"schema": 1})
    with pytest.raises(VendorError, match=BEFORE) as caught:
        vendor._set_lock_aside(tmp_path)
    assert caught.value.hint.startswith("Remove it")
