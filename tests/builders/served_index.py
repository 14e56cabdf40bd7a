"""A published tree, served while a test runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from tfwheels.serve import TreeServer


@contextlib.contextmanager
def running(server: TreeServer) -> Iterator[TreeServer]:
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
