from __future__ import annotations

import base64
import contextlib
import http.server
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from requests import Response
from tests.builders.index_wheels import stand_in

from tfbuild.upstream.download import hash_file
from tfcore.errors import ChecksumError, PublishError, UsageError, WheelError
from tfwheels.remote import (
    Credentials,
    _is_same_server,
    check_url,
    find_credentials,
    is_localhost,
    open_index,
)
from tfwheels.upload import Upload, UploadState, upload

SECRET = "tr0ub4dor&3€"  # noqa: S105  (the tests')
NAME = "ann"
# pypi-server itself, on a free port; it has no --port 0. With a password its uploads need it.
PYPISERVER = """
import logging, os, pathlib, sys, wsgiref.simple_server, pypiserver
root, log, password = sys.argv[1], sys.argv[2], os.environ.get("PASSWORD")
def auther(name, given):
    return (name, given) == ("ann", password)
logging.basicConfig(filename=log, level=logging.DEBUG)
app = pypiserver.app(
    roots=[pathlib.Path(root)], authenticate=["update"] if password else [],
    password_file=None if password else ".", auther=auther if password else None,
    fallback_url="http://127.0.0.1:1/simple/", disable_fallback=False,
)
with wsgiref.simple_server.make_server("127.0.0.1", 0, app) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
"""


@pytest.fixture(autouse=True)
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the person who runs the tests."""
    for name in ("TWINE_USERNAME", "TWINE_PASSWORD", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")


@contextlib.contextmanager
def pypiserver(root: Path, password: str = "") -> Iterator[str]:
    root.mkdir(exist_ok=True)
    env = os.environ | ({"PASSWORD": password} if password else {})
    words = [sys.executable, "-c", PYPISERVER, str(root), str(root.with_suffix(".log"))]
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
        finally:
            process.kill()


@pytest.fixture
def wheels(tmp_path: Path) -> list[Path]:
    return [
        stand_in(tmp_path / "pool", "2.14.1+haswell", targets=("haswell",)),
        stand_in(tmp_path / "pool", "1.0", name="absl_py", python="py3"),
    ]


def states(done: tuple[Upload, ...]) -> list[UploadState]:
    return [sent_wheel.state for sent_wheel in done]


# --- pypiserver -----------------------------------------------------------------------------------


@pytest.mark.toolchain
def test_pypiserver_takes_wheels_once_and_gives_them_back(
    tmp_path: Path, wheels: list[Path]
) -> None:
    with pypiserver(tmp_path / "root") as url:
        assert states(upload(wheels, url, dry_run=True)) == [UploadState.ABSENT, UploadState.ABSENT]
        assert list((tmp_path / "root").iterdir()) == []
        assert states(upload(wheels, url)) == [UploadState.SENT, UploadState.SENT]
        assert states(upload(wheels, url)) == [UploadState.THERE, UploadState.THERE]
        assert states(upload(wheels, url, dry_run=True)) == [UploadState.THERE, UploadState.THERE]
        for wheel in wheels:
            assert (tmp_path / "root" / wheel.name).read_bytes() == wheel.read_bytes()
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--isolated"]
        where = ["--index-url", f"{url}simple/", "--dest", str(tmp_path / "d")]
        subprocess.run([*pip, *where, "tensorflow-cpu==2.14.1"], check=True)
    assert hash_file(tmp_path / "d" / wheels[0].name) == hash_file(wheels[0])


@pytest.mark.toolchain
def test_a_run_that_broke_off_goes_on(tmp_path: Path, wheels: list[Path]) -> None:
    with pypiserver(tmp_path / "root") as url:
        upload(wheels[:1], url)
        assert states(upload(wheels, url)) == [UploadState.THERE, UploadState.SENT]


@pytest.mark.toolchain
def test_other_bytes_under_a_name_are_refused_and_nothing_is_sent(
    tmp_path: Path, wheels: list[Path]
) -> None:
    with pypiserver(tmp_path / "root") as url:
        upload(wheels[1:], url)
        before = (tmp_path / "root" / wheels[1].name).read_bytes()
        other_path = stand_in(tmp_path / "b", "1.0", name="absl_py", python="py3", content=b"other")
        for dry_run in (True, False):
            with pytest.raises(PublishError, match=rf"absl_py-1\.0-py3.*{hash_file(other_path)}"):
                upload([wheels[0], other_path], url, dry_run=dry_run)
        assert (tmp_path / "root" / wheels[1].name).read_bytes() == before
        assert not (tmp_path / "root" / wheels[0].name).exists()


@pytest.mark.toolchain
def test_an_index_gets_one_tuned_wheel_of_a_version(tmp_path: Path, wheels: list[Path]) -> None:
    zen = stand_in(tmp_path / "pool", "2.14.1+zen4", targets=("zen4",))
    with pypiserver(tmp_path / "root") as url:
        with pytest.raises(PublishError, match=r"haswell.*zen4") as caught:
            upload([*wheels, zen], url)
        assert "publish with --to DIR" in caught.value.hint
        assert list((tmp_path / "root").iterdir()) == []
        upload(wheels, url)
        with pytest.raises(PublishError, match="both"):
            upload([zen], url)
        beside = [
            stand_in(tmp_path / "pool", "2.14.1"),  # stock: an installer takes the tuned one
            stand_in(tmp_path / "pool", "2.14.1+zen4", targets=("zen4",), python="cp310"),
            stand_in(tmp_path / "pool", "2.13.1+zen4", targets=("zen4",)),
            stand_in(tmp_path / "pool", "2.14.1+zen4", machine="aarch64", targets=("neoverse_n1",)),
        ]
        assert set(states(upload(beside, url))) == {UploadState.SENT}


@pytest.mark.toolchain
def test_a_page_on_another_index_is_no_page_of_this_one(tmp_path: Path, wheels: list[Path]) -> None:
    """pypiserver sends on to PyPI for what it has not: here to a port that nobody listens on."""
    with pypiserver(tmp_path / "root") as url:
        assert states(upload(wheels, url, dry_run=True)) == [UploadState.ABSENT, UploadState.ABSENT]


@pytest.mark.toolchain
@pytest.mark.parametrize("kept_in", ["environment", "netrc", "keyring"])
def test_the_password_is_found_and_shown_nowhere(
    tmp_path: Path,
    wheels: list[Path],
    kept_in: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = SECRET if kept_in == "environment" else "plain-Secret-1"
    with pypiserver(tmp_path / "root", secret) as url:
        keep(kept_in, url, secret, tmp_path, monkeypatch)
        assert states(upload(wheels, url)) == [UploadState.SENT, UploadState.SENT]
    log = (tmp_path / "root.log").read_text("utf-8", errors="replace")
    assert "User 'ann' stored" in log
    out, err = capfd.readouterr()
    token = base64.b64encode(f"{NAME}:{secret}".encode()).decode()
    for text in (caplog.text, out, err, log):
        assert secret not in text
        assert token not in text
    assert out == ""


def keep(place: str, url: str, secret: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password where a person may have it."""
    if place == "environment":
        monkeypatch.setenv("TWINE_USERNAME", NAME)
        monkeypatch.setenv("TWINE_PASSWORD", secret)
    elif place == "netrc":
        (folder / "home").mkdir()
        netrc = folder / "home" / ".netrc"
        netrc.write_text(f"machine 127.0.0.1 login {NAME} password {secret}\n", "utf-8")
        netrc.chmod(0o600)
    else:
        import keyring  # noqa: PLC0415  (its backend is set once)

        monkeypatch.setattr("keyring.core._keyring_backend", OneSecret(url, secret))
        assert keyring.get_password(url, NAME) == secret


class OneSecret:
    """A keyring as keyring's own API has it."""

    def __init__(self, url: str, secret: str) -> None:
        self.url, self.secret = url, secret

    def get_password(self, url: str, name: str) -> str | None:
        return self.secret if (url, name) == (self.url, NAME) else None

    def get_credential(self, url: str, _: str | None) -> object:
        from keyring.credentials import SimpleCredential  # noqa: PLC0415

        return SimpleCredential(NAME, self.secret) if url == self.url else None


@pytest.mark.toolchain
@pytest.mark.parametrize("password", ["", "wrong-Secret"])
def test_a_wrong_password_is_one_clear_line(
    tmp_path: Path,
    wheels: list[Path],
    password: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    message = "401"
    if password:
        keep("environment", "", password, tmp_path, monkeypatch)
        message = "environment .403"
    with pypiserver(tmp_path / "root", SECRET) as url:
        with pytest.raises(PublishError, match=f"{re.escape(wheels[0].name)}.*{message}") as caught:
            upload(wheels, url)
        assert list((tmp_path / "root").iterdir()) == []
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert "TWINE_PASSWORD" in caught.value.hint
    assert "wrong-Secret" not in text + "".join(capfd.readouterr())


# --- servers that misbehave -----------------------------------------------------------------------


@dataclass
class Server:
    """What a made-up index answers: status and body by method and path; the rest is not found."""

    pages: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    post: tuple[int, str] = (200, "OK")
    on_post: Callable[[str], None] = lambda _: None
    posted: int = 0
    asked: list[str] = field(default_factory=list)
    """The Authorization header of each GET."""
    url: str = ""


@contextlib.contextmanager
def serving(server: Server) -> Iterator[Server]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append(self.headers.get("Authorization", ""))
            status, kind, body = server.pages.get(self.path, (404, "text/html", ""))
            self.send_response(status)
            self.send_header("Location" if status // 100 == 3 else "Content-Type", kind)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            server.posted += 1
            server.on_post(self.headers.get("Authorization", ""))
            self.send_response(*server.post)
            if server.post[0] // 100 == 3:
                self.send_header("Location", "https://example.org/elsewhere/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Tests look at what was answered."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as real:
        server.url = f"http://127.0.0.1:{real.server_port}/"
        server.pages.setdefault("/simple/", (200, "text/html", "<!DOCTYPE html>"))
        thread = threading.Thread(target=real.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            real.shutdown()
            thread.join()


def page(*links: str) -> tuple[int, str, str]:
    anchors = "".join(f'<a href="{link}">{link.partition("#")[0]}</a>' for link in links)
    return 200, "text/html; charset=utf-8", f"<!DOCTYPE html><html><body>{anchors}</body></html>"


def test_a_server_that_is_down_is_one_line(wheels: list[Path]) -> None:
    with serving(Server()) as server:
        url = server.url
    with pytest.raises(PublishError, match=r"Connection refused") as caught:
        upload(wheels, url)
    assert len(str(caught.value).splitlines()) == 1


def test_a_server_that_never_answers_is_not_waited_for_for_ever(
    wheels: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfwheels.remote._PATIENCE_S", (0.2, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(PublishError, match=r"ReadTimeout"):
            upload(wheels, url)


@pytest.mark.parametrize(
    ("status", "reason", "shown"),
    [
        (500, "Internal Server Error", "500 Internal Server Error"),
        (503, "busy \x1b[31m", r"503 busy \[31m"),
        (409, "x" * 5000, "409 x{200}$"),
        (302, "Found", "https://example.org/elsewhere/"),
        (418, f"you said {SECRET[:-1]}", r"418 you said \*\*\*"),
    ],
)
def test_what_a_server_answers_is_one_line(
    wheels: list[Path],
    status: int,
    reason: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    keep("environment", "", SECRET[:-1], tmp_path, monkeypatch)
    with (
        serving(Server(post=(status, reason))) as server,
        pytest.raises(PublishError, match=f"{re.escape(wheels[0].name)}.*{shown}"),
    ):
        upload(wheels, server.url)
    assert server.posted == 1
    assert SECRET[:-1] not in "".join(capfd.readouterr())


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_page_that_is_refused_stops_the_upload(wheels: list[Path], status: int) -> None:
    pages = {"/simple/tensorflow-cpu/": (status, "text/html", "")}
    with (
        serving(Server(pages=pages)) as server,
        pytest.raises(PublishError, match=rf"tensorflow-cpu/: .*{status}"),
    ):
        upload(wheels, server.url)
    assert server.posted == 0


@pytest.mark.parametrize(
    "body", ["{", "[]", '{"files": 3}', '{"name": "x", "files": [{}], "meta": {}}']
)
def test_a_page_that_is_none_stops_the_upload(wheels: list[Path], body: str) -> None:
    pages = {"/simple/tensorflow-cpu/": (200, "application/vnd.pypi.simple.v1+json", body)}
    with (
        serving(Server(pages=pages)) as server,
        pytest.raises(PublishError, match="/simple/tensorflow-cpu/") as caught,
    ):
        upload(wheels, server.url)
    assert server.posted == 0
    assert len(str(caught.value).splitlines()) == 1


def test_an_address_without_pages_is_refused(wheels: list[Path]) -> None:
    with (
        serving(Server(pages={"/simple/": (404, "text/html", "")})) as server,
        pytest.raises(PublishError, match=r"/simple/ or .*/\+simple/"),
    ):
        upload(wheels, server.url)
    assert server.posted == 0


def test_the_address_of_the_pages_can_be_given(wheels: list[Path]) -> None:
    pages = {
        "/simple/": (404, "text/html", ""),
        "/other/absl-py/": page(f"{wheels[1].name}#sha256={hash_file(wheels[1])}"),
    }
    with serving(Server(pages=pages)) as server:
        uploads = upload(wheels, server.url, pages=f"{server.url}other", dry_run=True)
    assert states(uploads) == [UploadState.ABSENT, UploadState.THERE]


def test_a_page_is_looked_for_where_the_index_says(wheels: list[Path]) -> None:
    pages = {
        "/simple/absl-py/": (301, "/pages/absl-py", ""),
        "/pages/absl-py": page(f"{wheels[1].name}#sha256={hash_file(wheels[1])}"),
        "/simple/tensorflow-cpu/": (302, "/simple/tensorflow-cpu/", ""),
    }
    with serving(Server(pages=pages)) as server:
        assert states(upload(wheels[1:], server.url, dry_run=True)) == [UploadState.THERE]
        with pytest.raises(PublishError, match="redirects to"):  # round and round
            upload(wheels[:1], server.url, dry_run=True)


def test_another_server_does_not_get_the_password(
    tmp_path: Path, wheels: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("environment", "", SECRET, tmp_path, monkeypatch)
    with serving(Server()) as server, serving(Server()) as other:
        upload(wheels, server.url, pages=f"{other.url}simple/", dry_run=True)
        upload(wheels, server.url, pages=f"{server.url}simple/", dry_run=True)
    assert set(other.asked) == {""}
    token = base64.b64encode(f"{NAME}:{SECRET}".encode()).decode()
    assert set(server.asked) == {f"Basic {token}"}


def test_another_server_gets_its_own_password_from_netrc(
    tmp_path: Path, wheels: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("netrc", "", "for-127.0.0.1", tmp_path, monkeypatch)
    keep("environment", "", SECRET, tmp_path, monkeypatch)
    with serving(Server()) as other:
        with pytest.raises(PublishError, match=r"upload\.invalid"):
            upload(wheels, "https://upload.invalid/", pages=f"{other.url}simple/")
        token = base64.b64encode(f"{NAME}:for-127.0.0.1".encode()).decode()
        assert set(other.asked) == {f"Basic {token}"}


@pytest.mark.parametrize(
    ("address", "is_same"),
    [
        ("https://example.org/simple/", True),
        ("https://EXAMPLE.org:443/simple/", True),
        ("http://example.org/simple/", False),
        ("https://example.org:444/", False),
        ("https://example.org.example.net/", False),
    ],
)
def test_a_server_is_known_by_scheme_host_and_port(address: str, is_same: bool) -> None:
    assert _is_same_server(address, "https://example.org/") is is_same


def test_a_server_that_begins_to_encrypt_is_the_same() -> None:
    assert _is_same_server("https://example.org/", "http://example.org/")


def test_a_redirect_that_drops_the_encryption_is_refused() -> None:
    redirect = Response()
    with open_index("https://example.org/", "https://example.org/s", Credentials()) as index:
        for location, target in (
            ("/s/p/", "https://example.org/s/p/"),
            ("https://files.example.org/s/p/", ""),
        ):
            redirect.headers["Location"] = location
            assert index._resolve_redirect("https://example.org/s/p", redirect) == target
        redirect.headers["Location"] = "http://example.org/s/p/"
        with pytest.raises(PublishError, match="without encryption") as caught:
            index._resolve_redirect("https://example.org/s/p", redirect)
    assert "https" in caught.value.hint


def test_a_name_without_a_hash_cannot_be_told_from_another(wheels: list[Path]) -> None:
    pages = {"/simple/absl-py/": page(f"{wheels[1].name}#md5=0")}
    with (
        serving(Server(pages=pages)) as server,
        pytest.raises(PublishError, match="without sha256"),
    ):
        upload(wheels, server.url)


def test_an_index_that_changes_what_it_was_sent_is_found_out(wheels: list[Path]) -> None:
    server = Server()

    def tamper(_: str) -> None:
        server.pages["/simple/absl-py/"] = page(f"{wheels[1].name}#sha256={'0' * 64}")

    server.on_post = tamper
    with serving(server), pytest.raises(PublishError, match=r"absl_py-1\.0.* with other bytes"):
        upload(wheels[1:], server.url)
    assert server.posted == 1


def test_a_publisher_who_was_faster_with_the_same_wheel_is_no_error(wheels: list[Path]) -> None:
    server = Server(post=(409, "exists"))
    listed = page(f"{wheels[1].name}#sha256={hash_file(wheels[1])}")

    def overtake(_: str) -> None:
        server.pages["/simple/absl-py/"] = listed

    server.on_post = overtake
    with serving(server):
        assert states(upload(wheels[1:], server.url)) == [UploadState.THERE]


def test_a_choice_that_another_publisher_made_at_the_same_time_is_said(wheels: list[Path]) -> None:
    server = Server()
    rival = wheels[0].name.replace("haswell", "zen4")

    def overtake(_: str) -> None:
        links = (f"{wheels[0].name}#sha256={hash_file(wheels[0])}", f"{rival}#sha256={'0' * 64}")
        server.pages["/simple/tensorflow-cpu/"] = page(*links)

    server.on_post = overtake
    with serving(server), pytest.raises(PublishError, match="both"):
        upload(wheels[:1], server.url)


def test_an_index_that_lists_late_is_a_warning(
    wheels: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Server()) as server:
        assert states(upload(wheels, server.url)) == [UploadState.SENT, UploadState.SENT]
    warned = [line for line in capsys.readouterr().err.splitlines() if "warning: " in line]
    assert any(wheels[0].name in line for line in warned)


def test_no_command_line_holds_the_password_while_it_is_sent(
    tmp_path: Path, wheels: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    command_lines: list[str] = []

    def look(text: str) -> None:
        command_lines.append(text)
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                command_lines.append(path.read_text("utf-8", errors="replace"))

    keep("environment", "", SECRET, tmp_path, monkeypatch)
    with serving(Server(on_post=look)) as server:
        upload(wheels[:1], server.url)
    token = base64.b64encode(f"{NAME}:{SECRET}".encode()).decode()
    assert command_lines[0] == f"Basic {token}"
    assert len(command_lines) > 1
    assert not any(SECRET in name or token in name for name in command_lines[1:])


def test_a_file_that_is_no_wheel_is_refused_before_anything_is_sent(
    tmp_path: Path, wheels: list[Path]
) -> None:
    hollow = tmp_path / "absl_py-2.0-py3-none-any.whl"
    hollow.write_bytes(b"PK")
    odd = tmp_path / "absl.whl"
    odd.write_bytes(b"PK")
    with serving(Server()) as server:
        for path in (hollow, odd):
            with pytest.raises(WheelError, match=path.name):
                upload([*wheels, path], server.url)
    assert server.posted == 0


def test_a_wheel_that_changed_after_it_was_checked_is_not_sent(wheels: list[Path]) -> None:
    checked = {wheels[0]: hash_file(wheels[0]), wheels[1]: "0" * 64}
    with serving(Server()) as server:
        for dry_run in (True, False):
            with pytest.raises(ChecksumError, match=r"absl_py-1\.0.*changed after it was checked"):
                upload(wheels, server.url, checked=checked, dry_run=dry_run)
    assert server.posted == 0


def test_a_wheel_that_changes_while_others_are_sent_is_not_sent(wheels: list[Path]) -> None:
    def replace_next(_: str) -> None:
        stand_in(wheels[1].parent, "1.0", name="absl_py", python="py3", content=b"other")

    with (
        serving(Server(on_post=replace_next)) as server,
        pytest.raises(ChecksumError, match=r"absl_py-1\.0.*changed"),
    ):
        upload(wheels, server.url)
    assert server.posted == 1


# --- addresses and passwords ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://ann:hunter2@example.org/",
        "https://hunter2@example.org/",
        "https://ann:hun#ter2@example.org/",
        "https://example.org/?token=hunter2",
        "https://example.org/#hunter2",
        "https://[hunter2/",
        "https://example.org:hunter2/",
        "ftp://hunter2.example.org/",
        "hunter2",
        "",
        "https:///hunter2",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="--upload") as caught:
        upload([], url)
    assert "unter2" not in str(caught.value)
    assert "ter2" not in str(caught.value)


@given(st.text(max_size=30))
def test_any_address_is_taken_or_refused(text: str) -> None:
    for url in (text, f"https://{text}", f"https://example.org/{text}"):
        with contextlib.suppress(UsageError):
            assert check_url(url, "--upload").hostname


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://localhost:8080/", True),
        ("http://127.0.0.1/", True),
        ("http://127.9.9.9/", True),
        ("http://[::1]:80/", True),
        ("http://10.0.0.1/", False),
        ("http://localhost.example.org/", False),
        ("http://example.org/", False),
    ],
)
def test_only_this_machines_own_addresses_need_no_encryption(url: str, is_local: bool) -> None:
    assert is_localhost(check_url(url, "--upload")) is is_local


def test_an_address_without_encryption_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PublishError, match=r"host\.invalid"):
        upload([], "http://host.invalid/")
    assert "uploads to host.invalid" in capsys.readouterr().err
    assert upload([], "https://host.invalid/", pages="http://p.invalid") == ()
    assert "pages of p.invalid" in capsys.readouterr().err


@pytest.mark.parametrize("half", ["TWINE_USERNAME", "TWINE_PASSWORD"])
def test_half_a_pair_is_refused(half: str) -> None:
    with pytest.raises(UsageError, match=half):
        find_credentials("https://example.org/", {half: "something"})


def test_what_holds_a_password_does_not_show_it() -> None:
    env = {"TWINE_USERNAME": NAME, "TWINE_PASSWORD": SECRET}
    credentials = find_credentials("https://example.org/", env)
    assert (credentials.name, credentials.password) == (NAME, SECRET)
    assert SECRET not in repr(credentials)


def test_without_a_password_there_is_none() -> None:
    assert find_credentials("https://example.org/", {"TWINE_USERNAME": ""}).origin == ""
