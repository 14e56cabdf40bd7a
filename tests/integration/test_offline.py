"""A vendored build in a network namespace without even a loopback: it ends with the same wheel."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.builders.archives import Servers, downloading_tree, serving_folder
from tests.builders.trees import repository_options

from tfbuild.tools import bazel
from tfbuild.tools.bazel import Bazel
from tfbuild.vendoring import declarations, vendor, vendor_folder
from tfbuild.vendoring.declarations import parse_file_name
from tfbuild.vendoring.vendor_folder import VendorLock
from tfcore import settings
from tfcore.errors import VendorError
from tfcore.run import Completed, run
from tfcore.settings import Paths

pytestmark = pytest.mark.toolchain

TARGET = "//tensorflow/tools/pip_package:build_pip_package"
# A namespace has a loopback of its own, which is down; the vendor folder cannot be written to.
CUT = """#!/bin/sh
exec unshare --net --mount {user} sh -c '
  mount --bind {folder} {folder} && mount -o remount,bind,ro {folder} && exec "$@"
' sh {bazelisk} "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Vendored:
    """What the connected machine made: the tree, the folder with its lock, and a wheel."""

    tree: Path
    folder: Path
    lock: VendorLock
    wheel: Path
    asked: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A cache with the user's tools and nothing else in it, and a Bazel."""

    bazel: Bazel
    paths: Paths

    @property
    def options(self) -> tuple[str, ...]:
        own_lines = repository_options(self.bazel, self.paths)
        return (
            *own_lines,
            "--repo_env=CC=/usr/bin/clang-16",
            "-c",
            "opt",
            "--spawn_strategy=local",
        )

    def build(self, tree: Path, *more: str, startup: tuple[str, ...] = ()) -> Completed:
        log = self.paths.cache / "build.log"
        return bazel.build(
            self.bazel,
            (TARGET,),
            workspace=tree,
            options=(*self.options, *more),
            paths=self.paths,
            log=log,
            startup=startup,
        )


def machine(cache: Path) -> Machine:
    user = settings.paths()
    if bazel.find_bazelisk(user) is None:
        bazel.install_bazelisk(user)
    cache.mkdir()
    (cache / "tools").symlink_to(user.tools)
    paths = dataclasses.replace(user, cache=cache, mirror="")
    return Machine(bazel=bazel.find_bazel(paths, "4.2.1"), paths=paths)


def cut_off(connected: Machine, folder: Path, work: Path) -> Machine:
    """The same Bazel without a network, on a machine with an empty cache."""
    script = work / "bazelisk"
    user = "" if os.geteuid() == 0 else "--map-root-user"
    script.write_text(CUT.format(user=user, folder=folder, bazelisk=connected.bazel.bazelisk))
    script.chmod(0o755)
    own_machine = machine(work / "cache")
    return dataclasses.replace(
        own_machine, bazel=dataclasses.replace(own_machine.bazel, bazelisk=script)
    )


def packed(tree: Path, folder: Path) -> Path:
    folder.mkdir()
    env = {**os.environ, "PYTHON_BIN_PATH": sys.executable}
    program = tree / "bazel-bin/tensorflow/tools/pip_package/build_pip_package"
    run([program, folder, "--cpu"], env=env)
    return next(folder.glob("*.whl"))


def fill(folder: Path, tree: Path, connected: Machine, servers: Servers) -> VendorLock:
    return vendor.vendor_targets(
        folder,
        tree,
        (TARGET,),
        release="2.14.1",
        bazel_tool=connected.bazel,
        options=connected.options,
        paths=connected.paths,
        archives=declarations.read_declarations(tree).archives,
        startup=servers.startup,
    )


@pytest.fixture(scope="module", autouse=True)
def debian_bazel() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USE_BAZEL_VERSION", str(bazel.DEBIAN_BAZEL))
        yield


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("offline")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)  # (Bazel makes its folders read-only)


@pytest.fixture(scope="module")
def connected(work: Path) -> Machine:
    return machine(work / "connected")


@pytest.fixture(scope="module")
def made(work: Path, connected: Machine) -> Vendored:
    folder = work / "vendor"
    with serving_folder(work / "site", work / "keys") as servers:
        tree = downloading_tree(work / "tree", work / "site", servers)
        done = connected.build(tree, startup=servers.startup)
        assert done.returncode == 0, done.output
        wheel = packed(tree, work / "wheel")
        servers.asked.clear()
        lock = fill(folder, tree, connected, servers)
        requests = tuple(servers.asked)
    return Vendored(tree=tree, folder=folder, lock=lock, wheel=wheel, asked=requests)


def test_the_folder_holds_what_the_build_needs_and_each_was_asked_for_once(made: Vendored) -> None:
    cached = [item for item in made.lock.files if item.path.startswith("repository_cache/")]
    named = {parse_file_name(item.urls[0]): item for item in cached}
    assert set(named) == {"FXdiv-1.tar.gz", "XNNPACK-1.tar.gz"}
    assert len(cached) == len(named)
    assert sorted(made.asked) == ["/FXdiv-1.tar.gz", "/XNNPACK-1.tar.gz"]
    assert made.lock.first_use == {"FXdiv": named["FXdiv-1.tar.gz"].sha256}
    assert made.lock.from_system
    assert vendor_folder.check_folder(made.folder) == made.lock
    text = (made.folder / vendor_folder.LOCK).read_text()
    assert str(made.folder.parent) not in text  # no path of the machine


def test_the_build_ends_without_a_network_and_with_the_same_wheel(
    made: Vendored, connected: Machine, tmp_path: Path
) -> None:
    tree = shutil.copytree(made.tree, tmp_path / "tree", ignore=shutil.ignore_patterns("bazel-*"))
    lock = vendor_folder.check_folder(made.folder)
    assert declarations.pin_hashes(tree, lock.first_use) == ("WORKSPACE",)
    offline = cut_off(connected, made.folder, tmp_path)
    done = offline.build(tree, *vendor_folder.list_bazel_options(made.folder, lock))
    assert done.returncode == 0, done.output
    assert packed(tree, tmp_path / "wheel").read_bytes() == made.wheel.read_bytes()
    assert vendor_folder.check_folder(made.folder) == lock  # Bazel has left the folder as it was


@pytest.mark.slow
def test_without_the_folder_the_same_build_fails_at_its_downloads(
    made: Vendored, connected: Machine, tmp_path: Path
) -> None:
    done = cut_off(connected, made.folder, tmp_path).build(made.tree)
    assert done.returncode != 0
    assert "Error downloading" in done.output


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_and_ends_with_the_same_files(
    made: Vendored, connected: Machine, work: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "vendor"
    with serving_folder(work / "site", tmp_path / "keys") as servers:
        tree = downloading_tree(tmp_path / "tree", work / "site", servers)
        started = multiprocessing.get_context("spawn").Process(
            target=fill, args=(folder, tree, connected, servers)
        )
        started.start()
        deadline = time.monotonic() + 120
        while not list(folder.glob("repository_cache/**/file")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        started.kill()
        started.join()
        with pytest.raises(VendorError, match="missing or damaged"):
            vendor_folder.check_folder(folder)
        lock = fill(folder, tree, connected, servers)
    assert vendor_folder.check_folder(folder) == lock
    actual, expected = (
        {item.path: item.sha256 for item in vendor_lock.files} for vendor_lock in (lock, made.lock)
    )
    assert actual == expected


@pytest.mark.slow
def test_an_archive_that_no_rule_pins_and_that_changed_since_is_refused(
    made: Vendored, connected: Machine, tmp_path: Path
) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "vendor")
    with serving_folder(tmp_path / "newer", tmp_path / "keys") as servers:
        # gzip writes the time into an archive.
        tree = downloading_tree(tmp_path / "tree", tmp_path / "newer", servers)
        with pytest.raises(VendorError, match=r"FXdiv .*sha256"):
            fill(folder, tree, connected, servers)
    with pytest.raises(VendorError, match="missing or damaged"):
        vendor_folder.check_folder(folder)
