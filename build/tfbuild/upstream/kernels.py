"""Which of TensorFlow's kernel sources go into a tuned library, and what compiling them costs.

What a release's sources register and which of them belong together is in survey-RELEASE.csv, which
`invoke survey` writes (tfbuild.kernelbuild.survey).
"""

from __future__ import annotations

import csv
import functools
import io
import itertools
import re
import statistics
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from importlib import resources
from typing import Any

from tfbuild.console import did_you_mean
from tfbuild.errors import UsageError

FOLDER = "tensorflow/core/kernels"
OWN = "tensorwright"
"""Where the sources that are ours lie in a workspace."""
RELEASE = "2.14.1"
"""The release that kernels are selected for where none is named, and that was surveyed."""
MINI = "mini"
"""What is written for two kernels that compile quickly."""
_NAME = re.compile(r"[a-z0-9_]+(/[a-z0-9_]+)*")
_OP = re.compile(r"_*[A-Z]\w*", re.ASCII)  # (no source's name has a capital)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelUnit:
    """Sources that are compiled and admitted together.

    `sources` are paths in the release's tree (tensorflow/core/kernels/…), or, of a unit that is
    ours, below native (tensorwright/fused/…).
    """

    name: str
    sources: tuple[str, ...]

    @property
    def label(self) -> str:
        return label(self.name)

    @property
    def source_labels(self) -> tuple[str, ...]:
        return tuple(label(source) for source in self.sources)


def label(name: str) -> str:
    """A unit's or source's name as Bazel and file names accept it."""
    return name.removeprefix(f"{FOLDER}/").removesuffix(".cc").replace("/", "__")


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileCost:
    """What compiling takes: core-seconds in all, and the largest single compile in megabytes."""

    seconds: float
    megabytes: int
    measured: int
    sources: int


class SourceOutcome(StrEnum):
    """What became of a source: `HELPER` registers nothing and is compiled for others."""

    ADMITTED = "admitted"
    REFUSED = "stays stock"
    BROKEN = "does not compile"
    HELPER = "helper"
    UNKNOWN = "not looked at"


@dataclass(frozen=True, kw_only=True, slots=True)
class Surveyed:
    """A kernel source of a release: what it registers for the CPU, and what was seen of it.

    `source` and `sources`, those of its unit, are paths below the kernel folder; `unit` and
    `sources` are empty where none was found. `registrations` and `cases` are those of the whole
    unit. `reason` says why it is not admitted.
    """

    source: str
    ops: tuple[str, ...]
    unit: str = ""
    sources: tuple[str, ...] = ()
    outcome: SourceOutcome = SourceOutcome.UNKNOWN
    registrations: int = 0
    cases: int = 0
    reason: str = ""

    @property
    def is_candidate(self) -> bool:
        """Whether it registers something, and no survey has shown that it stays stock."""
        return bool(self.ops) and self.outcome not in (SourceOutcome.BROKEN, SourceOutcome.REFUSED)


def surveyed(release: str = RELEASE) -> Mapping[str, Surveyed]:
    """Source → what is known of it; nothing of a release that was not surveyed."""
    return _surveyed(release)


@functools.cache
def _surveyed(release: str) -> Mapping[str, Surveyed]:
    table = resources.files("tfbuild.upstream").joinpath(f"survey-{release}.csv")
    rows = read_survey(table.read_text("utf-8")) if table.is_file() else ()
    return {row.source: row for row in rows}


def known(release: str = RELEASE) -> Mapping[str, Surveyed]:
    """What is known of a release's sources. Of one that was not surveyed it is what RELEASE's
    register: sources keep their names, and admission tells what became of them."""
    return _surveyed(release) or _surveyed(RELEASE)


def read_survey(text: str) -> tuple[Surveyed, ...]:
    """The rows of a table that `survey_text` wrote. Raises KeyError, ValueError,
    TypeError."""
    return tuple(
        Surveyed(
            source=row["source"],
            ops=tuple(row["ops"].split()),
            unit=row["unit"],
            sources=tuple(row["sources"].split()),
            outcome=SourceOutcome(row["outcome"]),
            registrations=int(row["registrations"]),
            cases=int(row["cases"]),
            reason=row["reason"],
        )
        for row in csv.DictReader(io.StringIO(text), strict=True)
    )


def survey_text(rows: Iterable[Surveyed]) -> str:
    """The rows as CSV; lists have spaces between."""
    sink = io.StringIO()
    table = csv.DictWriter(sink, [each.name for each in fields(Surveyed)], lineterminator="\n")
    table.writeheader()
    for row in rows:
        plain = {each.name: getattr(row, each.name) for each in fields(row)}
        table.writerow(plain | {"ops": " ".join(row.ops), "sources": " ".join(row.sources)})
    return sink.getvalue()


def improved(source: str) -> str:
    """The header of ours (native/improved) that goes before a source, a path in the release's tree;
    empty for a source that is compiled as it is."""
    file = source.removeprefix(f"{FOLDER}/")
    table: dict[str, list[str]] = _table()["improved"]
    return next((header for header, files in table.items() if file in files), "")


def select(choice: str, release: str = RELEASE) -> tuple[KernelUnit, ...]:
    """`hot`, `mini`, `all`, or names of units, sources and ops with commas between: Tanh is an op,
    cwise_op_tanh a source. Raises UsageError.

    A source that belongs to a unit brings the whole unit: alone it would not be closed. `all` are
    the units of all sources that register something for the CPU, but for those of which a survey
    has shown that they stay stock.
    """
    rows = known(release)
    files = _units(rows)
    names: list[str] = []
    for word in (each.strip().removesuffix(".cc") for each in choice.split(",")):
        names += _named(word, files, surveyed(release) if word == "all" else rows)
    for name in names:
        _insist(name, files, surveyed(release))
    units = {name: _unit(name, files) for name in names}
    return tuple(units[name] for name in sorted(units))


def _insist(name: str, units: Mapping[str, list[str]], rows: Mapping[str, Surveyed]) -> None:
    """Refuse what is no source where all are known: of a release that was surveyed, and of ours."""
    folders = {own.partition("/")[0] for own in own_names()}
    every_known = bool(rows) or name.partition("/")[0] in folders
    if name in units or f"{name}.cc" in rows or not every_known or not _NAME.fullmatch(name):
        return
    every = {*_table()["set"], *units, *(file.removesuffix(".cc") for file in rows)}
    raise UsageError(f"there is no kernel source {name}.cc", hint=did_you_mean(name, every))


def _named(word: str, units: Mapping[str, list[str]], rows: Mapping[str, Surveyed]) -> list[str]:
    """The units that a word means."""
    if word == "all":
        return _of_all(units, rows)
    if word in (sets := _table()["set"]):
        return list(sets[word])
    if _OP.fullmatch(word):
        return _of_op(word, units, rows)
    return [_owner(f"{word}.cc", units, rows) if word not in units else word]


def _of_all(units: Mapping[str, list[str]], rows: Mapping[str, Surveyed]) -> list[str]:
    some = [row for row in rows.values() if row.is_candidate]
    if not some:
        raise UsageError(
            "--kernels all: it is not known which sources this release has",
            hint="invoke survey looks at them; or name sources",
        )
    return [_owner(row.source, units, rows) for row in some]


def _of_op(op: str, units: Mapping[str, list[str]], rows: Mapping[str, Surveyed]) -> list[str]:
    sources = [row.source for row in rows.values() if op in row.ops]
    if not sources:
        known = {name for row in rows.values() for name in row.ops}
        raise UsageError(
            f"no kernel source is known that registers {op}", hint=did_you_mean(op, known)
        )
    return [_owner(source, units, rows) for source in sources]


def _owner(file: str, units: Mapping[str, list[str]], rows: Mapping[str, Surveyed]) -> str:
    """The unit of a source: the survey's, else the only one that has it, else the source alone."""
    row = rows.get(file)
    if row is not None and row.unit:
        return row.unit
    owners = [name for name, files in units.items() if file in files]
    return owners[0] if len(owners) == 1 else file.removesuffix(".cc")


def _units(rows: Mapping[str, Surveyed]) -> Mapping[str, list[str]]:
    """Unit → its sources: what the survey found; by hand what it did not find, and ours."""
    found = {row.unit: list(row.sources) for row in rows.values() if row.unit}
    ours = {name: unit["sources"] for name, unit in _table()["own"].items()}
    return {**_table()["unit"], **found, **ours}


def own_names() -> tuple[str, ...]:
    """The units that are ours."""
    return tuple(_table()["own"])


def own_registrations(name: str) -> tuple[tuple[str, str], ...]:
    """Op and types of all kernels of a unit that is ours; none of another unit."""
    unit = _table()["own"].get(name)
    return tuple(itertools.product(unit["ops"], unit["types"])) if unit else ()


def left(
    units: Iterable[KernelUnit], without: Collection[str], release: str = RELEASE
) -> tuple[KernelUnit, ...]:
    """The units of a release that no word of `without` means."""
    every = tuple(units)
    out = {unit.name for word in without for unit in meant(word, every, release)}
    return tuple(unit for unit in every if unit.name not in out)


def meant(word: str, units: Iterable[KernelUnit], release: str = RELEASE) -> tuple[KernelUnit, ...]:
    """The units of a release that a word names: by their own name, else by a source or an op.

    Units may share a source, so that a name comes first.
    """
    every = tuple(units)
    named = tuple(unit for unit in every if unit.name == word)
    rows = known(release).values()
    files = {row.source for row in rows if word in row.ops} | {f"{word.removesuffix('.cc')}.cc"}
    paths = {f"{FOLDER}/{file}" for file in files}
    return named or tuple(unit for unit in every if paths.intersection(unit.sources))


def choice_of(names: Collection[str]) -> str:
    """What `select` makes these units of: a set's name where they are one, else their own names."""
    for name, members in _table()["set"].items():
        if set(members) == set(names):
            return str(name)
    return ",".join(sorted(names))


def _unit(name: str, units: Mapping[str, list[str]]) -> KernelUnit:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' is not the name of a kernel source",
            hint=f"Use {', '.join(sorted([*_table()['set'], 'all']))}, names such as "
            "cwise_op_log,bias_op, or ops such as Tanh",
        )
    ours = _table()["own"].get(name)
    if ours:
        theirs = ours.get("stock_sources", [])
        sources = [f"{OWN}/{file}" for file in ours["sources"]]
        return KernelUnit(name=name, sources=(*sources, *(f"{FOLDER}/{file}" for file in theirs)))
    files = units.get(name, [f"{name}.cc"])
    return KernelUnit(name=name, sources=tuple(f"{FOLDER}/{file}" for file in files))


def cost(units: tuple[KernelUnit, ...], *, only_selected: bool = False) -> CompileCost:
    """The measured cost of the sources; an unmeasured one counts as the median of the others. Where
    `only_selected` is compiled of TensorFlow's, reading headers is most of it, and all of those
    cost about the same.
    """
    table: dict[str, dict[str, float]] = _table()["cost"]
    other = {
        "seconds": statistics.median(row["seconds"] for row in table.values()),
        "megabytes": max(row["megabytes"] for row in table.values()),
    }
    if only_selected:
        other = _table()["cost_of_selected"]
        table = {file: table[file] for own in _table()["own"].values() for file in own["sources"]}
    sources = {source for unit in units for source in unit.sources}
    files = [source.removeprefix(f"{FOLDER}/").removeprefix(f"{OWN}/") for source in sources]
    rows = [table.get(file, other) for file in files]
    return CompileCost(
        seconds=sum(row["seconds"] for row in rows),
        megabytes=int(max((row["megabytes"] for row in rows), default=0)),
        measured=len(files) if only_selected else sum(file in table for file in files),
        sources=len(files),
    )


@functools.cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(
        resources.files("tfbuild.upstream").joinpath("kernels.toml").read_text("utf-8")
    )
