"""The tree on localhost, asked by real HTTP."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.http_replies import ask
from tests.builders.index_wheels import stand_in
from tests.builders.served_index import running

from tfcore.errors import HostError, UsageError
from tfcore.settings import ROOT
from tfwheels.folder import Folder
from tfwheels.layout import Digest, build_manifest
from tfwheels.publish import publish
from tfwheels.serve import (
    HOST,
    TreeServer,
    format_pip_command,
    open_server,
    parse_range,
    resolve_request,
    serve,
)

NOW = "2026-11-21T12:00:00+00:00"
JSON = "application/vnd.pypi.simple.v1+json"
HTML = "application/vnd.pypi.simple.v1+html"
PIP = f"{JSON}, {HTML}; q=0.1, text/html; q=0.01"
FIREFOX = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
WHEEL = "pool/demo-1.0+skylake-py3-none-any.whl"
BYTES = bytes(range(256)) * 20

TREE = {
    "simple/index.html": b"<p>targets</p>",
    "simple/skylake/demo/index.html": b"<p>page</p>",
    "simple/skylake/demo/index.json": b"{}",
    "simple/skylake/old/index.html": b"<p>no other form</p>",
    "pool/.demo.part": b"not yet whole",
    WHEEL: BYTES,
    f"{WHEEL}.metadata": b"Name: demo\n",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "tree"
    for key, content in TREE.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(content)
    (folder.parent / "secret.whl").write_bytes(b"outside")
    (folder / "pool" / "out.whl").symlink_to(folder.parent / "secret.whl")
    (folder / "pool" / "outside").symlink_to(folder.parent)
    (folder / "pool" / "round").symlink_to("round")
    (folder / "pool" / "in.whl").symlink_to(folder / WHEEL)
    os.mkfifo(folder / "pool" / "pipe.whl")
    return folder


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[TreeServer]:
    with running(TreeServer(root, 0)) as server:
        yield server


# ---- pages ----


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        ("", "index.html"),
        ("*/*", "index.html"),
        (FIREFOX, "index.html"),
        ("text/html", "index.html"),
        (HTML, "index.html"),
        (JSON, "index.json"),
        (PIP, "index.json"),
        (f"{JSON};q=0.2, text/html;q=0.3", "index.html"),
        (f"text/html;q=0.2, {JSON};q=0.3", "index.json"),
    ],
)
def test_a_page_comes_in_the_form_that_the_client_prefers(
    served: TreeServer, accept: str, page: str
) -> None:
    key = f"simple/skylake/demo/{page}"
    status, headers, body = ask(served, "/simple/skylake/demo/", Accept=accept)
    assert (status, body) == (HTTPStatus.OK, TREE[key])
    (stored, *_) = build_manifest({key: Digest("", 0)})
    assert headers["Content-Type"] == stored.content_type
    assert headers["Cache-Control"] == stored.cache_control == "max-age=60"
    assert headers["Vary"] == "Accept"


def test_a_page_with_one_form_comes_in_that(served: TreeServer) -> None:
    status, headers, body = ask(served, "/simple/skylake/old/", Accept=PIP)
    assert (status, body) == (HTTPStatus.OK, TREE["simple/skylake/old/index.html"])
    assert headers["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("accept", ["image/png", "text/html;q=much"])
def test_a_form_that_is_not_there_is_refused(served: TreeServer, accept: str) -> None:
    assert ask(served, "/simple/skylake/demo/", Accept=accept)[0] == HTTPStatus.NOT_ACCEPTABLE


def test_a_page_without_its_slash_is_elsewhere(served: TreeServer) -> None:
    status, headers, _ = ask(served, "/simple/skylake/demo")
    assert status == HTTPStatus.MOVED_PERMANENTLY
    assert headers["Location"] == "/simple/skylake/demo/"


def test_a_query_changes_nothing(served: TreeServer) -> None:
    assert ask(served, f"/{WHEEL}?x=../y")[2] == BYTES


# ---- files ----


@pytest.mark.parametrize("plus", ["+", "%2B", "%2b"])
def test_a_wheel_is_found_with_its_plus_quoted_or_not(served: TreeServer, plus: str) -> None:
    status, headers, body = ask(served, "/" + WHEEL.replace("+", plus))
    assert (status, body) == (HTTPStatus.OK, BYTES)
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["Cache-Control"] == "public, max-age=31536000, immutable"
    assert "Vary" not in headers


def test_a_plus_is_no_space(served: TreeServer) -> None:
    assert ask(served, "/" + WHEEL.replace("+", "%20"))[0] == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize("url", [f"/{WHEEL}", "/simple/skylake/demo/", f"/{WHEEL}.metadata"])
def test_head_says_what_get_does_and_sends_nothing(served: TreeServer, url: str) -> None:
    (status, headers, body), got = ask(served, url, "HEAD"), ask(served, url)
    assert (status, body) == (HTTPStatus.OK, b"")
    ours = ("Content-Type", "Content-Length", "Cache-Control", "Accept-Ranges")
    assert [headers[name] for name in ours] == [got[1][name] for name in ours]
    assert int(headers["Content-Length"]) == len(got[2])


def test_requests_go_through_one_connection(served: TreeServer) -> None:
    connection = http.client.HTTPConnection(HOST, served.server_port, timeout=10)
    with contextlib.closing(connection):
        for method, body in (("GET", BYTES), ("HEAD", b""), ("GET", BYTES)):
            connection.request(method, f"/{WHEEL}")
            reply = connection.getresponse()
            assert (reply.status, reply.read()) == (HTTPStatus.OK, body)


def test_nothing_can_be_sent_to_it(served: TreeServer) -> None:
    assert ask(served, f"/{WHEEL}", "PUT")[0] == HTTPStatus.NOT_IMPLEMENTED


# ---- parts of files ----


@pytest.mark.parametrize(
    ("expected", "part"),
    [
        ("bytes=0-0", range(1)),
        ("bytes=10-19", range(10, 20)),
        ("bytes=5000-", range(5000, 5120)),
        ("bytes=5000-9999", range(5000, 5120)),
        ("bytes=-20", range(5100, 5120)),
        ("bytes=-9999", range(5120)),
    ],
)
def test_a_range_is_sent_alone(served: TreeServer, expected: str, part: range) -> None:
    status, headers, body = ask(served, f"/{WHEEL}", Range=expected)
    assert (status, body) == (HTTPStatus.PARTIAL_CONTENT, BYTES[part.start : part.stop])
    assert headers["Content-Range"] == f"bytes {part.start}-{part.stop - 1}/{len(BYTES)}"


@pytest.mark.parametrize("expected", ["bytes=5120-", "bytes=9999-10000", "bytes=-0"])
def test_a_range_beyond_the_end_is_refused(served: TreeServer, expected: str) -> None:
    status, headers, body = ask(served, f"/{WHEEL}", Range=expected)
    assert (status, body) == (HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, b"")
    assert headers["Content-Range"] == f"bytes */{len(BYTES)}"


@pytest.mark.parametrize(
    "expected",
    ["bytes=0-1,4-5", "lines=0-1", "bytes=-", "bytes=5-1", "bytes=a-", f"bytes={10**99}-"],
)
def test_what_is_no_single_range_gets_all(served: TreeServer, expected: str) -> None:
    status, _, body = ask(served, f"/{WHEEL}", Range=expected)
    assert (status, body) == (HTTPStatus.OK, BYTES)


def test_a_download_that_goes_on_begins_anew_where_nothing_says_that_it_is_the_same(
    served: TreeServer,
) -> None:
    status, _, body = ask(served, f"/{WHEEL}", Range="bytes=10-", If_Range='"abc"')
    assert (status, body) == (HTTPStatus.OK, BYTES)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_a_part_is_what_the_slice_is(size: int, first: int, length: int) -> None:
    content = bytes(range(size))
    for expected_text, expected in (
        (f"bytes={first}-{first + length}", content[first : first + length + 1]),
        (f"bytes={first}-", content[first:]),
        (f"bytes=-{length}", content[-length:] if length else b""),
    ):
        part = parse_range(size, expected_text)
        assert part is not None
        assert bytes(content[index] for index in part) == expected


# ---- staying inside ----

OUTSIDE = [
    "/../secret.whl",
    "/pool/../../secret.whl",
    "/%2e%2e/secret.whl",
    "/pool/%2e%2e%2f%2e%2e%2fsecret.whl",
    "/..%5csecret.whl",
    "/pool\\..\\..\\secret.whl",
    "/pool/..%00/secret.whl",
    f"/{WHEEL}%00",
    "//etc/passwd",
    "/%2Fetc/passwd",
    "/C:/secret.whl",
    "/c%3A%5Csecret.whl",
    "/pool/out.whl",
    "/pool/outside/secret.whl",
    "/pool/round",
    "/pool/pipe.whl",
    "/pool/in.whl",
    f"/{WHEEL.replace('/', '/./')}",
    f"/{WHEEL.replace('/', '//')}",
    "/pool/.demo.part",
    "/%ff%fe",
    "/" + "a" * 5000,
    "http://127.0.0.1/secret.whl",
    "secret.whl",
    "*",
]


@pytest.mark.parametrize("url", OUTSIDE)
def test_nothing_but_plain_files_of_the_tree_is_served(served: TreeServer, url: str) -> None:
    status, _, body = ask(served, url)
    assert status == HTTPStatus.NOT_FOUND
    assert b"outside" not in body


@pytest.mark.parametrize("url", ["/", "/pool/", "/pool", "/simple/skylake/", "/simple/skylake"])
def test_a_folder_without_a_page_is_not_listed(served: TreeServer, url: str) -> None:
    assert ask(served, url)[0] == HTTPStatus.NOT_FOUND


@given(st.text(st.sampled_from(".%25eE2fF/\\+:ab\0\n é#?[]"), max_size=30))
def test_every_key_lies_in_the_tree(tmp_path_factory: pytest.TempPathFactory, url: str) -> None:
    root = tmp_path_factory.getbasetemp() / "every" / "tree"
    (root / "ab").mkdir(parents=True, exist_ok=True)
    for inside in (root / "a", root / "ab" / "index.html", root.parent / "b"):
        inside.touch()
    answer = resolve_request(root, url, "")
    if answer.status is HTTPStatus.OK:
        assert answer.key in ("a", "ab/index.html")
    elif answer.location:
        assert answer.location == "/ab/"


# ---- clients and ports ----


def test_a_client_that_hangs_up_is_no_error(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (root / "pool" / "large.whl").write_bytes(bytes(30_000_000))
    with running(TreeServer(root, 0)) as server:
        for request in (b"GET /pool/large.whl HTTP/1.1\r\n\r\n", b"GET /pool/la", b""):
            client = socket.create_connection((HOST, server.server_port))
            client.sendall(request)
            # Without lingering the connection is reset, whatever is still to come.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        assert ask(server, f"/{WHEEL}")[2] == BYTES
    assert "Traceback" not in capfd.readouterr().err


def test_what_is_logged_is_one_plain_line_per_request(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with running(TreeServer(root, 0)) as server:
        client = socket.create_connection((HOST, server.server_port))
        with contextlib.closing(client):
            client.sendall(b"GET /\x1b[31m\xe9 HTTP/1.0\r\n\r\n")
            while client.recv(1000):
                pass
    (line,) = (text_line for text_line in capfd.readouterr().err.splitlines() if "GET" in text_line)
    assert line.isascii()
    assert line.isprintable()
    assert "404" in line


def test_the_line_for_pip_names_the_page_and_the_package(tmp_path: Path) -> None:
    (tmp_path / "simple" / "zen4").mkdir(parents=True)
    page = tmp_path / "simple" / "zen4" / "index.json"
    page.write_text('{"projects": [{"name": "numpy"}, {"name": "tensorflow-cpu"}]}')
    line = format_pip_command(tmp_path, "http://127.0.0.1:8000", "zen4")
    assert line == "pip install --index-url http://127.0.0.1:8000/simple/zen4/ tensorflow-cpu"
    for torn in ('{"projects"', "{}", "[]"):
        page.write_text(torn)
        assert "no page for zen4" in format_pip_command(tmp_path, "http://127.0.0.1:8000", "zen4")
    assert "no page for icelake" in format_pip_command(tmp_path, "http://127.0.0.1:8000", "icelake")


def test_no_line_is_shown_for_a_page_without_a_wheel(tmp_path: Path) -> None:
    store = Folder(root=tmp_path)
    publish([stand_in(tmp_path, "2.14.1")], store, judgements={}, now=NOW)
    line = format_pip_command(tmp_path, "http://127.0.0.1:8000", "nehalem")
    assert line.startswith("simple/nehalem/ lists no tensorflow-cpu: nehalem lacks avx")
    assert "pip install" not in line
    full = stand_in(tmp_path, "2.14.1+nehalem", full_build="nehalem")
    publish([full], store, judgements={}, now=NOW)
    assert "pip install" in format_pip_command(tmp_path, "http://127.0.0.1:8000", "nehalem")


def test_it_listens_on_this_machine_only(served: TreeServer) -> None:
    assert served.server_address[0] == HOST == "127.0.0.1"


def test_a_port_that_is_taken_is_an_error_and_none_is_another_one(root: Path) -> None:
    with open_server(root, "") as first, open_server(root, "") as second:
        assert first.server_port != second.server_port
        with pytest.raises(HostError, match=f"port {first.server_port}"):
            open_server(root, str(first.server_port))


@pytest.mark.parametrize("port", ["x", "0", "-1", "65536", "1.5", "٣"])
def test_a_port_is_a_number(root: Path, port: str) -> None:
    with pytest.raises(UsageError, match="from 1 to 65535"):
        open_server(root, port)


def test_a_folder_without_a_tree_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=str(tmp_path)):
        serve(str(tmp_path), "")


def test_ctrl_c_ends_it_cleanly(root: Path) -> None:
    code = "import sys; from tfwheels.serve import serve; serve(sys.argv[1], '')"
    paths = os.pathsep.join(str(ROOT / name) for name in ("build", "wheels"))
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root)],
        env=os.environ | {"PYTHONPATH": paths},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        remainder = process.stderr.read()
    assert process.returncode == 0
    assert f"http://{HOST}:" in first
    assert remainder.endswith("stopped\n")
    assert "Traceback" not in remainder


def test_a_home_folder_that_does_not_exist_is_one_line() -> None:
    with pytest.raises(UsageError, match="--at ~nosuchuser/index: there is no such home folder"):
        serve("~nosuchuser/index", "")
