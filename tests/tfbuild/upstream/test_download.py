from __future__ import annotations

import errno
import hashlib
import http.client
import random
import socket
from pathlib import Path

import pytest
from tests.builders.file_limits import file_limit
from tests.builders.web_server import Site, serving

from tfbuild.upstream.download import (
    Pin,
    _redact_url,
    adopt,
    fetch,
    hash_file,
    keep_verified,
    verify_file,
)
from tfcore.errors import ChecksumError, DiskError, DownloadError

DATA = random.Random(1).randbytes(3_000_000)  # noqa: S311  (bytes to carry, no secret)
HALF = 1_400_000


def pin(data: bytes = DATA, *, sized: bool = True) -> Pin:
    size = len(data) if sized else None
    return Pin(name="file.bin", sha256=hashlib.sha256(data).hexdigest(), size=size)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def dead_url() -> str:
    """An address on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/file.bin"


def test_a_file_is_fetched_once(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    with serving(Site({"/file.bin": DATA})) as site:
        for _ in range(2):
            assert fetch(f"{site.url}/file.bin", pin(), folder).read_bytes() == DATA
    assert site.asked == [("/file.bin", None)]
    assert names(folder) == ["file.bin"]


def test_a_folder_serves_as_well(tmp_path: Path) -> None:
    (tmp_path / "there.bin").write_bytes(DATA)
    path = fetch((tmp_path / "there.bin").as_uri(), pin(), tmp_path / "here")
    assert path.read_bytes() == DATA


@pytest.mark.parametrize("sized", [True, False])
def test_a_download_that_broke_off_goes_on_where_it_was(tmp_path: Path, sized: bool) -> None:
    with serving(Site({"/file.bin": DATA}, break_after=HALF)) as site:
        url = f"{site.url}/file.bin"
        with pytest.raises(DownloadError, match=f"{HALF} of {len(DATA)} bytes"):
            fetch(url, pin(sized=sized), tmp_path)
        assert names(tmp_path) == ["file.bin.part"]
        assert fetch(url, pin(sized=sized), tmp_path).read_bytes() == DATA
    assert site.asked == [("/file.bin", None), ("/file.bin", f"bytes={HALF}-")]
    assert names(tmp_path) == ["file.bin"]


def test_a_server_that_says_no_length_is_believed_only_with_the_pinned_size(
    tmp_path: Path,
) -> None:
    with serving(Site({"/file.bin": DATA}, lengths=False, break_after=HALF)) as site:
        with pytest.raises(DownloadError, match="the connection ended after"):
            fetch(f"{site.url}/file.bin", pin(), tmp_path)
        assert fetch(f"{site.url}/file.bin", pin(), tmp_path).read_bytes() == DATA


def test_a_server_without_ranges_sends_it_all_again(tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(DATA[:HALF])
    with serving(Site({"/file.bin": DATA}, ranges=False)) as site:
        assert fetch(f"{site.url}/file.bin", pin(), tmp_path).read_bytes() == DATA
    assert site.asked == [("/file.bin", f"bytes={HALF}-")]


def test_a_part_that_is_already_whole_is_only_checked(tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(DATA)
    assert fetch(dead_url(), pin(), tmp_path).read_bytes() == DATA
    assert names(tmp_path) == ["file.bin"]


def test_a_refused_range_begins_anew(tmp_path: Path) -> None:
    """A part that is longer than the file, of which the size is not known."""
    (tmp_path / "file.bin.part").write_bytes(DATA + b"more")
    with serving(Site({"/file.bin": DATA})) as site:
        assert fetch(f"{site.url}/file.bin", pin(sized=False), tmp_path).read_bytes() == DATA
    assert site.asked == [("/file.bin", f"bytes={len(DATA) + 4}-"), ("/file.bin", None)]


@pytest.mark.parametrize("partial", [b"another file's beginning", DATA[::-1]])
def test_wrong_bytes_are_removed_so_that_the_next_run_starts_clean(
    tmp_path: Path, partial: bytes
) -> None:
    (tmp_path / "file.bin.part").write_bytes(partial)
    with serving(Site({"/file.bin": DATA})) as site:
        with pytest.raises(ChecksumError, match=pin().sha256):
            fetch(f"{site.url}/file.bin", pin(), tmp_path)
        assert names(tmp_path) == []
        assert fetch(f"{site.url}/file.bin", pin(), tmp_path).read_bytes() == DATA


def test_a_server_with_other_bytes_is_not_believed(tmp_path: Path) -> None:
    with (
        serving(Site({"/file.bin": b"<html>Sign in to the hotel's network</html>"})) as site,
        pytest.raises(ChecksumError),
    ):
        fetch(f"{site.url}/file.bin", pin(sized=False), tmp_path)
    assert names(tmp_path) == []


def test_a_cached_file_that_went_bad_is_fetched_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.bin").write_bytes(DATA[:-1] + b"?")
    with serving(Site({"/file.bin": DATA})) as site:
        assert fetch(f"{site.url}/file.bin", pin(), tmp_path).read_bytes() == DATA
    assert site.asked == [("/file.bin", None)]
    assert "downloading it again" in capfd.readouterr().err


def test_an_absent_file_is_said_with_its_address(tmp_path: Path) -> None:
    with (
        serving(Site({})) as site,
        pytest.raises(DownloadError, match=f"{site.url}/file.bin: Not Found"),
    ):
        fetch(f"{site.url}/file.bin", pin(), tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param(dead_url(), "Connection refused", id="nobody listens"),
        ("http://no-such-host.invalid/file.bin", "no-such-host"),
        ("file:///no/such/file.bin", "No such file"),
        ("foo://host/file.bin", "unknown url type"),
        ("no address", "unknown url type"),
        ("http://[broken/file.bin", "Invalid IPv6 URL"),
        ("http://host:port/file.bin", "nonnumeric port"),
    ],
)
def test_an_address_without_an_answer_is_a_download_error(
    tmp_path: Path, url: str, message: str
) -> None:
    with pytest.raises(DownloadError, match=message):
        fetch(url, pin(), tmp_path)


def test_a_folder_that_cannot_be_written_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with (
        serving(Site({"/file.bin": DATA})) as site,
        pytest.raises(DiskError, match=str(tmp_path / "file")),
    ):
        fetch(f"{site.url}/file.bin", pin(), tmp_path / "file")


def test_a_disk_that_runs_full_is_said_and_the_next_run_goes_on(tmp_path: Path) -> None:
    with serving(Site({"/file.bin": DATA})) as site:
        with file_limit(HALF), pytest.raises(DiskError, match="File too large"):
            fetch(f"{site.url}/file.bin", pin(), tmp_path)
        assert fetch(f"{site.url}/file.bin", pin(), tmp_path).read_bytes() == DATA
    assert site.asked[1] == ("/file.bin", f"bytes={HALF}-")


def test_a_network_error_amid_a_download_is_no_disk_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_route(*_: object) -> bytes:
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    with serving(Site({"/file.bin": DATA})) as site:
        with monkeypatch.context() as patch:
            patch.setattr(http.client.HTTPResponse, "read", lose_route)
            with pytest.raises(DownloadError, match=r"file\.bin: No route to host"):
                fetch(f"{site.url}/file.bin", pin(), tmp_path)
        assert fetch(f"{site.url}/file.bin", pin(), tmp_path).read_bytes() == DATA


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://host.example/a/b.tar.gz", "https://host.example/a/b.tar.gz"),
        ("https://me:secret@host.example:8443/a", "https://host.example:8443/a"),
        ("https://token@host.example/a?key=secret", "https://host.example/a"),
        ("https://me:sec@ret@host.example/a", "https://host.example/a"),
        ("file:///a/b", "file:///a/b"),
    ],
)
def test_messages_hide_credentials(url: str, public: str) -> None:
    assert _redact_url(url) == public


def test_a_password_opens_the_mirror_and_no_error_shows_it(tmp_path: Path) -> None:
    with serving(Site({"/file.bin": DATA}, password="me:hunter:2")) as site:  # noqa: S106
        address = site.url.removeprefix("http://")
        for url in (f"me:hunter%3A2@{address}/absent?token=hunter3", f"me:hunter@{address}/x"):
            with pytest.raises(DownloadError, match=r"Not Found|Unauthorized") as caught:
                fetch(f"http://{url}", pin(), tmp_path)
            assert "hunter" not in str(caught.value)
        url = f"http://me:hunter%3A2@{address}/file.bin"
        assert fetch(url, pin(), tmp_path).read_bytes() == DATA


def test_a_password_without_a_port_is_not_taken_for_one(tmp_path: Path) -> None:
    with pytest.raises(DownloadError) as caught:
        fetch("http://me:hunter2@no-such-host.invalid/file.bin", pin(), tmp_path)
    assert "hunter2" not in str(caught.value)


def test_verified_takes_only_the_pinned_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(DownloadError, match=str(path)):
        verify_file(path, pin())
    path.write_bytes(DATA[:HALF])
    with pytest.raises(ChecksumError, match=hash_file(path)):
        verify_file(path, pin())
    assert path.exists()
    path.write_bytes(DATA)
    assert verify_file(path, pin()) == path


def test_what_was_kept_is_used_only_if_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert keep_verified(path, pin()) is None
    path.write_bytes(DATA)
    assert keep_verified(path, pin()) == path
    path.write_bytes(DATA[:HALF])
    assert keep_verified(path, pin()) is None
    assert not path.exists()


def test_a_file_that_somebody_else_fetched_is_taken_after_a_check(tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_bytes(b"other")
    folder = tmp_path / "folder"
    with pytest.raises(ChecksumError):
        adopt(path, pin(), folder)
    path.write_bytes(DATA)
    folder.mkdir()
    (folder / "file.bin").write_bytes(b"an older one")
    assert adopt(path, pin(), folder).read_bytes() == DATA
    assert not path.exists()
