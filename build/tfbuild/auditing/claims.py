"""What a tuned wheel says of itself, held against what its libraries show. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from tfbuild.auditing.dispatched import Attribution
from tfbuild.binaries.instructions import UNDECODED
from tfbuild.cpus import flags
from tfbuild.cpus.features import ARCHITECTURES, STOCK_BASELINE
from tfbuild.cpus.targets import STOCK_SPECS, parse_target
from tfbuild.errors import TargetError
from tfbuild.packing.tuned import KernelLibrary, TreeLibrary, Tuned, TunedTree, is_control
from tfbuild.planning.defaults import undue
from tfbuild.planning.dispatcher import KERNEL_FOLDER, LIBRARY_FOLDER

_FOLDER = PurePosixPath(KERNEL_FOLDER, LIBRARY_FOLDER)
# The dispatcher reads what state the operating system saves (XGETBV), once CPUID has said it can.
_DISPATCHER_USES = frozenset({"xsave"})


class Role(StrEnum):
    """What a library is in its wheel. OTHER is one that no stock wheel was at hand for, and FALSE
    one in the place of kernels that are not what tuned.json says of them."""

    STOCK = "as stock"
    CHANGED = "not as stock"
    ADDED = "not in stock"
    OTHER = "not compared"
    DISPATCHER = "dispatcher"
    KERNELS = "kernels"
    FALSE = "not tuned.json's"
    TREE = "full build"


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelLibrary:
    """A library in a wheel.

    `name` is the dispatcher's for a kernel library, else the file's. `census` is that of
    census.census, and `difference` the same less the stock library's in its place; None where no
    stock wheel is at hand. `required` are the features that a CPU must have before it is loaded,
    `unregistered` the ops that tuned.json says it registers, and it does not.
    """

    file: str
    name: str
    role: Role
    size: int
    sha256: str
    census: Mapping[str, int]
    difference: Mapping[str, int] | None
    required: tuple[str, ...]
    floors: Mapping[str, str]
    needed: tuple[str, ...]
    isa_needed: str
    unregistered: tuple[str, ...] = ()


def problems(tuned: Tuned, libraries: Collection[WheelLibrary]) -> Iterator[str]:
    """Everything that is not as tuned.json says, a line each, but for foreign instructions."""
    there = {library.file: library for library in libraries}
    for name, times in Counter(each.file for each in tuned.libraries).items():
        if times > 1:
            yield f"tuned.json names {name} {times} times"
    for claim in tuned.libraries:
        if PurePosixPath(claim.file).parent != _FOLDER:
            yield f"{claim.name}: {claim.file} does not lie in {_FOLDER}"
        if claim.file not in there:
            yield f"{claim.name}: there is no {claim.file}"
            continue
        shown = there[claim.file]
        yield from (f"{claim.name}: {what}" for what in _untrue(claim, shown))
        if not is_control(tuned) and is_idle(shown):
            yield (
                f"{claim.name}: its flags did nothing, there is no instruction of "
                f"{', '.join(_beyond_stock(shown.required))}"
            )
    if not any(library.role is Role.DISPATCHER for library in libraries):
        yield "there is no dispatcher"
    for library in libraries:
        if library.role is Role.DISPATCHER and library.isa_needed not in {"", "x86-64"}:
            yield f"the dispatcher is marked to need {library.isa_needed}"


def full_build_problems(
    tree: TunedTree, libraries: Collection[WheelLibrary], found: Mapping[str, Attribution]
) -> Iterator[str]:
    """Everything in a full build that is not as tuned.json says, a line each.

    `found` says whose the instructions are, of the libraries that have any beyond the stock wheel's
    flags. Code that is chosen at run time may be for any CPU, all other for the target only.
    """
    there = {library.file: library for library in libraries}
    yield from (f"there is no {file}" for file in sorted(tree.libraries.keys() - there.keys()))
    yield from (f"tuned.json does not name {f}" for f in sorted(there.keys() - tree.libraries))
    for file in sorted(tree.libraries.keys() & there.keys()):
        yield from (f"{file}: {what}" for what in _unlike(tree.libraries[file], there[file]))
    yield from _unfit(tree)
    for file, each in found.items():
        for feature in sorted(each.own.keys() - {*tree.required_features, UNDECODED}):
            shown = ", ".join(each.first[feature])
            yield (
                f"{file}: {each.own[feature]} of {feature}, which {tree.target} does not require, "
                f"in code that is not known to ask the CPU: {shown}"
            )
    beyond = _beyond_stock(tree.required_features)
    used = {name for each in found.values() for name in (*each.own, *each.nameless)}
    if tree.target not in STOCK_SPECS and _is_wider(beyond) and used.isdisjoint(beyond):
        yield (
            f"its flags did nothing, there is no instruction of {', '.join(beyond)} but in code "
            "that is chosen at run time"
        )


def unjudged(
    tree: TunedTree, libraries: Collection[WheelLibrary], found: Mapping[str, Attribution]
) -> Iterator[str]:
    """The instructions of a full build of which the audit cannot tell whether they may be there."""
    for library in libraries:
        each = found.get(library.file)
        if each is None:
            strange = {} if library.census.get("x86_64") else _strange(tree, library.census)
            why = "whose functions are not told apart on this machine"
        else:
            strange, why = _strange(tree, each.nameless), "in functions without a name"
        for feature, times in strange.items():
            yield f"{library.file}: {times} of {feature} {why}: not judged"
        data = each.own.get(UNDECODED, 0) if each else 0
        if data:
            yield f"{library.file}: {data} places are no instructions, as data among assembler is"


def _strange(tree: TunedTree, counted: Mapping[str, int]) -> dict[str, int]:
    """Those of the counted features that the target does not require."""
    known = {*tree.required_features, *ARCHITECTURES}
    return {name: times for name, times in counted.items() if name not in known}


def foreign(library: WheelLibrary, *, control: bool) -> dict[str, int]:
    """The features, with instructions counted, that a library of ours uses and must not.

    Kernels may use what is asked for before they are loaded; those of the control wheel, what the
    stock wheel is compiled for. The dispatcher runs anywhere.
    """
    if library.role is Role.KERNELS:
        allowed = STOCK_BASELINE if control else frozenset(library.required)
    elif library.role is Role.DISPATCHER:
        allowed = _DISPATCHER_USES
    else:
        return {}
    rest = library.census.items()
    return {name: n for name, n in rest if name not in allowed and name not in ARCHITECTURES}


def is_idle(library: WheelLibrary) -> bool:
    """Whether a library that may use wider vectors than the stock wheel, or FMA, uses nothing that
    the stock wheel's flags have not."""
    beyond = _beyond_stock(library.required)
    return _is_wider(beyond) and not any(name in library.census for name in beyond)


def _is_wider(beyond: Collection[str]) -> bool:
    return any(name in {"avx2", "fma"} or name.startswith("avx512") for name in beyond)


def _beyond_stock(required: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted({*required} - STOCK_BASELINE))


def _untrue(claim: KernelLibrary, shown: WheelLibrary) -> Iterator[str]:
    """Where a kernel library is not what tuned.json says of it."""
    yield from _unlike(claim, shown)
    yield from _unfit(claim)
    if shown.unregistered:
        yield f"it does not register {', '.join(shown.unregistered)}, as tuned.json says"
    if not claim.registrations:
        yield "tuned.json does not say what it registers"
    if {*claim.admission} != {*claim.kernels}:
        yield "tuned.json does not say of each of its kernel units how it was admitted"


def _unlike(claim: KernelLibrary | TreeLibrary, shown: WheelLibrary) -> Iterator[str]:
    """Where a library's bytes show something else than tuned.json says."""
    if (claim.size, claim.sha256) != (shown.size, shown.sha256):
        yield "its bytes are not those that tuned.json names"
    if dict(claim.floors) != dict(shown.floors):
        said, actual = _listed(claim.floors), _listed(shown.floors)
        yield f"tuned.json says that it asks for {said}, it asks for {actual}"
    if dict(claim.census) != dict(shown.census):
        name = min(claim.census.items() ^ shown.census.items())[0]
        counted, there = claim.census.get(name, 0), shown.census.get(name, 0)
        yield f"tuned.json counts {counted} instructions of {name}, there are {there}"


def _unfit(claim: KernelLibrary | TunedTree) -> Iterator[str]:
    """Where what tuned.json says of a target is not the target's."""
    try:
        target = parse_target(claim.target)
    except TargetError as error:
        yield f"tuned.json has a target that nobody knows ({error.message})"
        return
    if claim.name != target.local:
        yield f"tuned.json says that it is for {claim.target}, which is called {target.local}"
    unasked = flags.compute_required_features(target, {}) - {*claim.required_features}
    if unasked:
        yield f"tuned.json does not require {', '.join(sorted(unasked))} of {claim.target}"
    yield from undue(claim.defaults, target)


def _listed(floors: Mapping[str, str]) -> str:
    return ", ".join(f"{family} {version}" for family, version in floors.items()) or "nothing"
