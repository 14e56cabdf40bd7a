"""Folders that wheels are published to."""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import Any

from tfwheels.folder import Folder
from tfwheels.publish import PublishResult, publish
from tfwheels.store import Store

NOW = "2020-02-29T00:00:00+00:00"

FORK = multiprocessing.get_context("fork")


def files(store: Store, *folders: str) -> dict[str, bytes]:
    """All that is there, or in these folders, but for what begins with a dot, which no server
    shows."""
    keys = (key for name in folders or ("",) for key in store.list_sizes(name))
    actual = {key: store.read(key) for key in keys if not key.startswith(".")}
    return {key: data for key, data in actual.items() if data is not None}


def put(store: Store, *wheels: Path, **options: Any) -> PublishResult:
    """Publish wheels for x86-64 that nobody measured, or as `options` say."""
    whole: dict[str, Any] = {"judgements": {}, "now": NOW, "family": "x86_64"}
    return publish(wheels, store, **whole | options)


def stamps(folder: Folder) -> dict[str, tuple[int, int]]:
    """What changes when a file is written, even with the same bytes."""
    paths = {key: folder.root / key for key in folder.list_sizes("") if not key.startswith(".")}
    return {key: (path.stat().st_ino, path.stat().st_mtime_ns) for key, path in paths.items()}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def die_at_write(moment: int) -> None:
    """Let the kernel kill this process at its n-th write, before anything has happened."""
    count = itertools.count(1)

    def hook(event: str, words: tuple[object, ...]) -> None:
        named = event in {"os.rename", "os.mkdir"}
        opened = event == "open" and not {*str(words[1])}.isdisjoint("wa")
        if (named or opened) and next(count) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
