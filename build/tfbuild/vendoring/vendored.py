"""A vendor folder as a build finds it: checked against its lock, and what Bazel is told of it.

    sources/           the release's archive
    bazel/             bazelisk, and the Bazel that it fetched
    repository_cache/  the archives, in Bazel's own cache, by hash
    wheels/            what rules_python's pip_parse would download
    dependencies/      what the finished wheel depends on, and requirements.txt with its hashes
    vendor.lock.json   path, addresses, SHA-256 and size of every file

A distdir would not do: Bazel finds archives there by name, and 2.14.1 declares two different
v1.0.tar.gz.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tfbuild import records
from tfbuild.errors import RecordError, ToolError, VendorError
from tfbuild.settings import Paths
from tfbuild.tools import bazel
from tfbuild.tools.bazel import Bazel
from tfbuild.upstream.download import hash_file

LOCK = "vendor.lock.json"
BEFORE = "vendor.lock.before"
"""The lock of an earlier run, while the folder is being filled again."""
SCHEMA = 1
AGAIN = "Run invoke vendor again: what was fetched is kept"
_REMOVE = f"Remove that file. {AGAIN}"
DEPENDENCIES = "dependencies"
REQUIREMENTS = "requirements.txt"
_BUSY = ".lock"  # (settings.lock_folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class VendoredFile:
    """One file. `urls` is empty where a rule of another repository fetched it by itself."""

    path: str
    urls: tuple[str, ...]
    sha256: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class VendorLock:
    """What a vendor folder holds, in the order of paths. `from_system` says that Bazel is a package
    of the machine's (Debian) and not in the folder. `first_use` pairs repositories that their rule
    does not pin with the hash of what was fetched. `key` is the hash of all the rest.
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
        """Bytes."""
        return sum(item.size for item in self.files)


def check(folder: Path) -> VendorLock:
    """The lock, after every file was hashed. Raises VendorError that names the first file that is
    wrong, missing or extra."""
    lock = read_lock(folder / LOCK)
    wanted = {item.path: item for item in lock.files}
    present = set(files_in(folder))
    for path in sorted(present | set(wanted)):
        if path not in present:
            raise VendorError(f"{path} is missing in {folder}", hint=AGAIN)
        if path not in wanted:
            raise VendorError(
                f"{folder} has {path}, of which {LOCK} knows nothing", hint="Remove that file"
            )
        _same(folder / path, wanted[path])
    return lock


def read_lock(path: Path) -> VendorLock:
    """The record alone; `check` holds the files to it. Raises VendorError."""
    try:
        lock = records.decode_record(VendorLock, records.load(path, schema=SCHEMA))
    except (RecordError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise VendorError(f"there is no usable {path} ({error})", hint=AGAIN) from error
    if lock.key != key_of(lock):
        raise VendorError(f"{path} was changed by hand", hint="Make the folder again")
    return lock


def cache_options(folder: Path) -> tuple[str, ...]:
    """Bazel's options for the folder's cache. From 7.0 on http_archive asks for an archive's
    addresses beside its hash (tools/build_defs/repo/cache.bzl), which we need not have stored.
    """
    return (
        f"--repository_cache={folder / 'repository_cache'}",
        "--repo_env=BAZEL_HTTP_RULES_URLS_AS_DEFAULT_CANONICAL_ID=0",
    )


def options(folder: Path, lock: VendorLock) -> tuple[str, ...]:
    """Bazel's options for a build from the folder alone.

    The one spelling --experimental_repository_disable_download is accepted by 4.2.3 and by 7.7.1.
    --fetch=false is no use: on a fresh output root it refuses even Bazel's own repositories. pip is
    told by rules_python's RULES_PYTHON_PIP_ISOLATED (python/pip_install/pip_repository.bzl).
    """
    folder = folder.resolve()
    from_pip = (
        "--repo_env=RULES_PYTHON_PIP_ISOLATED=0",
        "--repo_env=PIP_NO_INDEX=1",
        f"--repo_env=PIP_FIND_LINKS={folder / 'wheels'}",
    )
    return (
        *cache_options(folder),
        "--experimental_repository_disable_download",
        *(from_pip if any(item.path.startswith("wheels/") for item in lock.files) else ()),
    )


def requirements(folder: Path) -> str:
    """The locked requirements whose wheels are in the folder, as text. Raises VendorError."""
    try:
        return (folder / DEPENDENCIES / REQUIREMENTS).read_text(encoding="utf-8")
    except OSError as error:
        raise VendorError(f"{folder} has no {DEPENDENCIES}/{REQUIREMENTS}", hint=AGAIN) from error


def bazel_of(folder: Path, lock: VendorLock, paths: Paths) -> Bazel:
    """The folder's Bazel, or the machine's own where the folder was made with that.

    Raises ToolError, and VendorError when the machine's is another version.
    """
    if lock.from_system:
        found = bazel.find_bazel(paths, lock.bazel)
        if found.version != lock.bazel:
            raise VendorError(
                f"{folder} was made with the system's Bazel {lock.bazel}, here is {found.version}",
                hint=f"Install Bazel {lock.bazel}, or set USE_BAZEL_VERSION to it",
            )
        return found
    bazelisk = folder.resolve() / "bazel/bazelisk"
    runner = bazelisk if bazelisk.is_file() else bazel.find_bazelisk(paths)
    if runner is None:
        raise ToolError("there is no bazelisk on this machine", hint="Install bazelisk on PATH")
    return Bazel(bazelisk=runner, use=str(_binary(folder)), version=lock.bazel, debian=False)


def key_of(lock: VendorLock) -> str:
    """The hash of all that the lock says but the key itself."""
    return records.hash_record(replace(lock, key=""))


def files_in(folder: Path) -> Iterator[str]:
    """Every file but the lock and the one that marks a folder in use, in order. Raises VendorError
    for what is neither a file nor a folder."""
    for root, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(
            (*files, *(each for each in folders if (Path(root) / each).is_symlink()))
        ):
            path = Path(root) / name
            inner = path.relative_to(folder).as_posix()
            if path.is_symlink() or not path.is_file():
                raise VendorError(f"{inner} in {folder} is no plain file", hint="Remove it")
            if inner not in {LOCK, BEFORE, _BUSY}:
                yield inner


def _same(path: Path, item: VendoredFile) -> None:
    size = path.stat().st_size
    if size != item.size:
        raise VendorError(f"{item.path} has {size} bytes, {LOCK} says {item.size}", hint=_REMOVE)
    seen = hash_file(path)
    if seen != item.sha256:
        raise VendorError(f"{item.path} has sha256 {seen}, {LOCK} says {item.sha256}", hint=_REMOVE)


def _binary(folder: Path) -> Path:
    """The one Bazel of the folder: given by a path, or where bazelisk keeps what it downloads."""
    home = folder.resolve() / "bazel"
    found = [*home.glob("bazel-[0-9]*"), *home.glob("downloads/**/bin/bazel")]
    if len(found) != 1:
        raise VendorError(
            f"{home} holds {len(found)} Bazels instead of one",
            hint="A vendor folder serves one release: begin a new one",
        )
    return found[0]
