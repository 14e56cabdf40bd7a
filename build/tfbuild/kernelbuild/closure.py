"""Which kernel sources must be compiled together.

A unit is whole when no code of kernel sources is taken from the stock library, which was compiled
for another target, and when every CPU kernel of its ops is in it: TensorFlow would meet tuned and
stock kernels of one op otherwise. So a unit grows from one source by the sources that define what
it lacks and by those that register its ops, until nothing is missing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild.run import run
from tfbuild.upstream.kernels import FOLDER, KernelUnit

_PARTS = re.compile(r"_\d+$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Symbols:
    """What an object takes from others and gives them, as mangled names.

    `weak` are definitions of which the linker keeps any one: templates and inline functions.
    """

    taken: frozenset[str]
    strong: frozenset[str]
    weak: frozenset[str]


def read_symbols(path: Path) -> Symbols:
    """The external symbols of an object file, as nm tells them. Raises CommandError."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for line in run(["nm", "--extern-only", "--format=posix", path]).output.splitlines():
        name, _, rest = line.partition(" ")
        kinds[rest[:1]].add(name)
    return Symbols(
        taken=frozenset(kinds["U"]),
        strong=frozenset().union(*(kinds[kind] for kind in "TDBRGSC")),
        weak=frozenset().union(*(kinds[kind] for kind in "WVu")),
    )


@dataclass(frozen=True, slots=True)
class Owners:
    """Which source defines a symbol, and which register an op."""

    symbols: Mapping[str, str]
    ops: Mapping[str, tuple[str, ...]]


def units(
    symbols: Mapping[str, Symbols], table: Mapping[str, tuple[str, ...]]
) -> dict[str, KernelUnit]:
    """Each source that registers ops → the whole unit that it grows to, for those that have one.

    Both mappings are by source, a path below the kernel folder: `symbols` of the sources that
    compile, `table` the ops of all. An op with a source that does not compile is in no unit.
    """
    owners = owners_of(symbols, table)
    groups: dict[frozenset[str], list[str]] = defaultdict(list)
    for source in sorted(symbols):
        if table.get(source):
            group = closed(source, symbols, table, owners)
            if group <= symbols.keys():
                groups[group].append(source)
    found: dict[str, KernelUnit] = {}
    for group, equal in groups.items():
        found |= dict.fromkeys(equal, _unit(group, equal, table))
    return found


def closed(
    source: str,
    symbols: Mapping[str, Symbols],
    table: Mapping[str, tuple[str, ...]],
    owners: Owners,
) -> frozenset[str]:
    """The source and all that it needs. A source that does not compile may be among them."""
    group: set[str] = set()
    waiting = [source]
    while waiting:
        fresh = waiting.pop()
        if fresh not in group:
            group.add(fresh)
            waiting += [other for op in table.get(fresh, ()) for other in owners.ops[op]]
        if not waiting:
            waiting += _lacking(group, symbols, owners)
    return frozenset(group)


def _lacking(group: Iterable[str], symbols: Mapping[str, Symbols], owners: Owners) -> Iterator[str]:
    """Sources that define what these take and none of them defines."""
    there = [symbols[source] for source in group if source in symbols]
    given = frozenset().union(*(each.strong | each.weak for each in there))
    for name in sorted(frozenset().union(*(each.taken for each in there)) - given):
        if name in owners.symbols:
            yield owners.symbols[name]


def owners_of(symbols: Mapping[str, Symbols], table: Mapping[str, tuple[str, ...]]) -> Owners:
    """The sources that define each symbol, and those that register each op. Both mappings are those
    of `units`."""
    definers: dict[str, list[tuple[bool, int, str]]] = defaultdict(list)
    wanted = frozenset().union(*(each.taken for each in symbols.values()))
    for source, each in symbols.items():
        # A real definition before a template's; of several the source that brings the least.
        for name in wanted & (each.strong | each.weak):
            definers[name].append((name not in each.strong, len(each.taken), source))
    ops: dict[str, list[str]] = defaultdict(list)
    for source in sorted(table):
        for op in table[source]:
            ops[op].append(source)
    return Owners(
        {name: min(rows)[-1] for name, rows in definers.items()},
        {op: tuple(sources) for op, sources in ops.items()},
    )


def _unit(
    group: frozenset[str], equal: list[str], table: Mapping[str, tuple[str, ...]]
) -> KernelUnit:
    """The unit of a group of sources, named after `equal`, those that all grow to this group."""
    stems = {_PARTS.sub("", source.removesuffix(".cc")) for source in equal}
    first = min(equal, key=lambda source: (-len(table[source]), source))
    name = stems.pop() if len(stems) == 1 and len(equal) > 1 else first.removesuffix(".cc")
    ordered = sorted(group, key=lambda source: (source not in equal, source != first, source))
    return KernelUnit(name=name, sources=tuple(f"{FOLDER}/{source}" for source in ordered))
