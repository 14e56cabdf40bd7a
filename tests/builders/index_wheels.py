"""Small wheels that stand in for real ones in an index, whole and installable; their entries."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import parse_wheel_filename

from tfbuild.packing.tuned import KernelLibrary, TreeLibrary, Tuned, TunedTree, UnitConformance
from tfbuild.packing.wheel import encode_digest
from tfbuild.planning.plan import Scope
from tfbuild.upstream.releases import CPU_PACKAGES
from tfcore.comparisons.kernels import TypedOp
from tfcore.cpus.features import filter_codegen
from tfcore.cpus.targets import Target, parse_target
from tfwheels.entry import Entry, WheelKind

MANYLINUX = {
    "x86_64": "manylinux_2_17_x86_64.manylinux2014_x86_64",
    "aarch64": "manylinux_2_17_aarch64.manylinux2014_aarch64",
}


def stand_in(
    folder: Path,
    version: str,
    *,
    targets: tuple[str, ...] = (),
    name: str = "tensorflow_cpu",
    python: str = "cp311",
    content: bytes = b"",
    machine: str = "x86_64",
    full_build: str = "",
) -> Path:
    """The wheel `name`-`version` in `folder`; the same arguments give the same bytes.

    With `targets` it is a tuned wheel with a kernel library for each, with `full_build` a full
    build for that one. `python` "py3" makes it a wheel of plain Python for every
    machine. `content` makes wheels differ in bytes and size.
    """
    tag = _tag(python, machine)
    info = f"{name}-{version}.dist-info"
    members = {
        f"{name}/__init__.py": f'VERSION = "{version}"\n'.encode(),
        f"{name}/content": content,
        f"{info}/METADATA": _metadata(name, version),
        f"{info}/WHEEL": _wheel(tag),
    }
    if targets:
        members[f"{info}/tuned.json"] = tuned_for(targets, release=version).to_bytes()
    if full_build:
        members[f"{info}/tuned.json"] = full_build_for(full_build, release=version).to_bytes()
    members[f"{info}/RECORD"] = _record(members, f"{info}/RECORD")
    return written(folder / f"{name}-{version}-{tag}.whl", members)


def wheel_of(
    folder: Path,
    stem: str,
    files: Mapping[str, str],
    *,
    needs: str = "",
    tag: str = "py3-none-any",
) -> Path:
    """A wheel of these files, called by its name and version; it requires what it needs."""
    info = f"{stem}.dist-info"
    requires = f"Requires-Dist: {needs}\n".encode() if needs else b""
    members = {
        **{name: text.encode() for name, text in files.items()},
        f"{info}/METADATA": _metadata(*stem.split("-")) + requires,
        f"{info}/WHEEL": _wheel(tag),
    }
    members[f"{info}/RECORD"] = _record(members, f"{info}/RECORD")
    return written(folder / f"{stem}-{tag}.whl", members)


def entry_of(
    version: str,
    *,
    targets: tuple[str, ...] = (),
    name: str = "tensorflow_cpu",
    python: str = "cp311",
    machine: str = "x86_64",
    size: int = 1000,
) -> Entry:
    """The entry of such a wheel, without the wheel."""
    file = f"{name}-{version}-{_tag(python, machine)}.whl"
    project, parsed, _, tags = parse_wheel_filename(file)
    stock = WheelKind.STOCK if project in CPU_PACKAGES else WheelKind.PLAIN
    return Entry(
        file=file,
        name=project,
        version=str(parsed),
        tags=tuple(sorted(map(str, tags))),
        requires_python=">=3.9",
        size=size,
        sha256=hashlib.sha256(f"{file} {size}".encode()).hexdigest(),
        metadata_sha256=hashlib.sha256(file.encode()).hexdigest(),
        published="2026-11-21T12:00:00Z",
        kind=WheelKind.TUNED if targets else stock,
        targets=targets,
    )


def tuned_for(targets: tuple[str, ...], *, release: str = "2.14.1") -> Tuned:
    """What a wheel with a library for each of these specs says of itself."""
    return Tuned(
        key="0" * 64,
        release=release.partition("+")[0],
        compiler="clang 16.0.6",
        bazel="4.2.3",
        libraries=tuple(_library(parse_target(spec)) for spec in targets),
        source_file="sources.tar.xz",
        source_sha256="1" * 64,
        stock_sha256="2" * 64,
    )


def written(path: Path, members: Mapping[str, bytes]) -> Path:
    """An archive with these members and no time of day in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0)), content)
    return path


def full_build_for(spec: str, *, release: str = "2.14.1") -> Tuned:
    """What a full build for this spec says of itself."""
    library = _library(parse_target(spec))
    tree = TunedTree(
        name=library.name,
        target=spec,
        plan_key=library.plan_key,
        required_features=library.required_features,
        flags=library.flags,
        options={},
        libraries={
            "tensorflow/libtensorflow_cc.so.2": TreeLibrary(
                size=1000, sha256="3" * 64, floors=library.floors, census=library.census
            )
        },
    )
    return dataclasses.replace(
        tuned_for((spec,), release=release), scope=Scope.FULL, libraries=(), tree=tree
    )


def _tag(python: str, machine: str) -> str:
    return "py3-none-any" if python == "py3" else f"{python}-{python}-{MANYLINUX[machine]}"


def _library(target: Target) -> KernelLibrary:
    required = sorted(filter_codegen(target.features, target.family))
    return KernelLibrary(
        name=target.local,
        target=target.spec,
        file=f"tensorflow/core/kernels/tensorwright/{target.local}.so",
        size=1000,
        sha256="3" * 64,
        plan_key="4" * 64,
        required_features=tuple(required),
        flags=(f"-march={target.name}",),
        kernels=("cwise_op_tanh",),
        admission={"cwise_op_tanh": UnitConformance(ran_as=target.spec, ops=("Tanh",))},
        registrations=tuple(TypedOp(op="Tanh", types=f"T={number}") for number in range(12)),
        stay_stock={},
        floors={"GLIBC": "2.14"},
        census=dict.fromkeys((target.family, *required), 1000),
    )


def _metadata(name: str, version: str) -> bytes:
    lines = (
        "Metadata-Version: 2.1",
        f"Name: {name.replace('_', '-')}",
        f"Version: {version}",
        "Requires-Python: >=3.9",
    )
    return ("\n".join(lines) + "\n").encode()


def _wheel(tag: str) -> bytes:
    python, abi, platforms = tag.split("-")
    pure = "true" if platforms == "any" else "false"
    head = f"Wheel-Version: 1.0\nGenerator: stand-in\nRoot-Is-Purelib: {pure}\n"
    tags = (f"Tag: {python}-{abi}-{platform}\n" for platform in platforms.split("."))
    return (head + "".join(tags)).encode()


def _record(members: Mapping[str, bytes], own_text: str) -> bytes:
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    for member, content in members.items():
        digest = encode_digest("sha256", hashlib.sha256(content).digest())
        lines.writerow((member, digest, len(content)))
    lines.writerow((own_text, "", ""))
    return text.getvalue().encode()
