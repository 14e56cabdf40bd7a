"""Serve a published tree on 127.0.0.1 for a trial, with the responses of an object store.

Unlike a store, the server sends JSON pages to clients that prefer them (PEP 691).
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO
from urllib.parse import quote, unquote, urlsplit

from simple_repository.content_negotiation import Format, select_response_format
from simple_repository.errors import UnsupportedSerialization

from tfbuild.packing.wheel import BLOCK
from tfbuild.upstream.releases import CPU_PACKAGES
from tfcore.console import print_message, print_note
from tfcore.cpus.cpu import read_cpu
from tfcore.cpus.targets import match_cpu, parse_target
from tfcore.errors import HostError, PublishError, UsageError
from tfcore.records import parse_json
from tfcore.settings import expand_home
from tfwheels.folder import Folder
from tfwheels.keys import PublicKey, read_public_keys
from tfwheels.layout import HTML, JSON, Digest, build_folder_key, build_manifest, resolve_key
from tfwheels.signed_files import SignedFiles
from tfwheels.trust import FILE, load_trusted
from tfwheels.wheel_choice import explain_absence

HOST = "127.0.0.1"
PORT = 8000
_PORTS = range(1, 1 << 16)
_SILENCE_S = 60


# ---- requests ----


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """A response: a file of the tree by its `key`, a redirect, or neither."""

    status: HTTPStatus
    key: str = ""
    location: str = ""
    negotiated: bool = False


def resolve_request(root: Path, url: str, accept: str) -> Response:
    """Resolve a request for `url` (path and query) to a response from the tree in `root`.

    Only regular files in `root` are served: no links, and no names that begin with a dot, because
    such files are incomplete.
    """
    key = _parse_key(url)
    if key is None:
        return Response(status=HTTPStatus.NOT_FOUND)
    if not key or key.endswith("/"):
        return _find_page(root, key, accept)
    if _is_file(root, key):
        return Response(status=HTTPStatus.OK, key=key)
    if any(_is_file(root, f"{key}/{page}") for page in (HTML, JSON)):
        return Response(status=HTTPStatus.MOVED_PERMANENTLY, location=f"/{quote(key)}/")
    return Response(status=HTTPStatus.NOT_FOUND)


def _parse_key(url: str) -> str | None:
    """Return the key of a URL, or None if it has none.

    A plus may be quoted or not, but is never a space.
    """
    try:
        path = unquote(urlsplit(f"//{HOST}{url}").path)
    except ValueError:
        return None
    key = path.removeprefix("/")
    hidden = any(name.startswith(".") for name in key.split("/"))
    return key if url.startswith("/") and not hidden else None


def _find_page(root: Path, folder: str, accept: str) -> Response:
    try:
        response_format = select_response_format(accept)
    except (UnsupportedSerialization, ValueError):
        return Response(status=HTTPStatus.NOT_ACCEPTABLE)
    for page in (JSON, HTML) if response_format is Format.JSON_V1 else (HTML,):
        if _is_file(root, folder + page):
            return Response(status=HTTPStatus.OK, key=folder + page, negotiated=True)
    return Response(status=HTTPStatus.NOT_FOUND)


def _is_file(root: Path, key: str) -> bool:
    """Return whether the key is a regular file and no part of its path is a link."""
    try:
        return resolve_key(root, key).is_file()
    except (OSError, PublishError):  # a name may be too long for the file system
        return False


def parse_range(size: int, header: str) -> range | None:
    """Return the bytes that a Range header requests; None unless it is a single range.

    `size` is that of the file. The range is empty if the file does not contain it. See RFC 9110,
    14.1.2.
    """
    byte_range = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header.replace(" ", ""), re.ASCII)
    if byte_range is None or byte_range[0] == "bytes=-":
        return None
    first, last = byte_range.groups()
    if not first:
        return range(max(0, size - int(last)), size)
    if last and int(last) < int(first):
        return None
    return range(int(first), min(size, int(last) + 1) if last else size)


# ---- serving ----


class TreeServer(ThreadingHTTPServer):
    """A server of a tree on a port of 127.0.0.1; port 0 selects a free one."""

    daemon_threads = True  # Ctrl-C does not wait for a client that downloads

    def __init__(self, root: Path, port: int, trusted: Sequence[PublicKey] = ()) -> None:
        self.root = root
        self.signed = SignedFiles(root, trusted)
        super().__init__((HOST, port), _Handler)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect: installers do when they have read enough."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: TreeServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "tensorwright", ""
    timeout = _SILENCE_S

    def do_GET(self) -> None:
        self._reply(with_body=True)

    def do_HEAD(self) -> None:
        self._reply(with_body=False)

    def _reply(self, *, with_body: bool) -> None:
        response = resolve_request(self.server.root, self.path, self.headers.get("Accept", ""))
        if response.location:
            self.send_response(response.status)
            self.send_header("Location", response.location)
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif response.status is HTTPStatus.OK:
            with contextlib.ExitStack() as stack:
                try:
                    file = stack.enter_context((self.server.root / response.key).open("rb"))
                except OSError:
                    self.send_error(HTTPStatus.NOT_FOUND)
                    return
                if not self.server.signed.is_allowed(response.key, file):
                    self.send_error(HTTPStatus.NOT_FOUND)
                    return
                self._send(file, response, with_body=with_body)
        else:
            self.send_error(response.status)

    def _send(self, file: IO[bytes], response: Response, *, with_body: bool) -> None:
        size = file.seek(0, 2)
        part = (
            None
            if self.headers.get("If-Range")
            else parse_range(size, self.headers.get("Range", ""))
        )
        if part is not None and not part:
            self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.send_header("Content-Range", f"bytes */{size}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(HTTPStatus.OK if part is None else HTTPStatus.PARTIAL_CONTENT)
        stored = build_manifest({response.key: Digest("", size)})[0]
        self.send_header("Content-Type", stored.content_type)
        self.send_header("Cache-Control", stored.cache_control)
        self.send_header("Accept-Ranges", "bytes")
        if response.negotiated:
            self.send_header("Vary", "Accept")
        if part is not None:
            self.send_header("Content-Range", f"bytes {part.start}-{part.stop - 1}/{size}")
        part = range(size) if part is None else part
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if with_body:
            self._copy(file, part)

    def _copy(self, file: IO[bytes], part: range) -> None:
        file.seek(part.start)
        remaining = len(part)
        while remaining and (block := file.read(min(remaining, BLOCK))):
            self.wfile.write(block)
            remaining -= len(block)
        self.close_connection = self.close_connection or bool(remaining)  # the file has shrunk

    def log_request(self, code: int | str = "-", *_: object, **__: object) -> None:
        print_note(f"{int(code)} {ascii(self.requestline)[1:-1]}")

    def log_message(self, *_: object) -> None:
        """Log nothing: errors are requests too, and `log_request` logs requests."""


# ---- command ----


def serve(at: str, port: str, trust: str = "") -> None:
    """Serve the tree in the folder `at` until Ctrl-C.

    The default port is 8000, or a free one if it is taken. With `trust`, or if the tree trusts
    signers, only wheels that one of these signers signed are served. Raises UsageError,
    RecordError, or HostError if the port is taken.
    """
    if not at:
        raise UsageError("--at is missing", hint="Pass the folder of an index: --at DIR")
    root = expand_home(at, "--at")
    if not (root / "simple").is_dir():
        raise UsageError(
            f"{at} is not an index: it has no folder simple/",
            hint="Create one: invoke publish --to DIR",
        )
    trusted = read_public_keys(trust) or load_trusted(Folder(root=root))
    with open_server(root, port, trusted) as server, contextlib.suppress(KeyboardInterrupt):
        print_message(f"serving {root} at {server.url}/simple/ on this machine, until Ctrl-C")
        if trusted:
            signers = "the given signers" if trust else f"the signers in its {FILE}"
            print_message(f"serving only wheels that are signed by {signers}")
        print_message(format_pip_command(root, server.url, match_cpu(read_cpu()).best.name))
        server.serve_forever()
    print_message("stopped")


def format_pip_command(root: Path, url: str, target: str) -> str:
    """Return the pip command for the target's page, or the reason why there is none."""
    try:
        page = parse_json(resolve_key(root, build_folder_key(target) + JSON).read_bytes())
        listed = [project["name"] for project in page["projects"]]
    except (OSError, ValueError, KeyError, TypeError, PublishError):
        return f"the index has no page for {target}, the target of this CPU"
    package = next((name for name in CPU_PACKAGES if name in listed), "PACKAGE")
    reason = explain_absence(parse_target(target))
    if reason and not _has_files(root, target, package):
        return f"{build_folder_key(target)} lists no {package}: {reason}"
    return f"pip install --index-url {url}/{build_folder_key(target)} {package}"


def _has_files(root: Path, target: str, package: str) -> bool:
    """Return whether the page lists any file."""
    try:
        page = parse_json(resolve_key(root, build_folder_key(target, package) + JSON).read_bytes())
        return bool(page["files"])
    except (OSError, ValueError, KeyError, TypeError, PublishError):
        return False


def open_server(root: Path, port: str, trusted: Sequence[PublicKey] = ()) -> TreeServer:
    """Open a server that listens on the port.

    Raises UsageError, HostError.
    """
    if port and not (re.fullmatch(r"\d{1,5}", port, re.ASCII) and int(port) in _PORTS):
        raise UsageError(f"--port must be a number from 1 to 65535, not {port!r}")
    for number in (int(port),) if port else (PORT, 0):
        with contextlib.suppress(OSError):
            return TreeServer(root, number, trusted)
    raise HostError(
        f"cannot listen on {f'port {port}' if port else 'any port'} of {HOST}",
        hint="Omit --port to use a free one",
    )
