"""What a tuned wheel has that its stock wheel has not, and must not have.

An installed wheel is code from its first file on. So every file is the stock wheel's, or follows
from it byte for byte, but for those that are looked into elsewhere: the dispatcher, the kernel
libraries, and what is said about them in dist-info.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tfbuild.auditing.libraries import Member
from tfbuild.cpus.targets import parse_target
from tfbuild.errors import TargetError
from tfbuild.packing import notices, sbom, tuned
from tfbuild.packing.repack import renamed, with_version
from tfbuild.packing.tuned import Tree, Tuned
from tfbuild.packing.wheel import files, opened, read_identity, read_member, stem_of, whole
from tfbuild.planning import dispatcher, guard
from tfbuild.planning.defaults import BF16

_PAPERS = (tuned.FILE, sbom.FILE, notices.FILE)


def problems(
    wheel: Path, facts: Tuned, own: Mapping[str, Member], stock: Path, theirs: Mapping[str, Member]
) -> Iterator[str]:
    """Every file of a tuned wheel that is not what it must be, a line each.

    `own` and `theirs` are the members of the wheel and of the stock wheel that it was made of.
    Raises WheelError for files that cannot be read.
    """
    stem, before = stem_of(wheel), stem_of(stock)
    if not wheel.name.startswith(f"{stem}-"):
        yield f"its file name is another than {stem}, which it is inside"
    if read_identity(wheel).tags != read_identity(stock).tags:
        yield f"its file name has other tags than {stock.name}"
    kept = {renamed(name, before, stem): each for name, each in theirs.items()}
    yield from _unnamed(stem, facts)
    try:
        made = _made(stem, stock, facts)
    except TargetError as error:
        yield f"its run-time defaults cannot be compared with tuned.json: {error.message}"
        return
    papers = {f"{stem}.dist-info/{name}" for name in _PAPERS}
    free = papers | {library.file for library in facts.libraries}
    free |= {f"{dispatcher.KERNEL_FOLDER}/{dispatcher.LIBRARY}"}
    record = f"{stem}.dist-info/RECORD"
    with opened(wheel) as archive:
        there = {info.filename for info in files(archive)} - {record}
    must = {name: (each, "as stock") for name, each in kept.items()}
    must |= {name: (each, "what this version of Tensorwright makes") for name, each in made.items()}
    if not notices.has_licence(theirs):
        papers.add(f"{stem}.dist-info/{notices.LICENCE}")
        free |= papers
    licence = own.get(f"{stem}.dist-info/{notices.LICENCE}")
    if licence and licence.sha256 != notices.LICENCE_SHA256:
        yield f"{stem}.dist-info/{notices.LICENCE} is not TensorFlow's"
    for name in sorted(must.keys() | papers):
        if name not in there:
            yield f"{name} is missing"
    for name in sorted(there - (free - must.keys())):
        member, what = must.get(name, (None, "in stock, and no part of a tuned wheel"))
        if member is None or own[name] != member:
            yield f"{name} is not {what}"
    changed, added = {record, *(made.keys() & kept.keys())}, there - kept.keys()
    yield from _untold(wheel, stem, {notices.CHANGED: changed, notices.ADDED: added})


def whole_problems(
    wheel: Path, facts: Tuned, tree: Tree, own: Mapping[str, Member]
) -> Iterator[str]:
    """Every file of ours in a full build that is not what it must be, a line each.

    No other wheel holds the same bytes, so of the rest only RECORD speaks. Raises WheelError.
    """
    stem = stem_of(wheel)
    info, tags = f"{stem}.dist-info", read_identity(wheel).tags
    if not wheel.name.startswith(f"{stem}-"):
        yield f"its file name is another than {stem}, which it is inside"
    metadata = read_member(wheel, f"{info}/METADATA")
    if with_version(metadata, stem.partition("-")[2]) != metadata:
        yield f"{info}/METADATA has another version"
    said = re.findall(rb"(?m)^Tag:[ \t]*(\S+)", read_member(wheel, f"{info}/WHEEL"))
    if sorted(tags) != sorted(tag.decode(errors="replace") for tag in said):
        yield f"{info}/WHEEL has other tags than the file name"
    init = read_member(wheel, guard.INIT)
    if init.count(guard.FIRST) != 1 or guard.guarded(init.replace(guard.FIRST, b"")) != init:
        yield f"{guard.INIT} does not ask the CPU before anything else, or sets other defaults"
    yield from _unnamed(stem, facts)
    try:
        target = parse_target(tree.target)
        made = _members_of(
            guard.whole_files(target, tree.required_features)
            | guard.defaults_file(target.family, facts.carriers)
        )
    except TargetError as error:
        yield f"what it asks the CPU cannot be compared with tuned.json: {error.message}"
        return
    for name, member in made.items():
        if own.get(name) != member:
            yield f"{name} is not what this version of Tensorwright makes"
    papers = {f"{info}/{name}" for name in _PAPERS}
    yield from (f"{name} is missing" for name in sorted(papers - own.keys()))
    changed = {guard.INIT, *(f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL"))}
    added = {*made, *papers}
    ours = f"{info}/{notices.LICENCE}"
    yield from _untold(wheel, stem, {notices.CHANGED: changed, notices.ADDED: added}, {ours})


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


def _made(stem: str, stock: Path, facts: Tuned) -> dict[str, Member]:
    """The files that are changed or ours, by their names in the wheel. Raises TargetError."""
    metadata = read_member(stock, f"{stem_of(stock)}.dist-info/METADATA")
    made = {
        f"{stem}.dist-info/METADATA": with_version(metadata, stem.partition("-")[2]),
        guard.INIT: guard.amended(read_member(stock, guard.INIT)),
        **guard.files(read_identity(stock).machine),
        **guard.defaults_file(read_identity(stock).machine, facts.carriers),
    }
    return _members_of(made)


def _untold(
    wheel: Path, stem: str, lists: Mapping[str, Collection[str]], free: Collection[str] = ()
) -> Iterator[str]:
    """Where a list of the notice, by its heading, is not that of these names, or also `free`."""
    name = f"{stem}.dist-info/{notices.FILE}"
    with opened(wheel) as archive:
        info = archive.NameToInfo.get(name)
        text = whole(archive, info).decode(errors="replace") if info else ""
    for heading, names in lists.items():
        said, true = notices.listed(text, heading), {renamed(each, stem, "*") for each in names}
        for each in sorted(true - said):
            yield f"{notices.FILE} does not name {each} under {heading!r}"
        for each in sorted(said - true - {renamed(name, stem, "*") for name in free}):
            yield f"{notices.FILE} names {each} under {heading!r}"
