"""Compare tuned.json with the libraries of the wheel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from tfbuild.auditing.runtime_dispatch import Attribution
from tfbuild.binaries.instructions import UNDECODED
from tfbuild.packing.tuned import KernelLibrary, TreeLibrary, Tuned, TunedTree, is_control
from tfbuild.planning.defaults import find_default_problems
from tfbuild.planning.dispatcher import LIBRARY_FOLDER
from tfbuild.upstream.kernels import FOLDER
from tfcore.console import format_count
from tfcore.cpus import flags
from tfcore.cpus.features import ARCHITECTURES, STOCK_BASELINE
from tfcore.cpus.targets import STOCK_SPECS, parse_target
from tfcore.errors import TargetError

_FOLDER = PurePosixPath(FOLDER, LIBRARY_FOLDER)
# The dispatcher reads the state that the operating system saves (XGETBV), if CPUID permits it.
_DISPATCHER_USES = frozenset({"xsave"})


class Role(StrEnum):
    """The role of a library in its wheel.

    OTHER is a library that was not compared, because no stock wheel was available. FALSE is a
    kernel library that differs from tuned.json.
    """

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

    `name` is the name in the dispatcher for a kernel library, else the file's name. `census` is
    the result of census.count_instructions, and `difference` the same minus the census of the
    stock library with this path; None if no stock wheel is available. `required` are the
    features that a CPU must have before the library is loaded, `unregistered` the ops that
    tuned.json lists and the library does not register.
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


def find_problems(tuned: Tuned, libraries: Collection[WheelLibrary]) -> Iterator[str]:
    """Yield a line for each difference from tuned.json, except foreign instructions."""
    present = {library.file: library for library in libraries}
    for name, times in Counter(claimed.file for claimed in tuned.libraries).items():
        if times > 1:
            yield f"tuned.json lists {name} {times} times"
    for claim in tuned.libraries:
        if PurePosixPath(claim.file).parent != _FOLDER:
            yield f"{claim.name}: {claim.file} is not in {_FOLDER}"
        if claim.file not in present:
            yield f"{claim.name}: {claim.file} is missing"
            continue
        actual = present[claim.file]
        yield from (f"{claim.name}: {problem}" for problem in _find_claim_problems(claim, actual))
        if not is_control(tuned) and is_idle(actual):
            yield (
                f"{claim.name}: its flags had no effect, it has no instruction of "
                f"{', '.join(_list_beyond_stock(actual.required))}"
            )
    if not any(library.role is Role.DISPATCHER for library in libraries):
        yield "the dispatcher is missing"
    for library in libraries:
        if library.role is Role.DISPATCHER and library.isa_needed not in {"", "x86-64"}:
            yield f"the dispatcher's ISA marker requires {library.isa_needed}"


def find_full_build_problems(
    tree: TunedTree, libraries: Collection[WheelLibrary], attributions: Mapping[str, Attribution]
) -> Iterator[str]:
    """Yield a line for each difference of a full build from tuned.json.

    `attributions` are those of the libraries that have instructions beyond the stock
    wheel's flags. Code that is selected at run time may use any feature, all other code only
    features of the target.
    """
    present = {library.file: library for library in libraries}
    yield from (f"{file} is missing" for file in sorted(tree.libraries.keys() - present.keys()))
    yield from (f"tuned.json does not list {f}" for f in sorted(present.keys() - tree.libraries))
    for file in sorted(tree.libraries.keys() & present.keys()):
        yield from (
            f"{file}: {problem}"
            for problem in _find_byte_problems(tree.libraries[file], present[file])
        )
    yield from _find_target_problems(tree)
    for file, attribution in attributions.items():
        for feature in sorted(attribution.own.keys() - {*tree.required_features, UNDECODED}):
            examples = ", ".join(attribution.first[feature])
            uses = format_count(attribution.own[feature], f"{feature} instruction")
            yield (
                f"{file}: {uses}, which {tree.target} does not require, in code that is not known "
                f"to check the CPU: {examples}"
            )
    beyond = _list_beyond_stock(tree.required_features)
    used = {
        name
        for attribution in attributions.values()
        for name in (*attribution.own, *attribution.nameless)
    }
    if tree.target not in STOCK_SPECS and _is_wider(beyond) and used.isdisjoint(beyond):
        yield (
            f"its flags had no effect: only code that is selected at run time has instructions of "
            f"{', '.join(beyond)}"
        )


def list_unjudged(
    tree: TunedTree, libraries: Collection[WheelLibrary], attributions: Mapping[str, Attribution]
) -> Iterator[str]:
    """Yield the instructions of a full build that the audit cannot check."""
    for library in libraries:
        attribution = attributions.get(library.file)
        if attribution is None:
            unrequired = (
                {} if library.census.get("x86_64") else _select_unrequired(tree, library.census)
            )
            reason = "the audit distinguishes functions only on x86-64"
        else:
            unrequired, reason = (
                _select_unrequired(tree, attribution.nameless),
                "no function name",
            )
        for feature, times in unrequired.items():
            uses = format_count(times, f"{feature} instruction")
            yield f"{library.file}: {uses} not checked: {reason}"
        data = attribution.own.get(UNDECODED, 0) if attribution else 0
        if data:
            uses = format_count(data, "unknown instruction")
            yield f"{library.file}: {uses}, probably data among assembler"


def _select_unrequired(tree: TunedTree, counted: Mapping[str, int]) -> dict[str, int]:
    """Return the counted features that the target does not require."""
    known = {*tree.required_features, *ARCHITECTURES}
    return {name: times for name, times in counted.items() if name not in known}


def count_foreign(library: WheelLibrary, *, control: bool) -> dict[str, int]:
    """Count the instructions of a library of Tensorwright by each feature that it must not use.

    Kernels may use the features that the dispatcher checks before it loads them; kernels of the
    control wheel may use the stock wheel's features. The dispatcher must run on any CPU.
    """
    if library.role is Role.KERNELS:
        allowed = STOCK_BASELINE if control else frozenset(library.required)
    elif library.role is Role.DISPATCHER:
        allowed = _DISPATCHER_USES
    else:
        return {}
    counts = library.census.items()
    return {name: n for name, n in counts if name not in allowed and name not in ARCHITECTURES}


def is_idle(library: WheelLibrary) -> bool:
    """Return whether a library that may use wider vectors than the stock wheel, or FMA, uses
    nothing beyond the stock wheel's flags.
    """
    beyond = _list_beyond_stock(library.required)
    return _is_wider(beyond) and not any(name in library.census for name in beyond)


def _is_wider(beyond: Collection[str]) -> bool:
    return any(name in {"avx2", "fma"} or name.startswith("avx512") for name in beyond)


def _list_beyond_stock(required: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted({*required} - STOCK_BASELINE))


def _find_claim_problems(claim: KernelLibrary, shown: WheelLibrary) -> Iterator[str]:
    """Yield a line for each difference between a kernel library and its entry in tuned.json."""
    yield from _find_byte_problems(claim, shown)
    yield from _find_target_problems(claim)
    if shown.unregistered:
        yield f"it does not register {', '.join(shown.unregistered)}, which tuned.json lists"
    if not claim.registrations:
        yield "tuned.json lists no registrations of it"
    if {*claim.admission} != {*claim.kernels}:
        yield "tuned.json does not list a conformance test for each of its kernel groups"


def _find_byte_problems(claim: KernelLibrary | TreeLibrary, shown: WheelLibrary) -> Iterator[str]:
    """Yield a line for each difference between a library's bytes and its entry in tuned.json."""
    if (claim.size, claim.sha256) != (shown.size, shown.sha256):
        yield "its size or hash differs from tuned.json"
    if dict(claim.floors) != dict(shown.floors):
        claimed, actual = _format_floors(claim.floors), _format_floors(shown.floors)
        yield f"tuned.json states that it requires {claimed}, it requires {actual}"
    if dict(claim.census) != dict(shown.census):
        name = min(claim.census.items() ^ shown.census.items())[0]
        expected, present = claim.census.get(name, 0), shown.census.get(name, 0)
        yield f"tuned.json counts {expected} instructions of {name}, it has {present}"


def _find_target_problems(claim: KernelLibrary | TunedTree) -> Iterator[str]:
    """Yield a line for each entry in tuned.json that does not fit its target."""
    try:
        target = parse_target(claim.target)
    except TargetError as error:
        yield f"tuned.json names an unknown target ({error.message})"
        return
    if claim.name != target.local:
        yield f"tuned.json states the target {claim.target}, whose name is {target.local}"
    unrequired = flags.compute_required_features(target, {}) - {*claim.required_features}
    if unrequired:
        yield f"tuned.json does not require {', '.join(sorted(unrequired))} for {claim.target}"
    yield from find_default_problems(claim.defaults, target)


def _format_floors(floors: Mapping[str, str]) -> str:
    return ", ".join(f"{family} {version}" for family, version in floors.items()) or "nothing"
