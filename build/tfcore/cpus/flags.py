"""Computes the compiler flags of a target, and checks that they took effect.

The -march of a target in each compiler comes from archspec's data. archspec's own function is not
used: it returns "" for an unknown compiler, takes the first matching entry where a later one is
right (neoverse_v1 with clang 12 and later), and does not find 12.2.0 in a range that ends with
12.2.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from archspec.cpu import TARGETS

from tfcore.cpus.features import (
    Correction,
    Feature,
    filter_codegen,
    load_corrections,
    load_features,
)
from tfcore.cpus.targets import Target
from tfcore.errors import CompilerError

FAMILIES = ("gcc", "clang")
_EXTRA = re.compile(
    r"-O[1-3]|-f(?!profile)[a-z][a-z0-9-]*(=[a-z0-9-]+)?|-mprefer-vector-width=(128|256|512)"
    r"|-mno-avx512f|-mtune=[a-z0-9_-]+|-DEIGEN_[A-Z0-9_]+=[0-9]+"
)


def compute_march_flags(target: Target, family: str, version: str) -> tuple[str, ...]:
    """Return -march, -mtune and feature flags, always explicit.

    Raises CompilerError if the compiler is unknown, or too old for the target or an extra.
    """
    words = _find_archspec_flags(target.name, family, version)
    for correction in _find_corrections(target.name, family, version):
        words = list(correction.instead) or words
        words = _extend_flags(words, correction.add)
    if target.tune != target.name:
        words = _replace_tuning(words, target.tune, family, version)
    return tuple(_extend_flags(words, _list_extra_flags(target, family, version)))


def parse_extra_flags(text: str) -> tuple[str, ...]:
    """Parse extra compiler flags, separated by spaces.

    They say how to compile, not for which CPU. Flags that change results are accepted: the
    conformance test checks them. Of -D, only Eigen's switches are accepted. Raises CompilerError.
    """
    words = tuple(dict.fromkeys(text.split()))
    for word in words:
        if not _EXTRA.fullmatch(word):
            raise CompilerError(
                f"{word} is not allowed as an extra compiler flag",
                hint="Allowed: -O1 to -O3, -f… except -fprofile…, -mno-avx512f, "
                "-mprefer-vector-width=256, -mtune=…, -DEIGEN_…=…. Select the CPU with --arch",
            )
    return words


def compute_link_flags(family: str, words: Collection[str]) -> tuple[str, ...]:
    """Return the linker flags for objects that were compiled with these words among others.

    The linker compiles bitcode; for clang's that must be lld.
    """
    if not any(re.fullmatch(r"-flto(=[a-z]+)?", word) for word in words):
        return ()
    return ("-fuse-ld=lld",) if family == "clang" else ("-flto=auto",)


def filter_known_extras(target: Target, family: str, version: str) -> tuple[str, ...]:
    """Return the extras of the target that this compiler has a flag for."""
    rows = load_features(target.family)
    return tuple(
        name
        for name in target.extras
        if _parse_version(rows[name].since.get(family, "0")) <= _parse_version(version)
    )


def list_implied_features(macros: Mapping[str, str]) -> frozenset[str]:
    """Return the features that a compiler has enabled, from its macros."""
    architecture = "aarch64" if "__aarch64__" in macros else "x86_64"
    rows = load_features(architecture).values()
    return frozenset(row.name for row in rows if row.macro and row.macro in macros)


def compute_required_features(target: Target, macros: Mapping[str, str]) -> frozenset[str]:
    """Return the features that a CPU must have to run code that was compiled with these macros.

    These are the target's features that compilers use by themselves, and others that this
    compiler may use: archspec's skylake does not name PREFETCHW, but the compilers' skylake
    uses it. A feature that no compiler uses by itself is not required: hypervisors often hide
    these, and the audit counts instructions to prove that the code has none of them.
    """
    return filter_codegen(target.features | list_implied_features(macros), target.family)


def verify_macros(target: Target, family: str, version: str, macros: Mapping[str, str]) -> None:
    """Raise CompilerError if the macros show that the flags did not have their effect.

    They must show every feature of the target that this compiler has a macro for, and none
    that is banned.
    """
    rows = load_features(target.family)
    shown = list_implied_features(macros)
    absent = sorted(list_covered_features(target, family, version) - shown)
    if absent:
        raise CompilerError(
            f"{family} {version} does not enable {', '.join(absent)} for {target.spec}",
            hint="Use a newer compiler or a target without them",
        )
    banned = sorted(name for name in shown if rows[name].banned)
    if banned:
        raise CompilerError(
            f"{family} {version} enables {banned[0]} for {target.spec}: {rows[banned[0]].banned}",
            hint="Use another target",
        )


def list_covered_features(target: Target, family: str, version: str) -> frozenset[str]:
    """Return the features of the target that this compiler's macros can and must show."""
    rows = load_features(target.family)
    uncovered = {
        name
        for correction in _find_corrections(target.name, family, version)
        for name in correction.uncovered
    }
    return frozenset(
        name
        for name in target.features - uncovered
        if rows[name].macro
        and not rows[name].banned
        and not _is_silent(rows[name], family, version)
    )


def _is_silent(feature: Feature, family: str, version: str) -> bool:
    last = feature.silent.get(family)
    return last is not None and _is_within(version, f":{last}")


def _find_archspec_flags(name: str, family: str, version: str) -> list[str]:
    """Return archspec's flags for this version, from the matching entry with the newest start.

    Raises CompilerError if there is none.
    """
    if family not in FAMILIES:
        raise CompilerError(
            f"{family} has no flags for {name}",
            hint=f"Use {' or '.join(_list_oldest_compilers(name))}",
        )
    fitting = [
        entry for entry in _list_entries(name, family) if _is_within(version, entry["versions"])
    ]
    if not fitting:
        needed = (
            " or ".join(_list_oldest_compilers(name))
            or "another target: no known compiler supports it"
        )
        raise CompilerError(f"{family} {version} is too old for {name}", hint=f"Use {needed}")
    entry = max(fitting, key=lambda entry: _parse_version(entry["versions"].partition(":")[0]))
    return entry["flags"].format(name=entry.get("name", name)).split()


def _list_entries(name: str, family: str) -> list[dict[str, str]]:
    entries: list[dict[str, str]] = TARGETS[name].compilers.get(family, [])
    return entries


def _list_oldest_compilers(name: str) -> list[str]:
    """Return the oldest version of each compiler that supports the target."""
    firsts = {
        family: min((entry["versions"].partition(":")[0] for entry in entries), key=_parse_version)
        for family in FAMILIES
        if (entries := _list_entries(name, family))
    }
    return [f"{family} {first}".strip() for family, first in firsts.items()]


def _find_corrections(name: str, family: str, version: str) -> Iterable[Correction]:
    for correction in load_corrections():
        versions = correction.versions.get(family)
        if name in correction.targets and versions and _is_within(version, versions):
            yield correction


def _list_extra_flags(target: Target, family: str, version: str) -> list[str]:
    rows = load_features(target.family)
    for name in target.extras:
        first = rows[name].since.get(family, "0")
        if _parse_version(version) < _parse_version(first):
            raise CompilerError(
                f"{family} {version} does not support {name}", hint=f"Use {family} {first} or later"
            )
    return [rows[name].flag for name in target.extras]


def _replace_tuning(words: list[str], tune: str, family: str, version: str) -> list[str]:
    """Return the flags with -mtune for another target, if this compiler has one for it."""
    try:
        tune_words = _find_archspec_flags(tune, family, version)
    except CompilerError:
        return words
    names = [
        word.partition("=")[2] for word in tune_words if word.startswith(("-mtune=", "-mcpu="))
    ]
    if not names:
        return words
    untuned = [word for word in words if not word.startswith("-mtune=")]
    return [*untuned, f"-mtune={names[0].partition('+')[0]}"]


def _extend_flags(words: list[str], added: Iterable[str]) -> list[str]:
    """Add flags: those that begin with + to -march= or -mcpu=, the others at the end."""
    result = list(words)
    for flag in dict.fromkeys(added):
        if not flag.startswith("+"):
            result.append(flag)
            continue
        at = next(i for i, word in enumerate(result) if word.startswith(("-march=", "-mcpu=")))
        if flag not in re.findall(r"\+[^+]+", result[at]):
            result[at] += flag
    return result


def _is_within(version: str, versions: str) -> bool:
    """Return True if a version is in first:last.

    Both ends are included (12.2.0 is in :12.2), and either may be open.
    """
    first, _, last = versions.partition(":")
    number = _parse_version(version)
    low, high = _parse_version(first), _parse_version(last)
    return low <= number and (not last or number[: len(high)] <= high)


def _parse_version(version: str) -> tuple[int, ...]:
    if not re.fullmatch(r"(\d+(\.\d+)*)?", version):
        raise CompilerError(
            f"{version!r} is not a compiler version", hint="Give a version such as 16.0.6"
        )
    return tuple(int(part) for part in version.split(".")) if version else ()
