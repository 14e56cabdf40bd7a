"""`invoke` as a user calls it, in a folder that is not the checkout."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from tensorwright.commandline import CommandLine
from tfcore.settings import ROOT

# No settings of pip but a test's: it waits for an index that never answers.
_NO_SETTINGS = ("PIP_EXTRA_INDEX_URL", "PIP_PROXY")


class Tasks:
    """`invoke` with a cache that does not exist yet.

    A call runs in this process, by our own program. What needs a process of its own (signals,
    pipes, what is imported) starts one with `argv` and `env`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.env = os.environ | {"TENSORWRIGHT_CACHE": str(self.cache), "COLUMNS": "200"}

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "invoke", "--search-root", str(ROOT), *words]

    def __call__(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        argv = ["invoke", "--search-root", str(ROOT), *words]
        out, err, code = io.StringIO(), io.StringIO(), 0
        with (
            patch.dict(os.environ, self.env | env, clear=True),
            patch.object(sys, "path", [*sys.path]),
            contextlib.chdir(self.folder),
            _signals_kept(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                CommandLine().run(argv)
            except SystemExit as end:
                code = int(end.code or 0)
        done = subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())
        assert "Traceback" not in done.stderr
        return done


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """A task decides what ends it, and this process goes on after it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)


@contextlib.contextmanager
def started(invoke: Tasks, *words: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A task in a process group of its own, as one that was started in a terminal."""
    with subprocess.Popen(
        invoke.argv(*words),
        cwd=invoke.folder,
        env={name: invoke.env[name] for name in invoke.env if name not in _NO_SETTINGS} | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def said(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one message of a task that failed with `code`, which stands on stderr alone."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("error: ") == 1
    assert done.stderr.startswith("error: ")
    return done.stderr
