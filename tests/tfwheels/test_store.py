"""What both stores promise, on a real folder and over HTTP on a real S3 API."""

from __future__ import annotations

import io
import os
import stat
import sys
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.buckets import NAME, Served
from tests.builders.file_limits import file_limit
from tests.builders.publications import sha256

from tfcore.errors import (
    BusyError,
    ChecksumError,
    DiskError,
    PublishError,
    ToolError,
    UsageError,
)
from tfcore.run import run
from tfcore.settings import ROOT
from tfwheels.bucket import Bucket
from tfwheels.folder import Folder
from tfwheels.layout import StoredObject, build_manifest, compute_digest
from tfwheels.store import Store, open_store

WHEEL = "pool/tensorflow-cpu/tensorflow_cpu-2.14.1+zen4-cp311-cp311-linux_x86_64.whl"
PAGE = "simple/zen4/tensorflow-cpu/index.html"
BUCKET = pytest.param("s3", marks=pytest.mark.toolchain)


@pytest.fixture
def bucket(s3: Served, request: pytest.FixtureRequest) -> Bucket:
    """A part of the bucket for each test."""
    actual = open_store(f"s3://{NAME}/{sha256(request.node.nodeid.encode())[:12]}")
    assert isinstance(actual, Bucket)
    return actual


@pytest.fixture(params=["folder", BUCKET])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return open_store(str(tmp_path / "index"))
    actual: Store = request.getfixturevalue("bucket")
    return actual


def test_a_page_is_read_as_it_was_put_and_can_be_replaced(store: Store) -> None:
    assert store.read(PAGE) is None
    store.put(PAGE, b"one")
    store.put(PAGE, b"two")
    assert store.read(PAGE) == b"two"


def test_a_wheel_is_stored_once_and_its_name_keeps_its_bytes(store: Store, tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"wheel" * 1_000_000)
    digest = sha256(wheel.read_bytes())
    assert store.put_new(WHEEL, wheel, digest)
    assert not store.put_new(WHEEL, wheel, digest)
    other_path = tmp_path / "b.whl"
    other_path.write_bytes(b"other")
    with pytest.raises(PublishError, match=rf"{digest}, not {sha256(b'other')}") as caught:
        store.put_new(WHEEL, other_path, sha256(b"other"))
    assert WHEEL in caught.value.message
    assert store.read(WHEEL) == wheel.read_bytes()


def test_bytes_in_memory_keep_their_name_too(store: Store) -> None:
    key = f"{WHEEL}.metadata"
    assert store.put_new(key, b"Name: a\n", sha256(b"Name: a\n"))
    assert not store.put_new(key, b"Name: a\n", sha256(b"Name: a\n"))
    with pytest.raises(PublishError, match="other bytes"):
        store.put_new(key, b"Name: b\n", sha256(b"Name: b\n"))


def test_a_listing_gives_sizes_below_a_folder(store: Store) -> None:
    store.put_new(WHEEL, b"wheel", sha256(b"wheel"))
    store.put("catalog.json", b"{}")
    store.put("pool-of-others/a", b"a")
    assert store.list_sizes("pool") == {WHEEL: 5}
    assert set(store.list_sizes("")) == {WHEEL, "catalog.json", "pool-of-others/a"}
    assert store.list_sizes("elsewhere") == {}


def test_a_stored_wheel_can_be_looked_at_here(store: Store) -> None:
    store.put_new(WHEEL, b"wheel", sha256(b"wheel"))
    with store.open_local(WHEEL) as path:
        assert (path.name, path.read_bytes()) == (Path(WHEEL).name, b"wheel")
        assert path.stat().st_mtime > 1_700_000_000


def test_what_differs_is_what_has_other_bytes_or_is_not_there(store: Store) -> None:
    store.put(PAGE, b"same")
    store.put("simple/index.html", b"old")
    pages = {PAGE: b"same", "simple/index.html": b"new", "simple/zen4/index.json": b"{}"}
    assert store.find_differing(pages) == ("simple/index.html", "simple/zen4/index.json")


def test_a_swap_succeeds_only_over_what_was_seen(store: Store) -> None:
    assert not store.swap("catalog.json", b"1", b"0"), "there is nothing yet"
    assert store.swap("catalog.json", b"1", None)
    assert not store.swap("catalog.json", b"2", None), "somebody was faster"
    assert not store.swap("catalog.json", b"2", b"0")
    assert store.swap("catalog.json", b"2", b"1")
    assert store.read("catalog.json") == b"2"


@pytest.mark.parametrize("key", ["../a", "/etc/a", "a\\b", "C:a", "a/../../b", "a\nb", ""])
def test_a_folder_takes_no_name_that_leaves_it(tmp_path: Path, key: str) -> None:
    folder = Folder(root=tmp_path / "index")
    with pytest.raises(PublishError, match="not a valid file name"):
        folder.put(key, b"")
    with pytest.raises(PublishError, match="not a valid file name"):
        folder.put_new(key, b"", sha256(b""))
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("link", ["pool", "pool/tensorflow-cpu", WHEEL])
def test_a_folder_follows_no_link(tmp_path: Path, link: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = tmp_path / "index" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(elsewhere / "file" if link == WHEEL else elsewhere)
    folder = Folder(root=tmp_path / "index")
    for act in (
        lambda: folder.put_new(WHEEL, b"x", sha256(b"x")),
        lambda: folder.put(WHEEL, b"x"),
        lambda: folder.read(WHEEL),
    ):
        with pytest.raises(PublishError, match="link"):
            act()
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", [".lock", ".part"])
def test_nor_its_own_files_when_they_are_links(tmp_path: Path, name: str) -> None:
    other_path = tmp_path / "other"
    other_path.write_text("of somebody else")
    folder = Folder(root=tmp_path / "index")
    folder.root.mkdir()
    (folder.root / name).symlink_to(other_path)
    with pytest.raises(PublishError, match="link"), folder.lock():
        folder.put(PAGE, b"x")
    assert other_path.read_text() == "of somebody else"


def test_files_of_a_folder_are_for_everybody_to_read_and_share_nothing(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"wheel")
    wheel.chmod(0o600)
    folder = Folder(root=tmp_path / "index")
    before = os.umask(0o027)
    try:
        folder.put_new(WHEEL, wheel, sha256(b"wheel"))
        folder.put(PAGE, b"page")
    finally:
        os.umask(before)
    for key in (WHEEL, PAGE):
        assert stat.S_IMODE((folder.root / key).stat().st_mode) == 0o644
    wheel.write_bytes(b"changed")
    assert folder.read(WHEEL) == b"wheel"
    assert not [path for path in folder.root.iterdir() if path.name.startswith(".")]


def test_a_wheel_that_changes_while_it_is_copied_is_not_stored(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"after")
    folder = Folder(root=tmp_path / "index")
    with pytest.raises(ChecksumError, match=sha256(b"before")):
        folder.put_new(WHEEL, wheel, sha256(b"before"))
    assert folder.list_sizes("") == {}


def test_a_full_disk_leaves_the_old_bytes_and_nothing_else(tmp_path: Path) -> None:
    folder = Folder(root=tmp_path)
    folder.put(PAGE, b"old")
    with file_limit(4096), pytest.raises(DiskError, match=f"{PAGE}: File too large"):
        folder.put(PAGE, b"new" * 10_000)
    assert folder.read(PAGE) == b"old"
    assert folder.list_sizes("") == {PAGE: 3}


def test_what_cannot_be_read_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "simple").write_text("a file where a folder should be")
    with pytest.raises(PublishError, match=r": Not a directory"):
        Folder(root=tmp_path).read(PAGE)


def test_a_folder_has_one_publisher_at_a_time(tmp_path: Path) -> None:
    """Two processes; the second is told, and has its turn when the first is gone."""
    hold = (
        "import pathlib, sys\n"
        "from tfwheels.folder import Folder\n"
        "with Folder(root=pathlib.Path(sys.argv[1])).lock():\n"
        "    print('held', flush=True)\n"
    )
    argv = [sys.executable, "-c", hold, str(tmp_path)]
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'build'}:{ROOT / 'wheels'}"}
    with Folder(root=tmp_path).lock():
        done = run(argv, env=env, check=False)
    assert done.returncode
    assert f"process {os.getpid()} is using {tmp_path}" in done.output
    assert BusyError.__name__ in done.output
    assert run(argv, env=env).output == "held\n"


@pytest.mark.toolchain
def test_objects_have_the_keys_and_headers_of_the_manifest(s3: Served, bucket: Store) -> None:
    files = {PAGE: b"<p>", WHEEL: b"wheel", "simple/zen4/tensorflow-cpu/index.json": b"{}"}
    for key, data in files.items():
        bucket.put(key, data)
    prefix = bucket.where.removeprefix(f"s3://{NAME}/")
    expected = [
        stored_object
        for key in files
        for stored_object in build_manifest({key: compute_digest(files[key])})
    ]
    assert "simple/zen4/tensorflow-cpu/" in {stored_object.key for stored_object in expected}
    for entry in expected:
        quoted = (prefix + entry.key).replace("+", "%2B")
        url = f"{s3.url}/{NAME}/{quoted}"
        with urllib.request.urlopen(url) as answer:  # noqa: S310  (on this machine)
            assert answer.read() == files[entry.file]
            assert answer.headers["Content-Type"] == entry.content_type
            assert answer.headers["Cache-Control"] == entry.cache_control
    assert bucket.list_sizes("") == {
        stored_object.key: stored_object.size for stored_object in expected
    }


class Overtaken(Bucket):
    """Another publisher writes `rival` after it has looked and before it writes."""

    def _send(self, target: StoredObject, body: bytes | io.FileIO, **condition: str) -> bool:
        Bucket(client=self.client, name=self.name, prefix=self.prefix).put(target.key, b"rival")
        return super()._send(target, body, **condition)


@pytest.mark.toolchain
@pytest.mark.parametrize("in_memory", [True, False])
def test_of_two_that_store_under_one_name_at_once_one_wins(
    bucket: Bucket, tmp_path: Path, *, in_memory: bool
) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"wheel")
    late = Overtaken(client=bucket.client, name=bucket.name, prefix=bucket.prefix)
    with pytest.raises(PublishError, match=f"{sha256(b'rival')}, not {sha256(b'wheel')}"):
        late.put_new(WHEEL, b"wheel" if in_memory else wheel, sha256(b"wheel"))
    assert bucket.read(WHEEL) == b"rival"
    other_text = f"{WHEEL}.metadata"
    assert not late.put_new(other_text, b"rival", sha256(b"rival")), "it is the same"


@pytest.mark.toolchain
@pytest.mark.parametrize("current", [None, b"1"])
def test_of_two_that_swap_at_once_one_wins(bucket: Bucket, current: bytes | None) -> None:
    if current is not None:
        bucket.put("catalog.json", current)
    late = Overtaken(client=bucket.client, name=bucket.name, prefix=bucket.prefix)
    assert not late.swap("catalog.json", b"2", current)
    assert bucket.read("catalog.json") == b"rival"


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"AWS_ENDPOINT_URL_S3": "http://ann:pass-word@127.0.0.1:9"}, "Could not connect"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "no credentials"),
        ({"AWS_ENDPOINT_URL_S3": "nonsense"}, "cannot open s3://"),
    ],
)
def test_what_a_store_refuses_is_one_error_without_secrets(
    bucket: Store, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], message: str
) -> None:
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PublishError, match=message) as caught:
        open_store(f"s3://{NAME}/x").read("catalog.json")
    assert "pass-word" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.toolchain
def test_a_bucket_that_is_not_there_is_an_error(bucket: Store) -> None:
    store = open_store("s3://no-such-bucket")
    for act in (
        lambda: store.read("a"),
        lambda: store.swap("a", b"", None),
        lambda: store.list_sizes(""),
    ):
        with pytest.raises(PublishError, match="NoSuchBucket"):
            act()


def test_without_boto3_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(ToolError, match=r"pip install '\.\[s3\]'"):
        open_store("s3://wheels/x")


@pytest.mark.parametrize(
    "text",
    [
        *("", "gs://wheels/x", "az://a/b", "http://h/x", "file:///x", "s3:/wheels/x", "s3://"),
        *("s3://key:pass-word@wheels/x", "s3://key:pass-word/x", "s3://wheels/x?secret=pass-word"),
        *("s3://wheels/../x", "s3://wheels/a//b", "s3://Wheels", "s3://[pass-word", "s3://w/x#y"),
    ],
)
def test_other_places_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(text)
    assert "pass-word" not in str(caught.value)


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_any_text_is_a_store_or_a_usage_error(text: str) -> None:
    try:
        actual = open_store(text)
    except (UsageError, ToolError):
        return
    assert actual.where == str(Path(text).expanduser()) or text.startswith("s3://")
