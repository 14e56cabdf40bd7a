"""The kernel groups of a tuned library: how --kernels selects them, and their compile cost.

survey-RELEASE.csv lists the ops that each source of a release registers, and its kernel group.
`invoke survey` writes it (tfbuild.kernelbuild.survey).
"""

from __future__ import annotations

import csv
import functools
import io
import re
import statistics
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from importlib import resources
from typing import Any

from tfbuild.upstream.fused_ops import load_fused_groups
from tfcore.console import suggest_spelling
from tfcore.errors import UsageError

FOLDER = "tensorflow/core/kernels"
"""The folder of the kernel sources, and the wheel's whose libraries TensorFlow loads at import."""
RELEASE = "2.14.1"
"""The default release of a selection of kernels. It has a survey."""
MINI = "mini"
"""The name of a set of two kernels that compile quickly."""
_NAME = re.compile(r"[a-z0-9_]+(/[a-z0-9_]+)*")
_OP = re.compile(r"_*[A-Z]\w*", re.ASCII)  # (names of sources have no capitals)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelUnit:
    """A kernel group: sources that are compiled and tested together.

    `sources` are paths in the release's tree (tensorflow/core/kernels/…), or, for a fused op,
    in the workspace (tensorwright/ops/…).
    """

    name: str
    sources: tuple[str, ...]

    @property
    def label(self) -> str:
        return format_label(self.name)

    @property
    def source_labels(self) -> tuple[str, ...]:
        return tuple(format_label(source) for source in self.sources)


def format_label(name: str) -> str:
    """Return the name of a group or source as Bazel and file names accept it."""
    return name.removeprefix(f"{FOLDER}/").removesuffix(".cc").replace("/", "__")


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileCost:
    """The cost of compiling `sources` files, of which `measured` were measured.

    `seconds` is the total in core-seconds; `megabytes` is the memory of the largest compile.
    """

    seconds: float
    megabytes: int
    measured: int
    sources: int


class SourceOutcome(StrEnum):
    """The survey's result for a source.

    A `HELPER` registers nothing and is compiled with others.
    """

    ADMITTED = "admitted"
    REFUSED = "stays stock"
    BROKEN = "does not compile"
    HELPER = "helper"
    UNKNOWN = "not tested"


@dataclass(frozen=True, kw_only=True, slots=True)
class SurveyRow:
    """A kernel source of a release: the ops that it registers for the CPU, and its survey result.

    `source` and `sources` (those of its group) are paths below the kernel folder. `unit` and
    `sources` are empty if the survey found no group. `registrations` and `cases` are those of
    the whole group. `reason` explains why the source stays stock.
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
        """Return True if it registers an op, unless a survey shows that it stays stock."""
        return bool(self.ops) and self.outcome not in (SourceOutcome.BROKEN, SourceOutcome.REFUSED)


def load_survey(release: str = RELEASE) -> Mapping[str, SurveyRow]:
    """Return the survey by source; empty for a release that was not surveyed."""
    return _load_survey(release)


@functools.cache
def _load_survey(release: str) -> Mapping[str, SurveyRow]:
    table = resources.files("tfbuild.upstream").joinpath(f"survey-{release}.csv")
    rows = parse_survey(table.read_text("utf-8")) if table.is_file() else ()
    return {row.source: row for row in rows}


def load_known_sources(release: str = RELEASE) -> Mapping[str, SurveyRow]:
    """Return the survey by source; that of RELEASE for a release without a survey.

    Sources keep their names across releases, and the conformance test shows which of them
    work.
    """
    return _load_survey(release) or _load_survey(RELEASE)


def parse_survey(text: str) -> tuple[SurveyRow, ...]:
    """Parse a table that `format_survey` wrote.

    Raises KeyError, ValueError, TypeError.
    """
    return tuple(
        SurveyRow(
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


def format_survey(rows: Iterable[SurveyRow]) -> str:
    """Format the rows as CSV; lists have spaces between."""
    sink = io.StringIO()
    table = csv.DictWriter(sink, [column.name for column in fields(SurveyRow)], lineterminator="\n")
    table.writeheader()
    for row in rows:
        plain = {column.name: getattr(row, column.name) for column in fields(row)}
        table.writerow(plain | {"ops": " ".join(row.ops), "sources": " ".join(row.sources)})
    return sink.getvalue()


def find_replacement_header(source: str) -> str:
    """Return the header of the replacement kernel (native/replacements) that precedes a source.

    `source` is a path in the release's tree; the result is empty for a source that is
    compiled as it is.
    """
    file = source.removeprefix(f"{FOLDER}/")
    table: dict[str, list[str]] = _load_table()["replacements"]
    return next((header for header, files in table.items() if file in files), "")


def select(choice: str, release: str = RELEASE) -> tuple[KernelUnit, ...]:
    """Return the kernel groups that a choice names.

    A choice is `hot`, `mini`, `all`, or names of groups, sources and ops with commas between:
    Tanh is an op, cwise_op_tanh a source. A source that belongs to a group selects the whole
    group: alone it would use code of the stock library. `all` are the groups of all sources
    that register an op for the CPU, except those that stay stock in the survey. Raises
    UsageError.
    """
    rows = load_known_sources(release)
    files = _list_units(rows)
    names: list[str] = []
    for word in (part.strip().removesuffix(".cc") for part in choice.split(",")):
        names += _resolve_word(word, files, load_survey(release) if word == "all" else rows)
    for name in names:
        _require_known(name, files, load_survey(release))
    units = {name: _create_unit(name, files) for name in names}
    return tuple(units[name] for name in sorted(units))


def _require_known(
    name: str, units: Mapping[str, list[str]], rows: Mapping[str, SurveyRow]
) -> None:
    """Raise UsageError for an unknown source, if all sources are known.

    They are known for a release with a survey, and for fused ops.
    """
    folders = {fused.partition("/")[0] for fused in load_fused_groups()}
    every_known = bool(rows) or name.partition("/")[0] in folders
    if name in units or f"{name}.cc" in rows or not every_known or not _NAME.fullmatch(name):
        return
    choices = {*_load_table()["set"], *units, *(file.removesuffix(".cc") for file in rows)}
    raise UsageError(
        f"unknown kernel source or set {name}",
        hint=suggest_spelling(name, choices) or "Ops begin with a capital letter, for example Tanh",
    )


def _resolve_word(
    word: str, units: Mapping[str, list[str]], rows: Mapping[str, SurveyRow]
) -> list[str]:
    """Return the names of the groups that a word names."""
    if word == "all":
        return _find_all_units(units, rows)
    if word in (sets := _load_table()["set"]):
        return list(sets[word])
    if _OP.fullmatch(word):
        return _find_op_units(word, units, rows)
    return [_find_owner(f"{word}.cc", units, rows) if word not in units else word]


def _find_all_units(units: Mapping[str, list[str]], rows: Mapping[str, SurveyRow]) -> list[str]:
    candidates = [row for row in rows.values() if row.is_candidate]
    if not candidates:
        raise UsageError(
            "--kernels all needs a survey of this release, and there is none",
            hint="Run invoke survey, or name kernel sources",
        )
    return [_find_owner(row.source, units, rows) for row in candidates]


def _find_op_units(
    op: str, units: Mapping[str, list[str]], rows: Mapping[str, SurveyRow]
) -> list[str]:
    sources = [row.source for row in rows.values() if op in row.ops]
    if not sources:
        known_ops = {name for row in rows.values() for name in row.ops}
        raise UsageError(
            f"no known kernel source has the op {op}", hint=suggest_spelling(op, known_ops)
        )
    return [_find_owner(source, units, rows) for source in sources]


def _find_owner(file: str, units: Mapping[str, list[str]], rows: Mapping[str, SurveyRow]) -> str:
    """Return the group of a source.

    It is the survey's, else the only one that has the source, else the source alone.
    """
    row = rows.get(file)
    if row is not None and row.unit:
        return row.unit
    owners = [name for name, files in units.items() if file in files]
    return owners[0] if len(owners) == 1 else file.removesuffix(".cc")


def _list_units(rows: Mapping[str, SurveyRow]) -> Mapping[str, list[str]]:
    """Return the sources of each group.

    They come from the survey, from kernels.toml for groups that the survey lacks, and from
    the fused ops.
    """
    surveyed_units = {row.unit: list(row.sources) for row in rows.values() if row.unit}
    fused = {name: list(group.sources) for name, group in load_fused_groups().items()}
    return {**_load_table()["unit"], **surveyed_units, **fused}


def find_fused_registrations(name: str) -> tuple[tuple[str, str], ...]:
    """Return op and types of all kernels of a group with fused ops; empty for another group."""
    group = load_fused_groups().get(name)
    return group.registrations if group else ()


def exclude_units(
    units: Iterable[KernelUnit], without: Collection[str], release: str = RELEASE
) -> tuple[KernelUnit, ...]:
    """Return the kernel groups of a release that no word of `without` names."""
    all_units = tuple(units)
    excluded = {unit.name for word in without for unit in find_units(word, all_units, release)}
    return tuple(unit for unit in all_units if unit.name not in excluded)


def find_units(
    word: str, units: Iterable[KernelUnit], release: str = RELEASE
) -> tuple[KernelUnit, ...]:
    """Return the kernel groups of a release that a word names.

    A word is the name of a group, else a source or an op. Groups may share a source, so the
    name of a group takes precedence.
    """
    all_units = tuple(units)
    named = tuple(unit for unit in all_units if unit.name == word)
    rows = load_known_sources(release).values()
    files = {row.source for row in rows if word in row.ops} | {f"{word.removesuffix('.cc')}.cc"}
    paths = {f"{FOLDER}/{file}" for file in files}
    return named or tuple(unit for unit in all_units if paths.intersection(unit.sources))


def format_choice(names: Collection[str]) -> str:
    """Return the choice from which `select` returns these groups.

    It is the name of a set if they are one, else their names.
    """
    for name, members in _load_table()["set"].items():
        if set(members) == set(names):
            return str(name)
    return ",".join(sorted(names))


def _create_unit(name: str, units: Mapping[str, list[str]]) -> KernelUnit:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' is not the name of a kernel source",
            hint=f"Use {', '.join(sorted([*_load_table()['set'], 'all']))}, names such as "
            "cwise_op_log,bias_op, or ops such as Tanh",
        )
    fused = load_fused_groups().get(name)
    if fused:
        stock_sources = (f"{FOLDER}/{file}" for file in fused.stock_sources)
        return KernelUnit(name=name, sources=(*fused.sources, *stock_sources))
    files = units.get(name, [f"{name}.cc"])
    return KernelUnit(name=name, sources=tuple(f"{FOLDER}/{file}" for file in files))


def estimate_cost(units: tuple[KernelUnit, ...], *, only_selected: bool = False) -> CompileCost:
    """Return the measured cost of the sources.

    An unmeasured source counts as the median of the others. If only the selected parts of
    TensorFlow's sources are compiled, all sources cost about the same, because reading
    headers takes most of the time.
    """
    fused = {
        source: {"seconds": group.seconds, "megabytes": group.megabytes}
        for group in load_fused_groups().values()
        for source in group.sources
    }
    table: dict[str, dict[str, float]] = _load_table()["cost"] | fused
    default = {
        "seconds": statistics.median(row["seconds"] for row in table.values()),
        "megabytes": max(row["megabytes"] for row in table.values()),
    }
    if only_selected:
        default, table = _load_table()["cost_of_selected"], fused
    sources = {source.removeprefix(f"{FOLDER}/") for unit in units for source in unit.sources}
    rows = [table.get(source, default) for source in sources]
    return CompileCost(
        seconds=sum(row["seconds"] for row in rows),
        megabytes=int(max((row["megabytes"] for row in rows), default=0)),
        measured=len(sources) if only_selected else sum(source in table for source in sources),
        sources=len(sources),
    )


@functools.cache
def _load_table() -> Mapping[str, Any]:
    return tomllib.loads(
        resources.files("tfbuild.upstream").joinpath("kernels.toml").read_text("utf-8")
    )
