"""Small tuned wheels with real libraries, which an audit finds to be what they say, and the same
with other members: RECORD fits what is in them, so that it tells nothing."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from tests.builders.compiled_code import KERNEL, QUICK, REGISTERED, library
from tests.builders.compiled_code import dispatcher as linked
from tests.builders.guards import STAND_IN
from tests.builders.index_wheels import tuned_for, written

from tfbuild.auditing.libraries import inspect_library
from tfbuild.packing import package_metadata, tuned
from tfbuild.packing.repack import FILE_MODE, repack
from tfbuild.packing.tuned import KernelLibrary, Tuned
from tfbuild.packing.wheel import encode_digest, read_stem
from tfbuild.planning import dispatcher, guard
from tfbuild.planning.dispatcher import DispatchTarget, build_target
from tfbuild.upstream import releases
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.kernels import FOLDER
from tfcore.cpus import flags
from tfcore.cpus.targets import parse_target
from tfcore.records import decode_record

PACKAGE, VERSION = "tensorflow-cpu", "2.14.1"
TAGS = "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64"
STEM = "tensorflow_cpu-2.14.1+tried"
INFO = f"{STEM}.dist-info"
CORE = "tensorflow/libtensorflow_cc.so.2"
DISPATCHER = f"{FOLDER}/{dispatcher.LIBRARY}"
_EIGEN = b"".join(
    b"#define EIGEN_%s_VERSION %d\n" % pair
    for pair in ((b"WORLD", 3), (b"MAJOR", 4), (b"MINOR", 90))
)
_ABSEIL = b"#define ABSL_LTS_RELEASE_VERSION 20230125\n#define ABSL_LTS_RELEASE_PATCH_LEVEL 3\n"


def sound_wheel(folder: Path, published: Path | None = None) -> Path:
    """tensorflow_cpu-2.14.1+tried, with kernels for haswell, made of the published wheel, or of the
    small one that `small_stock` has put into the folder."""
    kernels = library(folder, "haswell", KERNEL + REGISTERED, *QUICK, "-march=haswell", "-s")
    if published is None:
        return tuned_wheel(small_stock(folder), {"haswell": kernels})
    (folder / "stock").mkdir()
    stock = folder / "stock" / published.name
    stock.symlink_to(published)
    return tuned_wheel(stock, {"haswell": kernels})


def small_stock(folder: Path) -> Path:
    """A small stock wheel in a folder; the same each time."""
    path = folder / "stock" / f"{STEM.partition('+')[0]}-{TAGS}.whl"
    if path.is_file():
        return path
    core = library(folder, "core", KERNEL, *QUICK, "-mavx")
    return stock_wheel(folder / "stock", {CORE: core})


def pin_stock(monkeypatch: pytest.MonkeyPatch, stock: Path, version: str = VERSION) -> None:
    """Let the table of releases say that this wheel was published."""
    sha256, size = hash_file(stock), stock.stat().st_size

    def pinned(wheel: releases.StockWheel) -> releases.StockWheel:
        own_flag = wheel.file == stock.name
        return dataclasses.replace(wheel, sha256=sha256, size=size) if own_flag else wheel

    table = tuple(
        dataclasses.replace(release, wheels=tuple(map(pinned, release.wheels)))
        if release.version == version
        else release
        for release in releases.load_releases()
    )
    monkeypatch.setattr(releases, "load_releases", lambda: table)


def bring_stock(stock: Path, downloads: Path) -> None:
    """Put it where earlier work would have left it."""
    downloads.mkdir(parents=True, exist_ok=True)
    shutil.copy(stock, downloads)


def stock_wheel(folder: Path, libraries: Mapping[str, Path], tags: str = TAGS) -> Path:
    stem = "tensorflow_cpu-2.14.1"
    python, abi, platforms = tags.split("-")
    lines = "".join(f"Tag: {python}-{abi}-{word}\n" for word in platforms.split("."))
    members = {
        "tensorflow/__init__.py": STAND_IN,
        "tensorflow/plain.py": b"plain = True\n",
        "tensorflow/include/Eigen/src/Core/util/Macros.h": _EIGEN,
        "tensorflow/include/absl/base/config.h": _ABSEIL,
        **{file: path.read_bytes() for file, path in libraries.items()},
        f"{stem}.dist-info/METADATA": (
            b"Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.14.1\n"
            b"Requires-Dist: numpy\n\nTensorFlow\n"
        ),
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\n{lines}".encode(),
        f"{stem}.dist-info/entry_points.txt": b"[console_scripts]\ntoco = tensorflow.toco:main\n",
        f"{stem}.dist-info/LICENSE": b"TensorFlow's own, as up to 2.15\n",
    }
    return packed(folder / f"{stem}-{tags}.whl", members, stem)


def packed(path: Path, members: Mapping[str, bytes], stem: str) -> Path:
    """A wheel of these members, with a RECORD that fits them."""
    return written(path, with_record(members, stem))


def with_record(members: Mapping[str, bytes], stem: str) -> dict[str, bytes]:
    """The members and, at their end, a RECORD that fits them."""
    record = f"{stem}.dist-info/RECORD"
    inside = {name: data for name, data in members.items() if name != record}
    lines = [f"{name},{_digest(data)},{len(data)}" for name, data in inside.items()]
    return inside | {record: "\n".join([*lines, f"{record},,", ""]).encode()}


def _digest(data: bytes) -> str:
    return encode_digest("sha256", hashlib.sha256(data).digest())


def tuned_wheel(
    stock: Path,
    kernels: Mapping[str, Path],
    dispatching: Path | None = None,
    *,
    more: Mapping[str, Path] | None = None,
) -> Path:
    """A wheel with a library for each target, which says of itself just what is true; with the
    dispatcher that is right for it, or another."""
    claims = tuple(
        dataclasses.replace(
            claim,
            size=kernels[claim.target].stat().st_size,
            sha256=hash_file(kernels[claim.target]),
            required_features=tuple(
                sorted(flags.compute_required_features(parse_target(claim.target), {}))
            ),
            floors=inspect_library(kernels[claim.target]).floors,
            census=inspect_library(kernels[claim.target]).census,
        )
        for claim in tuned_for(tuple(kernels)).libraries
    )
    facts = dataclasses.replace(
        tuned_for(tuple(kernels)), libraries=claims, stock_sha256=hash_file(stock)
    )
    own_paths = {claim.file: kernels[claim.target] for claim in claims}
    ours = _guards(facts)
    right = dispatching or linked(stock.parent / "linked", rows_of(claims))
    add: dict[str, Path | bytes] = {DISPATCHER: right, **own_paths, **ours, **(more or {})}
    return repack(
        stock,
        local="tried",
        add=add,
        edit={guard.INIT: guard.amend_init},
        out_dir=stock.parent / "tuned",
        dist_info_files=package_metadata.build_kernels_metadata(
            facts,
            stock,
            package=PACKAGE,
            version=f"{VERSION}+tried",
            stock_file=stock.name,
            added=add,
        ),
    )


def rows_of(claims: tuple[KernelLibrary, ...]) -> tuple[DispatchTarget, ...]:
    """What a dispatcher for these libraries asks."""
    return tuple(
        build_target(claim.name, PurePosixPath(claim.file).name, claim.required_features, "x86_64")
        for claim in claims
    )


def altered(wheel: Path, members: Mapping[str, bytes | None]) -> Path:
    """The same wheel with members changed, added, or (None) taken out, and RECORD as it must be."""
    with zipfile.ZipFile(wheel) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        before = {name: archive.read(name) for name in infos}
    inside = {name: data for name, data in {**before, **members}.items() if data is not None}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in with_record(inside, stem_of_members(infos)).items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.external_attr = infos[name].external_attr if name in infos else FILE_MODE
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return wheel


def stem_of_members(names: Mapping[str, object]) -> str:
    """What a wheel with these members calls itself; of two RECORDs the last is its own."""
    return [name for name in names if name.endswith(".dist-info/RECORD")][-1].partition(
        ".dist-info/"
    )[0]


def saying(wheel: Path, stock: Path | None = None, **fields: object) -> Path:
    """The wheel with other fields in its tuned.json; with the stock wheel also the papers that
    follow from it."""
    facts = decode_record(Tuned, fields_of(wheel) | fields)
    if stock is None:
        return altered(wheel, {f"{INFO}/{tuned.FILE}": facts.to_bytes()})
    ours = _guards(facts)
    written = papers_of(facts, stock)
    return altered(wheel, {f"{INFO}/{name}": data for name, data in written.items()} | ours)


def papers_of(facts: Tuned, stock: Path) -> dict[str, bytes]:
    """What a wheel of the stock wheel says of itself, by the places in dist-info."""
    return package_metadata.build_kernels_metadata(
        facts,
        stock,
        package=PACKAGE,
        version=f"{VERSION}+tried",
        stock_file=stock.name,
        added=[
            DISPATCHER,
            *(kernel_library.file for kernel_library in facts.libraries),
            *_guards(facts),
        ],
    )


def _guards(facts: Tuned) -> dict[str, bytes]:
    return guard.build_guard_files("x86_64") | guard.build_defaults_file("x86_64", facts.carriers)


def fields_of(wheel: Path) -> dict[str, Any]:
    """Those of its tuned.json."""
    with zipfile.ZipFile(wheel) as archive:
        return dict(json.loads(archive.read(f"{read_stem(wheel)}.dist-info/{tuned.FILE}")))
