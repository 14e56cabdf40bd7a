"""What a tuned wheel has that its stock wheel has not, and must not have.

An installed wheel is code from its first file on. So every file is the stock wheel's, or follows
from it and tuned.json byte for byte, but for those that are looked into elsewhere: the dispatcher
and the kernel libraries.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.metadata import parse_email
from packaging.utils import canonicalize_name
from packaging.version import Version

from tfbuild.auditing import packed
from tfbuild.auditing.libraries import Member
from tfbuild.cpus.targets import parse_target
from tfbuild.errors import TargetError
from tfbuild.packing import notices, papers
from tfbuild.packing.repack import renamed, with_version
from tfbuild.packing.tuned import Tuned, TunedTree
from tfbuild.packing.wheel import (
    WheelIdentity,
    files,
    opened,
    read_identity,
    read_member,
    small_member,
    stem_of,
)
from tfbuild.planning import dispatcher, guard
from tfbuild.planning.defaults import BF16

_AS_MADE = "what this version of Tensorwright makes"
_TREES_OWN = frozenset(
    ("AUTHORS", "LICENSE", "METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt")
)
"""What TensorFlow's own build puts into dist-info; what is in licenses/ is data."""
_SCHEMES = r"\.data/(purelib|platlib)/"


def names_problems(wheel: Path, facts: Tuned | None) -> Iterator[str]:
    """Where a wheel's file name is not what is said inside, a line each. Raises WheelError."""
    identity, stem = read_identity(wheel), stem_of(wheel)
    info = f"{stem}.dist-info"
    if not wheel.name.startswith(f"{stem}-"):
        yield f"its file name is another than {stem}, which it is inside"
    with opened(wheel) as archive:
        text = {
            name: small_member(archive, archive.NameToInfo[f"{info}/{name}"])
            for name in ("METADATA", "WHEEL")
            if f"{info}/{name}" in archive.NameToInfo
        }
    said, _ = parse_email(text.get("METADATA", b""))
    name, version = said.get("name", ""), said.get("version", "")
    if canonicalize_name(name) != identity.name or _normal(version) != identity.version:
        yield f"{info}/METADATA is of {name or 'no name'} {version or 'without a version'}"
    tags = re.findall(rb"(?m)^Tag:[ \t]*(\S+)", text.get("WHEEL", b""))
    if sorted(identity.tags) != sorted({tag.decode(errors="replace") for tag in tags}):
        yield f"{info}/WHEEL has other tags than the file name"
    if facts is None or facts.tree is not None:
        return
    if facts.release != Version(identity.version).public:
        yield f"tuned.json is of TensorFlow {facts.release}, its file name of {identity.version}"


def _normal(version: str) -> str:
    try:
        return str(Version(version))
    except ValueError:
        return ""


def problems(
    wheel: Path,
    facts: Tuned,
    own: Mapping[str, Member],
    stock: Path,
    theirs: Mapping[str, Member],
    stock_file: str,
) -> Iterator[str]:
    """Every file of a tuned wheel that is not what it must be, a line each.

    `own` and `theirs` are the members of the wheel and of the stock wheel that it was made of,
    which was published as `stock_file`. Raises WheelError for files that cannot be read.
    """
    stem, before = stem_of(wheel), stem_of(stock)
    if wheel.name.split("-", 2)[2] != stock_file.split("-", 2)[2]:
        yield f"its file name has other tags than {stock_file}"
    kept = {renamed(name, before, stem): each for name, each in theirs.items()}
    yield from _unnamed(stem, facts)
    lacks = not notices.has_licence(theirs)
    licence = f"{stem}.dist-info/{notices.LICENCE}"
    try:
        made = _made(read_identity(wheel), stem, stock, facts, stock_file, lacks_licence=lacks)
    except TargetError as error:
        yield f"its run-time defaults cannot be compared with tuned.json: {error.message}"
        return
    if lacks and own.get(licence) and own[licence].sha256 != notices.LICENCE_SHA256:
        yield f"{licence} is not TensorFlow's"
    free = {*_libraries(facts), *((licence,) if lacks else ())}
    record = f"{stem}.dist-info/RECORD"
    with opened(wheel) as archive:
        there = {info.filename for info in files(archive)} - {record}
    must = {name: (each, "as stock") for name, each in kept.items()}
    must |= {name: (each, _AS_MADE) for name, each in _members_of(made).items()}
    for name in sorted({*must, *((licence,) if lacks else ())} - there):
        yield f"{name} is missing"
    for name in sorted(there - (free - must.keys())):
        member, what = must.get(name, (None, "in stock, and no part of a tuned wheel"))
        if member is None or own.get(name) != member:
            yield f"{name} is not {what}"
    forms = {renamed(name, before, stem): form for name, form in packed.forms_of(stock).items()}
    ours = {record, *made}
    yield from packed.problems(wheel, {n: form for n, form in forms.items() if n not in ours})


def _libraries(facts: Tuned) -> frozenset[str]:
    """The members of a wheel of kernels that are looked into elsewhere."""
    folder = dispatcher.KERNEL_FOLDER
    return frozenset((f"{folder}/{dispatcher.LIBRARY}", *(each.file for each in facts.libraries)))


def full_build_problems(
    wheel: Path, facts: Tuned, tree: TunedTree, own: Mapping[str, Member]
) -> Iterator[str]:
    """Every file of ours in a full build that is not what it must be, a line each.

    No other wheel holds the same bytes, so of the rest only RECORD speaks, and where it lies.
    Raises WheelError.
    """
    stem, identity = stem_of(wheel), read_identity(wheel)
    info = f"{stem}.dist-info"
    init = read_member(wheel, guard.INIT)
    if init.count(guard.FIRST) != 1 or guard.guarded(init.replace(guard.FIRST, b"")) != init:
        yield f"{guard.INIT} does not ask the CPU before anything else, or sets other defaults"
    yield from _unnamed(stem, facts)
    try:
        target = parse_target(tree.target)
        made = guard.full_build_files(target, tree.required_features) | guard.defaults_file(
            target.family, facts.carriers
        )
    except TargetError as error:
        yield f"what it asks the CPU cannot be compared with tuned.json: {error.message}"
        return
    # Whether a licence came from the tree or was put there by us, the wheel does not show.
    ways = [
        papers.of_tree(
            facts,
            tree,
            package=identity.name,
            version=stem.partition("-")[2],
            added=made,
            own=notices.THIRD_PARTY in own,
            licences=licences,
        )
        for licences in ((), (notices.LICENCE,))[: 1 + (f"{info}/{notices.LICENCE}" in own)]
    ]
    written = [_members_of({f"{info}/{name}": data for name, data in e.items()}) for e in ways]
    for name, member in _members_of(made).items():
        if own.get(name) != member:
            yield f"{name} is not {_AS_MADE}"
    for name in written[0]:
        if name not in own:
            yield f"{name} is missing"
        elif own[name] not in [each[name] for each in written]:
            yield f"{name} is not {_AS_MADE}"
    yield from _unexpected_files(wheel, stem)
    yield from packed.problems(wheel, None)


def _unexpected_files(wheel: Path, stem: str) -> Iterator[str]:
    """What an installer would put beside TensorFlow, or Python would run by itself."""
    info = f"{stem}.dist-info/"
    ours = {f"{info}{name}" for name in (*_TREES_OWN, *papers.FILES)}
    places = re.compile(rf"({re.escape(stem)}{_SCHEMES})?tensorflow/|{re.escape(info)}licenses/")
    with opened(wheel) as archive:
        for member in files(archive):
            if member.filename not in ours and not places.match(member.filename):
                yield f"{member.filename} is no part of TensorFlow"


def _unnamed(stem: str, facts: Tuned) -> Iterator[str]:
    """Where bfloat16 is in the version and not in the defaults, or the other way round."""
    sets = any(each.lever.name == BF16 for build in facts.builds for each in build.defaults)
    if sets != (BF16 in stem.partition("+")[2].split(".")):
        yield f"its version says {'nothing of ' if sets else ''}{BF16}, its defaults another thing"


def _members_of(files: Mapping[str, bytes]) -> dict[str, Member]:
    return {
        name: Member(size=len(data), sha256=hashlib.sha256(data).hexdigest())
        for name, data in files.items()
    }


def _made(
    identity: WheelIdentity,
    stem: str,
    stock: Path,
    facts: Tuned,
    stock_file: str,
    *,
    lacks_licence: bool,
) -> dict[str, bytes]:
    """The files that are changed or ours, by their names in the wheel. Raises TargetError."""
    metadata = read_member(stock, f"{stem_of(stock)}.dist-info/METADATA")
    version, info = stem.partition("-")[2], f"{stem}.dist-info"
    family = identity.machine
    ours = guard.files(family) | guard.defaults_file(family, facts.carriers)
    written = papers.of_kernels(
        facts,
        stock,
        package=identity.name,
        version=version,
        stock_file=stock_file,
        added={*_libraries(facts), *ours},
        licences=(notices.LICENCE,) if lacks_licence else (),
    )
    return {
        f"{info}/METADATA": with_version(metadata, version),
        guard.INIT: guard.amended(read_member(stock, guard.INIT)),
        **ours,
        **{f"{info}/{name}": data for name, data in written.items()},
    }
