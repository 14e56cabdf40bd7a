"""Fills a vendor folder (vendor_folder.py) on a machine with a network.

A build that stops before its actions fetches exactly what a build needs, through the folder's
repository cache. Archives are hashed and stored, and never unpacked here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tfbuild.tools import bazel, pip
from tfbuild.tools.bazel import Bazel
from tfbuild.upstream import download
from tfbuild.upstream.download import Pin
from tfbuild.vendoring.declarations import DeclaredArchive
from tfbuild.vendoring.resolved_repositories import FetchedRepository, parse_resolved
from tfbuild.vendoring.vendor_folder import (
    AGAIN,
    BEFORE,
    DEPENDENCIES,
    LOCK,
    REQUIREMENTS,
    SCHEMA,
    VendoredFile,
    VendorLock,
    compute_lock_key,
    list_cache_options,
    list_files,
    read_lock,
)
from tfcore import console, records
from tfcore.errors import ChecksumError, CommandError, DiskError, DownloadError, VendorError
from tfcore.run import run
from tfcore.settings import Paths, lock_folder

_CACHED = "repository_cache/content_addressable/sha256"
_WAITING = ".waiting"
_ELF = b"\x7fELF"
_BAZELISK_S = 1800.0


def vendor_targets(
    folder: Path,
    tree: Path,
    targets: tuple[str, ...],
    *,
    release: str,
    bazel_tool: Bazel,
    options: tuple[str, ...],
    paths: Paths,
    source: Path | None = None,
    python: Path | None = None,
    requirements: str = "",
    archives: Sequence[DeclaredArchive] = (),
    startup: tuple[str, ...] = (),
) -> VendorLock:
    """Fill `folder` with everything that Bazel fetches for these targets and options, and lock
    it.

    `source` is the release's archive, `python` the interpreter whose wheels pip downloads,
    `requirements` the text of the finished wheel's dependencies. `archives` are fetched
    beforehand by our own downloader, which resumes. A folder has no lock while it is being
    filled; a killed run continues with the files it has. Raises VendorError, DownloadError,
    DiskError, BusyError.
    """
    folder = folder.resolve()
    with lock_folder(folder, "vendoring"):
        earlier_pins = _set_lock_aside(folder)
        _remove_corrupt(folder)
        if source is not None:
            _copy_file(source, folder / "sources" / source.name)
        if not bazel_tool.debian:
            _store_bazel(bazel_tool, folder / "bazel")
        if python is not None:
            download_wheels(tree, python, folder / "wheels")
            download_dependencies(requirements, python, folder / DEPENDENCIES)
        prefetch(archives, folder, mirror=paths.mirror)
        with console.report_step("fetch the archives of the build with Bazel"):
            fetched = _fetch_repositories(
                folder, tree, targets, bazel_tool, (*options, "--nobuild"), startup, paths
            )
        _check_first_use(fetched, earlier_pins)
        urls = {item.sha256: item.urls for item in archives} | {
            repository.sha256: repository.urls for repository in fetched
        }
        _remove_partial(folder)
        lock = VendorLock(
            schema=SCHEMA,
            release=release,
            bazel=bazel_tool.version,
            from_system=bazel_tool.debian,
            first_use={item.name: item.sha256 for item in fetched if not item.pinned},
            files=tuple(_hash_files(folder, urls)),
            key="",
        )
        lock = dataclasses.replace(lock, key=compute_lock_key(lock))
        records.save(folder / LOCK, lock)
        (folder / BEFORE).unlink(missing_ok=True)
    for name in sorted(lock.first_use):
        console.print_note(f"TensorFlow does not pin {name}: the lock pins this first download")
    console.print_note(
        f"{console.format_count(len(lock.files), 'file')}, {console.format_size(lock.size)}"
    )
    return lock


def _set_lock_aside(folder: Path) -> Mapping[str, str]:
    """Set the lock of an earlier run aside until there is a new one, and return what that run
    pinned on first use.
    """
    with contextlib.suppress(FileNotFoundError):
        (folder / LOCK).replace(folder / BEFORE)
    if not (folder / BEFORE).exists():
        return {}
    try:
        return read_lock(folder / BEFORE).first_use
    except VendorError as error:
        raise VendorError(
            error.message,
            hint="Remove it to pin the hashes of unpinned repositories again, on first use",
        ) from error


def _remove_corrupt(folder: Path) -> None:
    """Remove cached archives whose hash no longer matches, so that they are fetched again."""
    for path in (folder / _CACHED).glob("*/file"):
        download.keep_verified(path, Pin(name=path.parent.name, sha256=path.parent.name))


def _remove_partial(folder: Path) -> None:
    """Remove the partial files of a killed run."""
    shutil.rmtree(folder / _WAITING, ignore_errors=True)
    for path in (*(folder / _CACHED).glob("tmp-*"), *folder.rglob(".*.new")):
        path.unlink()


def _check_first_use(fetched: Sequence[FetchedRepository], known: Mapping[str, str]) -> None:
    """Raise VendorError if an unpinned repository has another hash than in an earlier run."""
    for repository in fetched:
        if (
            not repository.pinned
            and known.get(repository.name, repository.sha256) != repository.sha256
        ):
            raise VendorError(
                f"{repository.name} has sha256 {repository.sha256}, but an earlier run got "
                f"{known[repository.name]}",
                hint=f"No rule pins it, and it has changed. To accept it, remove {BEFORE}",
            )


def prefetch(
    archives: Sequence[DeclaredArchive], folder: Path, *, mirror: str = ""
) -> tuple[str, ...]:
    """Download pinned archives into the repository cache, and return the names of those that no
    address served.

    An archive that cannot be downloaded is no error here: a tree also declares what other
    targets need.
    """
    pinned = {declared.sha256: declared for declared in archives if declared.sha256}
    absent = []
    with console.track_progress("archives", len(pinned)) as count:
        for number, archive in enumerate(pinned.values()):
            count.advance(number, detail=archive.name)
            if not (
                _get_cache_path(folder, archive.sha256).is_file()
                or _download_archive(archive, folder, mirror)
            ):
                absent.append(archive.name)
                console.warn(f"{archive.name} cannot be downloaded from any of its addresses")
    return tuple(absent)


def download_wheels(tree: Path, python: Path, folder: Path) -> None:
    """Download the Python packages that the tree locks for this Python, by hash. This Python
    need not have pip itself. Raises VendorError.
    """
    script = "import sys; print('%d_%d' % sys.version_info[:2])"
    version = run([python, "-I", "-c", script]).output.strip()
    locked = tree / f"requirements_lock_{version}.txt"
    if not locked.is_file():
        console.print_note(f"the tree has no {locked.name}: pip downloads no packages for it")
        return
    _download_locked(locked, python, folder)


def download_dependencies(requirements: str, python: Path, folder: Path) -> None:
    """Download the locked requirements of the finished wheel, from which a build creates its
    environments.
    """
    locked = folder / REQUIREMENTS
    records.write_atomic(locked, requirements)
    if requirements.strip():
        _download_locked(locked, python, folder, "--only-binary=:all:")


def _download_locked(locked: Path, python: Path, folder: Path, *choice: str) -> None:
    try:
        pip.download(locked, folder, *choice, interpreter=python)
    except CommandError as error:
        raise VendorError(f"pip: {error.last_line}", hint=AGAIN) from error


def _fetch_repositories(
    folder: Path,
    tree: Path,
    targets: tuple[str, ...],
    bazel_tool: Bazel,
    options: tuple[str, ...],
    startup: tuple[str, ...],
    paths: Paths,
) -> tuple[FetchedRepository, ...]:
    """Load and analyse the targets in an output base of their own, and return the fetched
    repositories: Bazel reports only what it fetches in the same run.
    """
    work = paths.cache / "vendor" / records.hash_record(str(folder))[:16]
    work.mkdir(parents=True, exist_ok=True)
    for stale in work.glob("base.*"):  # of a run that was killed
        shutil.rmtree(stale, ignore_errors=True)
    base = Path(tempfile.mkdtemp(prefix="base.", dir=work))
    log = work / "bazel.log"
    report = base / "resolved.bzl"
    try:
        completed = bazel.build(
            bazel_tool,
            targets,
            workspace=tree,
            options=(
                *options,
                *list_cache_options(folder),
                f"--experimental_repository_resolved_file={report}",
            ),
            startup=(*startup, f"--output_base={base / 'output'}"),
            paths=paths,
            log=log,
        )
        if completed.returncode:
            errors = [line for line in completed.output.splitlines() if line.startswith("ERROR: ")]
            reason = (errors or completed.output.splitlines() or ["it reported no reason"])[-1]
            raise VendorError(f"Bazel could not fetch everything: {reason} (see {log})", hint=AGAIN)
        return parse_resolved(report.read_text(encoding="utf-8"))
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _store_bazel(bazel_tool: Bazel, folder: Path) -> None:
    """Store bazelisk, and the Bazel that it downloads or is set to run, in the folder."""
    program = bazel_tool.bazelisk.resolve()
    with program.open("rb") as file:
        if file.read(len(_ELF)) == _ELF:  # (on PATH it may be a script that needs Node.js)
            _copy_file(program, folder / "bazelisk")
    if Path(bazel_tool.use).is_absolute():
        _copy_file(Path(bazel_tool.use), folder / f"bazel-{bazel_tool.version}")
        return
    env = bazel.build_environment(bazel_tool.use, bazel.find_pinned_sha256(bazel_tool.version))
    env["BAZELISK_HOME"] = str(folder)
    folder.mkdir(exist_ok=True)
    try:
        run([bazel_tool.bazelisk, "--version"], env=env, cwd=folder, timeout_s=_BAZELISK_S)
    except CommandError as error:
        raise VendorError(f"bazelisk: {error.last_line}", hint=AGAIN) from error


def _download_archive(archive: DeclaredArchive, folder: Path, mirror: str) -> bool:
    """Return whether an address, the mirror first, served the pinned bytes."""
    pin = Pin(name=archive.file or archive.name, sha256=archive.sha256)
    # Archives may share a name: each is downloaded into its own folder.
    waiting = folder / _WAITING / archive.sha256
    mirrors = (download.build_mirror_url(mirror, pin.name),) if mirror else ()
    for url in (*mirrors, *archive.urls):
        try:
            _move_file(download.fetch(url, pin, waiting), _get_cache_path(folder, archive.sha256))
        except (DownloadError, ChecksumError) as error:
            console.print_note(f"{error.message}; trying the next address")
        else:
            shutil.rmtree(waiting)
            return True
    return False


def _get_cache_path(folder: Path, sha256: str) -> Path:
    return folder / _CACHED / sha256 / "file"


def _hash_files(folder: Path, urls: Mapping[str, tuple[str, ...]]) -> Iterator[VendoredFile]:
    for path in sorted(list_files(folder)):
        file = folder / path
        sha256 = download.hash_file(file)
        addresses = urls.get(sha256, ()) if path.startswith(_CACHED) else ()
        yield VendoredFile(path=path, urls=addresses, sha256=sha256, size=file.stat().st_size)


def _copy_file(source: Path, target: Path) -> None:
    """Copy the file to its target atomically. Raises DiskError."""
    partial = target.with_name(f".{target.name}.new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, partial)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise DiskError(f"cannot write {target}: {error.strerror}") from error


def _move_file(source: Path, target: Path) -> None:
    """Move the file to its target. Raises DiskError."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
    except OSError as error:
        raise DiskError(f"cannot write {target}: {error.strerror}") from error
