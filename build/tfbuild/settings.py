"""Where things lie. The only module that reads the environment for paths.

`TENSORWRIGHT_CACHE`  downloads, sources, compiled objects, environments (default: the XDG cache).
`TENSORWRIGHT_WHEELS` the pool of finished wheels (default: wheels/ of the checkout, or where the
                      tool is installed of the working directory; reports/ lies beside it).
`TENSORWRIGHT_MIRROR` a base URL or folder that is asked before a file's own home.

`TENSORWRIGHT_RELEASE` is the TensorFlow release that is meant where none is named.
`TENSORWRIGHT_INSTALL=0` is --no-install: no package is installed, and bazelisk is not fetched.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tfbuild import console
from tfbuild.console import size
from tfbuild.errors import BusyError, DiskError, UsageError

_PACKAGE = Path(__file__).resolve().parent
IN_CHECKOUT = (_PACKAGE.parents[1] / "tasks.py").is_file()
ROOT = _PACKAGE.parents[1] if IN_CHECKOUT else Path.cwd()
"""The checkout. Where the package is installed the working directory, for wheels and reports."""
TEMPLATES = (ROOT if IN_CHECKOUT else _PACKAGE) / "templates"
NPM = ROOT / "build" / "npm" if IN_CHECKOUT else _PACKAGE / "npm"
"""The lock of what npm installs."""
INSTALL = "TENSORWRIGHT_INSTALL"


@dataclass(frozen=True, kw_only=True, slots=True)
class Paths:
    """Folders of one checkout and of one user's cache. `pool` holds the finished wheels, each with
    its manifest beside it."""

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
        """Unpacked TensorFlow sources, one folder per tarball hash."""
        return self.cache / "sources"

    @property
    def stock(self) -> Path:
        """Headers and libraries of stock wheels, one folder per wheel hash."""
        return self.cache / "stock"

    @property
    def work(self) -> Path:
        """Rendered workspaces and logs, one folder per plan key."""
        return self.cache / "work"

    @property
    def verdicts(self) -> Path:
        """What admission found of the libraries of kernel units."""
        return self.cache / "verdicts"

    @property
    def profiles(self) -> Path:
        """What compilers learned from training runs, each file named by its hash."""
        return self.cache / "profiles"

    @property
    def arms(self) -> Path:
        """Virtual environments with a TensorFlow inside."""
        return self.cache / "arms"

    @property
    def tools(self) -> Path:
        return self.cache / "tools"

    def new_report(self, kind: str = "") -> Path:
        """A folder for a report, named by its kind and the time (UTC). It is not made here."""
        words = (kind, datetime.now(UTC).strftime("%Y%m%d-%H%M%S"))
        return self.reports / "-".join(filter(None, words))


def may_install() -> bool:
    return os.environ.get(INSTALL) != "0"


def paths(env: Mapping[str, str] | None = None) -> Paths:
    env = os.environ if env is None else env
    home = Path(env.get("HOME") or "/")
    base = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    cache = Path(env.get("TENSORWRIGHT_CACHE") or base / "tensorwright")
    return Paths(
        root=ROOT,
        cache=cache.expanduser().resolve(),
        pool=Path(env.get("TENSORWRIGHT_WHEELS") or ROOT / "wheels").expanduser().resolve(),
        mirror=env.get("TENSORWRIGHT_MIRROR", ""),
    )


def import_root(package: Path) -> Path:
    """The folder that PYTHONPATH gets, so that another environment finds this package of ours and
    nothing else that it has itself: an installed one lies beside all that we need, so the cache has
    a folder with a link to it."""
    if IN_CHECKOUT:
        return package.parent
    folder = paths().cache / "imports" / hashlib.sha256(str(package).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (folder / package.name).symlink_to(package)
    return folder


def need_checkout(what: str) -> None:
    """Raises UsageError where the package is installed alone."""
    if not IN_CHECKOUT:
        raise UsageError(f"{what} needs a checkout of Tensorwright", hint="Run it there: ./inv")


@contextlib.contextmanager
def exclusive(folder: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Hold `folder` for one process. When another process has it, `wait` until it has ended its
    work, or raise BusyError at once.

    The kernel drops the lock with the process, so a killed run leaves nothing to clean. Whoever
    holds a folder does not ask for it again: it would wait for itself.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / ".lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise DiskError(f"cannot write in {folder}: {error.strerror}") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or f"another process is using {folder}"
            if not wait:
                raise BusyError(
                    holder,
                    hint="Wait until it has finished, then run the same command again",
                ) from None
            console.note(f"{holder}: waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        handle.truncate(0)
        handle.write(f"process {os.getpid()} is using {folder} for {what}")
        handle.flush()
        yield


def need_disk(folder: Path, needed_bytes: int, what: str) -> None:
    """Raises DiskError when the file system that holds `folder` has less than `needed_bytes`."""
    present = folder
    while not present.exists():
        present = present.parent
    free = shutil.disk_usage(present).free
    if free < needed_bytes:
        raise DiskError(
            f"{what} needs {size(needed_bytes)} in {folder}, {size(free)} are free",
            hint="Free some space, or set TENSORWRIGHT_CACHE (TENSORWRIGHT_WHEELS for the finished "
            "wheels) to a folder on a larger disk",
        )
