"""The folders, from environment variables. No other module reads paths from the environment.

`TENSORWRIGHT_CACHE`  downloads, sources, compiled objects, environments (default: the XDG cache).
`TENSORWRIGHT_WHEELS` finished wheels (default: wheels/ in the checkout, or in the working directory
                      if the tool is installed; reports/ is beside it).
`TENSORWRIGHT_MIRROR` a base URL or folder that is tried before a file's own address.

`TENSORWRIGHT_RELEASE` is the default TensorFlow release.
`TENSORWRIGHT_INSTALL=0` is --no-install: no packages are installed and bazelisk is not downloaded.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from tfcore import console
from tfcore.console import format_size
from tfcore.errors import BusyError, DiskError, UsageError

_PACKAGE = Path(__file__).resolve().parent
IN_CHECKOUT = (_PACKAGE.parents[1] / "tasks.py").is_file()
ROOT = _PACKAGE.parents[1] if IN_CHECKOUT else Path.cwd()
"""The checkout; for an installed package the working directory, for wheels and reports."""
TEMPLATES = (ROOT if IN_CHECKOUT else _PACKAGE) / "templates"
NPM = ROOT / "build" / "npm" if IN_CHECKOUT else _PACKAGE / "npm"
"""The folder with npm's lock file."""
INSTALL = "TENSORWRIGHT_INSTALL"


def expand_home(text: str, option: str = "") -> Path:
    """Expand the ~ of a path: shells do not expand it in --to=~/index, or after a comma.

    Raises UsageError, which names the option, if there is one.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{option} {text}: there is no such home folder".lstrip()) from error


def expand_paths(text: str, option: str = "") -> tuple[Path, ...]:
    """Return comma-separated paths, each with its ~ expanded. Raises UsageError."""
    words = filter(None, map(str.strip, text.split(",")))
    return tuple(expand_home(word, option) for word in words)


@dataclass(frozen=True, kw_only=True, slots=True)
class Paths:
    """The folders of one checkout and of one user's cache.

    `pool` holds the finished wheels, each with its manifest beside it.
    """

    root: Path
    cache: Path
    pool: Path
    mirror: str = ""

    @property
    def templates(self) -> Path:
        return TEMPLATES

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def downloads(self) -> Path:
        return self.cache / "downloads"

    @property
    def sources(self) -> Path:
        """Return the folder of unpacked TensorFlow sources, one folder per tarball hash."""
        return self.cache / "sources"

    @property
    def stock(self) -> Path:
        """Return the folder of headers and libraries of stock wheels, one folder per wheel hash."""
        return self.cache / "stock"

    @property
    def work(self) -> Path:
        """Return the folder of rendered workspaces and logs, one folder per plan key."""
        return self.cache / "work"

    @property
    def verdicts(self) -> Path:
        """Return the folder of conformance test results of the kernel groups' libraries."""
        return self.cache / "verdicts"

    @property
    def arms(self) -> Path:
        """Return the folder of virtual environments with a TensorFlow inside."""
        return self.cache / "arms"

    @property
    def indexes(self) -> Path:
        """The last revision that was read of each signed index."""
        return self.cache / "indexes"

    @property
    def tools(self) -> Path:
        return self.cache / "tools"

    def choose_report_folder(self, kind: str = "") -> Path:
        """Return the path of a new report's folder, named by its kind and the time (UTC).

        Does not create it.
        """
        words = (kind, datetime.now(UTC).strftime("%Y%m%d-%H%M%S"))
        return self.reports / "-".join(filter(None, words))


def can_install() -> bool:
    return os.environ.get(INSTALL) != "0"


def paths(env: Mapping[str, str] | None = None) -> Paths:
    env = os.environ if env is None else env
    home = Path(env.get("HOME") or "/")
    base = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    cache = Path(env.get("TENSORWRIGHT_CACHE") or base / "tensorwright")
    pool = env.get("TENSORWRIGHT_WHEELS") or str(ROOT / "wheels")
    return Paths(
        root=ROOT,
        cache=expand_home(str(cache), "TENSORWRIGHT_CACHE").resolve(),
        pool=expand_home(pool, "TENSORWRIGHT_WHEELS").resolve(),
        mirror=env.get("TENSORWRIGHT_MIRROR", ""),
    )


def prepare_import_root(package: Path) -> Path:
    """Return the folder for PYTHONPATH from which another environment imports this package.

    The folder contains only this package. An installed package is beside all its
    dependencies, so the cache gets a folder with a link to it.
    """
    if IN_CHECKOUT:
        return package.parent
    folder = paths().cache / "imports" / hashlib.sha256(str(package).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (folder / package.name).symlink_to(package)
    return folder


def require_checkout(task: str) -> None:
    """Raise UsageError if the package is installed, not run from a checkout."""
    if not IN_CHECKOUT:
        raise UsageError(
            f"{task} needs a checkout of Tensorwright", hint="In a checkout, use ./inv"
        )


def _try_lock(handle: IO[str]) -> bool:
    """Lock a file. Try for half a second: a child that a killed process was just starting has
    the lock until it executes its program.
    """
    for _ in range(10):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return True
    return False


@contextlib.contextmanager
def lock_folder(folder: Path, purpose: str, *, wait: bool = False) -> Iterator[None]:
    """Lock `folder` for one process.

    If another process holds it, `wait` until that one has ended, or raise BusyError after half
    a second. The kernel releases the lock when the process ends, so a killed run leaves nothing to
    clean up. The lock is not reentrant: a process that takes it twice waits for itself. Raises
    DiskError if the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / ".lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise DiskError(f"cannot write to {folder}: {error.strerror}") from error
    with handle:
        if not _try_lock(handle):
            handle.seek(0)
            holder = handle.read().strip() or f"another process is using {folder}"
            if not wait:
                raise BusyError(
                    holder,
                    hint="Wait until it has finished, then run the same command again",
                )
            console.print_note(f"waiting: {holder}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            os.ftruncate(handle.fileno(), 0)
            os.write(
                handle.fileno(), f"process {os.getpid()} is using {folder} for {purpose}".encode()
            )
        except OSError as error:
            raise DiskError(f"cannot write to {folder}: {error.strerror}") from error
        yield


def require_disk(folder: Path, needed_bytes: int, task: str) -> None:
    """Raise DiskError if the file system of `folder` has less than `needed_bytes` free."""
    present = folder
    while not present.exists():
        present = present.parent
    free = shutil.disk_usage(present).free
    if free < needed_bytes:
        raise DiskError(
            f"{task} needs {format_size(needed_bytes)} in {folder}, but only "
            f"{format_size(free)} is free",
            hint="Free some space, or set TENSORWRIGHT_CACHE (TENSORWRIGHT_WHEELS for finished "
            "wheels) to a folder on a larger disk",
        )
