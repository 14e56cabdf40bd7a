"""Compare the files of a tuned wheel with the stock wheel.

Any file of an installed wheel can run code. So every file must equal the stock wheel's file, or
follow byte for byte from the stock wheel and tuned.json. Other modules check the dispatcher and the
kernel libraries.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.metadata import parse_email
from packaging.utils import canonicalize_name
from packaging.version import Version

from tfbuild.auditing import archive_layout
from tfbuild.auditing.libraries import Member
from tfbuild.packing import notices, package_metadata
from tfbuild.packing.repack import rename_member, replace_version
from tfbuild.packing.tuned import Tuned, TunedTree
from tfbuild.packing.wheel import (
    WheelIdentity,
    list_files,
    open_wheel,
    read_identity,
    read_member,
    read_small_member,
    read_stem,
)
from tfbuild.planning import dispatcher, guard
from tfbuild.planning.defaults import BF16
from tfbuild.upstream.kernels import FOLDER
from tfcore.cpus.targets import parse_target
from tfcore.errors import TargetError

_AS_WRITTEN = "differs from the file that this version of Tensorwright writes"
_TREES_OWN = frozenset(
    ("AUTHORS", "LICENSE", "METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt")
)
"""Files that TensorFlow's build puts into dist-info; files in licenses/ are data."""
_SCHEMES = r"\.data/(purelib|platlib)/"


def find_name_problems(wheel: Path, facts: Tuned | None) -> Iterator[str]:
    """Yield a line for each difference between a wheel's file name and its metadata inside.

    Raises WheelError.
    """
    identity, stem = read_identity(wheel), read_stem(wheel)
    info = f"{stem}.dist-info"
    if not wheel.name.startswith(f"{stem}-"):
        yield f"its file name does not match {stem}.dist-info"
    with open_wheel(wheel) as archive:
        text = {
            name: read_small_member(archive, archive.NameToInfo[f"{info}/{name}"])
            for name in ("METADATA", "WHEEL")
            if f"{info}/{name}" in archive.NameToInfo
        }
    metadata, _ = parse_email(text.get("METADATA", b""))
    name, version = metadata.get("name", ""), metadata.get("version", "")
    if canonicalize_name(name) != identity.name or _normalize_version(version) != identity.version:
        yield f"{info}/METADATA names {name or 'no package'} {version or 'without a version'}"
    tags = re.findall(rb"(?m)^Tag:[ \t]*(\S+)", text.get("WHEEL", b""))
    if sorted(identity.tags) != sorted({tag.decode(errors="replace") for tag in tags}):
        yield f"the tags in {info}/WHEEL differ from the file name"
    if facts is None or facts.tree is not None:
        return
    if facts.release != Version(identity.version).public:
        yield f"tuned.json names TensorFlow {facts.release}, the file name {identity.version}"


def _normalize_version(version: str) -> str:
    try:
        return str(Version(version))
    except ValueError:
        return ""


def find_problems(
    wheel: Path,
    facts: Tuned,
    members: Mapping[str, Member],
    stock: Path,
    theirs: Mapping[str, Member],
    stock_file: str,
) -> Iterator[str]:
    """Yield a line for each file of a tuned wheel that differs from what it must be.

    `members` and `theirs` are the members of the wheel and of its stock wheel, which was published
    as `stock_file`.

    Raises WheelError for files that cannot be read.
    """
    stem, stock_stem = read_stem(wheel), read_stem(stock)
    if wheel.name.split("-", 2)[2] != stock_file.split("-", 2)[2]:
        yield f"the tags in its file name differ from {stock_file}"
    inherited = {rename_member(name, stock_stem, stem): entry for name, entry in theirs.items()}
    yield from _find_bf16_mismatch(stem, facts)
    lacks = not notices.has_licence(theirs)
    licence = f"{stem}.dist-info/{notices.LICENCE}"
    try:
        generated = _build_expected_files(
            read_identity(wheel), stem, stock, facts, stock_file, lacks_licence=lacks
        )
    except TargetError as error:
        yield f"its run-time defaults cannot be compared with tuned.json: {error.message}"
        return
    if lacks and members.get(licence) and members[licence].sha256 != notices.LICENCE_SHA256:
        yield f"{licence} is not TensorFlow's licence"
    exempt = {*_list_library_members(facts), *((licence,) if lacks else ())}
    record = f"{stem}.dist-info/RECORD"
    with open_wheel(wheel) as archive:
        present = {info.filename for info in list_files(archive)} - {record}
    expected = {name: (entry, "differs from stock") for name, entry in inherited.items()}
    expected |= {name: (entry, _AS_WRITTEN) for name, entry in _hash_members(generated).items()}
    for name in sorted({*expected, *((licence,) if lacks else ())} - present):
        yield f"{name} is missing"
    for name in sorted(present - (exempt - expected.keys())):
        member, problem = expected.get(
            name, (None, "is neither in stock nor part of a tuned wheel")
        )
        if member is None or members.get(name) != member:
            yield f"{name} {problem}"
    forms = {
        rename_member(name, stock_stem, stem): form
        for name, form in archive_layout.read_forms(stock).items()
    }
    changed = {record, *generated}
    yield from archive_layout.find_problems(
        wheel, {n: form for n, form in forms.items() if n not in changed}
    )


def _list_library_members(facts: Tuned) -> frozenset[str]:
    """List the members of a wheel of kernels that other modules audit."""
    return frozenset(
        (f"{FOLDER}/{dispatcher.LIBRARY}", *(library.file for library in facts.libraries))
    )


def find_full_build_problems(
    wheel: Path, facts: Tuned, tree: TunedTree, members: Mapping[str, Member]
) -> Iterator[str]:
    """Yield a line for each file of Tensorwright in a full build that is not as expected.

    All other files are checked only against RECORD and by their location: no other wheel has
    the same bytes.

    Raises WheelError.
    """
    stem, identity = read_stem(wheel), read_identity(wheel)
    info = f"{stem}.dist-info"
    init = read_member(wheel, guard.INIT)
    if init.count(guard.FIRST) != 1 or guard.guard_init(init.replace(guard.FIRST, b"")) != init:
        yield f"{guard.INIT} does not check the CPU first, or sets other defaults"
    yield from _find_bf16_mismatch(stem, facts)
    try:
        target = parse_target(tree.target)
        generated = guard.build_full_wheel_files(
            target, tree.required_features
        ) | guard.build_defaults_file(target.family, facts.carriers)
    except TargetError as error:
        yield f"its CPU check cannot be compared with tuned.json: {error.message}"
        return
    # The wheel does not show whether a licence came from the tree or from Tensorwright.
    variants = [
        package_metadata.build_tree_metadata(
            facts,
            tree,
            package=identity.name,
            version=stem.partition("-")[2],
            added=generated,
            has_third_party=notices.THIRD_PARTY in members,
            licences=licences,
        )
        for licences in ((), (notices.LICENCE,))[: 1 + (f"{info}/{notices.LICENCE}" in members)]
    ]
    allowed = [
        _hash_members({f"{info}/{name}": data for name, data in variant.items()})
        for variant in variants
    ]
    for name, member in _hash_members(generated).items():
        if members.get(name) != member:
            yield f"{name} {_AS_WRITTEN}"
    for name in allowed[0]:
        if name not in members:
            yield f"{name} is missing"
        elif members[name] not in [choice[name] for choice in allowed]:
            yield f"{name} {_AS_WRITTEN}"
    yield from _find_unexpected_files(wheel, stem)
    yield from archive_layout.find_problems(wheel, None)


def _find_unexpected_files(wheel: Path, stem: str) -> Iterator[str]:
    """Yield a line for each file that an installer would put outside TensorFlow's folders, or
    that Python would run at its start.
    """
    info = f"{stem}.dist-info/"
    expected = {f"{info}{name}" for name in (*_TREES_OWN, *package_metadata.FILES)}
    places = re.compile(rf"({re.escape(stem)}{_SCHEMES})?tensorflow/|{re.escape(info)}licenses/")
    with open_wheel(wheel) as archive:
        for member in list_files(archive):
            if member.filename not in expected and not places.match(member.filename):
                yield f"{member.filename} is not part of TensorFlow"


def _find_bf16_mismatch(stem: str, facts: Tuned) -> Iterator[str]:
    """Yield a line if only one of the version and the defaults has bfloat16."""
    sets = any(default.lever.name == BF16 for build in facts.builds for default in build.defaults)
    if sets != (BF16 in stem.partition("+")[2].split(".")):
        yield (
            f"its defaults set {BF16}, its version does not name it"
            if sets
            else f"its version names {BF16}, its defaults do not set it"
        )


def _hash_members(files: Mapping[str, bytes]) -> dict[str, Member]:
    return {
        name: Member(size=len(data), sha256=hashlib.sha256(data).hexdigest())
        for name, data in files.items()
    }


def _build_expected_files(
    identity: WheelIdentity,
    stem: str,
    stock: Path,
    facts: Tuned,
    stock_file: str,
    *,
    lacks_licence: bool,
) -> dict[str, bytes]:
    """Return the files that are changed or added, by their names in the wheel.

    Raises TargetError.
    """
    metadata = read_member(stock, f"{read_stem(stock)}.dist-info/METADATA")
    version, info = stem.partition("-")[2], f"{stem}.dist-info"
    family = identity.machine
    modules = guard.build_guard_files(family) | guard.build_defaults_file(family, facts.carriers)
    records = package_metadata.build_kernels_metadata(
        facts,
        stock,
        package=identity.name,
        version=version,
        stock_file=stock_file,
        added={*_list_library_members(facts), *modules},
        licences=(notices.LICENCE,) if lacks_licence else (),
    )
    return {
        f"{info}/METADATA": replace_version(metadata, version),
        guard.INIT: guard.amend_init(read_member(stock, guard.INIT)),
        **modules,
        **{f"{info}/{name}": data for name, data in records.items()},
    }
