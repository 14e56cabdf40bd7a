"""A real web server on 127.0.0.1, with the habits that downloads meet."""

from __future__ import annotations

import base64
import contextlib
import http.server
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Site:
    """What the server has and how it behaves; `asked` collects (path, Range header)."""

    files: dict[str, bytes]
    ranges: bool = True
    lengths: bool = True
    break_after: int | None = None  # bytes of a body, once
    password: str = ""  # "user:password", in the Basic scheme
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""


@contextlib.contextmanager
def serving(site: Site) -> Iterator[Site]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            expected = self.headers.get("Range")
            site.asked.append((self.path, expected))
            token = base64.b64encode(site.password.encode()).decode()
            if site.password and self.headers.get("Authorization") != f"Basic {token}":
                self.send_error(401)
                return
            body = site.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            start = int(re.findall(r"\d+", expected)[0]) if expected and site.ranges else 0
            if start and start >= len(body):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if site.lengths:
                self.send_header("Content-Length", str(len(body) - start))
            self.end_headers()
            end = len(body) if site.break_after is None else start + site.break_after
            site.break_after = None
            self.wfile.write(body[start:end])

        def log_message(self, *_: object) -> None:
            """Tests read `asked` instead."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
