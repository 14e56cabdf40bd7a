"""The table of CPU features: what each is called, how it is switched on and how it is seen."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from tfbuild.errors import TargetError

ARCHITECTURES = ("x86_64", "aarch64")

# What the published wheels are compiled with on x86-64: -mavx, and what that implies.
STOCK_BASELINE = frozenset({"sse", "sse2", "sse3", "ssse3", "sse4_1", "sse4_2", "popcnt", "avx"})


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuidBit:
    """Where CPUID shows a feature."""

    leaf: int
    subleaf: int
    register: Literal["eax", "ebx", "ecx", "edx"]
    bit: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HwcapBit:
    """Where Linux tells an aarch64 process of a feature: AT_HWCAP is word 1, AT_HWCAP2 word 2."""

    word: Literal[1, 2]
    bit: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Feature:
    """One feature; features.toml says what each field means."""

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
    """How archspec's flags for some targets are changed for some versions of a compiler."""

    targets: tuple[str, ...]
    versions: Mapping[str, str]
    instead: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    uncovered: frozenset[str] = frozenset()
    reason: str


@functools.cache
def table(architecture: str) -> Mapping[str, Feature]:
    """Every feature of an architecture by name. Raises TargetError for an unknown architecture."""
    if architecture not in ARCHITECTURES:
        raise TargetError(
            f"{architecture} is not supported", hint=f"Known: {', '.join(ARCHITECTURES)}"
        )
    rows: dict[str, dict[str, Any]] = _data()[architecture]
    return MappingProxyType({name: _feature(name, architecture, rows[name]) for name in rows})


@functools.cache
def every_name() -> frozenset[str]:
    """The features of all architectures, archspec's names: what a mask may have, as one that is set
    for this machine reaches an emulated one, too."""
    return frozenset().union(*map(table, ARCHITECTURES))


@functools.cache
def corrections() -> tuple[Correction, ...]:
    data = _data()
    return tuple(_correction(row) for row in [*data["correction"], *data["uncovered"]])


@functools.cache
def canonical_names(architecture: str) -> Mapping[str, str]:
    """Kernel's and archspec's names of each feature, to archspec's."""
    return {
        alias: feature.name
        for feature in table(architecture).values()
        for alias in (feature.name, *feature.aliases)
    }


def canonical(names: Iterable[str], architecture: str) -> frozenset[str]:
    """The features that the kernel's names mean; names that no target needs are left out."""
    known = canonical_names(architecture)
    found = {known[name] for name in names if name in known}
    # Linux and some hypervisors show only the later of the two.
    return frozenset(found | ({"sse3"} if "ssse3" in found else set()))


def computing(names: Iterable[str], architecture: str) -> frozenset[str]:
    """Those of the features that a compiler can use by itself."""
    rows = table(architecture)
    return frozenset(name for name in names if rows[name].codegen)


def unused_by(
    features: frozenset[str], baseline: frozenset[str] = STOCK_BASELINE
) -> tuple[str, ...]:
    """What TensorFlow built for `baseline` says it leaves unused on an x86-64 CPU with `features`,
    in the order in which it says so.

    Up to 2.14 TensorFlow asks for __AMXTILE__ and the like, which no compiler defines, so its own
    message names AMX even when it was built for it.
    """
    return tuple(
        feature.tensorflow
        for feature in table("x86_64").values()
        if feature.tensorflow and feature.name in features - baseline
    )


@functools.cache
def _data() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("features.toml").read_text(encoding="utf-8"))


def _feature(name: str, architecture: str, row: Mapping[str, Any]) -> Feature:
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


def _correction(row: Mapping[str, Any]) -> Correction:
    return Correction(
        targets=tuple(row["targets"]),
        versions={family: row[family] for family in ("gcc", "clang") if family in row},
        instead=tuple(row.get("instead", ())),
        add=tuple(row.get("add", ())),
        uncovered=frozenset(row.get("features", ())),
        reason=row["reason"],
    )
