"""Choose the wheel that a target's page lists: one per package, version, Python and machine.

An installer takes the highest version on a page, and a local version does not show which CPUs run
the wheel. So a page never lists two local versions of a version. A CPU without the features of the
stock code gets a full build or nothing: the stock code in other wheels would end the process with
an illegal instruction.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from archspec.cpu import TARGETS
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from tfcore.cpus.cpu import compute_x86_64_level
from tfcore.cpus.features import ARCHITECTURES, STOCK_BASELINE
from tfcore.cpus.targets import Target, list_targets, parse_target
from tfcore.errors import PublishError
from tfwheels.entry import Entry, WheelKind

_SYSTEM = re.compile(r"any|manylinux|musllinux|linux|macosx|win")
# A wheel for "linux" supports every C library.
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
STOCK_NEEDS: Mapping[str, frozenset[str]] = {
    # Every x86-64 CPU has SSE and SSE2 (psABI); archspec's x86_64 does not list them.
    "x86_64": STOCK_BASELINE - {"sse", "sse2"},
    # The stock wheels are compiled for the first version of the architecture.
    "aarch64": frozenset(),
}
"""The CPU features that stock TensorFlow needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageChoice:
    """The wheel that a page lists instead of its rivals.

    `library` is the spec of the wheel's library that a CPU of the target runs; empty for the stock
    wheel.
    """

    entry: Entry
    library: str
    rivals: tuple[Entry, ...]


def choose(entries: Iterable[Entry], target: Target) -> tuple[PageChoice, ...]:
    """Choose which of the tuned and stock wheels the target's pages list."""
    decided = (choose_best(contest, target) for contest in group_rivals(entries))
    return tuple(choice for choice in decided if choice is not None)


def group_rivals(entries: Iterable[Entry]) -> tuple[tuple[Entry, ...], ...]:
    """Group the tuned and stock wheels; a page lists one wheel of each group."""
    by_version: dict[tuple[str, Version], list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.kind is not WheelKind.PLAIN:
            by_version[entry.name, Version(entry.public)].append(entry)
    return tuple(
        tuple(sorted(group, key=lambda entry: entry.file))
        for version in sorted(by_version)
        for group in _group_overlapping(by_version[version])
    )


def _group_overlapping(entries: Iterable[Entry]) -> list[tuple[Entry, ...]]:
    """Group wheels of one version so that no host could install wheels of two groups."""
    groups: list[tuple[Entry, ...]] = []
    for entry in sorted(entries, key=lambda entry: sorted(_list_hosts(entry.tags))):
        hosts = _list_hosts(entry.tags)
        overlapping = [
            group
            for group in groups
            if any(_can_overlap(hosts, _list_hosts(rival.tags)) for rival in group)
        ]
        groups = [group for group in groups if group not in overlapping]
        groups.append((entry, *itertools.chain.from_iterable(overlapping)))
    return groups


def choose_best(contest: tuple[Entry, ...], target: Target) -> PageChoice | None:
    """Return the best tuned wheel that fits the target, else the stock wheel, else None.

    Withdrawn wheels are not chosen. The rank of a wheel depends only on the wheel and the target,
    and no two wheels have the same rank. So neither the order of the wheels nor a rejected wheel
    affects the choice.
    """
    usable = [
        entry
        for entry in contest
        if is_for_family(entry, target.family) and entry.withdrawal is None
    ]
    fitting = [entry for entry in usable if _find_library(entry, target)]
    stock = [
        wheel
        for wheel in usable
        if wheel.kind is WheelKind.STOCK and not find_missing_features(target)
    ]
    best = max(fitting or stock, key=lambda entry: _compute_rank(entry, target), default=None)
    if best is None:
        return None
    library = _find_library(best, target)
    return PageChoice(
        entry=best,
        library=library.spec if library else "",
        rivals=tuple(entry for entry in contest if entry != best),
    )


def can_serve(entry: Entry, target: Target) -> bool:
    """Return whether the target's page could list the wheel if it had no rivals."""
    if entry.kind is WheelKind.PLAIN:
        return is_for_family(entry, target.family)
    return choose_best((dataclasses.replace(entry, withdrawal=None),), target) is not None


def is_for_family(entry: Entry, family: str) -> bool:
    """Return whether the wheel's tags are for machines of the family."""
    return family in list_families(entry.tags)


def list_families(tags: tuple[str, ...]) -> frozenset[str]:
    """Return the architectures that the tags are for; empty if no target is of one."""
    hosts = _list_hosts(tags)
    return frozenset(
        family for family in ARCHITECTURES if any(host.endswith(f"_{family}") for host in hosts)
    )


def find_missing_features(target: Target) -> tuple[str, ...]:
    """Return the features that stock TensorFlow needs and the target lacks: AVX and older ones."""
    return tuple(sorted(STOCK_NEEDS[target.family] - target.features))


def explain_absence(target: Target) -> str:
    """Explain why the target's page lists only full builds; return "" if it may list all wheels."""
    lacks = find_missing_features(target)
    if not lacks:
        return ""
    return (
        f"{target.name} lacks {', '.join(lacks)}, which the stock code in TensorFlow's wheels "
        f"needs; only a full build can run there (invoke build --scope full --arch {target.name})"
    )


def targets_for(entries: Iterable[Entry], family: str | None = None) -> tuple[Target, ...]:
    """Return the targets that an index of these wheels has pages for.

    These are the targets of `family`. Without it, they are the targets of every family that is the
    only one of some wheel, or all targets if there is no such wheel.
    """
    supported = [list_families(entry.tags) for entry in entries]
    alone = (combination for combination in supported if len(combination) == 1)
    families = {family} if family else set[str]().union(*alone)
    return tuple(
        target for target in list_targets() if target.family in (families or set(ARCHITECTURES))
    )


def explain(choice: PageChoice, target: Target) -> dict[str, str]:
    """Explain why each wheel was chosen or not, by file; the chosen one comes first."""
    reasons = {choice.entry.file: _explain_chosen(choice, target)}
    return reasons | {
        rival.file: _explain_rejected(rival, choice, target) for rival in choice.rivals
    }


def refuse_ambiguous(page: str, files: Iterable[str]) -> None:
    """Raise PublishError if a host could install either of two files.

    Such files differ only in the local part of the version: pip and uv take the alphabetically
    last.
    """
    by_version: dict[tuple[str, Version], list[str]] = defaultdict(list)
    for file in sorted(files):
        name, version, _ = _parse_file_name(file)
        by_version[name, Version(version.public)].append(file)
    for group in by_version.values():
        for first, second in itertools.combinations(group, 2):
            if _parse_file_name(first)[1] != _parse_file_name(second)[1] and _can_overlap(
                _parse_file_name(first)[2], _parse_file_name(second)[2]
            ):
                raise PublishError(
                    f"{page} would list both {first} and {second}: pip and uv install the "
                    "alphabetically last on every CPU"
                )


def _find_library(entry: Entry, target: Target) -> Target | None:
    """Return the library of the wheel that a CPU with the target's features runs.

    This is the library that the dispatcher opens, or the target of a full build; None if nothing
    fits or the wheel cannot be imported there.
    """
    if not entry.whole and find_missing_features(target):
        return None
    libraries = (_parse_spec(spec) for spec in entry.targets)
    fitting = next((library for library in libraries if _can_run(library, target)), None)
    if fitting is None or not entry.whole or _has_required(entry, fitting, target):
        return fitting
    return None


def _has_required(entry: Entry, library: Target, target: Target) -> bool:
    """Return whether every CPU of the target has what a full build requires.

    archspec lists fewer features than the compilers use, so the library's own target and its
    descendants are assumed to have them.
    """
    return library.name in _list_lineage(target.name) or target.features.issuperset(entry.required)


def _can_run(library: Target, target: Target) -> bool:
    """Return whether the target can run the library.

    archspec lists no features for the versions of the Arm architecture, so features do not show
    whether a CPU runs an aarch64 library; only its own target and the descendants count.
    """
    return (
        library.family == target.family
        and library.features <= target.features
        and (library.family != "aarch64" or library.name in _list_lineage(target.name))
    )


def _compute_rank(entry: Entry, target: Target) -> tuple[tuple[int, ...], bool, int, str, str]:
    """Return the sort key of a wheel that fits: first its library, then its packaging.

    For the same target, a full build ranks above a wheel of kernels, because all its code is
    compiled for the target.
    """
    library = _find_library(entry, target)
    nearness = _compute_nearness(library, target) if library else ()
    return nearness, entry.whole, -entry.size, entry.version, entry.file


def _compute_nearness(library: Target, target: Target) -> tuple[int, ...]:
    """Return the sort key of a library: archspec's partial order, vendor, number of features.

    If neither of two ancestors descends from the other, the x86-64 level decides, as in archspec's
    host detection: for zen4, x86_64_v4 is nearer than zen3.
    """
    ancestor = library.name in _list_lineage(target.name)
    return (
        compute_x86_64_level(library.features) if ancestor else 0,
        len(_list_lineage(library.name)) if ancestor else 0,
        TARGETS[library.tune].vendor == target.vendor,
        len(library.features),
    )


@functools.cache
def _parse_spec(spec: str) -> Target:
    return parse_target(spec)


@functools.cache
def _list_lineage(name: str) -> frozenset[str]:
    """Return the names of a target and its ancestors."""
    return frozenset((name, *(ancestor.name for ancestor in TARGETS[name].ancestors)))


def _explain_chosen(choice: PageChoice, target: Target) -> str:
    if choice.library == target.name:
        reason = "it is a full build for" if choice.entry.whole else "it has kernels for"
        return f"{reason} {target.name}"
    if choice.library:
        if choice.entry.whole:
            return (
                f"it is a full build for {choice.library}, the nearest that {target.name} can run"
            )
        return f"its kernels for {choice.library} are the nearest that {target.name} can run"
    return f"stock: no tuned wheel fits {target.name}"


def _explain_rejected(rival: Entry, choice: PageChoice, target: Target) -> str:
    if not is_for_family(rival, target.family):
        return f"it is not for {target.family}"
    if rival.withdrawal is not None:
        return f"it is {rival.withdrawal.words}"
    if not rival.whole and find_missing_features(target):
        lacks = ", ".join(find_missing_features(target))
        return f"{target.name} lacks {lacks}, which its stock code needs"
    if rival.kind is WheelKind.STOCK:
        return "a tuned wheel fits" if choice.library else "the page has another stock wheel"
    library = _find_library(rival, target)
    if library is None:
        return f"{target.name} {_describe_obstacle(rival, target)}"
    if library.spec != choice.library:
        content = "code" if rival.whole else "kernels"
        return f"its {content} for {library.spec} {'is' if rival.whole else 'are'} not the nearest"
    if choice.entry.whole and not rival.whole:
        return "it has only kernels for that target, and the other is a full build"
    return "it is for the same target, and its file is not smaller"


def _describe_obstacle(rival: Entry, target: Target) -> str:
    """Describe what the target lacks to run the wheel's nearest library."""
    lacks = min((_parse_spec(spec).features - target.features for spec in rival.targets), key=len)
    lacks = lacks or frozenset(rival.required) - target.features
    if not lacks:
        return f"does not descend from {', '.join(rival.targets)}"
    more = len(lacks) - _FEW
    return f"lacks {', '.join(sorted(lacks)[:_FEW])}" + (f" and {more} more" if more > 0 else "")


@functools.cache
def _list_hosts(tags: tuple[str, ...]) -> frozenset[str]:
    """Return the kinds of host that the tags are for: interpreter, ABI, system and machine.

    The version of the C library or system is omitted, as in cp311-cp311-manylinux_x86_64.
    """
    return frozenset(
        f"{interpreter}-{abi}-{system}_{machine}"
        for interpreter, abi, platform in (tag.split("-") for tag in tags)
        for system, machine in _list_platforms(platform)
    )


def _list_platforms(platform: str) -> tuple[tuple[str, str], ...]:
    """Return the systems and machines of a platform tag; none if no target is such a machine."""
    match = _SYSTEM.match(platform)
    machines = next((_MACHINES[end] for end in _MACHINES if platform.endswith(end)), ())
    if match is None:
        return ()
    systems = _SYSTEMS.get(match.group(), (match.group(),))
    return tuple(itertools.product(systems, machines))


@functools.cache
def _parse_file_name(file: str) -> tuple[str, Version, frozenset[str]]:
    """Parse a wheel's file name into its name, version and hosts."""
    name, version, _, tags = parse_wheel_filename(file)
    return name, version, _list_hosts(tuple(sorted(map(str, tags))))


def _can_overlap(tags: frozenset[str], other_tags: frozenset[str]) -> bool:
    """Return whether a host could be of both kinds; True if that is uncertain."""
    return any(_is_compatible(*pair) for pair in itertools.product(tags, other_tags))


def _is_compatible(tag: str, other_tag: str) -> bool:
    *python, platform = tag.split("-")
    *other_python, other_platform = other_tag.split("-")
    anywhere = platform.startswith("any") or other_platform.startswith("any")
    # An ABI of one Python version, such as cp311, excludes all others; abi3 and none do not.
    loose = {"abi3", "none"} & {python[1], other_python[1]}
    return bool((anywhere or platform == other_platform) and (loose or python == other_python))
