"""Replies of a local server."""

from __future__ import annotations

import contextlib
import http.client

from tfwheels.serve import (
    HOST,
    TreeServer,
)

Reply = tuple[int, http.client.HTTPMessage, bytes]


def ask(server: TreeServer, url: str, method: str = "GET", **headers: str) -> Reply:
    """The path goes out as it stands: http.client neither quotes nor shortens it."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=10)
    with contextlib.closing(connection):
        connection.request(method, url, headers=named)
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
