"""What a wheel contains, against what it says of itself: `invoke audit`."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from packaging.version import Version

from tfbuild import console
from tfbuild.auditing import alterations, claims, manylinux, packed
from tfbuild.auditing.claims import Role, WheelLibrary
from tfbuild.auditing.libraries import (
    Facts,
    Member,
    attributions_of,
    dispatcher_problems,
    facts_of,
    libraries_of,
    members,
    unregistered_in,
)
from tfbuild.binaries import census
from tfbuild.binaries.instructions import UNDECODED
from tfbuild.cpus.features import ARCHITECTURES, STOCK_BASELINE, load_features
from tfbuild.errors import AuditError
from tfbuild.packing import admitted, tuned
from tfbuild.packing.admitted import AdmissionStatus
from tfbuild.packing.tuned import KernelLibrary, Tuned, TunedTree
from tfbuild.packing.wheel import WheelIdentity, extract, read_identity
from tfbuild.planning import defaults, dispatcher
from tfbuild.planning.defaults import Default
from tfbuild.settings import Paths
from tfbuild.upstream import releases
from tfbuild.upstream.download import Pin, find_cached, hash_file, verify_file
from tfbuild.upstream.releases import StockWheel

SCHEMA = 2
_FEW_USES = 3
_DISPATCHER = f"{dispatcher.KERNEL_FOLDER}/{dispatcher.LIBRARY}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """Everything that was found. `platform` is what the wheel's tags promise; `stock` is the wheel
    that it was held against. Either is empty where there is none. `defaults` are what it sets at
    run time, by target; `sources` says how near those of its kernels are to the stock wheel's;
    `remarks` are what the audit cannot judge. `admissions` say of each kernel
    library as what its kernels were run, and what the record beside the wheel says."""

    schema: int = SCHEMA
    wheel: str
    size: int
    sha256: str
    platform: str
    stock: str
    targets: tuple[str, ...]
    sources: str = ""
    defaults: Mapping[str, tuple[Default, ...]] = field(default_factory=dict)
    libraries: tuple[WheelLibrary, ...]
    problems: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    admissions: tuple[AdmissionStatus, ...] = ()


def audit(wheel: Path, *, paths: Paths, stock: Path | None = None) -> Audit:
    """Look at every library of a wheel. `stock` is the stock wheel, if not the pinned one that
    earlier work has left in the cache.

    Raises WheelError for what is no wheel or has a library that is not whole, ChecksumError for a
    stock wheel that this one was not made from, RecordError for a torn admission, and
    AuditError for bytes that are not RECORD's and for a platform that nobody knows. What else is
    wrong is in the answer: see `judge`.
    """
    identity, facts = read_identity(wheel), tuned.read_tuned(wheel)
    policy = manylinux.policy_of(identity.tags)
    every, sha256 = members(wheel), hash_file(wheel)
    pinned = _published(identity)
    base, known = _stock_wheel(pinned, facts, paths, stock)
    before = members(base, known=known) if base else {}
    own, theirs = libraries_of(every), libraries_of(before) if base else None
    kept_in = paths.cache / "census"
    changed = {file: each for file, each in (theirs or {}).items() if own.get(file, each) != each}
    kernels = [each for each in facts.libraries if each.file in own] if facts else []
    libraries = _libraries(
        facts,
        own,
        theirs,
        facts_of(wheel, own, kept_in),
        facts_of(base, changed, kept_in) if base else {},
        unregistered_in(wheel, kernels, kept_in),
    )
    found, remarks = list(_platform_problems(policy, libraries)), list[str]()
    if pinned is None or sha256 != pinned.sha256:
        found += alterations.names_problems(wheel, facts)
    if facts is not None and stock is None:
        found += _of_unknown_stock(identity, facts, pinned)
    if facts is not None and facts.tree is not None:
        found += alterations.full_build_problems(wheel, facts, facts.tree, every)
        whose = attributions_of(wheel, _beyond_flags(libraries, own), kept_in)
        found += claims.full_build_problems(facts.tree, libraries, whose)
        remarks += claims.unjudged(facts.tree, libraries, whose)
    elif facts is not None:
        if base is None:
            found += packed.problems(wheel, None)
        else:
            file = pinned.file if pinned and not _is_another(pinned, facts) else base.name
            found += alterations.problems(wheel, facts, every, base, before, file)
        found += _kernel_problems(wheel, facts, libraries, kept_in)
    return Audit(
        wheel=wheel.name,
        size=wheel.stat().st_size,
        sha256=sha256,
        platform=policy.name if policy else "",
        stock=base.name if base else "",
        targets=facts.targets if facts else (),
        sources=facts.nearness.summary if facts and facts.nearness else "",
        defaults={each.target: each.defaults for each in facts.builds} if facts else {},
        libraries=libraries,
        problems=tuple(found),
        remarks=tuple(remarks),
        admissions=admitted.standings_in(wheel, facts, sha256) if facts else (),
    )


def _kernel_problems(
    wheel: Path, facts: Tuned, libraries: Collection[WheelLibrary], kept_in: Path
) -> Iterator[str]:
    """Where the libraries of ours in a wheel of kernels are not what tuned.json says."""
    yield from claims.problems(facts, libraries)
    control = tuned.is_control(facts)
    for library in libraries:
        if library.role is Role.DISPATCHER:
            yield from dispatcher_problems(wheel, library.file, facts, kept_in)
        yield from _foreign(wheel, library, claims.foreign(library, control=control), kept_in)


def _beyond_flags(
    libraries: Collection[WheelLibrary], own: Mapping[str, Member]
) -> dict[str, Member]:
    """The x86-64 libraries that have instructions beyond the stock wheel's flags."""
    ordinary = {"x86_64", *STOCK_BASELINE}
    return {
        library.file: own[library.file]
        for library in libraries
        if "x86_64" in library.census and not library.census.keys() <= ordinary
    }


def judge(found: Audit) -> None:
    """Raises AuditError when the wheel is not what it says."""
    if found.problems:
        first, *others = found.problems
        more = f" (and {len(others)} more)" if others else ""
        raise AuditError(
            f"{found.wheel} is not what it says: {first}{more}",
            hint="Do not publish it; build it anew",
        )


def _published(identity: WheelIdentity) -> StockWheel | None:
    """The published wheel of the same name, version, Python and machine, if the table pins it."""
    interpreter, _, platform = identity.tags[0].split("-")
    machine = next((each for each in ARCHITECTURES if platform.endswith(each)), "")
    version = Version(identity.version).public
    return releases.find_stock_wheel(identity.name, version, interpreter, machine)


def stock_of(wheel: Path, facts: Tuned) -> StockWheel | None:
    """The published wheel that a wheel of kernels is to be compared with; None for a full build,
    and where the table pins none that tuned.json names too, which is a problem of the audit."""
    pinned = _published(read_identity(wheel))
    if facts.tree is not None or pinned is None or _is_another(pinned, facts):
        return None
    return pinned


def _of_unknown_stock(
    identity: WheelIdentity, facts: Tuned, pinned: StockWheel | None
) -> Iterator[str]:
    """Why nothing can say of a tuned wheel's other files that they are the published ones."""
    if pinned is not None and _is_another(pinned, facts):
        yield f"tuned.json names another stock wheel than {pinned.file}"
    elif pinned is None and facts.tree is None:
        yield (
            f"no stock wheel of {identity.name} {Version(identity.version).public} for "
            f"{identity.tags[0]} is known, so its other files can be anybody's"
        )


def _stock_wheel(
    pinned: StockWheel | None, facts: Tuned | None, paths: Paths, given: Path | None
) -> tuple[Path | None, bool]:
    """The stock wheel that a wheel was made from, or is; None if it is not here. Then whether its
    own hash was checked."""
    if given is not None:
        if facts is None or _says_none(facts):
            return given, False
        return verify_file(given, Pin(name=given.name, sha256=facts.stock_sha256)), True
    if pinned is None or _is_another(pinned, facts):
        return None, False
    return find_cached(
        paths.downloads / pinned.file, Pin(name=pinned.file, sha256=pinned.sha256)
    ), True


def _is_another(pinned: StockWheel, facts: Tuned | None) -> bool:
    return facts is not None and not _says_none(facts) and facts.stock_sha256 != pinned.sha256


def _says_none(facts: Tuned) -> bool:
    """Whether it is a full build for which no wheel was published to compare it with."""
    return facts.tree is not None and not facts.stock_sha256


def _libraries(
    facts: Tuned | None,
    own: Mapping[str, Member],
    theirs: Mapping[str, Member] | None,
    shown: Mapping[str, Facts],
    before: Mapping[str, Facts],
    unregistered: Mapping[str, tuple[str, ...]],
) -> tuple[WheelLibrary, ...]:
    """`shown` are the facts of the wheel's libraries, `before` those of stock ones that differ,
    `unregistered` the ops that kernel libraries lack."""
    kernels = {each.file: each for each in facts.libraries} if facts else {}
    tree = facts.tree if facts else None
    return tuple(
        WheelLibrary(
            file=file,
            name=kernels[file].name if file in kernels else PurePosixPath(file).name,
            role=(
                _role(file, kernels, own, theirs, {*filter(unregistered.get, kernels)})
                if tree is None
                else Role.TREE
            ),
            size=own[file].size,
            sha256=own[file].sha256,
            census=shown[file].census,
            difference=None if theirs is None else _difference(file, shown, before, theirs),
            required=_required(kernels.get(file, tree)),
            floors=shown[file].floors,
            needed=shown[file].needed,
            isa_needed=shown[file].isa_needed,
            unregistered=unregistered.get(file, ()),
        )
        for file in sorted(own)
    )


def _required(build: KernelLibrary | TunedTree | None) -> tuple[str, ...]:
    return build.required_features if build else ()


def _role(
    file: str,
    kernels: Mapping[str, KernelLibrary],
    own: Mapping[str, Member],
    theirs: Mapping[str, Member] | None,
    idle: Collection[str],
) -> Role:
    if file in kernels and file not in (theirs or ()):
        said = Member(size=kernels[file].size, sha256=kernels[file].sha256)
        return Role.FALSE if own[file] != said or file in idle else Role.KERNELS
    if file == _DISPATCHER:
        return Role.DISPATCHER
    if theirs is None:
        return Role.OTHER
    if file not in theirs:
        return Role.ADDED
    return Role.STOCK if own[file] == theirs[file] else Role.CHANGED


def _difference(
    file: str,
    shown: Mapping[str, Facts],
    before: Mapping[str, Facts],
    theirs: Mapping[str, Member],
) -> Mapping[str, int]:
    if file in theirs and file not in before:
        return {}
    old = before[file].census if file in before else {}
    new = shown[file].census
    names = (*new, *(name for name in old if name not in new))
    changes = {name: new.get(name, 0) - old.get(name, 0) for name in names}
    return {name: change for name, change in changes.items() if change}


def _platform_problems(
    policy: manylinux.Policy | None, libraries: Collection[WheelLibrary]
) -> Iterator[str]:
    """Where a library asks for more than the wheel's tags promise, or is for another machine."""
    if policy is None:
        return
    beside = frozenset(PurePosixPath(library.file).name for library in libraries)
    for library in libraries:
        machine = next(iter(library.census), "")
        if machine in ARCHITECTURES and not policy.name.endswith(machine):
            yield f"{library.file} is for {machine}, the wheel is {policy.name}"
        for what in manylinux.breaches(policy, library.floors, library.needed, beside):
            yield f"{library.file}: {what}"


def _foreign(
    wheel: Path, library: WheelLibrary, counted: Mapping[str, int], folder: Path
) -> Iterator[str]:
    """Each feature that a library must not use, how often it does, and the first few places."""
    if not counted:
        return
    with tempfile.TemporaryDirectory(prefix=".unpacked.", dir=folder) as unpacked:
        extract(wheel, (library.file,), Path(unpacked) / "wheel")
        for name, times in counted.items():
            paths = census.uses(Path(unpacked) / "wheel" / library.file, {name}, _FEW_USES)
            shown = "; ".join(map(str, paths)) + ("; …" if times > len(paths) else "")
            what = "what is no known instruction" if name == UNDECODED else name
            yield f"{library.name}: {times} of {what}, which it may not use: {shown}"


# ---- for a person ----


def describe(found: Audit) -> str:
    """The audit as tables, and its problems in a line each."""
    head = [
        ("wheel", f"{found.wheel} ({console.format_size(found.size)})"),
        ("sha256", found.sha256),
        ("stock", found.stock or "not here: no difference is shown, and no change would be seen"),
        ("platform", found.platform or "none is promised"),
        ("targets", ", ".join(found.targets) or "none: it is not a tuned wheel"),
        *((("sources", found.sources),) if found.sources else ()),
        *(
            ("default", f"{target}: {defaults.describe(each)}")
            for target, carried in found.defaults.items()
            for each in carried
        ),
    ]
    head += [("kernels", f"{e.target}: {admitted.describe(e)}") for e in found.admissions]
    groups = _groups(found.libraries)
    tables = (head, _library_rows(groups), _instruction_rows(groups))
    remarks = [f"remark: {each}" for each in found.remarks]
    verdict = [f"problem: {each}" for each in found.problems] or [_approval(found)]
    return "\n".join([*(_aligned(rows) for rows in tables), *remarks, *verdict, ""])


def _approval(found: Audit) -> str:
    if any(library.role is Role.TREE for library in found.libraries):
        return "It is what it says; of the files that TensorFlow's own build made, RECORD speaks."
    if found.targets and not found.stock:
        return "Its libraries are what it says; its other files were not compared (--stock PATH)."
    return "It is what it says."


def _groups(libraries: Collection[WheelLibrary]) -> dict[str, list[WheelLibrary]]:
    """The kernel libraries by their names, the others together by what they are."""
    roles = [*Role]
    groups: dict[str, list[WheelLibrary]] = {}
    for library in sorted(libraries, key=lambda each: roles.index(each.role)):
        key = library.name if library.role is Role.KERNELS else library.role.value
        groups.setdefault(key, []).append(library)
    return groups


def _library_rows(groups: Mapping[str, Collection[WheelLibrary]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("libraries", "number", "size", "asks for", "ISA marker")]
    for name, libraries in groups.items():
        size = console.format_size(sum(library.size for library in libraries))
        marks = sorted({library.isa_needed for library in libraries if library.isa_needed})
        rows.append(
            (name, str(len(libraries)), size, _floors(libraries), " ".join(marks) or "none")
        )
    return rows


def _instruction_rows(groups: Mapping[str, Collection[WheelLibrary]]) -> list[tuple[str, ...]]:
    """A row for each feature, a column for each group: instructions that stock has not, and of
    stock's own libraries all. 0 is a feature that is required and not used."""
    columns = {name: _counted(libraries) for name, libraries in groups.items()}
    order = [name for machine in ARCHITECTURES for name in (machine, *load_features(machine))]
    names = {name: None for column in columns.values() for name in column}
    rows = [("instructions", *columns)]
    for name in sorted(names, key=lambda each: order.index(each) if each in order else len(order)):
        label = f"{name} baseline" if name in ARCHITECTURES else name
        rows.append((label, *(f"{c[name]:,}" if name in c else "" for c in columns.values())))
    return rows


def _counted(libraries: Collection[WheelLibrary]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in libraries:
        total.update(dict.fromkeys(each.required, 0))
        total.update(each.census if each.role is Role.STOCK else each.difference or each.census)
    # Part of the baseline's row.
    return {name: n for name, n in total.items() if name not in {"mmx", "sse", "sse2"}}


def _floors(libraries: Collection[WheelLibrary]) -> str:
    """The newest version of each runtime family that any of the libraries asks for."""
    newest: dict[str, Version] = {}
    for library in libraries:
        for family, version in library.floors.items():
            newest[family] = max(newest.get(family, Version("0")), Version(version))
    return (
        " ".join(f"{family} {version}" for family, version in sorted(newest.items())) or "nothing"
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as they need, of numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if number and cell.replace(",", "").isdigit() else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)
