from __future__ import annotations

import bz2
import dataclasses
import gzip
import hashlib
import io
import itertools
import lzma
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.builders.later import later
from tests.builders.staging import STAGING
from tests.builders.web_server import Site, serving

from tfbuild.upstream.download import Pin, hash_file
from tfbuild.upstream.source import (
    SourcePin,
    create_folder,
    fetch_source,
    is_staged,
    stage,
    unpack,
)
from tfcore.errors import ChecksumError, DiskError, DownloadError
from tfcore.settings import ROOT, Paths

DATA = b"the release's sources"
DEAD = "http://127.0.0.1:9"  # (the discard port: nothing listens there)
WANTED = {
    "tensorflow/core/kernels/tanh.cc": b"// tanh",
    "tensorflow/core/kernels/tanh.h": b"#pragma once",
    "third_party/eigen3/Eigen/Core": b"// Eigen",
    "third_party/eigen3/unsupported/Eigen/CXX11/Tensor": b"// Tensor",
}
NOT_WANTED = {
    "tensorflow/core/kernels/BUILD": b"cc_library()",
    "tensorflow/core/kernels/tanh.py": b"",
    "third_party/eigen3/BUILD": b"",
    "third_party/eigen3/Eigen/BUILD": b"",
    "third_party/eigen3/LICENSE": b"",
    "tensorflow/python/x.h": b"",
    "tensorflow/corelike/x.h": b"",
}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(root=ROOT, cache=tmp_path / "cache", pool=tmp_path / "pool")


def pins(
    origin: str = f"{DEAD}/v2.tar.gz", data: bytes = DATA, kind: str = "home"
) -> tuple[SourcePin, ...]:
    name = "debian.orig.tar.xz" if kind == "debian" else "v2.tar.gz"
    file = Pin(name=name, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    return (SourcePin(kind=kind, origin=origin, file=file),)


def mirrored(paths: Paths, mirror: str) -> Paths:
    return Paths(root=paths.root, cache=paths.cache, pool=paths.pool, mirror=mirror)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "xz": lzma.compress,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "plain": bytes,
}


def archive(
    path: Path, files: dict[str, bytes], packer: str = "xz", top: str = "tensorflow-2"
) -> Path:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(content)
            member.mode = 0o777
            tar.addfile(member, io.BytesIO(content))
    path.write_bytes(PACKERS[packer](sink.getvalue()))
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if not path.is_dir()
    }


def content(folder: Path) -> list[Path]:
    """What is in the folder beside the file of its lock."""
    return [path for path in folder.iterdir() if path.name != ".lock"]


def test_the_home_serves_and_the_cache_after_it(paths: Paths) -> None:
    with serving(Site({"/v2.tar.gz": DATA})) as site:
        chosen = pins(f"{site.url}/v2.tar.gz")
        source = fetch_source(chosen, paths, None)
    assert source == paths.downloads / "v2.tar.gz"
    assert fetch_source(chosen, paths, None).read_bytes() == DATA  # the server is gone


def test_a_mirror_is_asked_before_the_home(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "v2.tar.gz").write_bytes(DATA)
    source = fetch_source(pins(), mirrored(paths, str(tmp_path / "mirror")), None)
    assert source.read_bytes() == DATA
    with serving(Site({"/at/v2.tar.gz": DATA})) as site:
        source.unlink()
        assert fetch_source(pins(), mirrored(paths, f"{site.url}/at/"), None) == source


def test_the_home_serves_what_a_mirror_lacks(paths: Paths, tmp_path: Path) -> None:
    with serving(Site({"/v2.tar.gz": DATA})) as site:
        chosen = pins(f"{site.url}/v2.tar.gz")
        assert fetch_source(chosen, mirrored(paths, str(tmp_path)), None).read_bytes() == DATA


def test_wrong_bytes_of_a_mirror_do_not_keep_the_home_away(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "v2.tar.gz").write_bytes(b"something else")
    with serving(Site({"/v2.tar.gz": DATA})) as site:
        chosen = pins(f"{site.url}/v2.tar.gz")
        assert fetch_source(chosen, mirrored(paths, str(tmp_path)), None).read_bytes() == DATA


def test_a_cached_archive_that_went_bad_is_fetched_again(paths: Paths) -> None:
    paths.downloads.mkdir(parents=True)
    (paths.downloads / "v2.tar.gz").write_bytes(DATA[:-1])
    with serving(Site({"/v2.tar.gz": DATA})) as site:
        source = fetch_source(pins(f"{site.url}/v2.tar.gz"), paths, None)
    assert source.read_bytes() == DATA


def test_the_error_lists_everything_that_was_tried(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # a machine without apt
    chosen = pins() + pins("sid/tensorflow", kind="debian")
    with pytest.raises(DownloadError) as caught:
        fetch_source(chosen, mirrored(paths, str(tmp_path)), None)
    lines = caught.value.message.splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "  - mirror v2.tar.gz",
        "  - mirror debian.orig.tar.xz",
        "  - TensorFlow on GitHub",
        "  - Debian source package sid/tensorflow",
    ]
    assert lines[3].startswith(f"  - TensorFlow on GitHub: cannot download {DEAD}/v2.tar.gz: ")
    assert "Connection refused" in lines[3]
    assert lines[4].endswith("apt-get is not installed")
    assert "--source PATH" in caught.value.hint


def test_what_broke_off_is_listed_and_the_next_run_goes_on(paths: Paths) -> None:
    with serving(Site({"/v2.tar.gz": DATA}, break_after=5)) as site:
        chosen = pins(f"{site.url}/v2.tar.gz")
        with pytest.raises(DownloadError, match=f"5 of {len(DATA)} bytes"):
            fetch_source(chosen, paths, None)
        assert fetch_source(chosen, paths, None).read_bytes() == DATA
        assert site.asked[-1] == ("/v2.tar.gz", "bytes=5-")


def test_a_given_file_must_have_one_of_the_pinned_hashes(paths: Paths, tmp_path: Path) -> None:
    path = tmp_path / "under another name"
    with pytest.raises(DownloadError, match=path.name):
        fetch_source(pins(), paths, path)
    path.write_bytes(DATA + b"?")
    with pytest.raises(ChecksumError) as caught:
        fetch_source(pins(), paths, path)
    assert hash_file(path) in caught.value.message
    assert f"v2.tar.gz ({pins()[0].file.sha256})" in caught.value.message
    assert path.exists()
    path.write_bytes(DATA)
    assert fetch_source(pins(), paths, path) == path


@pytest.mark.parametrize("packer", sorted(PACKERS))
def test_only_what_a_build_reads_is_staged(paths: Paths, tmp_path: Path, packer: str) -> None:
    path = archive(tmp_path / "x.tar", WANTED | NOT_WANTED, packer)
    folder = stage(path, "ab" * 32, STAGING, paths)
    assert folder.parent.parent == paths.sources
    assert folder.parent.name.startswith("abababababababab-")
    assert tree(folder) == WANTED
    assert all(file.stat().st_mode & 0o111 == 0 for file in folder.rglob("*") if file.is_file())
    path.unlink()
    assert stage(path, "ab" * 32, STAGING, paths) == folder  # done once


def test_files_that_a_newer_version_also_stages_are_unpacked(paths: Paths, tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar", WANTED | {"LICENSE": b"Apache"})
    assert tree(stage(path, "ab" * 32, STAGING, paths)) == WANTED
    newer = dataclasses.replace(STAGING, prefixes=(*STAGING.prefixes, "LICENSE"))
    assert tree(stage(path, "ab" * 32, newer, paths)) == WANTED | {"LICENSE": b"Apache"}


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("tensorflow/core/kernels/relu_op.cc", True),
        ("tensorflow/core/ops.pbtxt", False),
        ("tensorflow/core/kernels/BUILD", False),
        ("tensorflow/core/kernels/BUILD.bazel", False),
        ("tensorflow/core/README", False),
        ("third_party/eigen3/Eigen/src/Core/Matrix.h", True),
        ("third_party/eigen3/unsupported/Eigen/CXX11/Tensor", True),
        ("third_party/eigen3/Eigen/Core", True),
        ("third_party/eigen3/Eigen/BUILD", False),
        ("third_party/eigen3/mkl_include.h", True),
        ("third_party/eigen3/LICENSE", False),
    ],
)
def test_members_are_chosen_by_name(name: str, chosen: bool) -> None:
    assert is_staged(name, STAGING) is chosen


def link(kind: bytes, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo("top/tensorflow/core/evil.h")
    member.type = kind
    member.linkname = target
    return member


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_pipes_are_left_in_the_archive(paths: Paths, tmp_path: Path, kind: bytes) -> None:
    path = archive(tmp_path / "x.tar", WANTED, "plain")
    with tarfile.open(path, "a") as tar:
        tar.addfile(link(kind, "/etc/passwd"))
    assert tree(stage(path, "ab" * 32, STAGING, paths)) == WANTED


def test_no_member_is_written_outside(paths: Paths, tmp_path: Path) -> None:
    name = "tensorflow/core/../../../../../../escaped.h"
    path = archive(tmp_path / "x.tar", WANTED | {name: b"evil"})
    with pytest.raises(ChecksumError, match=r"outside the destination"):
        stage(path, "ab" * 32, STAGING, paths)
    assert not list(tmp_path.rglob("escaped.h"))
    assert content(paths.sources) == []


@pytest.mark.parametrize("top", ["", "/", "/etc"])
def test_absolute_members_are_no_sources(paths: Paths, tmp_path: Path, top: str) -> None:
    path = archive(tmp_path / "x.tar", {"/tensorflow/core/x.h": b"evil"}, top=top)
    with pytest.raises(ChecksumError, match="tensorflow/core/, third_party/eigen3/"):
        stage(path, "ab" * 32, STAGING, paths)
    assert content(paths.sources) == []


# (text that a compressor works on, so that a change breaks its stream)
TEXTS = {
    f"tensorflow/core/{i}.h": "".join(f"int f{i * j % 977}();\n" for j in range(2000)).encode()
    for i in range(20)
}


@pytest.mark.parametrize(
    ("packer", "damage"),
    [
        *itertools.product(PACKERS, ["cut", "no archive", "empty"]),
        # (Changes that the others let pass until the end are what the pinned hash is for.)
        *itertools.product(["xz", "bz2"], ["changed"]),
    ],
)
def test_a_torn_archive_is_refused_and_leaves_nothing(
    paths: Paths, tmp_path: Path, packer: str, damage: str
) -> None:
    path = archive(tmp_path / "x.tar", TEXTS, packer)
    whole = path.read_bytes()
    middle = len(whole) // 2
    damaged = {
        "cut": whole[:middle],
        "changed": whole[:middle] + b"\xff" * 2000 + whole[middle + 2000 :],
        "no archive": b"<html>",
        "empty": b"",
    }
    path.write_bytes(damaged[damage])
    with pytest.raises(ChecksumError, match=r"x\.tar"):
        stage(path, "ab" * 32, STAGING, paths)
    assert content(paths.sources) == []


def test_a_folder_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "x"

    def fail_midway(fresh: Path) -> None:
        (fresh / "half").write_text("half")
        raise RuntimeError("no")

    def fill(fresh: Path) -> None:
        (fresh / "whole").write_text("whole")
        assert not folder.exists()

    with pytest.raises(RuntimeError, match="no"):
        create_folder(folder, 0, "a test", fail_midway)
    assert content(folder.parent) == []
    assert create_folder(folder, 0, "a test", fill) == folder
    assert tree(folder) == {"whole": b"whole"}
    assert folder.stat().st_mode & 0o777 == 0o755
    assert create_folder(folder, 0, "a test", fail_midway) == folder
    assert content(folder.parent) == [folder]


def test_a_folder_that_cannot_be_written_is_a_disk_error(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    with pytest.raises(DiskError, match="Not a directory"):
        create_folder(folder, 0, "a test", lambda _: folder.touch())
    assert content(tmp_path) == [folder]


MANY = {f"tensorflow/core/{i}.h": b"%d" % i for i in range(6000)}


def start_work(work: str, path: Path, cache: Path) -> subprocess.Popen[bytes]:
    """Start a process that unpacks an archive into a cache."""
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.tfbuild.upstream import test_source as t\n"
        "path, cache = map(Path, sys.argv[1:])\n"
        "paths = t.Paths(root=t.ROOT, cache=cache, pool=cache)\n"
        f"print(t.{work} paths))"
    )
    command = [sys.executable, "-c", code, str(path), str(cache)]
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'build'}:{ROOT}"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("work", ["stage(path, 'ab' * 32, t.STAGING,", "unpack(path, 'ab' * 32,"])
def test_processes_that_unpack_at_once_get_one_whole_folder(
    paths: Paths, tmp_path: Path, work: str
) -> None:
    path = archive(tmp_path / "x.tar", MANY, "plain")
    processes = [start_work(work, path, paths.cache) for _ in range(3)]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    (folder,) = content(paths.sources)
    assert len(list(folder.rglob("*.h"))) == len(MANY)


@pytest.mark.parametrize("number", [signal.SIGKILL, *later(signal.SIGINT)])
@pytest.mark.parametrize("work", ["stage(path, 'ab' * 32, t.STAGING,", "unpack(path, 'ab' * 32,"])
def test_work_that_was_ended_midway_is_done_anew(
    paths: Paths, tmp_path: Path, work: str, number: int
) -> None:
    path = archive(tmp_path / "x.tar", MANY, "plain")
    with start_work(work, path, paths.cache) as working:
        deadline = time.monotonic() + 30
        while not any(paths.sources.rglob("*.h")):
            assert time.monotonic() < deadline
        working.send_signal(number)
        assert working.wait(30) != 0
    assert not list(paths.sources.glob("ab*"))
    with start_work(work, path, paths.cache) as again:
        folder = Path(again.communicate()[0].decode().strip())
    assert tree(folder) == MANY
    assert content(paths.sources) in ([folder], [folder.parent])


# The whole tree.


def member(
    name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def packed(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info in members:
            tar.addfile(info)
    return path


@pytest.mark.parametrize("packer", sorted(PACKERS))
def test_a_whole_tree_is_unpacked_once(paths: Paths, tmp_path: Path, packer: str) -> None:
    path = archive(tmp_path / "x.tar", WANTED | NOT_WANTED, packer)
    folder = unpack(path, "ab" * 32, paths)
    assert tree(folder) == WANTED | NOT_WANTED
    path.unlink()
    assert unpack(path, "ab" * 32, paths) == folder
    assert content(paths.sources) in ([folder], [folder.parent])


def test_programs_stay_programs_and_links_stay_links(paths: Paths, tmp_path: Path) -> None:
    path = packed(
        tmp_path / "x.tar",
        member("top", tarfile.DIRTYPE, mode=0o755),
        member("top/tools", tarfile.DIRTYPE, mode=0o755),
        member("top/tools/run.sh", mode=0o755),
        member("top/tools/text", mode=0o664),
        member("top/shadow", tarfile.SYMTYPE, link="tools/run.sh"),
        member("top/same", tarfile.LNKTYPE, link="top/tools/run.sh", mode=0o755),
    )
    folder = unpack(path, "ab" * 32, paths)
    assert (folder / "tools/run.sh").stat().st_mode & 0o111
    assert not (folder / "tools/text").stat().st_mode & 0o133
    assert (folder / "shadow").readlink() == Path("tools/run.sh")
    assert (folder / "same").samefile(folder / "tools/run.sh")


@pytest.mark.parametrize(
    "evil",
    [
        member("top/../../escaped"),
        member("top/../escaped"),
        member("top/x", tarfile.SYMTYPE, link="/etc/passwd"),
        member("top/x", tarfile.SYMTYPE, link="../../escaped"),
        member("top/x", tarfile.LNKTYPE, link="top/../../escaped"),
        member("top/x", tarfile.LNKTYPE, link="top/missing"),
        member("top/x", tarfile.FIFOTYPE),
        member("top/x", tarfile.CHRTYPE),
    ],
    ids=lambda info: f"{info.name} {info.linkname or info.type}",
)
def test_what_leads_out_of_a_tree_is_refused(
    paths: Paths, tmp_path: Path, evil: tarfile.TarInfo
) -> None:
    path = packed(tmp_path / "x.tar", member("top/fine"), evil)
    with pytest.raises(ChecksumError, match=r"x\.tar"):
        unpack(path, "ab" * 32, paths)
    assert content(paths.sources) == []
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize("damage", ["cut", "no archive", "empty", "one file"])
def test_a_torn_tree_leaves_nothing(paths: Paths, tmp_path: Path, damage: str) -> None:
    path = archive(tmp_path / "x.tar", TEXTS, "gz")
    whole = path.read_bytes()
    if damage == "one file":
        packed(path, member("top"))
    else:
        damaged = {"cut": whole[: len(whole) // 2], "no archive": b"<html>", "empty": b""}
        path.write_bytes(damaged[damage])
    with pytest.raises(ChecksumError, match=r"x\.tar"):
        unpack(path, "ab" * 32, paths)
    assert content(paths.sources) == []


def test_a_tree_that_does_not_fit_is_refused_before_it_is_begun(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfbuild.upstream.source._TREE_BYTES", 10**18)
    path = archive(tmp_path / "x.tar", WANTED)
    with pytest.raises(DiskError, match="source tree"):
        unpack(path, "ab" * 32, paths)
    assert content(paths.sources) == []
