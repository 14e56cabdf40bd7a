"""Which of TensorFlow's kernel sources go into a tuned library, and what compiling them costs."""

from __future__ import annotations

import functools
import re
import statistics
import tomllib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from tfbuild.errors import UsageError

FOLDER = "tensorflow/core/kernels"
_NAME = re.compile(r"[a-z0-9_]+(/[a-z0-9_]+)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelUnit:
    """Sources that are compiled and admitted together.

    `sources` are paths in the release's tree (tensorflow/core/kernels/…).
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
class Cost:
    """What compiling takes: core-seconds in all, and the largest single compile in megabytes."""

    seconds: float
    megabytes: int
    measured: int
    sources: int


def select(choice: str) -> tuple[KernelUnit, ...]:
    """`hot`, `mini`, or unit and source names with commas between. Raises UsageError.

    A source that belongs to a unit brings the whole unit: alone it would not be closed.
    """
    table = _table()
    held = Counter(file for files in table["unit"].values() for file in files)
    owner = {f: unit for unit, files in table["unit"].items() for f in files if held[f] == 1}
    names: list[str] = []
    for word in choice.split(","):
        stem = word.strip().removesuffix(".cc")
        names += table["set"].get(stem, [owner.get(f"{stem}.cc", stem)])
    units = {name: _unit(name, table["unit"]) for name in names}
    return tuple(units[name] for name in sorted(units))


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
            hint=f"Use {', '.join(sorted(_table()['set']))}, or names such as cwise_op_log,bias_op",
        )
    files = units.get(name, [f"{name}.cc"])
    return KernelUnit(name=name, sources=tuple(f"{FOLDER}/{file}" for file in files))


def cost(units: tuple[KernelUnit, ...]) -> Cost:
    """The measured cost of the sources; an unmeasured one counts as the median of the others."""
    table: dict[str, dict[str, int]] = _table()["cost"]
    typical = statistics.median(row["seconds"] for row in table.values())
    largest = max(row["megabytes"] for row in table.values())
    sources = {source for unit in units for source in unit.sources}
    files = [source.removeprefix(f"{FOLDER}/") for source in sources]
    known = [table[file] for file in files if file in table]
    unknown = len(files) - len(known)
    return Cost(
        seconds=sum(row["seconds"] for row in known) + unknown * typical,
        megabytes=max([row["megabytes"] for row in known] + [largest] * bool(unknown), default=0),
        measured=len(known),
        sources=len(files),
    )


@functools.cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(
        resources.files("tfbuild.upstream").joinpath("kernels.toml").read_text("utf-8")
    )
