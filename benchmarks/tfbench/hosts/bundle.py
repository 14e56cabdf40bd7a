"""The files that a host gets: Tensorwright as an archive, the wheels, and what runs them."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from tfbuild.upstream.download import hash_file
from tfcore.errors import UsageError
from tfcore.records import save, write_atomic

ARCHIVE = "tensorwright.tar.gz"
CHECK = "fleet_check.py"
PROGRAMS = (CHECK, "start.sh", "on_host.py")
SCHEMA = 1
_DESCRIPTION = "bundle.json"
_FILES = ("inv", "tasks.py", "requirements.txt")
_FOLDERS = ("build", "wheels/tfwheels", "benchmarks", "templates")
_NOT_SOURCE = frozenset({"__pycache__", "node_modules"})
_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True, kw_only=True, slots=True)
class BundledFile:
    file: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetWheel:
    """A wheel that hosts compare with stock; `name` is its arm."""

    name: str
    file: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """What `on_host.py` needs to know, apart from the host.

    `fleet` identifies a fleet's runs on its hosts. `compare` are options of compare.
    """

    schema: int = SCHEMA
    fleet: str
    archive: BundledFile
    wheels: tuple[FleetWheel, ...]
    compare: tuple[str, ...]


def describe_wheels(paths: Sequence[Path]) -> tuple[FleetWheel, ...]:
    """Name and hash the wheels. Raises UsageError for files that are missing or named alike."""
    for path in paths:
        _check_wheel(path)
    if len({path.name for path in paths}) < len(paths):
        raise UsageError("two wheels have the same file name", hint="Give each wheel once")
    one = len(paths) == 1
    return tuple(
        FleetWheel(
            name="tuned" if one else f"wheel-{number}", file=path.name, sha256=hash_file(path)
        )
        for number, path in enumerate(paths, start=1)
    )


def _check_wheel(path: Path) -> None:
    hint = "Build one with invoke build --arch A,B,…"
    if not path.is_file():
        raise UsageError(f"file not found: {path}", hint=hint)
    try:
        parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise UsageError(f"{path} is not a wheel ({error})", hint=hint) from error


def write_bundle(
    folder: Path,
    wheels: Sequence[FleetWheel],
    paths: Sequence[Path],
    compare: Sequence[str],
    *,
    fleet: str,
    root: Path,
) -> None:
    """Write the files for the hosts to `folder`. `root` is the checkout. Raises DiskError."""
    archive = build_archive(root)
    write_atomic(folder / ARCHIVE, archive)
    for name in PROGRAMS:
        write_atomic(folder / name, (_PACKAGE / name).read_bytes())
    for path in paths:
        _place(path, folder / path.name)
    bundle = Bundle(
        fleet=fleet,
        archive=BundledFile(file=ARCHIVE, sha256=hashlib.sha256(archive).hexdigest()),
        wheels=tuple(wheels),
        compare=tuple(compare),
    )
    save(folder / _DESCRIPTION, bundle)


def build_archive(root: Path) -> bytes:
    """Pack what the commands need of a checkout. Equal sources give equal bytes."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in _list_sources(root):
            content = path.read_bytes()
            member = tarfile.TarInfo(path.relative_to(root).as_posix())
            member.size = len(content)
            member.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _list_sources(root: Path) -> Iterator[Path]:
    yield from (root / name for name in _FILES)
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and _NOT_SOURCE.isdisjoint(path.relative_to(root).parts):
                yield path


def _place(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
