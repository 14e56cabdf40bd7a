"""Checks a vendor folder against its lock, and builds Bazel's options for it.

    sources/           the release's archive
    bazel/             bazelisk, and the Bazel that it fetched
    repository_cache/  the archives, in Bazel's repository cache, by hash
    wheels/            the downloads of rules_python's pip_parse
    dependencies/      the dependencies of the finished wheel, and requirements.txt with hashes
    vendor.lock.json   path, addresses, SHA-256 and size of every file

A distdir does not work: Bazel finds archives there by name, and 2.14.1 declares two different
v1.0.tar.gz.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tfbuild.tools import bazel
from tfbuild.tools.bazel import Bazel
from tfbuild.upstream.download import hash_file
from tfcore import records
from tfcore.errors import RecordError, ToolError, VendorError
from tfcore.settings import Paths

LOCK = "vendor.lock.json"
BEFORE = "vendor.lock.before"
"""The lock of an earlier run, while the folder is being filled again."""
SCHEMA = 1
AGAIN = "Run invoke vendor again: it keeps the files it has"
_REMOVE = f"Remove that file. {AGAIN}"
DEPENDENCIES = "dependencies"
REQUIREMENTS = "requirements.txt"
_BUSY = ".lock"  # (settings.lock_folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class VendoredFile:
    """A file of the folder. `urls` is empty if a rule of another repository fetched it by
    itself.
    """

    path: str
    urls: tuple[str, ...]
    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class VendorLock:
    """The contents of a vendor folder, sorted by path.

    `from_system` states that Bazel is a package of the machine (Debian) and not in the
    folder. `first_use` maps repositories that their rule does not pin to the hash of what was
    fetched. `key` is the hash of all other fields.
    """

    schema: int
    release: str
    bazel: str
    from_system: bool
    first_use: Mapping[str, str]
    files: tuple[VendoredFile, ...]
    key: str

    @property
    def size(self) -> int:
        """Return the size of all files in bytes."""
        return sum(item.size for item in self.files)


def check_folder(folder: Path) -> VendorLock:
    """Hash every file, and return the lock. Raises VendorError with the name of the first file
    that is wrong, missing or extra.
    """
    lock = read_lock(folder / LOCK)
    locked = {item.path: item for item in lock.files}
    present = set(list_files(folder))
    for path in sorted(present | set(locked)):
        if path not in present:
            raise VendorError(f"{path} is missing in {folder}", hint=AGAIN)
        if path not in locked:
            raise VendorError(
                f"{folder} has {path}, which is not in {LOCK}", hint="Remove that file"
            )
        _check_file(folder / path, locked[path])
    return lock


def read_lock(path: Path) -> VendorLock:
    """Read the lock without checking the files; `check_folder` does that. Raises VendorError."""
    try:
        lock = records.decode_record(VendorLock, records.load(path, schema=SCHEMA))
    except (RecordError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise VendorError(f"{path} is missing or damaged ({error})", hint=AGAIN) from error
    if lock.key != compute_lock_key(lock):
        raise VendorError(f"{path} was edited", hint="Fill the folder again")
    return lock


def list_cache_options(folder: Path) -> tuple[str, ...]:
    """Return Bazel's options for the folder's cache.

    From 7.0 on http_archive looks an archive up by its addresses along with its hash
    (tools/build_defs/repo/cache.bzl). This is turned off: the folder may not have stored the
    addresses.
    """
    return (
        f"--repository_cache={folder / 'repository_cache'}",
        "--repo_env=BAZEL_HTTP_RULES_URLS_AS_DEFAULT_CANONICAL_ID=0",
    )


def list_bazel_options(folder: Path, lock: VendorLock) -> tuple[str, ...]:
    """Return Bazel's options for a build from the folder alone.

    Only the spelling --experimental_repository_disable_download is accepted by both 4.2.3 and
    7.7.1. --fetch=false does not work: on a fresh output root it refuses even Bazel's own
    repositories. pip gets its options through rules_python's RULES_PYTHON_PIP_ISOLATED
    (python/pip_install/pip_repository.bzl).
    """
    folder = folder.resolve()
    pip_options = (
        "--repo_env=RULES_PYTHON_PIP_ISOLATED=0",
        "--repo_env=PIP_NO_INDEX=1",
        f"--repo_env=PIP_FIND_LINKS={folder / 'wheels'}",
    )
    return (
        *list_cache_options(folder),
        "--experimental_repository_disable_download",
        *(pip_options if any(item.path.startswith("wheels/") for item in lock.files) else ()),
    )


def read_requirements(folder: Path) -> str:
    """Return the text of the locked requirements whose wheels are in the folder. Raises
    VendorError.
    """
    try:
        return (folder / DEPENDENCIES / REQUIREMENTS).read_text(encoding="utf-8")
    except OSError as error:
        raise VendorError(f"{folder} has no {DEPENDENCIES}/{REQUIREMENTS}", hint=AGAIN) from error


def resolve_bazel(folder: Path, lock: VendorLock, paths: Paths) -> Bazel:
    """Return the folder's Bazel, or the machine's own if the folder was made with that.

    Raises ToolError if there is no bazelisk, and VendorError if the machine's Bazel has
    another version.
    """
    if lock.from_system:
        installed = bazel.find_bazel(paths, lock.bazel)
        if installed.version != lock.bazel:
            raise VendorError(
                f"{folder} needs the system's Bazel {lock.bazel}, but this machine has "
                f"{installed.version}",
                hint=f"Install Bazel {lock.bazel}, or set USE_BAZEL_VERSION to it",
            )
        return installed
    bazelisk = folder.resolve() / "bazel/bazelisk"
    launcher = bazelisk if bazelisk.is_file() else bazel.find_bazelisk(paths)
    if launcher is None:
        raise ToolError("this machine has no bazelisk", hint="Install bazelisk on PATH")
    return Bazel(bazelisk=launcher, use=str(_find_binary(folder)), version=lock.bazel, debian=False)


def compute_lock_key(lock: VendorLock) -> str:
    """Return the hash of all fields of the lock except the key itself."""
    return records.hash_record(replace(lock, key=""))


def list_files(folder: Path) -> Iterator[str]:
    """Yield every file except the locks and the file that marks a folder as in use, in order.
    Raises VendorError for anything that is neither a file nor a folder.
    """
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(
            (*files, *(entry for entry in folders if (Path(root) / entry).is_symlink()))
        ):
            path = Path(root) / name
            relative = path.relative_to(folder).as_posix()
            if path.is_symlink() or not path.is_file():
                raise VendorError(f"{relative} in {folder} is not a regular file", hint="Remove it")
            if relative not in {LOCK, BEFORE, _BUSY}:
                yield relative


def _check_file(path: Path, item: VendoredFile) -> None:
    """Raise VendorError if the size or the hash of a file is not the locked one."""
    size = path.stat().st_size
    if size != item.size:
        raise VendorError(
            f"{item.path} has {size} bytes, but {LOCK} lists {item.size}", hint=_REMOVE
        )
    sha256 = hash_file(path)
    if sha256 != item.sha256:
        raise VendorError(
            f"{item.path} has sha256 {sha256}, but {LOCK} lists {item.sha256}", hint=_REMOVE
        )


def _find_binary(folder: Path) -> Path:
    """Return the one Bazel of the folder: given by a path, or in the folder where bazelisk keeps
    its downloads.
    """
    home = folder.resolve() / "bazel"
    candidates = [*home.glob("bazel-[0-9]*"), *home.glob("downloads/**/bin/bazel")]
    if len(candidates) != 1:
        raise VendorError(
            f"{home} contains {len(candidates)} Bazel programs instead of one",
            hint="A vendor folder is for one release: fill a new folder",
        )
    return candidates[0]
