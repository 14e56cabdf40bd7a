from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from tfbuild.upstream.download import Pin, hash_file
from tfbuild.upstream.local_sources import KIND, create_pins, require_release, stage
from tfbuild.upstream.source import SourcePin, Staging
from tfcore.errors import ChecksumError, DownloadError, KernelError
from tfcore.settings import Paths

STAGING = Staging(
    prefixes=("LICENSE", "tensorflow/tf_version.bzl", "tensorflow/core"), suffixes=(".h", ".cc")
)
KERNEL = "tensorflow/core/kernels/cwise_op_tanh.cc"
TAKEN = {
    "LICENSE": "Apache\n",
    "tensorflow/core/framework/op.h": "#pragma once\n",
    KERNEL: "int a;\n",
}
LEFT = {"tensorflow/core/BUILD": "", "tensorflow/python/a.h": "", "README.md": "", "setup.cc": ""}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {**TAKEN, **LEFT}.items():
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "checkout"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(root=tmp_path, cache=tmp_path / "cache", pool=tmp_path / "pool", mirror="")


def only(tree: Path) -> SourcePin:
    (pin,) = create_pins(tree, (), STAGING)
    return pin


def git(tree: Path, *words: str) -> str:
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    command = ["git", "-C", str(tree), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def archived(tree: Path, path: Path) -> Path:
    with tarfile.open(path, "w:xz") as archive:
        archive.add(tree, "tensorflow-2.99")
    return path


def test_a_folder_is_known_by_what_a_build_reads_of_it(tree: Path) -> None:
    pin = only(tree)
    assert (pin.kind, pin.origin, pin.file.name) == (KIND, "", "checkout")
    for name in LEFT:
        (tree / name).write_text("other", encoding="utf-8")
    assert only(tree) == pin
    for name in TAKEN:
        before = (tree / name).read_text(encoding="utf-8")
        (tree / name).write_text("other", encoding="utf-8")
        assert only(tree).file.sha256 != pin.file.sha256
        (tree / name).write_text(before, encoding="utf-8")
    (tree / KERNEL).rename((tree / KERNEL).with_name("moved.cc"))
    assert only(tree).file.sha256 != pin.file.sha256


def test_a_checkout_says_its_commit_and_whether_it_was_changed(tree: Path) -> None:
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "all")
    commit = git(tree, "rev-parse", "HEAD")
    assert only(tree).origin == f"commit {commit}"
    (tree / KERNEL).write_text("int b;\n", encoding="utf-8")
    assert only(tree).origin == f"commit {commit}, changed"


def test_a_folder_in_another_checkout_has_not_its_commit(tree: Path) -> None:
    git(tree.parent, "init", "-q")
    git(tree.parent, "add", ".")
    git(tree.parent, "commit", "-q", "-m", "all")
    assert only(tree).origin == ""


def test_an_archive_is_the_releases_own_by_its_hash_only(tree: Path, tmp_path: Path) -> None:
    path = archived(tree, tmp_path / "some.tar.xz")
    own_pin = SourcePin(kind="home", origin="x", file=Pin(name="other", sha256=hash_file(path)))
    assert create_pins(path, (own_pin,), STAGING) == (own_pin,)
    (pin,) = create_pins(path, (), STAGING)
    assert pin == SourcePin(
        kind=KIND, origin="", file=Pin(name="some.tar.xz", sha256=hash_file(path))
    )


def test_what_is_not_there_or_holds_no_sources_is_refused(tree: Path) -> None:
    with pytest.raises(DownloadError, match="no such file or folder"):
        create_pins(tree / "nothing", (), STAGING)
    with pytest.raises(KernelError, match="contains none of") as caught:
        create_pins(tree / "tensorflow", (), STAGING)
    assert "tensorflow/" in caught.value.hint


def test_a_folder_is_staged_whole_and_without_what_is_not_read(tree: Path, paths: Paths) -> None:
    staged = stage(tree, only(tree), STAGING, paths)
    files = {str(path.relative_to(staged)): path for path in staged.rglob("*") if path.is_file()}
    assert {name: path.read_text(encoding="utf-8") for name, path in files.items()} == TAKEN
    assert stage(tree, only(tree), STAGING, paths) == staged


def test_a_link_that_leads_out_is_not_followed(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.h").write_text("secret", encoding="utf-8")
    pin = only(tree)
    (tree / "tensorflow/core/secret.h").symlink_to(tmp_path / "secret.h")
    assert only(tree) == pin


def test_a_folder_that_changed_since_the_plan_is_refused(tree: Path, paths: Paths) -> None:
    pin = only(tree)
    (tree / KERNEL).write_text("int changed;\n", encoding="utf-8")
    with pytest.raises(ChecksumError, match="changed"):
        stage(tree, pin, STAGING, paths)
    assert not list(paths.sources.glob(f"*{pin.file.sha256[:16]}*"))


OLD = "#define TF_MAJOR_VERSION 2\n#define TF_MINOR_VERSION {}\n#define TF_PATCH_VERSION 0\n"
NEW = '# The version.\nTF_VERSION = "2.{}.0"\n'


@pytest.mark.parametrize(
    ("file", "text"),
    [("tensorflow/core/public/version.h", OLD), ("tensorflow/tf_version.bzl", NEW)],
)
def test_sources_of_another_release_are_refused_by_name(tree: Path, file: str, text: str) -> None:
    (tree / file).parent.mkdir(parents=True, exist_ok=True)
    (tree / file).write_text(text.format(20), encoding="utf-8")
    require_release(tree, "2.20.1")
    with pytest.raises(KernelError, match=r"of TensorFlow 2\.20, but the wheel is of 2\.2\.1"):
        require_release(tree, "2.2.1")


def test_sources_that_name_no_release_are_judged_by_their_headers(tree: Path) -> None:
    require_release(tree, "2.20.0")
