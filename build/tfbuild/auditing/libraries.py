"""Read the facts of a wheel's shared libraries, and cache them by the hash of the library."""

from __future__ import annotations

import base64
import contextlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild.auditing import runtime_dispatch, tables
from tfbuild.auditing.runtime_dispatch import Attribution
from tfbuild.binaries import census, elf, instructions
from tfbuild.packing.tuned import KernelLibrary, Tuned
from tfbuild.packing.wheel import (
    RecordLine,
    convert_os_errors,
    extract,
    open_wheel,
    read_record,
    verify_record,
)
from tfcore import settings
from tfcore.errors import AuditError, RecordError, WheelError
from tfcore.records import decode_record, load, save

SCHEMA = 1
_LIBRARY = re.compile(r".*\.so(\.\d+)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A file in a wheel: its size in bytes and its SHA-256 (hex)."""

    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LibraryFacts:
    """The facts read from a library's bytes: its instructions (census.count_instructions), the
    runtime versions and libraries that it requires, and its ISA marker (elf.read_isa_level).
    """

    schema: int = SCHEMA
    decoders: Mapping[str, str]
    census: Mapping[str, int]
    floors: Mapping[str, str]
    needed: tuple[str, ...]
    isa_needed: str


def read_members(wheel: Path, *, known: bool = False) -> dict[str, Member]:
    """Return the files of a wheel that RECORD names.

    Their bytes are not read if the wheel's own hash is `known` to be right.

    Raises AuditError if their bytes differ from RECORD.
    """
    try:
        lines = read_record(wheel) if known else verify_record(wheel)
    except WheelError as error:
        raise AuditError(error.message, hint=error.hint) from error
    return {line.name: _parse_member(line) for line in lines}


def filter_libraries(members: Mapping[str, Member]) -> dict[str, Member]:
    """Return the members that are shared libraries, recognised by their names."""
    return {name: member for name, member in members.items() if _LIBRARY.fullmatch(name)}


def _parse_member(line: RecordLine) -> Member:
    algorithm, _, digest = line.digest.partition("=")
    if algorithm != "sha256":
        raise AuditError(f"RECORD has no SHA-256 of {line.name}")
    return Member(size=int(line.size), sha256=base64.urlsafe_b64decode(f"{digest}=").hex())


def read_facts(wheel: Path, members: Mapping[str, Member], folder: Path) -> dict[str, LibraryFacts]:
    """Return the facts of some libraries of a wheel.

    `folder` caches them by the hash of the library.

    Raises WheelError for an incomplete library, DiskError.
    """
    known = {file: _load_facts(folder / f"{members[file].sha256}.json") for file in sorted(members)}
    fresh = [file for file, facts in known.items() if facts is None]
    with _unpack_members(wheel, fresh, folder) as paths:
        for file, path in paths.items():
            known[file] = inspect_library(path)
            save(folder / f"{members[file].sha256}.json", known[file])
    return {file: facts for file, facts in known.items() if facts is not None}


def read_attributions(
    wheel: Path, members: Mapping[str, Member], folder: Path
) -> dict[str, Attribution]:
    """Return the attributions of some libraries of a wheel. `folder` caches them.

    Raises WheelError for an incomplete library, DiskError.
    """
    records = {
        file: runtime_dispatch.get_record_path(members[file].sha256, folder)
        for file in sorted(members)
    }
    known = {file: runtime_dispatch.load_attribution(record) for file, record in records.items()}
    fresh = [file for file, attribution in known.items() if attribution is None]
    with _unpack_members(wheel, fresh, folder) as paths:
        for file, path in paths.items():
            known[file] = runtime_dispatch.attribute_instructions(path)
            save(records[file], known[file])
    return {file: attribution for file, attribution in known.items() if attribution is not None}


def find_unregistered(
    wheel: Path, libraries: Iterable[KernelLibrary], folder: Path
) -> dict[str, tuple[str, ...]]:
    """Return the ops that tuned.json lists and kernel libraries do not register, by member.

    Raises WheelError for a library that is incomplete or missing, DiskError.
    """
    ops = {
        library.file: {registration.op for registration in library.registrations}
        for library in libraries
    }
    with _unpack_members(wheel, ops, folder) as paths:
        return {file: tables.find_unregistered(path, ops[file]) for file, path in paths.items()}


def find_dispatcher_problems(wheel: Path, file: str, facts: Tuned, folder: Path) -> tuple[str, ...]:
    """Return the differences between the features that the dispatcher checks and tuned.json.

    `file` is the dispatcher, a member of the wheel.

    Raises WheelError if it is missing, DiskError.
    """
    with _unpack_members(wheel, (file,), folder) as paths:
        return tuple(tables.find_problems(facts, paths[file]))


@contextlib.contextmanager
def _unpack_members(wheel: Path, members: Iterable[str], folder: Path) -> Iterator[dict[str, Path]]:
    """Unpack members of a wheel into a temporary folder in `folder` within this context.

    Raises WheelError, DiskError.
    """
    names = tuple(members)
    with open_wheel(wheel) as archive:
        infos = [archive.NameToInfo[name] for name in names if name in archive.NameToInfo]
    with convert_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    settings.require_disk(folder, sum(info.file_size for info in infos), "unpacking libraries")
    with tempfile.TemporaryDirectory(prefix=".unpacked.", dir=folder) as unpacked:
        if names:
            extract(wheel, names, Path(unpacked) / "wheel")
        yield {name: Path(unpacked) / "wheel" / name for name in names}


def inspect_library(path: Path) -> LibraryFacts:
    return LibraryFacts(
        decoders=instructions.DECODERS,
        census=census.count_instructions(path),
        floors=elf.read_version_floors(path),
        needed=elf.list_needed(path),
        isa_needed=elf.read_isa_level(path),
    )


def _load_facts(path: Path) -> LibraryFacts | None:
    """Return the facts of an earlier run with the same decoders; None if there are none, or they
    are unreadable.
    """
    try:
        facts = decode_record(LibraryFacts, load(path, schema=SCHEMA))
    except (RecordError, TypeError, ValueError, KeyError):
        return None
    return facts if facts.decoders == instructions.DECODERS else None
