"""Finds the kernel groups: the kernel sources that must be compiled together.

A kernel group is closed if it uses no kernel code of the stock library, which was compiled for
another target, and if it has every CPU kernel of its ops, so that TensorFlow never mixes tuned and
stock kernels of one op. It starts from one source, and adds the sources that define its undefined
symbols and those that register its ops, until nothing is missing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild.upstream.kernels import FOLDER, KernelUnit
from tfcore.run import run

_PARTS = re.compile(r"_\d+$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Symbols:
    """The mangled names that an object takes from others, and those that it defines.

    `weak` are templates and inline functions: the linker keeps any one definition of a name.
    """

    taken: frozenset[str]
    strong: frozenset[str]
    weak: frozenset[str]


def read_symbols(path: Path) -> Symbols:
    """Read the external symbols of an object file with nm. Raises CommandError."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for line in run(["nm", "--extern-only", "--format=posix", path]).output.splitlines():
        name, _, details = line.partition(" ")
        kinds[details[:1]].add(name)
    return Symbols(
        taken=frozenset(kinds["U"]),
        strong=frozenset().union(*(kinds[kind] for kind in "TDBRGSC")),
        weak=frozenset().union(*(kinds[kind] for kind in "WVu")),
    )


@dataclass(frozen=True, slots=True)
class Owners:
    """The source that defines each symbol, and the sources that register each op."""

    symbols: Mapping[str, str]
    ops: Mapping[str, tuple[str, ...]]


def build_units(
    symbols: Mapping[str, Symbols], table: Mapping[str, tuple[str, ...]]
) -> dict[str, KernelUnit]:
    """Map each source that registers ops to the kernel group it grows to, if it has one.

    Both mappings are by source, a path below the kernel folder: `symbols` of the sources that
    compile, `table` the ops of all. An op with a source that does not compile is in no group.
    """
    owners = find_owners(symbols, table)
    groups: dict[frozenset[str], list[str]] = defaultdict(list)
    for source in sorted(symbols):
        if table.get(source):
            group = find_closure(source, symbols, table, owners)
            if group <= symbols.keys():
                groups[group].append(source)
    by_source: dict[str, KernelUnit] = {}
    for group, equal in groups.items():
        by_source |= dict.fromkeys(equal, _build_unit(group, equal, table))
    return by_source


def find_closure(
    source: str,
    symbols: Mapping[str, Symbols],
    table: Mapping[str, tuple[str, ...]],
    owners: Owners,
) -> frozenset[str]:
    """Return the source and all sources it needs, including ones that do not compile."""
    group: set[str] = set()
    waiting = [source]
    while waiting:
        current = waiting.pop()
        if current not in group:
            group.add(current)
            waiting += [owner for op in table.get(current, ()) for owner in owners.ops[op]]
        if not waiting:
            waiting += _find_missing_sources(group, symbols, owners)
    return frozenset(group)


def _find_missing_sources(
    group: Iterable[str], symbols: Mapping[str, Symbols], owners: Owners
) -> Iterator[str]:
    """Yield the sources that define what these take and none of them defines."""
    known = [symbols[source] for source in group if source in symbols]
    defined = frozenset().union(*(entry.strong | entry.weak for entry in known))
    for name in sorted(frozenset().union(*(entry.taken for entry in known)) - defined):
        if name in owners.symbols:
            yield owners.symbols[name]


def find_owners(symbols: Mapping[str, Symbols], table: Mapping[str, tuple[str, ...]]) -> Owners:
    """Return the source that defines each symbol, and the sources that register each op.

    Both mappings are those of `build_units`.
    """
    definers: dict[str, list[tuple[bool, int, str]]] = defaultdict(list)
    needed = frozenset().union(*(entry.taken for entry in symbols.values()))
    for source, entry in symbols.items():
        # Prefer a strong definition, then the source with the fewest undefined symbols.
        for name in needed & (entry.strong | entry.weak):
            definers[name].append((name not in entry.strong, len(entry.taken), source))
    ops: dict[str, list[str]] = defaultdict(list)
    for source in sorted(table):
        for op in table[source]:
            ops[op].append(source)
    return Owners(
        {name: min(rows)[-1] for name, rows in definers.items()},
        {op: tuple(sources) for op, sources in ops.items()},
    )


def _build_unit(
    group: frozenset[str], equal: list[str], table: Mapping[str, tuple[str, ...]]
) -> KernelUnit:
    """Build the kernel group of `group`, named after `equal`, the sources that all grow to it."""
    stems = {_PARTS.sub("", source.removesuffix(".cc")) for source in equal}
    first = min(equal, key=lambda source: (-len(table[source]), source))
    name = stems.pop() if len(stems) == 1 and len(equal) > 1 else first.removesuffix(".cc")
    ordered = sorted(group, key=lambda source: (source not in equal, source != first, source))
    return KernelUnit(name=name, sources=tuple(f"{FOLDER}/{source}" for source in ordered))
