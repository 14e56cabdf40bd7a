"""The names of all commands, and an index that answers nothing."""

from __future__ import annotations

import contextlib
import http.server
import os
import socketserver
import threading
from collections.abc import Iterator

ARTICLES = {"throughput", "accuracy", "sizing", "strategies", "overhead"}
"""Each serves one article, and has its flat name beside that of its group."""

NAMES = ARTICLES | {
    *("detect", "targets", "releases", "plan", "render", "containers", "build", "vendor", "survey"),
    *("audit", "admit", "profile", "select", "tune", "compare", "startup", "kit", "fleet"),
    *("selfcheck", "report", "publish", "serve", "install-snippet", "articles"),
    *("check-index", "check-installed"),
    *("doctor", "quickstart", "test", "lint"),
}


class Silent(socketserver.BaseRequestHandler):
    """Takes a request and never answers; says when it came and when the other side gave up."""

    came: threading.Event
    ended: threading.Event

    def handle(self) -> None:
        self.request.recv(65536)
        self.came.set()
        while self.request.recv(65536):
            pass
        self.ended.set()


@contextlib.contextmanager
def silent_index() -> Iterator[tuple[dict[str, str], threading.Event, threading.Event]]:
    """A package index that hangs: the settings with which pip asks no other, and the events of a
    request's begin and end."""
    came, ended = threading.Event(), threading.Event()
    handler = type("Handler", (Silent,), {"came": came, "ended": ended})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/simple"
        env = {"PIP_INDEX_URL": url, "PIP_CONFIG_FILE": os.devnull, "no_proxy": "127.0.0.1"}
        yield env, came, ended
        server.shutdown()
