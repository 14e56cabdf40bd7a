"""The table of CPU features: their names, their compiler flags and how to detect them."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from tfcore.errors import TargetError

ARCHITECTURES = ("x86_64", "aarch64")

# The published Linux x86-64 wheels are compiled with -mavx: avx_linux in .bazelrc and
# devel.usertools/cpu.bazelrc. clang 16 and g++ 12 define these features for it.
STOCK_BASELINE = frozenset({"sse", "sse2", "sse3", "ssse3", "sse4_1", "sse4_2", "popcnt", "avx"})


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuidBit:
    """The bit of CPUID that shows a feature."""

    leaf: int
    subleaf: int
    register: Literal["eax", "ebx", "ecx", "edx"]
    bit: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HwcapBit:
    """The bit of Linux's auxiliary vector that shows a feature on aarch64.

    Word 1 is AT_HWCAP, word 2 is AT_HWCAP2.
    """

    word: Literal[1, 2]
    bit: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Feature:
    """One CPU feature; features.toml documents the fields."""

    name: str
    architecture: str
    macro: str = ""
    flag: str = ""
    cpuid: CpuidBit | None = None
    xcr0: int = 0
    hwcap: HwcapBit | None = None
    aliases: tuple[str, ...] = ()
    tensorflow: str = ""
    codegen: bool = True
    banned: str = ""
    since: Mapping[str, str] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    iced: str = ""
    capstone: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Correction:
    """A change of archspec's flags for some targets and some versions of a compiler."""

    targets: tuple[str, ...]
    versions: Mapping[str, str]
    instead: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    uncovered: frozenset[str] = frozenset()
    reason: str


@functools.cache
def load_features(architecture: str) -> Mapping[str, Feature]:
    """Return every feature of an architecture by name.

    Raises TargetError for an unknown architecture.
    """
    if architecture not in ARCHITECTURES:
        raise TargetError(
            f"{architecture} is not supported", hint=f"Known: {', '.join(ARCHITECTURES)}"
        )
    rows: dict[str, dict[str, Any]] = _load_table()[architecture]
    return MappingProxyType({name: _parse_feature(name, architecture, rows[name]) for name in rows})


@functools.cache
def list_feature_names() -> frozenset[str]:
    """Return the features of all architectures, under archspec's names.

    A mask may contain any of them, because the mask of this machine also reaches emulated
    machines.
    """
    return frozenset().union(*map(load_features, ARCHITECTURES))


@functools.cache
def load_corrections() -> tuple[Correction, ...]:
    data = _load_table()
    return tuple(_parse_correction(row) for row in [*data["correction"], *data["uncovered"]])


@functools.cache
def load_aliases(architecture: str) -> Mapping[str, str]:
    """Return a map from the kernel's and archspec's names of each feature to archspec's name."""
    return {
        alias: feature.name
        for feature in load_features(architecture).values()
        for alias in (feature.name, *feature.aliases)
    }


def normalize_features(names: Iterable[str], architecture: str) -> frozenset[str]:
    """Return archspec's names of the features that the kernel names.

    Names that no target needs are excluded.
    """
    aliases = load_aliases(architecture)
    features = {aliases[name] for name in names if name in aliases}
    # Linux and some hypervisors show only ssse3.
    return frozenset(features | ({"sse3"} if "ssse3" in features else set()))


def filter_codegen(names: Iterable[str], architecture: str) -> frozenset[str]:
    """Return those of the features that a compiler can use by itself."""
    rows = load_features(architecture)
    return frozenset(name for name in names if rows[name].codegen)


def list_unused(
    features: frozenset[str], baseline: frozenset[str] = STOCK_BASELINE
) -> tuple[str, ...]:
    """Return the features that a TensorFlow for `baseline` reports as unused on an x86-64 CPU.

    They are in the order of TensorFlow's message. Up to 2.14 TensorFlow tests __AMXTILE__ and
    similar macros, which no compiler defines, so its message names AMX even if it was built
    for AMX.
    """
    return tuple(
        feature.tensorflow
        for feature in load_features("x86_64").values()
        if feature.tensorflow and feature.name in features - baseline
    )


@functools.cache
def _load_table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("features.toml").read_text(encoding="utf-8"))


def _parse_feature(name: str, architecture: str, row: Mapping[str, Any]) -> Feature:
    fields = dict(row)
    if "cpuid" in fields:
        leaf, subleaf, register, bit = fields["cpuid"]
        fields["cpuid"] = CpuidBit(leaf=leaf, subleaf=subleaf, register=register, bit=bit)
    if "hwcap" in fields:
        word, bit = fields["hwcap"]
        fields["hwcap"] = HwcapBit(word=word, bit=bit)
    fields["aliases"] = tuple(fields.pop("cpuinfo", ()))
    if architecture == "x86_64":
        fields.setdefault("iced", name.upper())
    return Feature(name=name, architecture=architecture, **fields)


def _parse_correction(row: Mapping[str, Any]) -> Correction:
    return Correction(
        targets=tuple(row["targets"]),
        versions={family: row[family] for family in ("gcc", "clang") if family in row},
        instead=tuple(row.get("instead", ())),
        add=tuple(row.get("add", ())),
        uncovered=frozenset(row.get("features", ())),
        reason=row["reason"],
    )
