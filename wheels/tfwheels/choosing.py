"""Which wheel a target's page lists: of each package, public version, Python and machine, one.

An installer takes the highest version that a page lists, and no local version says what a CPU can
run. So a page never lists two of them; the choice is made here. A CPU that lacks what the published
wheels are compiled for gets none but a full build: the stock code in the others would end it with
an illegal instruction.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from archspec.cpu import TARGETS
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tfbuild.cpus.cpu import compute_x86_64_level
from tfbuild.cpus.features import ARCHITECTURES, STOCK_BASELINE
from tfbuild.cpus.targets import Target, list_targets, parse_target
from tfbuild.errors import PublishError
from tfwheels.entry import Entry, WheelKind

_SYSTEM = re.compile(r"any|manylinux|musllinux|linux|macosx|win")
# A wheel for "linux" is for every C library.
_SYSTEMS = {"linux": ("manylinux", "musllinux")}
_MACHINES: Mapping[str, tuple[str, ...]] = {
    "any": ARCHITECTURES,
    "x86_64": ("x86_64",),
    "amd64": ("x86_64",),
    "aarch64": ("aarch64",),
    "arm64": ("aarch64",),
    "universal2": ARCHITECTURES,
}
_FEW = 5
_NEEDS: Mapping[str, frozenset[str]] = {
    # Every x86-64 CPU has SSE and SSE2 (psABI); archspec's x86_64 does not say so.
    "x86_64": STOCK_BASELINE - {"sse", "sse2"},
    # The published wheels are compiled for the first version of the architecture.
    "aarch64": frozenset(),
}
"""What stock TensorFlow needs of a CPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageChoice:
    """The wheel that a page lists instead of its rivals. `library` is the spec of the kernels in it
    that a CPU of the target runs; empty for the stock wheel."""

    entry: Entry
    library: str
    rivals: tuple[Entry, ...]


def choose(entries: Iterable[Entry], target: Target) -> tuple[PageChoice, ...]:
    """What the target's pages list of the tuned and stock wheels."""
    decided = (decide(contest, target) for contest in contests(entries))
    return tuple(choice for choice in decided if choice is not None)


def contests(entries: Iterable[Entry]) -> tuple[tuple[Entry, ...], ...]:
    """The tuned and stock wheels, those together of which a page lists one."""
    found: dict[tuple[str, Version, tuple[str, ...]], list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.kind is not WheelKind.PLAIN:
            hosts = tuple(sorted(_hosts(entry.tags)))
            found[entry.name, Version(entry.public), hosts].append(entry)
    return tuple(tuple(sorted(found[key], key=lambda entry: entry.file)) for key in sorted(found))


def decide(contest: tuple[Entry, ...], target: Target) -> PageChoice | None:
    """The best of the tuned wheels that fit the target, else the stock wheel, else nothing.

    It is the greatest of a total order in which each wheel's place depends on it and the target
    only. So neither the order of the wheels nor one that is not chosen can change the choice.
    """
    usable = [entry for entry in contest if made_for(entry, target.family)]
    fitting = [entry for entry in usable if _library(entry, target)]
    stock = [each for each in usable if each.kind is WheelKind.STOCK and not stock_lacks(target)]
    best = max(fitting or stock, key=lambda entry: _rank(entry, target), default=None)
    if best is None:
        return None
    library = _library(best, target)
    return PageChoice(
        entry=best,
        library=library.spec if library else "",
        rivals=tuple(entry for entry in contest if entry != best),
    )


def made_for(entry: Entry, family: str) -> bool:
    """Whether the wheel is for machines of that family, by its tags."""
    return any(host.endswith(f"_{family}") for host in _hosts(entry.tags))


def stock_lacks(target: Target) -> tuple[str, ...]:
    """The features that stock TensorFlow needs and the target has not: AVX and older ones."""
    return tuple(sorted(_NEEDS[target.family] - target.features))


def why_without(target: Target) -> str:
    """Why the target's page lists no TensorFlow but full builds; empty where it may list all."""
    lacks = stock_lacks(target)
    if not lacks:
        return ""
    return (
        f"{target.name} lacks {', '.join(lacks)}, which TensorFlow's wheels need, those with tuned "
        f"kernels too: only a full build may stand here (invoke build --scope full --arch "
        f"{target.name})"
    )


def targets_for(entries: Iterable[Entry], family: str | None = None) -> tuple[Target, ...]:
    """The targets that an index of these wheels has pages for: those of the family, or else of
    every family that a wheel is made for alone; of all where no wheel tells."""
    made = [{each for each in ARCHITECTURES if made_for(entry, each)} for entry in entries]
    alone = (each for each in made if len(each) == 1)
    families = {family} if family else set[str]().union(*alone)
    return tuple(each for each in list_targets() if each.family in (families or set(ARCHITECTURES)))


def explain(choice: PageChoice, target: Target) -> dict[str, str]:
    """Each wheel's file and why it was chosen, or was not; the chosen one first."""
    reasons = {choice.entry.file: _why_chosen(choice, target)}
    return reasons | {rival.file: _why_not(rival, choice, target) for rival in choice.rivals}


def refuse_ambiguous(page: str, files: Iterable[str]) -> None:
    """Raises PublishError when a host could install either of two files that differ in nothing but
    the local part of the version: pip and uv would take the alphabetically last."""
    same: dict[tuple[str, Version], list[str]] = defaultdict(list)
    for file in sorted(files):
        name, version, _ = _parsed(file)
        same[name, Version(version.public)].append(file)
    for together in same.values():
        for one, other in itertools.combinations(together, 2):
            if _parsed(one)[1] != _parsed(other)[1] and _meet(_parsed(one)[2], _parsed(other)[2]):
                raise PublishError(
                    f"{page} would list both {one} and {other}: an installer takes the "
                    "alphabetically last, whatever the CPU"
                )


def _library(entry: Entry, target: Target) -> Target | None:
    """What of the wheel a CPU with the target's features runs: the library that the dispatcher
    takes, or all of a full build, if that can be imported at all."""
    if not entry.whole and stock_lacks(target):
        return None
    libraries = (_parse(spec) for spec in entry.targets)
    fitting = next((library for library in libraries if _fits(library, target)), None)
    if fitting is None or not entry.whole or _has_all(entry, fitting, target):
        return fitting
    return None


def _has_all(entry: Entry, library: Target, target: Target) -> bool:
    """Whether every CPU of the target has what a full build asks for. archspec names less than the
    compilers use, so the library's own target and its descendants are taken to have it."""
    return library.name in _line(target.name) or target.features.issuperset(entry.required)


def _fits(library: Target, target: Target) -> bool:
    """archspec lists no features of the versions of the Arm architecture, so that of an aarch64
    library proves nothing; there only the CPU itself and its descendants count."""
    return (
        library.family == target.family
        and library.features <= target.features
        and (library.family != "aarch64" or library.name in _line(target.name))
    )


def _rank(entry: Entry, target: Target) -> tuple[tuple[int, ...], bool, int, str, str]:
    """Orders what fits by its library, then by what is alike but for the packing.

    Of two for the same target a full build is the better: it has all of TensorFlow for the target,
    the other some kernels.
    """
    library = _library(entry, target)
    nearness = _nearness(library, target) if library else ()
    return nearness, entry.whole, -entry.size, entry.version, entry.file


def _nearness(library: Target, target: Target) -> tuple[int, ...]:
    """Orders libraries that fit: by archspec's partial order, the maker, the number of features.

    Of two ancestors of which neither descends from the other, the x86-64 level decides, as it does
    when archspec names a host: for zen4, x86_64_v4 is nearer than zen3.
    """
    ancestor = library.name in _line(target.name)
    return (
        compute_x86_64_level(library.features) if ancestor else 0,
        len(_line(library.name)) if ancestor else 0,
        TARGETS[library.tune].vendor == target.vendor,
        len(library.features),
    )


@functools.cache
def _parse(spec: str) -> Target:
    return parse_target(spec)


@functools.cache
def _line(name: str) -> frozenset[str]:
    """A target and its ancestors."""
    return frozenset((name, *(each.name for each in TARGETS[name].ancestors)))


def _why_chosen(choice: PageChoice, target: Target) -> str:
    if choice.library == target.name:
        what = "it is all built for" if choice.entry.whole else "it has kernels for"
        return f"{what} {target.name}"
    if choice.library:
        if choice.entry.whole:
            return f"it is all built for {choice.library}, the nearest that {target.name} can run"
        return f"its kernels for {choice.library} are the nearest that {target.name} can run"
    return f"stock: no tuned wheel fits {target.name}"


def _why_not(rival: Entry, choice: PageChoice, target: Target) -> str:
    if not made_for(rival, target.family):
        return f"it is not for {target.family}"
    if not rival.whole and stock_lacks(target):
        lacks = ", ".join(stock_lacks(target))
        return f"{target.name} lacks {lacks}, which the stock code in it needs"
    if rival.kind is WheelKind.STOCK:
        return "a tuned wheel fits" if choice.library else "another stock wheel of this version"
    library = _library(rival, target)
    if library is None:
        return f"{target.name} {_obstacle(rival, target)}"
    if library.spec != choice.library:
        what = "code" if rival.whole else "kernels"
        return f"its {what} for {library.spec} {'is' if rival.whole else 'are'} less near"
    if choice.entry.whole and not rival.whole:
        return "only its kernels are for that target"
    return "it has the same kernels in a file that is no smaller"


def _obstacle(rival: Entry, target: Target) -> str:
    """What keeps the target from the library that it comes nearest to."""
    lacks = min((_parse(spec).features - target.features for spec in rival.targets), key=len)
    lacks = lacks or frozenset(rival.required) - target.features
    if not lacks:
        return f"does not descend from {', '.join(rival.targets)}"
    more = len(lacks) - _FEW
    return f"lacks {', '.join(sorted(lacks)[:_FEW])}" + (f" and {more} more" if more > 0 else "")


@functools.cache
def _hosts(tags: tuple[str, ...]) -> frozenset[str]:
    """The kinds of host that the tags are for: interpreter, ABI, system and machine. The version of
    the C library or system is left out, so cp311-cp311-manylinux_x86_64."""
    return frozenset(
        f"{interpreter}-{abi}-{system}_{machine}"
        for interpreter, abi, platform in (tag.split("-") for tag in tags)
        for system, machine in _platforms(platform)
    )


def _platforms(platform: str) -> tuple[tuple[str, str], ...]:
    """Systems and machines; none for a platform that no target is of."""
    found = _SYSTEM.match(platform)
    machines = next((_MACHINES[end] for end in _MACHINES if platform.endswith(end)), ())
    if found is None:
        return ()
    systems = _SYSTEMS.get(found.group(), (found.group(),))
    return tuple(itertools.product(systems, machines))


@functools.cache
def _parsed(file: str) -> tuple[str, Version, frozenset[str]]:
    """Name, version and hosts of a wheel's file name."""
    name, version, _, tags = parse_wheel_filename(file)
    return name, version, _hosts(tuple(sorted(map(str, tags))))


def _meet(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether a host could be of both kinds; where that is not sure, it could."""
    return any(_alike(*pair) for pair in itertools.product(one, other))


def _alike(one: str, other: str) -> bool:
    *python, platform = one.split("-")
    *other_python, other_platform = other.split("-")
    anywhere = platform.startswith("any") or other_platform.startswith("any")
    # An ABI of one Python version, as cp311, excludes all others; abi3 and none do not.
    loose = {"abi3", "none"} & {python[1], other_python[1]}
    return bool((anywhere or platform == other_platform) and (loose or python == other_python))
