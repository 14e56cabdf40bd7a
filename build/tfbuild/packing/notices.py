"""Write the licence notices of a tuned wheel, and check that it has the licences.

TensorFlow, Abseil and archspec have the Apache License 2.0. Its section 4 requires a copy of the
licence, the notices (archspec has one) and a list of the changed files. Eigen has the Mozilla
Public License 2.0. Its section 3.2 requires a statement where the source code is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path

from tfbuild.packing.tuned import Tuned, TunedTree
from tfbuild.packing.wheel import open_wheel, read_member
from tfbuild.planning import guard
from tfcore.errors import WheelError

FILE = "licenses/NOTICE.tensorwright.txt"
"""Path in dist-info; PEP 639 defines the folder. METADATA before version 2.4 does not list the
files there, so METADATA does not change."""

LICENCE = "licenses/LICENSE"
"""Path in dist-info of TensorFlow's licence, if the stock wheel lacks it, as from 2.16 on."""
LICENCE_SHA256 = "71c6915d04265772a0339bed47276942c678b45cc01534210ebe6984fd1aec65"
"""SHA-256 of TensorFlow's LICENSE, equal in the wheels of 2.14 and 2.15 and the trees to 2.20."""
THIRD_PARTY = "tensorflow/THIRD_PARTY_NOTICES.txt"

APACHE, MPL = "Apache-2.0", "MPL-2.0"
"""SPDX identifiers."""
_LICENCES = {
    APACHE: "the Apache License, Version 2.0",
    MPL: "the Mozilla Public License, Version 2.0 (https://mozilla.org/MPL/2.0/)",
}
ARCHSPEC = metadata.version("archspec")
_HEADERS = "tensorflow/include/"
_OPTIONS = "The build had these options:"
_ALWAYS = {"*.dist-info/METADATA": "the version", "*.dist-info/RECORD": "names and hashes"}
_TENSORFLOWS = r"[^/]+\.dist-info/(licenses/)?LICENSE"
# Eigen 3.4.90 has WORLD, MAJOR and MINOR in its version; Eigen 5.0.1 has MAJOR, MINOR and PATCH.
_EIGEN_3, _UP_TO_3 = "Eigen/src/Core/util/Macros.h", ["WORLD", "MAJOR", "MINOR"]
_EIGEN_5, _SINCE_5 = "Eigen/Version", ["MAJOR", "MINOR", "PATCH"]
_OF_TREE = "LICENSE"
_GENERAL, _OWN = f"{_HEADERS}LICENSE", f"{_HEADERS}external/com_google_absl/LICENSE"
_NEEDED = {
    "TensorFlow's LICENSE": _TENSORFLOWS,
    "TensorFlow's third-party notices": r"tensorflow/THIRD_PARTY_NOTICES\.txt",
    "Eigen's sources": rf"{_HEADERS}Eigen/src/.+\.h",
    "Abseil's licence": f"{re.escape(_OWN)}|{re.escape(_GENERAL)}",
}
_ABSEILS = "c79a7fea0e3cac04cd43f20e7b648e5a0ff8fa5344e644b0ee09ca1162b62747"
"""SHA-256 of Abseil's LICENSE. In the wheels of 2.14 and 2.15 it is in Abseil's folder, from 2.16
on in the folder of all headers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderLibrary:
    """A library whose code every kernel library contains: templates and inline functions from
    its headers, which are in `folders` of the stock wheel. `licence` is an SPDX identifier,
    `purl` a package URL.
    """

    name: str
    version: str
    purl: str
    licence: str
    folders: tuple[str, ...]


def list_header_libraries(stock: Path) -> tuple[HeaderLibrary, ...]:
    """List the libraries that the kernels are compiled with beside TensorFlow's own sources.

    Their versions are those that the stock wheel's headers state. Other headers are included,
    too (protobuf, float8.h), but leave nothing of their own in the objects of the kernels
    that were examined (nm --defined-only, TensorFlow 2.14.1).

    Raises WheelError.
    """
    with open_wheel(stock) as archive:
        fifth = f"{_HEADERS}{_EIGEN_5}" in archive.namelist()
    header, parts = (_EIGEN_5, _SINCE_5) if fifth else (_EIGEN_3, _UP_TO_3)
    eigen = _read_version(stock, header, [f"EIGEN_{part}_VERSION" for part in parts])
    parts = ["ABSL_LTS_RELEASE_VERSION", "ABSL_LTS_RELEASE_PATCH_LEVEL"]
    abseil = _read_version(stock, "absl/base/config.h", parts)
    return (
        HeaderLibrary(
            name="Eigen",
            version=eigen,
            purl=f"pkg:generic/eigen@{eigen}",  # 3.4.90 is between two releases
            licence=MPL,
            folders=(f"{_HEADERS}Eigen", f"{_HEADERS}unsupported/Eigen"),
        ),
        HeaderLibrary(
            name="Abseil",
            version=abseil,
            purl=f"pkg:github/abseil/abseil-cpp@{abseil}",
            licence=APACHE,
            folders=(f"{_HEADERS}absl",),
        ),
    )


def _read_version(stock: Path, header: str, names: Iterable[str]) -> str:
    """Return the numbers that a header defines under these names, joined by dots.

    Raises WheelError if one is missing.
    """
    text = read_member(stock, f"{_HEADERS}{header}").decode(errors="replace")
    matches = [re.search(rf"^#define {name} (\d+)$", text, re.MULTILINE) for name in names]
    numbers = [match[1] for match in matches if match]
    if len(numbers) < len(matches):
        raise WheelError(f"{stock.name}: {header} does not state its version")
    return ".".join(numbers)


def find_missing_licence(stock: Path, tree: Path) -> dict[str, bytes]:
    """Return what must be added to dist-info of a wheel of kernels made of `stock`, by its path.

    It is TensorFlow's licence from its source tree, if the stock wheel lacks it.

    Raises WheelError.
    """
    with open_wheel(stock) as archive:
        names = archive.namelist()
    missing: dict[str, bytes] = {}
    if not has_licence(names) and (tree / _OF_TREE).is_file():
        missing[LICENCE] = (tree / _OF_TREE).read_bytes().replace(b"\r\n", b"\n")
        if hashlib.sha256(missing[LICENCE]).hexdigest() != LICENCE_SHA256:
            raise WheelError(
                f"{stock.name} has no LICENSE, and the LICENSE in the sources is not TensorFlow's",
                hint="Use unmodified sources of TensorFlow",
            )
    check_licences([*names, *(f"{stock.name}.dist-info/{name}" for name in missing)])
    if _GENERAL in names:
        actual = hashlib.sha256(read_member(stock, _GENERAL)).hexdigest()
        if actual != _ABSEILS and _OWN not in names:
            raise WheelError(f"{stock.name}: {_GENERAL} is not Abseil's licence")
    return missing


def check_licences(names: Collection[str]) -> None:
    """Raise WheelError unless a wheel with these members has TensorFlow's licence and notices,
    and the sources and licences of what is compiled into its kernel libraries.
    """
    for item, pattern in _NEEDED.items():
        if not any(re.fullmatch(pattern, name) for name in names):
            raise WheelError(
                f"the wheel lacks {item}", hint="The licences forbid distribution without it"
            )


def has_licence(names: Iterable[str]) -> bool:
    """Return whether TensorFlow's licence is among these members of a wheel."""
    return any(re.fullmatch(_TENSORFLOWS, name) for name in names)


def render_notice(
    tuned: Tuned,
    *,
    version: str,
    stock_file: str,
    changed: Mapping[str, str],
    added: Iterable[str],
    compiled: Iterable[HeaderLibrary],
) -> bytes:
    """Return the text of FILE.

    `version` is the wheel's; `changed` describes the change of each member (METADATA and
    RECORD always change); `added` are the new members.
    """
    lines = [
        "This is a modified TensorFlow. It was not published by the TensorFlow authors.",
        "",
        f"Tensorwright made version {version} of",
        *_render_file(stock_file, tuned.stock_sha256),
        "which is licensed under the Apache License, Version 2.0. Its LICENSE and",
        "tensorflow/THIRD_PARTY_NOTICES.txt are in this wheel, unchanged.",
        "",
        "Changed files:",
        *_render_table({**_ALWAYS, **changed}),
        "Added files:",
        *_render_table(dict.fromkeys(added, "")),
        "All other files are the published ones.",
        "",
        f"The kernel libraries are kernel sources of TensorFlow {tuned.release}, from",
        *_render_file(tuned.source_file, tuned.source_sha256),
        "unchanged. Headers of Tensorwright's, included before them, raise the priority of what",
        "they register, and for some take the place of TensorFlow's templates that they use.",
        f"{tuned.compiler} compiled them for these targets, with these flags:",
        *_render_table(
            {
                library.file: " ".join((library.target, *library.flags))
                for library in tuned.libraries
            }
        ),
        "They hold code from these libraries' headers, which are in this wheel as source code:",
        *(line for library in compiled for line in _render_source(library)),
        "",
        *_render_archspec(),
    ]
    return ("\n".join(lines).rstrip() + "\n").encode()


def render_full_build_notice(
    tuned: Tuned, tree: TunedTree, *, version: str, added: Iterable[str], has_third_party: bool
) -> bytes:
    """Return the text of FILE in a full build.

    `has_third_party` is whether TensorFlow's build wrote THIRD_PARTY.
    """
    notices = f" and\n{THIRD_PARTY} are" if has_third_party else " is"
    changed = {
        **_ALWAYS,
        "*.dist-info/WHEEL": "the platform tags",
        guard.INIT: "asks the CPU for the needed features first, then sets run-time defaults",
    }
    lines = [
        "This is a modified TensorFlow. It was not published by the TensorFlow authors.",
        "",
        f"Tensorwright made version {version} of the wheel that TensorFlow's own build made of",
        *_render_file(tuned.source_file, tuned.source_sha256),
        "which is licensed under the Apache License, Version 2.0. Its LICENSE" + notices,
        "in this wheel.",
        "",
        f"{tuned.compiler} compiled all of it for {tree.target}, with these flags:",
        *_render_table({" ".join(tree.flags): ""}),
        *([_OPTIONS, *_render_table(tree.options)] if tree.options else []),
        "Changed files:",
        *_render_table(changed),
        "Added files:",
        *_render_table(dict.fromkeys(added, "")),
        "All other files are as TensorFlow's build made them.",
        "",
        *_render_archspec(),
    ]
    return ("\n".join(lines).rstrip() + "\n").encode()


def _render_archspec() -> Iterator[str]:
    """Yield what archspec's licence requires to be stated about its data."""
    yield f"{guard.DATA} holds data of archspec {ARCHSPEC},"
    yield f"under {_LICENCES[APACHE]}. Its notice:"
    yield ""
    yield from (f"  {line}".rstrip() for line in _read_archspec_notice().splitlines())


def _read_archspec_notice() -> str:
    """Return the notice that section 4 requires to be passed on, from archspec's own package."""
    return (resources.files("archspec") / "json" / "NOTICE").read_text(encoding="utf-8")


def _render_file(name: str, sha256: str) -> Iterator[str]:
    yield f"  {name}"
    if sha256:
        yield f"  sha256 {sha256}"


def _render_table(rows: Mapping[str, str]) -> Iterator[str]:
    """Yield one sorted name per line with its description below, then an empty line."""
    for name in sorted(rows):
        yield f"  {name}"
        if rows[name]:
            yield f"    {rows[name]}"
    yield ""


def _render_source(compiled: HeaderLibrary) -> Iterator[str]:
    yield f"  {compiled.name} {compiled.version}, {' and '.join(compiled.folders)}"
    yield f"    under {_LICENCES[compiled.licence]}"
