"""A served tree that hands out only what a trusted key has signed, asked by real HTTP."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import IO

import pytest
from tests.builders.http_replies import ask
from tests.builders.index_wheels import stand_in
from tests.builders.mutations import flip_bit
from tests.builders.publications import put
from tests.builders.served_index import running

from tfcore.errors import RecordError, UsageError
from tfwheels import signed_files
from tfwheels.folder import Folder
from tfwheels.keys import SigningKey
from tfwheels.serve import TreeServer, serve
from tfwheels.trust import FILE, Signing

POOL = "pool/tensorflow-cpu"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, key: SigningKey, other: SigningKey) -> Path:
    """A tree with a signed wheel, one by another key, and an unsigned one."""
    folder = tmp_path_factory.mktemp("published")
    index = Folder(root=folder / "tree")
    for version, signer in (("2.14.1", key), ("2.13.1", None), ("2.12.1", other)):
        path = stand_in(folder, version, content=bytes(1000))
        put(index, path, signing=Signing(key=signer))
    return index.root


@pytest.fixture
def wheel(published: Path, tmp_path: Path) -> Path:
    """The signed one, in a copy of the tree."""
    copy = shutil.copytree(published, tmp_path / "tree")
    (path,) = (copy / POOL).glob("*-2.14.1-*.whl")
    return path


@pytest.fixture
def served(wheel: Path, key: SigningKey) -> Iterator[TreeServer]:
    with running(TreeServer(wheel.parents[2], 0, (key.public,))) as server:
        yield server


def status(server: TreeServer, file: str, method: str = "GET") -> int:
    return ask(server, f"/{POOL}/{file}", method)[0]


def test_a_signed_wheel_is_handed_out_and_no_other(
    served: TreeServer, wheel: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, body = ask(served, f"/{POOL}/{wheel.name}")
    assert (code, body) == (HTTPStatus.OK, wheel.read_bytes())
    for version, reason in (
        ("2.13.1", "it is unsigned"),
        ("2.12.1", "not signed by any of the keys"),
    ):
        file = wheel.name.replace("2.14.1", version)
        for method in ("GET", "HEAD"):
            assert status(served, file, method) == HTTPStatus.NOT_FOUND
        output = capfd.readouterr().err
        assert f"refused {POOL}/{file}" in output
        assert reason in output


def test_pages_and_metadata_are_handed_out(served: TreeServer, wheel: Path) -> None:
    assert ask(served, "/simple/zen4/tensorflow-cpu/")[0] == HTTPStatus.OK
    for beside in (".metadata", ".provenance"):
        assert status(served, wheel.name + beside) == HTTPStatus.OK


def test_what_is_no_wheel_but_could_be_installed_is_not_handed_out(
    served: TreeServer, wheel: Path
) -> None:
    for file in ("tensorflow-cpu-9.9.tar.gz", "tensorflow_cpu-9.9.zip", "a.egg", "a.WHL", "a"):
        wheel.with_name(file).write_bytes(b"hostile")
        assert status(served, file) == HTTPStatus.NOT_FOUND


def test_a_wheel_that_is_called_a_page_is_not_handed_out(
    served: TreeServer, wheel: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An installer takes the name from the link, or from the page, not from the file's ending."""
    zipped = wheel.read_bytes()
    folder = wheel.with_name("evil-1.0-py3-none-any.whl")
    folder.mkdir()
    for page in ("index.html", "index.json"):
        (folder / page).write_bytes(b"<!DOCTYPE html>" + zipped)
    assert status(served, f"{folder.name}/") == HTTPStatus.NOT_FOUND
    for ending in ("json", "html", "metadata", "provenance"):
        wheel.with_name(f"page.{ending}").write_bytes(zipped)
        assert status(served, f"page.{ending}") == HTTPStatus.NOT_FOUND
    assert f"refused {POOL}/page.json: it is not text" in capfd.readouterr().err


def _text_tar() -> bytes:
    """A tar archive of ASCII without zero bytes, which Python's tarfile unpacks."""
    name, setup = b"evil-1.0/setup.py".ljust(100), b"import evil\n".ljust(512)
    numbers = b"0000644 0000000 0000000 " + b"%011o %011o " % (len(setup), 0)
    rest = b"0" + b" " * 100 + b"ustar " + b" 1" + b" " * 247
    checksum = b"%06o  " % sum(name + numbers + b" " * 8 + rest)
    return name + numbers + checksum + rest + setup


def test_no_archive_is_text() -> None:
    tar = _text_tar()
    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
        assert [member.size for member in archive] == [512]
    tar.decode("ascii")
    for data in (tar, gzip.compress(tar), bz2.compress(b""), lzma.compress(tar)):
        assert not signed_files._is_text(io.BytesIO(data))
    assert not signed_files._is_text(io.BytesIO(lzma.compress(tar, lzma.FORMAT_ALONE)))
    for text in ("", "{}", "Name: demo\n" * 100, "<p>å</p>" * 100):
        assert signed_files._is_text(io.BytesIO(text.encode()))


def _flipped_in_secret(path: Path) -> None:
    """With the size and the time that the file had."""
    stat = path.stat()
    flip_bit(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("first", [True, False], ids=["handed out before", "not yet asked for"])
@pytest.mark.parametrize("harm", [flip_bit, _flipped_in_secret, Path.unlink])
@pytest.mark.parametrize("beside", ["", ".provenance"])
def test_a_change_is_noticed_and_what_is_put_right_is_handed_out_again(
    served: TreeServer,
    wheel: Path,
    tmp_path: Path,
    first: bool,
    harm: Callable[[Path], None],
    beside: str,
) -> None:
    harmed = wheel.with_name(wheel.name + beside)
    copy = shutil.copy2(harmed, tmp_path / "kept")
    if first:
        assert status(served, wheel.name) == HTTPStatus.OK
    harm(harmed)
    assert status(served, wheel.name) == HTTPStatus.NOT_FOUND
    shutil.copy2(copy, harmed)
    assert status(served, wheel.name) == HTTPStatus.OK


def test_a_wheel_under_the_name_of_another_is_not_handed_out(
    served: TreeServer, wheel: Path
) -> None:
    renamed = wheel.with_name(wheel.name.replace("2.14.1", "2.14.2"))
    for beside in ("", ".provenance"):
        shutil.copy2(f"{wheel}{beside}", f"{renamed}{beside}")
    assert status(served, renamed.name) == HTTPStatus.NOT_FOUND


def test_a_wheel_is_hashed_once(
    served: TreeServer, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    real = signed_files._sha256

    def hashed(file: IO[bytes]) -> str:
        counted.append(file)
        return real(file)

    monkeypatch.setattr(signed_files, "_sha256", hashed)
    for _ in range(3):
        assert status(served, wheel.name) == HTTPStatus.OK
    assert len(counted) == 1


def test_keys_of_the_tree_that_cannot_be_read_and_those_that_are_none_stop_it(
    wheel: Path, tmp_path: Path
) -> None:
    tree = wheel.parents[2]
    with pytest.raises(UsageError, match="is not a public key"):
        serve(str(tree), "", str(wheel))
    (tree / FILE).write_text("{}", "utf-8")
    with pytest.raises(RecordError, match=FILE):
        serve(str(tree), "")
