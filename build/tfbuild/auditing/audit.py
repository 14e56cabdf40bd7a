"""Compare the contents of a wheel with tuned.json and the stock wheel: `invoke audit`."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from packaging.version import Version

from tfbuild.auditing import alterations, archive_layout, claims, manylinux
from tfbuild.auditing.claims import Role, WheelLibrary
from tfbuild.auditing.libraries import (
    LibraryFacts,
    Member,
    filter_libraries,
    find_dispatcher_problems,
    find_unregistered,
    read_attributions,
    read_facts,
    read_members,
)
from tfbuild.binaries import census
from tfbuild.binaries.instructions import UNDECODED
from tfbuild.packing import conformance, tuned
from tfbuild.packing.conformance import ConformanceStatus
from tfbuild.packing.tuned import KernelLibrary, Tuned, TunedTree
from tfbuild.packing.wheel import WheelIdentity, extract, read_identity
from tfbuild.planning import defaults, dispatcher
from tfbuild.planning.defaults import Default
from tfbuild.upstream import releases
from tfbuild.upstream.download import Pin, hash_file, verify_file
from tfbuild.upstream.kernels import FOLDER
from tfbuild.upstream.releases import StockWheel
from tfcore import console
from tfcore.cpus.features import ARCHITECTURES, STOCK_BASELINE, load_features
from tfcore.errors import AuditError
from tfcore.settings import Paths

SCHEMA = 2
_FEW_USES = 3
_DISPATCHER = f"{FOLDER}/{dispatcher.LIBRARY}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """The result of an audit.

    `platform` is the platform of the wheel's tags, `stock` the wheel that it was compared with;
    either is empty if there is none. `defaults` are the run-time defaults by target. `sources`
    compares the headers of the kernel sources with those of the stock wheel. `remarks` are
    instructions that the audit cannot check. `admissions` are the conformance status of each
    kernel library.
    """

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
    admissions: tuple[ConformanceStatus, ...] = ()


def audit(wheel: Path, *, paths: Paths, stock: Path | None = None) -> Audit:
    """Audit every library of a wheel.

    `stock` is the stock wheel; without it, the pinned one is used if the cache has it.

    Raises WheelError if the file is not a wheel or has an incomplete library, ChecksumError
    for a stock wheel that this one was not built from, RecordError for a damaged conformance
    record, and AuditError for bytes that differ from RECORD and for an unknown platform.
    Other problems are in the result: see `check_audit`.
    """
    identity, facts = read_identity(wheel), tuned.read_tuned(wheel)
    policy = manylinux.find_policy(identity.tags)
    own_members, sha256 = read_members(wheel), hash_file(wheel)
    pinned = _find_published(identity)
    base, known = _locate_stock(pinned, facts, paths, stock)
    stock_members = read_members(base, known=known) if base else {}
    own_libraries = filter_libraries(own_members)
    stock_libraries = filter_libraries(stock_members) if base else None
    folder = paths.cache / "census"
    changed = {
        file: stock_library
        for file, stock_library in (stock_libraries or {}).items()
        if own_libraries.get(file, stock_library) != stock_library
    }
    kernels = (
        [library for library in facts.libraries if library.file in own_libraries] if facts else []
    )
    libraries = _build_libraries(
        facts,
        own_libraries,
        stock_libraries,
        read_facts(wheel, own_libraries, folder),
        read_facts(base, changed, folder) if base else {},
        find_unregistered(wheel, kernels, folder),
    )
    reported, remarks = list(_find_platform_problems(policy, libraries)), list[str]()
    if pinned is None or sha256 != pinned.sha256:
        reported += alterations.find_name_problems(wheel, facts)
    if facts is not None and stock is None:
        reported += _find_stock_problems(identity, facts, pinned)
    if facts is not None and facts.tree is not None:
        reported += alterations.find_full_build_problems(wheel, facts, facts.tree, own_members)
        attributed = read_attributions(
            wheel, _select_beyond_flags(libraries, own_libraries), folder
        )
        reported += claims.find_full_build_problems(facts.tree, libraries, attributed)
        remarks += claims.list_unjudged(facts.tree, libraries, attributed)
    elif facts is not None:
        if base is None:
            reported += archive_layout.find_problems(wheel, None)
        else:
            file = pinned.file if pinned and not _is_other_stock(pinned, facts) else base.name
            reported += alterations.find_problems(
                wheel, facts, own_members, base, stock_members, file
            )
        reported += _find_kernel_problems(wheel, facts, libraries, folder)
    return Audit(
        wheel=wheel.name,
        size=wheel.stat().st_size,
        sha256=sha256,
        platform=policy.name if policy else "",
        stock=base.name if base else "",
        targets=facts.targets if facts else (),
        sources=facts.nearness.summary if facts and facts.nearness else "",
        defaults={build.target: build.defaults for build in facts.builds} if facts else {},
        libraries=libraries,
        problems=tuple(reported),
        remarks=tuple(remarks),
        admissions=conformance.read_statuses(wheel, facts, sha256) if facts else (),
    )


def _find_kernel_problems(
    wheel: Path, facts: Tuned, libraries: Collection[WheelLibrary], kept_in: Path
) -> Iterator[str]:
    """Yield a line for each difference between tuned.json and the libraries of Tensorwright in a
    wheel of kernels.
    """
    yield from claims.find_problems(facts, libraries)
    control = tuned.is_control(facts)
    for library in libraries:
        if library.role is Role.DISPATCHER:
            yield from find_dispatcher_problems(wheel, library.file, facts, kept_in)
        yield from _describe_foreign(
            wheel, library, claims.count_foreign(library, control=control), kept_in
        )


def _select_beyond_flags(
    libraries: Collection[WheelLibrary], members: Mapping[str, Member]
) -> dict[str, Member]:
    """Return the x86-64 libraries that have instructions beyond the stock wheel's flags."""
    allowed = {"x86_64", *STOCK_BASELINE}
    return {
        library.file: members[library.file]
        for library in libraries
        if "x86_64" in library.census and not library.census.keys() <= allowed
    }


def check_audit(wheel_audit: Audit) -> None:
    """Raise AuditError if the wheel has problems."""
    if wheel_audit.problems:
        first, *further_problems = wheel_audit.problems
        more = f" (and {len(further_problems)} more)" if further_problems else ""
        raise AuditError(
            f"{wheel_audit.wheel} failed the audit: {first}{more}",
            hint="Do not publish the wheel. Build it again",
        )


def _find_published(identity: WheelIdentity) -> StockWheel | None:
    """Return the published wheel of the same name, version, Python and machine, if the table
    pins it.
    """
    interpreter, _, platform = identity.tags[0].split("-")
    machine = next(
        (architecture for architecture in ARCHITECTURES if platform.endswith(architecture)), ""
    )
    version = Version(identity.version).public
    return releases.find_stock_wheel(identity.name, version, interpreter, machine)


def find_stock(wheel: Path, facts: Tuned) -> StockWheel | None:
    """Return the published wheel to compare a wheel of kernels with.

    None for a full build, and if the table pins none that tuned.json names too, which the
    audit reports as a problem.
    """
    pinned = _find_published(read_identity(wheel))
    if facts.tree is not None or pinned is None or _is_other_stock(pinned, facts):
        return None
    return pinned


def _find_stock_problems(
    identity: WheelIdentity, facts: Tuned, pinned: StockWheel | None
) -> Iterator[str]:
    """Yield why a tuned wheel's other files cannot be compared with the published ones."""
    if pinned is not None and _is_other_stock(pinned, facts):
        yield f"tuned.json names a stock wheel other than {pinned.file}"
    elif pinned is None and facts.tree is None:
        yield (
            f"no stock wheel of {identity.name} {Version(identity.version).public} for "
            f"{identity.tags[0]} is known, so its other files cannot be checked"
        )


def _locate_stock(
    pinned: StockWheel | None, facts: Tuned | None, paths: Paths, stock_path: Path | None
) -> tuple[Path | None, bool]:
    """Return the stock wheel that a wheel was built from, or is, and whether its hash was checked.

    The wheel is None if it is not available.
    """
    if stock_path is not None:
        if facts is None or _has_no_stock(facts):
            return stock_path, False
        return verify_file(stock_path, Pin(name=stock_path.name, sha256=facts.stock_sha256)), True
    if pinned is None or _is_other_stock(pinned, facts):
        return None, False
    path = paths.downloads / pinned.file
    # Other bytes may be those of a download that another process has begun, so the file stays.
    intact = path.is_file() and hash_file(path) == pinned.sha256
    return (path if intact else None), True


def _is_other_stock(pinned: StockWheel, facts: Tuned | None) -> bool:
    return facts is not None and not _has_no_stock(facts) and facts.stock_sha256 != pinned.sha256


def _has_no_stock(facts: Tuned) -> bool:
    """Return whether it is a full build for which no published wheel exists to compare with."""
    return facts.tree is not None and not facts.stock_sha256


def _build_libraries(
    facts: Tuned | None,
    members: Mapping[str, Member],
    theirs: Mapping[str, Member] | None,
    shown: Mapping[str, LibraryFacts],
    before: Mapping[str, LibraryFacts],
    unregistered: Mapping[str, tuple[str, ...]],
) -> tuple[WheelLibrary, ...]:
    """Return the libraries of the wheel.

    `shown` are the facts of the wheel's libraries, `before` those of stock ones that differ,
    `unregistered` the ops that kernel libraries lack.
    """
    kernels = {library.file: library for library in facts.libraries} if facts else {}
    tree = facts.tree if facts else None
    return tuple(
        WheelLibrary(
            file=file,
            name=kernels[file].name if file in kernels else PurePosixPath(file).name,
            role=(
                _choose_role(file, kernels, members, theirs, {*filter(unregistered.get, kernels)})
                if tree is None
                else Role.TREE
            ),
            size=members[file].size,
            sha256=members[file].sha256,
            census=shown[file].census,
            difference=None if theirs is None else _compare_census(file, shown, before, theirs),
            required=_list_required(kernels.get(file, tree)),
            floors=shown[file].floors,
            needed=shown[file].needed,
            isa_needed=shown[file].isa_needed,
            unregistered=unregistered.get(file, ()),
        )
        for file in sorted(members)
    )


def _list_required(build: KernelLibrary | TunedTree | None) -> tuple[str, ...]:
    return build.required_features if build else ()


def _choose_role(
    file: str,
    kernels: Mapping[str, KernelLibrary],
    members: Mapping[str, Member],
    theirs: Mapping[str, Member] | None,
    idle: Collection[str],
) -> Role:
    if file in kernels and file not in (theirs or ()):
        claimed = Member(size=kernels[file].size, sha256=kernels[file].sha256)
        return Role.FALSE if members[file] != claimed or file in idle else Role.KERNELS
    if file == _DISPATCHER:
        return Role.DISPATCHER
    if theirs is None:
        return Role.OTHER
    if file not in theirs:
        return Role.ADDED
    return Role.STOCK if members[file] == theirs[file] else Role.CHANGED


def _compare_census(
    file: str,
    shown: Mapping[str, LibraryFacts],
    before: Mapping[str, LibraryFacts],
    theirs: Mapping[str, Member],
) -> Mapping[str, int]:
    if file in theirs and file not in before:
        return {}
    old = before[file].census if file in before else {}
    new = shown[file].census
    names = (*new, *(name for name in old if name not in new))
    changes = {name: new.get(name, 0) - old.get(name, 0) for name in names}
    return {name: change for name, change in changes.items() if change}


def _find_platform_problems(
    policy: manylinux.Policy | None, libraries: Collection[WheelLibrary]
) -> Iterator[str]:
    """Yield a line for each library that requires more than the wheel's tags promise, or is for
    another machine.
    """
    if policy is None:
        return
    beside = frozenset(PurePosixPath(library.file).name for library in libraries)
    for library in libraries:
        machine = next(iter(library.census), "")
        if machine in ARCHITECTURES and not policy.name.endswith(machine):
            yield f"{library.file} is for {machine}, the wheel's platform is {policy.name}"
        for breach in manylinux.find_breaches(policy, library.floors, library.needed, beside):
            yield f"{library.file}: {breach}"


def _describe_foreign(
    wheel: Path, library: WheelLibrary, counted: Mapping[str, int], folder: Path
) -> Iterator[str]:
    """Yield each feature that a library must not use, the number of its instructions, and the
    first few locations.
    """
    if not counted:
        return
    with tempfile.TemporaryDirectory(prefix=".unpacked.", dir=folder) as unpacked:
        extract(wheel, (library.file,), Path(unpacked) / "wheel")
        for name, times in counted.items():
            uses = census.find_uses(Path(unpacked) / "wheel" / library.file, {name}, _FEW_USES)
            shown = "; ".join(map(str, uses)) + ("; …" if times > len(uses) else "")
            kind = "unknown" if name == UNDECODED else name
            number = console.format_count(times, f"{kind} instruction")
            yield f"{library.name}: {number}, which it must not use: {shown}"


# ---- output ----


def describe(wheel_audit: Audit) -> str:
    """Describe the audit as tables, followed by its remarks and problems in one line each."""
    head = [
        ("wheel", f"{wheel_audit.wheel} ({console.format_size(wheel_audit.size)})"),
        ("sha256", wheel_audit.sha256),
        ("stock", wheel_audit.stock or "not available: the wheel was not compared with it"),
        ("platform", wheel_audit.platform or "none (linux tag)"),
        ("targets", ", ".join(wheel_audit.targets) or "none: this is not a tuned wheel"),
        *((("sources", wheel_audit.sources),) if wheel_audit.sources else ()),
        *(
            ("default", f"{target}: {defaults.describe(default)}")
            for target, carried in wheel_audit.defaults.items()
            for default in carried
        ),
    ]
    head += [
        ("kernels", f"{status.target}: {conformance.describe(status)}")
        for status in wheel_audit.admissions
    ]
    groups = _group_libraries(wheel_audit.libraries)
    tables = (head, _build_library_rows(groups), _build_instruction_rows(groups))
    remarks = [f"remark: {remark}" for remark in wheel_audit.remarks]
    verdict = [f"problem: {problem}" for problem in wheel_audit.problems] or [
        _describe_approval(wheel_audit)
    ]
    return "\n".join([*(_align_columns(rows) for rows in tables), *remarks, *verdict, ""])


def _describe_approval(wheel_audit: Audit) -> str:
    if any(library.role is Role.TREE for library in wheel_audit.libraries):
        return "The audit passed. Files of TensorFlow's own build were checked only against RECORD."
    if wheel_audit.targets and not wheel_audit.stock:
        return "The audit passed; files other than libraries were not compared (--stock PATH)."
    return "The audit passed."


def _group_libraries(libraries: Collection[WheelLibrary]) -> dict[str, list[WheelLibrary]]:
    """Group the libraries: the kernel libraries by their names, the others by role."""
    roles = [*Role]
    groups: dict[str, list[WheelLibrary]] = {}
    for library in sorted(libraries, key=lambda wheel_library: roles.index(wheel_library.role)):
        key = library.name if library.role is Role.KERNELS else library.role.value
        groups.setdefault(key, []).append(library)
    return groups


def _build_library_rows(groups: Mapping[str, Collection[WheelLibrary]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("libraries", "number", "size", "requires", "ISA marker")]
    for name, libraries in groups.items():
        size = console.format_size(sum(library.size for library in libraries))
        marks = sorted({library.isa_needed for library in libraries if library.isa_needed})
        rows.append(
            (name, str(len(libraries)), size, _format_floors(libraries), " ".join(marks) or "none")
        )
    return rows


def _build_instruction_rows(
    groups: Mapping[str, Collection[WheelLibrary]],
) -> list[tuple[str, ...]]:
    """Return a row for each feature, a column for each group.

    Cells count the instructions that stock lacks; for stock's own libraries, all instructions.
    0 is a feature that is required and not used.
    """
    columns = {name: _count_instructions(libraries) for name, libraries in groups.items()}
    order = [name for machine in ARCHITECTURES for name in (machine, *load_features(machine))]
    names = {name: None for column in columns.values() for name in column}
    rows = [("instructions", *columns)]
    for name in sorted(
        names, key=lambda feature: order.index(feature) if feature in order else len(order)
    ):
        label = f"{name} baseline" if name in ARCHITECTURES else name
        rows.append((label, *(f"{c[name]:,}" if name in c else "" for c in columns.values())))
    return rows


def _count_instructions(libraries: Collection[WheelLibrary]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for library in libraries:
        total.update(dict.fromkeys(library.required, 0))
        total.update(
            library.census if library.role is Role.STOCK else library.difference or library.census
        )
    # These are part of the baseline's row.
    return {name: n for name, n in total.items() if name not in {"mmx", "sse", "sse2"}}


def _format_floors(libraries: Collection[WheelLibrary]) -> str:
    """Return the newest version of each runtime family that any of the libraries requires."""
    newest: dict[str, Version] = {}
    for library in libraries:
        for family, version in library.floors.items():
            newest[family] = max(newest.get(family, Version("0")), Version(version))
    return (
        " ".join(f"{family} {version}" for family, version in sorted(newest.items())) or "nothing"
    )


def _align_columns(rows: Sequence[tuple[str, ...]]) -> str:
    """Return the rows as a table with aligned columns, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if number and cell.replace(",", "").isdigit() else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)
