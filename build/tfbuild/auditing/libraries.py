"""The shared libraries of a wheel and what their bytes show. The same bytes are looked at once."""

from __future__ import annotations

import base64
import contextlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild import settings
from tfbuild.auditing import dispatched, tables
from tfbuild.auditing.dispatched import Attribution
from tfbuild.binaries import census, elf, instructions
from tfbuild.errors import AuditError, RecordError, WheelError
from tfbuild.packing.tuned import KernelLibrary, Tuned
from tfbuild.packing.wheel import RecordLine, extract, opened, read_record, verify_record, writing
from tfbuild.records import decode_record, load, save

SCHEMA = 1
_LIBRARY = re.compile(r".*\.so(\.\d+)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """The size of a file in a wheel in bytes, and its SHA-256 (hex)."""

    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What the bytes of a library show: its instructions (census.census), the runtime versions and
    libraries that it asks for, and its ISA marker (elf.isa_needed)."""

    schema: int = SCHEMA
    decoders: Mapping[str, str]
    census: Mapping[str, int]
    floors: Mapping[str, str]
    needed: tuple[str, ...]
    isa_needed: str


def members(wheel: Path, *, known: bool = False) -> dict[str, Member]:
    """The files of a wheel that RECORD names. Raises AuditError when their bytes are others; those
    of a wheel whose own hash is `known` to be right are not read."""
    try:
        lines = read_record(wheel) if known else verify_record(wheel)
    except WheelError as error:
        raise AuditError(error.message, hint=error.hint) from error
    return {line.name: _member(line) for line in lines}


def libraries_of(every: Mapping[str, Member]) -> dict[str, Member]:
    """Those of the members that are shared libraries, by their names."""
    return {name: each for name, each in every.items() if _LIBRARY.fullmatch(name)}


def _member(line: RecordLine) -> Member:
    algorithm, _, digest = line.digest.partition("=")
    if algorithm != "sha256":
        raise AuditError(f"RECORD has no SHA-256 of {line.name}")
    return Member(size=int(line.size), sha256=base64.urlsafe_b64decode(f"{digest}=").hex())


def facts_of(wheel: Path, wanted: Mapping[str, Member], folder: Path) -> dict[str, Facts]:
    """The facts of some libraries of a wheel. `folder` keeps them by the hash of the library.

    Raises WheelError for a library that is not whole, DiskError.
    """
    found = {file: _kept(folder / f"{wanted[file].sha256}.json") for file in sorted(wanted)}
    fresh = [file for file, facts in found.items() if facts is None]
    with _unpacked(wheel, fresh, folder) as paths:
        for file, path in paths.items():
            found[file] = look_at(path)
            save(folder / f"{wanted[file].sha256}.json", found[file])
    return {file: facts for file, facts in found.items() if facts is not None}


def attributions_of(
    wheel: Path, wanted: Mapping[str, Member], folder: Path
) -> dict[str, Attribution]:
    """Whose the instructions of some libraries of a wheel are. `folder` keeps what was found.

    Raises WheelError for a library that is not whole, DiskError.
    """
    records = {file: dispatched.record_of(wanted[file].sha256, folder) for file in sorted(wanted)}
    found = {file: dispatched.kept(record) for file, record in records.items()}
    fresh = [file for file, each in found.items() if each is None]
    with _unpacked(wheel, fresh, folder) as paths:
        for file, path in paths.items():
            found[file] = dispatched.attribute(path)
            save(records[file], found[file])
    return {file: each for file, each in found.items() if each is not None}


def unregistered_in(
    wheel: Path, libraries: Iterable[KernelLibrary], folder: Path
) -> dict[str, tuple[str, ...]]:
    """The ops that kernel libraries do not register, though tuned.json says so, by the library's
    member. Raises WheelError for a library that is not whole or not there, DiskError."""
    ops = {each.file: {choice.op for choice in each.registrations} for each in libraries}
    with _unpacked(wheel, ops, folder) as paths:
        return {file: tables.unregistered(path, ops[file]) for file, path in paths.items()}


def dispatcher_problems(wheel: Path, file: str, facts: Tuned, folder: Path) -> tuple[str, ...]:
    """Where the dispatcher, a member of a wheel, asks for other things than tuned.json says. Raises
    WheelError for one that is not there, DiskError."""
    with _unpacked(wheel, (file,), folder) as paths:
        return tuple(tables.problems(facts, paths[file]))


@contextlib.contextmanager
def _unpacked(wheel: Path, wanted: Iterable[str], folder: Path) -> Iterator[dict[str, Path]]:
    """Members of a wheel as files in `folder`, as long as they are needed. Raises WheelError,
    DiskError."""
    names = tuple(wanted)
    with opened(wheel) as archive:
        infos = [archive.NameToInfo[name] for name in names if name in archive.NameToInfo]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    settings.require_disk(folder, sum(info.file_size for info in infos), "unpacking libraries")
    with tempfile.TemporaryDirectory(prefix=".unpacked.", dir=folder) as unpacked:
        if names:
            extract(wheel, names, Path(unpacked) / "wheel")
        yield {name: Path(unpacked) / "wheel" / name for name in names}


def look_at(path: Path) -> Facts:
    return Facts(
        decoders=instructions.DECODERS,
        census=census.census(path),
        floors=elf.version_floors(path),
        needed=elf.needed(path),
        isa_needed=elf.isa_needed(path),
    )


def _kept(path: Path) -> Facts | None:
    """What an earlier run found with the same decoders; None if it did not, or is unreadable."""
    try:
        facts = decode_record(Facts, load(path, schema=SCHEMA))
    except (RecordError, TypeError, ValueError, KeyError):
        return None
    return facts if facts.decoders == instructions.DECODERS else None
