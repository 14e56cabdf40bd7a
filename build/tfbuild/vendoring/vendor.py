"""Filling a vendor folder (vendored.py) on a machine that has a network.

Bazel itself says what a build needs: a build that stops before its actions fetches exactly that,
through the folder's repository cache. Archives are hashed and stored, never unpacked here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tfbuild import console, records
from tfbuild.errors import ChecksumError, CommandError, DiskError, DownloadError, VendorError
from tfbuild.run import run
from tfbuild.settings import Paths, lock_folder
from tfbuild.tools import bazel, pip
from tfbuild.tools.bazel import Bazel
from tfbuild.upstream import download
from tfbuild.upstream.download import Pin
from tfbuild.vendoring.declarations import DeclaredArchive
from tfbuild.vendoring.resolved import FetchedRepository, resolved
from tfbuild.vendoring.vendored import (
    AGAIN,
    BEFORE,
    DEPENDENCIES,
    LOCK,
    REQUIREMENTS,
    SCHEMA,
    VendoredFile,
    VendorLock,
    cache_options,
    files_in,
    key_of,
    read_lock,
)

_CACHED = "repository_cache/content_addressable/sha256"
_WAITING = ".waiting"
_ELF = b"\x7fELF"
_BAZELISK_S = 1800.0


def vendor(
    folder: Path,
    tree: Path,
    targets: tuple[str, ...],
    *,
    release: str,
    found: Bazel,
    options: tuple[str, ...],
    paths: Paths,
    source: Path | None = None,
    python: Path | None = None,
    requirements: str = "",
    archives: Sequence[DeclaredArchive] = (),
    startup: tuple[str, ...] = (),
) -> VendorLock:
    """Fill `folder` with what Bazel fetches for these targets and options, and lock it.

    `source` is the release's archive, `python` the interpreter whose wheels pip is asked for,
    `requirements` the text of what the finished wheel depends on. `archives` are fetched beforehand
    by our own downloader, which resumes. A folder has no lock while it is being filled, and a
    killed run goes on with what it has. Raises VendorError, DownloadError, DiskError, BusyError.
    """
    folder = folder.resolve()
    with lock_folder(folder, "vendoring"):
        known = _earlier(folder)
        _sound(folder)
        if source is not None:
            _placed(source, folder / "sources" / source.name)
        if not found.debian:
            _own_bazel(found, folder / "bazel")
        if python is not None:
            wheels(tree, python, folder / "wheels")
            dependencies(requirements, python, folder / DEPENDENCIES)
        prefetch(archives, folder, mirror=paths.mirror)
        with console.report_step("Bazel fetches what the build needs"):
            fetched = _fetched(
                folder, tree, targets, found, (*options, "--nobuild"), startup, paths
            )
        _unchanged(fetched, known)
        urls = {each.sha256: each.urls for each in archives} | {e.sha256: e.urls for e in fetched}
        _sweep(folder)
        lock = VendorLock(
            schema=SCHEMA,
            release=release,
            bazel=found.version,
            from_system=found.debian,
            first_use={each.name: each.sha256 for each in fetched if not each.pinned},
            files=tuple(_items(folder, urls)),
            key="",
        )
        lock = dataclasses.replace(lock, key=key_of(lock))
        records.save(folder / LOCK, lock)
        (folder / BEFORE).unlink(missing_ok=True)
    for name in sorted(lock.first_use):
        console.print_note(f"{name} is not pinned by TensorFlow: pinned here on first use")
    console.print_note(
        f"{console.format_count(len(lock.files), 'file')}, {console.format_size(lock.size)}"
    )
    return lock


def _earlier(folder: Path) -> Mapping[str, str]:
    """What an earlier run pinned on first use. Its lock is put aside until there is a new one."""
    with contextlib.suppress(FileNotFoundError):
        (folder / LOCK).replace(folder / BEFORE)
    if not (folder / BEFORE).exists():
        return {}
    try:
        return read_lock(folder / BEFORE).first_use
    except VendorError as error:
        raise VendorError(
            error.message,
            hint="Remove it if what no rule pins may be pinned anew, on first use",
        ) from error


def _sound(folder: Path) -> None:
    """Remove cached archives that have gone bad, so that they are fetched again."""
    for path in (folder / _CACHED).glob("*/file"):
        download.find_cached(path, Pin(name=path.parent.name, sha256=path.parent.name))


def _sweep(folder: Path) -> None:
    """Remove what a killed run left half."""
    shutil.rmtree(folder / _WAITING, ignore_errors=True)
    for left in (*(folder / _CACHED).glob("tmp-*"), *folder.rglob(".*.new")):
        left.unlink()


def _unchanged(fetched: Sequence[FetchedRepository], known: Mapping[str, str]) -> None:
    for each in fetched:
        if not each.pinned and known.get(each.name, each.sha256) != each.sha256:
            raise VendorError(
                f"{each.name} has sha256 {each.sha256}, an earlier run got {known[each.name]}",
                hint=f"No rule pins it and it was changed; to accept it remove {BEFORE}",
            )


def prefetch(
    archives: Sequence[DeclaredArchive], folder: Path, *, mirror: str = ""
) -> tuple[str, ...]:
    """Download pinned archives into the repository cache; the names of those that nobody had.

    An archive that cannot be had is no error here: a tree declares what other targets need.
    """
    wanted = {each.sha256: each for each in archives if each.sha256}
    absent = []
    with console.track_progress("archives", len(wanted)) as count:
        for number, archive in enumerate(wanted.values()):
            count.advance(number, detail=archive.name)
            if not (_cached(folder, archive.sha256).is_file() or _had(archive, folder, mirror)):
                absent.append(archive.name)
                console.warn(f"{archive.name} could not be downloaded from any of its addresses")
    return tuple(absent)


def wheels(tree: Path, python: Path, folder: Path) -> None:
    """The Python packages that the tree locks for this Python, by hash; it need not have pip
    itself. Raises VendorError."""
    asked = "import sys; print('%d_%d' % sys.version_info[:2])"
    version = run([python, "-I", "-c", asked]).output.strip()
    locked = tree / f"requirements_lock_{version}.txt"
    if not locked.is_file():
        console.print_note(f"the tree has no {locked.name}: pip downloads nothing for it")
        return
    _downloaded(locked, python, folder)


def dependencies(requirements: str, python: Path, folder: Path) -> None:
    """The locked requirements of the finished wheel: a build makes its environments of them."""
    locked = folder / REQUIREMENTS
    records.write_atomic(locked, requirements)
    if requirements.strip():
        _downloaded(locked, python, folder, "--only-binary=:all:")


def _downloaded(locked: Path, python: Path, folder: Path, *choice: str) -> None:
    try:
        pip.download(locked, folder, *choice, interpreter=python)
    except CommandError as error:
        raise VendorError(f"pip: {error.last_line}", hint=AGAIN) from error


def _fetched(
    folder: Path,
    tree: Path,
    targets: tuple[str, ...],
    found: Bazel,
    options: tuple[str, ...],
    startup: tuple[str, ...],
    paths: Paths,
) -> tuple[FetchedRepository, ...]:
    """Load and analyse the targets with an output base of its own: only what is fetched in this
    very run is told."""
    work = paths.cache / "vendor" / records.hash_record(str(folder))[:16]
    work.mkdir(parents=True, exist_ok=True)
    for left in work.glob("base.*"):  # by a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    base = Path(tempfile.mkdtemp(prefix="base.", dir=work))
    log = work / "bazel.log"
    report = base / "resolved.bzl"
    try:
        done = bazel.build(
            found,
            targets,
            workspace=tree,
            options=(
                *options,
                *cache_options(folder),
                f"--experimental_repository_resolved_file={report}",
            ),
            startup=(*startup, f"--output_base={base / 'output'}"),
            paths=paths,
            log=log,
        )
        if done.returncode:
            errors = [line for line in done.output.splitlines() if line.startswith("ERROR: ")]
            said = (errors or done.output.splitlines() or ["no reason given"])[-1]
            raise VendorError(f"Bazel could not fetch everything: {said} (see {log})", hint=AGAIN)
        return resolved(report.read_text(encoding="utf-8"))
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _own_bazel(found: Bazel, folder: Path) -> None:
    """bazelisk, and the Bazel that it fetches or that it was told to run, in the folder."""
    real = found.bazelisk.resolve()
    with real.open("rb") as file:
        if file.read(len(_ELF)) == _ELF:  # (on PATH it may be a script that needs node)
            _placed(real, folder / "bazelisk")
    if Path(found.use).is_absolute():
        _placed(Path(found.use), folder / f"bazel-{found.version}")
        return
    env = bazel.build_environment(found.use, bazel.find_pinned_sha256(found.version))
    env["BAZELISK_HOME"] = str(folder)
    folder.mkdir(exist_ok=True)
    try:
        run([found.bazelisk, "--version"], env=env, cwd=folder, timeout_s=_BAZELISK_S)
    except CommandError as error:
        raise VendorError(f"bazelisk: {error.last_line}", hint=AGAIN) from error


def _had(archive: DeclaredArchive, folder: Path, mirror: str) -> bool:
    """Whether one of the addresses, the mirror first, gave the pinned bytes."""
    pin = Pin(name=archive.file or archive.name, sha256=archive.sha256)
    # Another archive may have the name already: then each waits in a folder of its own.
    waiting = folder / _WAITING / archive.sha256
    first = (download.build_mirror_url(mirror, pin.name),) if mirror else ()
    for url in (*first, *archive.urls):
        try:
            _moved(download.fetch(url, pin, waiting), _cached(folder, archive.sha256))
        except (DownloadError, ChecksumError) as error:
            console.print_note(f"{error.message}; trying the next address")
        else:
            shutil.rmtree(waiting)
            return True
    return False


def _cached(folder: Path, sha256: str) -> Path:
    return folder / _CACHED / sha256 / "file"


def _items(folder: Path, urls: Mapping[str, tuple[str, ...]]) -> Iterator[VendoredFile]:
    for path in sorted(files_in(folder)):
        file = folder / path
        sha256 = download.hash_file(file)
        known = urls.get(sha256, ()) if path.startswith(_CACHED) else ()
        yield VendoredFile(path=path, urls=known, sha256=sha256, size=file.stat().st_size)


def _placed(source: Path, target: Path) -> None:
    """Put a copy of the file in its place, whole or not at all. Raises DiskError."""
    fresh = target.with_name(f".{target.name}.new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, fresh)
        fresh.replace(target)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise DiskError(f"cannot write {target}: {error.strerror}") from error


def _moved(source: Path, target: Path) -> None:
    """Raises DiskError."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
    except OSError as error:
        raise DiskError(f"cannot write {target}: {error.strerror}") from error
