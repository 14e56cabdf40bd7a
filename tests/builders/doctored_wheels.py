"""Wheels that somebody has altered after they were built: a table of what may be done to one.

Each alteration takes a sound wheel (tests.builders.audit_cases) and changes it in place, or leaves
another file beside it; RECORD is made to fit, where it is not RECORD that is altered.
"""

from __future__ import annotations

import dataclasses
import re
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.builders.audit_cases import (
    CORE,
    DISPATCHER,
    INFO,
    STEM,
    altered,
    fields_of,
    rows_of,
    saying,
    with_record,
)
from tests.builders.compiled_code import KERNEL, QUICK, REGISTERED, library
from tests.builders.compiled_code import dispatcher as linked

from tfbuild.packing import notices, sbom
from tfbuild.packing.repack import FILE_MODE
from tfbuild.packing.tuned import read_tuned
from tfbuild.packing.wheel import read_member
from tfbuild.planning import guard
from tfbuild.planning.dispatcher import DispatchFeature, DispatchTarget
from tfbuild.upstream.download import hash_file

LIBRARY = "tensorflow/core/kernels/tensorwright/haswell.so"
SSE = DispatchFeature(name="sse", leaf=1, subleaf=0, register="edx", bit=25, xcr0=0)
CX8 = DispatchFeature(name="cx8", leaf=1, subleaf=0, register="edx", bit=8, xcr0=0)
PLAIN = "tensorflow/plain.py"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A copy of the sound wheel, the small stock wheel that it was made of, and an empty folder."""

    wheel: Path
    stock: Path
    folder: Path

    def read(self, name: str) -> bytes:
        return read_member(self.wheel, name)


Doctor: TypeAlias = Callable[[Case], Path]


def members(**changed: bytes | None) -> Doctor:
    return lambda case: altered(case.wheel, changed)


def put(name: str, data: bytes | None = b"import os\n") -> tuple[Doctor, str]:
    """A member added, changed or (None) taken out, which an audit names."""
    return members(**{name: data}), re.escape(name)


def edited(name: str, old: bytes, new: bytes, says: str = "") -> tuple[Doctor, str]:
    def doctor(case: Case) -> Path:
        data = case.read(name)
        assert old in data
        return altered(case.wheel, {name: data.replace(old, new)})

    return doctor, says or re.escape(name)


# ---- tuned.json ----


def claiming(edit: Callable[[dict[str, Any]], object]) -> Doctor:
    """Another tuned.json, with the papers that follow from it."""

    def doctor(case: Case) -> Path:
        record = fields_of(case.wheel)
        edit(record)
        return saying(case.wheel, case.stock, **record)

    return doctor


def of_library(**fields: object) -> Doctor:
    return claiming(lambda record: record["libraries"][0].update(fields))


def full(case: Case) -> Path:
    """Says that TensorFlow's own build has made it, so that there is nothing to compare with."""
    facts = read_tuned(case.wheel)
    assert facts is not None
    (own_library,) = facts.libraries
    with zipfile.ZipFile(case.wheel) as archive:
        libraries = [name for name in archive.namelist() if ".so" in name]
    tree = {
        "name": own_library.name,
        "target": own_library.target,
        "plan_key": own_library.plan_key,
        "required_features": own_library.required_features,
        "flags": own_library.flags,
        "options": {},
        "libraries": {
            name: {
                "size": own_library.size,
                "sha256": own_library.sha256,
                "floors": {},
                "census": {},
            }
            for name in libraries
        },
    }
    evil = altered(case.wheel, {"evil.pth": b"import evil\n"})
    return saying(evil, scope="full", libraries=[], tree=tree)


# ---- libraries ----


def dispatching(edit: Callable[[DispatchTarget], DispatchTarget]) -> Doctor:
    """A dispatcher, really linked, whose table is another."""

    def doctor(case: Case) -> Path:
        facts = read_tuned(case.wheel)
        assert facts is not None
        path = linked(case.folder / "linked", [edit(row) for row in rows_of(facts.libraries)])
        return altered(case.wheel, {DISPATCHER: path.read_bytes()})

    return doctor


def patched(old: bytes, new: bytes) -> Doctor:
    """A dispatcher with bytes in it changed."""

    def doctor(case: Case) -> Path:
        data = case.read(DISPATCHER)
        assert data.count(old)
        return altered(case.wheel, {DISPATCHER: data.replace(old, new)})

    return doctor


def asking_for_avx2(*numbers: int) -> Doctor:
    """The dispatcher's row for AVX2 (leaf, subleaf, register, bit, state) with other numbers."""
    row = struct.Struct("<IIIIQ")
    return patched(row.pack(7, 0, 1, 5, 6), row.pack(*numbers))


def swapped(text: str, *, expected: bool) -> Doctor:
    """Another library in the place of the kernels; `expected` if tuned.json has its hash."""

    def doctor(case: Case) -> Path:
        other_path = library(case.folder, "other", text, *QUICK, "-march=haswell", "-s")
        wheel = altered(case.wheel, {LIBRARY: other_path.read_bytes()})
        if not expected:
            return wheel
        record = fields_of(wheel)
        record["libraries"][0] |= {
            "size": other_path.stat().st_size,
            "sha256": hash_file(other_path),
        }
        return saying(wheel, case.stock, **record)

    return doctor


def more_library(name: str) -> Doctor:
    def doctor(case: Case) -> Path:
        return altered(case.wheel, {name: case.read(LIBRARY)})

    return doctor


# ---- RECORD ----


def recording(edit: Callable[[list[str]], list[str]]) -> Doctor:
    """Lines of RECORD changed, and nothing else."""

    def doctor(case: Case) -> Path:
        lines = edit(case.read(f"{INFO}/RECORD").decode().splitlines())
        return rewritten(case.wheel, {f"{INFO}/RECORD": "\n".join([*lines, ""]).encode()})

    return doctor


def rewritten(wheel: Path, changed: Mapping[str, bytes]) -> Path:
    """The wheel with members as they are said to be, whatever RECORD says."""
    return _zipped(wheel, lambda info, data: (info, changed.get(info.filename, data)))


# ---- the zip file ----

_Member: TypeAlias = tuple[zipfile.ZipInfo, bytes]


def _zipped(wheel: Path, edit: Callable[[zipfile.ZipInfo, bytes], _Member]) -> Path:
    """Each member written again as `edit` says."""
    with zipfile.ZipFile(wheel) as archive:
        contents = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(wheel, "w") as archive:
        for old, data in contents:
            info = zipfile.ZipInfo(old.filename, old.date_time)
            info.external_attr, info.compress_type = old.external_attr, zipfile.ZIP_DEFLATED
            archive.writestr(*edit(info, data))
    return wheel


def plain_member(**fields: object) -> Doctor:
    """Fields of a stock module's entry changed, not its bytes."""

    def edit(info: zipfile.ZipInfo, data: bytes) -> _Member:
        if info.filename == PLAIN:
            for name, value in fields.items():
                setattr(info, name, value)
        return info, data

    return lambda case: _zipped(case.wheel, edit)


def appended(name: str, data: bytes = b"import evil\n", mode: int = FILE_MODE) -> Doctor:
    """A member put behind RECORD."""

    def doctor(case: Case) -> Path:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode
        with zipfile.ZipFile(case.wheel, "a") as archive:
            archive.writestr(info, data)
        return case.wheel

    return doctor


def twice(case: Case) -> Path:
    with zipfile.ZipFile(case.wheel, "a") as archive:
        # (zipfile warns of a name that it knows.)
        info = zipfile.ZipInfo("tensorflow/plain.pz")
        archive.writestr(info, b"evil()\n")
    data = case.wheel.read_bytes()
    case.wheel.write_bytes(data.replace(b"tensorflow/plain.pz", b"tensorflow/plain.py"))
    return case.wheel


def bytes_changed(edit: Callable[[bytes], bytes]) -> Doctor:
    def doctor(case: Case) -> Path:
        case.wheel.write_bytes(edit(case.wheel.read_bytes()))
        return case.wheel

    return doctor


def commented(case: Case) -> Path:
    with zipfile.ZipFile(case.wheel, "a") as archive:
        archive.comment = b"PK\x05\x06 read me first"
    return case.wheel


def unlisted(case: Case) -> Path:
    """A member before all others that only who reads from the front sees."""
    name, data = b"evil.pth", b"import evil\n"
    crc, size = zipfile.crc32(data), len(data)  # type: ignore[attr-defined]
    head = struct.pack("<4s5HIIIHH", b"PK\x03\x04", 20, 0, 0, 0, 33, crc, size, size, len(name), 0)
    hidden = head + name + data
    with zipfile.ZipFile(case.wheel) as archive:
        begin, infos = archive.start_dir, archive.infolist()
    whole = bytearray(hidden + case.wheel.read_bytes())
    at = begin + len(hidden)
    for info in infos:
        struct.pack_into("<I", whole, at + 42, info.header_offset + len(hidden))
        at += 46 + len(info.filename.encode()) + len(info.extra) + len(info.comment)
    struct.pack_into("<I", whole, at + 16, begin + len(hidden))
    case.wheel.write_bytes(whole)
    return case.wheel


def renamed_inside(case: Case) -> Path:
    """The first header of a module with another name than the directory has."""
    data = case.wheel.read_bytes()
    at = data.index(PLAIN.encode())
    case.wheel.write_bytes(data[:at] + b"tensorflow/plain.pz" + data[at + len(PLAIN) :])
    return case.wheel


# ---- names ----


def called(edit: Callable[[str], str]) -> Doctor:
    """Under another file name, the same inside."""

    def doctor(case: Case) -> Path:
        return case.wheel.rename(case.wheel.with_name(edit(case.wheel.name)))

    return doctor


def version(case: Case) -> Path:
    """Of a release of which no stock wheel is known, in every place where the version stands."""
    return _moved(case, "tensorflow_cpu-2.15.0+tried", "tensorflow-cpu", "2.15.0")


def package(case: Case) -> Path:
    return _moved(case, "tensorflow-2.14.1+tried", "tensorflow", "2.14.1")


def _moved(case: Case, stem: str, name: str, release: str) -> Path:
    record = fields_of(case.wheel) | {"release": release}
    wheel = saying(case.wheel, case.stock, **record)
    with zipfile.ZipFile(wheel) as archive:
        inside = {word: archive.read(word) for word in archive.namelist()}
    head = f"{INFO}/METADATA"
    text = inside[head].replace(b"tensorflow-cpu\n", f"{name}\n".encode())
    inside[head] = text.replace(b"2.14.1+", f"{release}+".encode())
    moved = {
        word.replace(f"{STEM}.", f"{stem}."): data
        for word, data in inside.items()
        if not word.endswith("/RECORD")
    }
    path = wheel.with_name(wheel.name.replace(STEM, stem))
    wheel.unlink()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, data in with_record(moved, stem).items():
            info = zipfile.ZipInfo(part)
            info.external_attr = FILE_MODE
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return path


def _without(feature: str) -> Callable[[DispatchTarget], DispatchTarget]:
    return lambda row: dataclasses.replace(
        row,
        features=tuple(row_feature for row_feature in row.features if row_feature.name != feature),
    )


def _as_sse(row: DispatchTarget) -> DispatchTarget:
    """Every feature asked for where any x86-64 CPU shows SSE."""
    features = tuple(dataclasses.replace(SSE, name=feature.name) for feature in row.features)
    return dataclasses.replace(row, features=features)


OLD_DISPATCHER = "const char *tensorwright_loaded(void) { return 0; }\n"


def no_table(case: Case) -> Path:
    path = library(case.folder, "old", OLD_DISPATCHER, *QUICK, "-s")
    return altered(case.wheel, {DISPATCHER: path.read_bytes()})


def _half(case: Case) -> Path:
    return altered(case.wheel, {DISPATCHER: case.read(DISPATCHER)[:2000]})


_PAPERS = f"{re.escape(sbom.FILE)} differs|{re.escape(notices.FILE)} differs"

DOCTORED: Mapping[str, tuple[Doctor, str]] = {
    # files that no stock wheel has
    "a start-up file": put("evil.pth"),
    "a start-up module": put("sitecustomize.py"),
    "a module beside TensorFlow": put("evil.py"),
    "a package beside TensorFlow": put("evil/__init__.py"),
    "a module in TensorFlow": put("tensorflow/evil.py"),
    "a hidden library": put("tensorflow/x.bin", b"\x7fELF"),
    "compiled code of a module": put("tensorflow/__pycache__/plain.cpython-311.pyc"),
    "a module for purelib": put(f"{STEM}.data/purelib/evil.py"),
    "a start-up file for platlib": put(f"{STEM}.data/platlib/evil.pth"),
    "a script": put(f"{STEM}.data/scripts/evil"),
    "a file for the environment's folder": put(f"{STEM}.data/data/etc/evil"),
    "a header": put(f"{STEM}.data/headers/evil.h"),
    "data of another wheel's name": put("evil-1.0.data/purelib/evil.py"),
    "a device plugin": put("tensorflow-plugins/evil.so.py"),
    "a file in dist-info": put(f"{INFO}/direct_url.json"),
    "a list of top-level names": put(f"{INFO}/top_level.txt"),
    "a second dist-info": put("evil-1.0.dist-info/METADATA"),
    "a second RECORD": (members(**{"evil-1.0.dist-info/RECORD": b""}), "2 RECORD files"),
    "a signature": (appended(f"{INFO}/RECORD.jws"), r"RECORD\.jws"),
    "a name in other letters": put("TensorFlow/plain.py"),
    # files that are other than they must be
    "another __init__": edited(guard.INIT, b"import os as _os", b"import os as _os; evil = 1"),
    "no check": edited(guard.INIT, guard.CHECK, b""),
    "no defaults": edited(guard.INIT, guard.DEFAULTS, b""),
    "another module": put(PLAIN, b"evil()\n"),
    "a module less": put(PLAIN, None),
    "another guard": put("tensorflow/_tensorwright.py"),
    "other defaults": put(guard.DEFAULTS_DATA, b"{}"),
    "other targets": put(guard.DATA, b"{}"),
    "an entry point": edited(
        f"{INFO}/entry_points.txt", b"toco:main\n", b"toco:main\npip = evil:main\n"
    ),
    "no licence": put(f"{INFO}/LICENSE", None),
    "a bill of materials without content": put(f"{INFO}/{sbom.FILE}", b"{}"),
    "no bill of materials": put(f"{INFO}/{sbom.FILE}", None),
    "another flag in the bill": edited(f"{INFO}/{sbom.FILE}", b"-march=haswell", b"-march=native"),
    "another notice": edited(f"{INFO}/{notices.FILE}", b"modified", b"official"),
    "no notice": put(f"{INFO}/{notices.FILE}", None),
    "another dependency": edited(f"{INFO}/METADATA", b"Dist: numpy", b"Dist: evil"),
    "a dependency more": edited(f"{INFO}/METADATA", b"\n\n", b"\nRequires-Dist: evil\n\n"),
    "no METADATA": put(f"{INFO}/METADATA", None),
    "another name in METADATA": edited(f"{INFO}/METADATA", b"tensorflow-cpu", b"tensorflow-gpu"),
    "another version in METADATA": edited(f"{INFO}/METADATA", b"2.14.1+tried", b"2.14.1+zen4"),
    "another tag in WHEEL": edited(f"{INFO}/WHEEL", b"manylinux_2_17", b"manylinux_2_28"),
    "a wheel of plain Python": edited(
        f"{INFO}/WHEEL", b"Wheel-Version: 1.0\n", b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
    ),
    "no WHEEL": put(f"{INFO}/WHEEL", None),
    # libraries
    "a stock library that is another": (
        lambda case: altered(case.wheel, {CORE: case.read(LIBRARY)}),
        re.escape(CORE),
    ),
    "a library for TensorFlow to load": (
        more_library("tensorflow/core/kernels/libtfkernel_evil.so"),
        "libtfkernel_evil",
    ),
    "a library beside the kernels": (
        more_library("tensorflow/core/kernels/tensorwright/evil.so"),
        "evil.so",
    ),
    "a library in the kernels' place": (
        swapped(KERNEL + REGISTERED + "int evil;", expected=False),
        "size or hash differs",
    ),
    "a library without kernels": (swapped(KERNEL, expected=True), "does not register Tanh"),
    "a text with the name of a kernel": (
        swapped(KERNEL + 'const char evil[] = "Tanh";', expected=True),
        "does not register Tanh",
    ),
    "no kernels": (members(**{LIBRARY: None}), "is missing"),
    "no dispatcher": (members(**{DISPATCHER: None}), "dispatcher is missing"),
    "a dispatcher that asks for SSE": (dispatching(_as_sse), "checks fma at"),
    "a dispatcher that does not ask for FMA": (dispatching(_without("fma")), "not check fma"),
    "a dispatcher that asks for nothing": (
        dispatching(lambda row: dataclasses.replace(row, features=())),
        "does not check",
    ),
    "a dispatcher that asks for more": (
        dispatching(lambda row: dataclasses.replace(row, features=(*row.features, CX8))),
        "checks cx8",
    ),
    "a dispatcher that asks for one twice": (
        dispatching(lambda row: dataclasses.replace(row, features=row.features * 2)),
        "twice",
    ),
    "a dispatcher for another library": (
        dispatching(lambda row: dataclasses.replace(row, library="evil.so")),
        "opens evil.so",
    ),
    "a dispatcher for another target": (
        dispatching(lambda row: dataclasses.replace(row, name="zen4")),
        "dispatcher lists zen4",
    ),
    "a dispatcher with another bit for AVX2": (asking_for_avx2(7, 0, 1, 3, 6), "checks avx2 at"),
    "a dispatcher that leaves the system's state out": (
        asking_for_avx2(7, 0, 1, 5, 0),
        "checks avx2 at",
    ),
    "a dispatcher with another leaf": (asking_for_avx2(1, 0, 1, 5, 6), "checks avx2 at"),
    "a dispatcher with a register that no CPU has": (asking_for_avx2(7, 0, 9, 5, 6), "register 9"),
    "a dispatcher without a table": (no_table, "no table tensorwright_targets"),
    "a dispatcher with its table renamed": (
        patched(b"tensorwright_targets\0", b"tensorwright_tergets\0"),
        "no table tensorwright_targets",
    ),
    "half a dispatcher": (_half, "not a complete ELF library"),
    # tuned.json
    "other flags": edited(f"{INFO}/tuned.json", b"-march=haswell", b"-march=native", _PAPERS),
    "another form of tuned.json": edited(f"{INFO}/tuned.json", b"{\n", b"{\n\n", r"tuned\.json"),
    "an unknown field": edited(f"{INFO}/tuned.json", b"{\n", b'{\n"evil": 1,\n', "cannot be read"),
    "two records": (members(**{"evil-1.0.dist-info/tuned.json": b"{}"}), r"2 tuned\.json files"),
    "fewer features": (of_library(required_features=["avx2"]), "does not require"),
    "another target": (of_library(target="zen4"), "whose name is zen4"),
    "another census": (of_library(census={"x86_64": 1}), "counts"),
    "another glibc": (of_library(floors={"GLIBC": "2.5"}), "requires"),
    "another admission": (of_library(admission={}), "a conformance test for each"),
    "kernels that nobody registers": (
        of_library(registrations=[{"op": "MatMul", "types": "T=1"}]),
        "does not register MatMul",
    ),
    "nothing that is registered": (of_library(registrations=[]), "no registrations"),
    "a library twice": (
        claiming(lambda record: record.update(libraries=record["libraries"] * 2)),
        "2 times",
    ),
    "another release": (claiming(lambda record: record.update(release="2.13.1")), "2.13.1"),
    "another stock wheel": (
        claiming(lambda record: record.update(stock_sha256="0" * 64)),
        "a stock wheel other than",
    ),
    "no stock wheel": (
        claiming(lambda record: record.update(stock_sha256="")),
        "a stock wheel other than",
    ),
    "another archive of sources": edited(
        f"{INFO}/tuned.json", b"sources.tar.xz", b"evil.tar.xz", _PAPERS
    ),
    "a wheel that says it is a full build": (full, "evil.pth"),
    # RECORD
    "RECORD without a member": (
        recording(lambda lines: [line for line in lines if not line.startswith(PLAIN)]),
        "is not in RECORD",
    ),
    "RECORD with a member more": (
        recording(lambda lines: ["evil.py,sha256=x,1", *lines]),
        "not in the wheel",
    ),
    "RECORD with a member twice": (recording(lambda lines: [lines[0], *lines]), "RECORD"),
    "RECORD in another order": (recording(lambda lines: [*lines[1::-1], *lines[2:]]), "order"),
    "RECORD without a hash": (
        recording(lambda lines: [re.sub("sha256=[^,]*", "", lines[0]), *lines[1:]]),
        "RECORD",
    ),
    "RECORD with an MD5": (
        recording(lambda lines: [re.sub("sha256=[^,]*", "md5=x", lines[0]), *lines[1:]]),
        "RECORD",
    ),
    "RECORD with its own hash": (
        recording(lambda lines: [*lines[:-1], f"{INFO}/RECORD,sha256=x,1"]),
        "hash of itself",
    ),
    "bytes that RECORD does not know": (
        lambda case: rewritten(case.wheel, {PLAIN: b"evil()\n"}),
        "RECORD",
    ),
    # the zip file
    "a member twice": (twice, "twice"),
    "a member outside": (appended("../evil.pth"), "not a valid file name"),
    "a member at the root": (appended("/evil.pth"), "not a valid file name"),
    "a member with a backslash": (appended("..\\evil.pth"), "not a valid file name"),
    "a member of a drive": (appended("C:evil.pth"), "not a valid file name"),
    "a link": (appended("evil", b"/etc/passwd", 0o120777 << 16), "link"),
    "a member that RECORD does not name": (appended("evil.pth"), "not in RECORD"),
    "a folder": (appended("tensorflow-plugins/", b"", 0o40755 << 16), "folder that is not"),
    "a module that can be run": (plain_member(external_attr=0o100755 << 16), "mode 100755"),
    "a module that runs as its owner": (plain_member(external_attr=0o104755 << 16), "mode 104755"),
    "a member with a comment": (plain_member(comment=b"evil"), "has a comment"),
    "a member with a second name": (
        plain_member(extra=struct.pack("<HHBI8s", 0x7075, 13, 1, 0, b"evil.pth")),
        "second path",
    ),
    "a member with a second size": (
        plain_member(extra=struct.pack("<HHQQ", 1, 16, 7, 7)),
        "contradict its Zip64 field",
    ),
    "a directory that is elsewhere for some": (
        bytes_changed(lambda data: _shifted(data, 8)),
        "extra bytes|no member|not a valid wheel",
    ),
    "a member that few can unpack": (
        plain_member(compress_type=zipfile.ZIP_LZMA),
        "compression method 14",
    ),
    "an encrypted member": (
        bytes_changed(lambda data: _flagged(data, 1)),
        "encrypted",
    ),
    "a header with another name": (renamed_inside, "another name"),
    "a member that no directory names": (unlisted, "no member"),
    "bytes before": (bytes_changed(lambda data: b"#!/bin/sh\nevil\n" + data), "does not end where"),
    "bytes behind": (bytes_changed(lambda data: data + b"evil"), "extra bytes|not a valid wheel"),
    "a comment": (commented, "extra bytes|not a valid wheel"),
    "half a wheel": (bytes_changed(lambda data: data[: len(data) // 2]), "not a valid wheel"),
    # names
    "another version in all places": (version, "no stock wheel of tensorflow-cpu 2.15.0"),
    "another package in all places": (package, "a stock wheel other than"),
    "another local version in the file name": (
        called(lambda name: name.replace("+tried", "+zen4")),
        "file name does not match",
    ),
    "another release in the file name": (
        called(lambda name: name.replace("2.14.1", "2.15.0")),
        "file name",
    ),
    "another Python in the file name": (
        called(lambda name: name.replace("cp311", "cp310")),
        "file name",
    ),
    "any Python in the file name": (
        called(lambda name: name.replace("cp311-cp311", "py3-none")),
        "file name|no stock",
    ),
    "another machine in the file name": (
        called(lambda name: name.replace("x86_64", "aarch64")),
        "file name|is for x86_64",
    ),
    "an older system in the file name": (
        called(
            lambda name: name.replace("manylinux_2_17_x86_64.manylinux2014_x86_64", "linux_x86_64")
        ),
        "file name",
    ),
    "a build number in the file name": (
        called(lambda name: name.replace("-cp311-cp311", "-9-cp311-cp311")),
        "tags in its file name differ",
    ),
}


def _flagged(data: bytes, flag: int) -> bytes:
    """The directory's first entry with another flag."""
    at = data.index(b"PK\x01\x02") + 8
    return data[:at] + bytes([data[at] | flag]) + data[at + 1 :]


def _shifted(data: bytes, by: int) -> bytes:
    """Every place in the directory, and its own, less by so much: some programs make up for it."""
    shifted, at = bytearray(data), data.index(b"PK\x01\x02")
    end = data.rindex(b"PK\x05\x06")
    (begin,) = struct.unpack_from("<I", data, end + 16)
    struct.pack_into("<I", shifted, end + 16, begin - by)
    while at < end:
        (place,) = struct.unpack_from("<I", data, at + 42)
        struct.pack_into("<I", shifted, at + 42, max(place - by, 0))
        at = data.find(b"PK\x01\x02", at + 4) if b"PK\x01\x02" in data[at + 4 :] else end
    return bytes(shifted)
