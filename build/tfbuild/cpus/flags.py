"""The compiler flags of a target, and the proof that the compiler did what they say.

Which -march a target has in which compiler is archspec's data. It is read here rather than through
archspec's own function, which answers "" for a compiler it does not know, takes the first entry
that fits where a later one is meant (neoverse_v1 with clang 12 and later), and finds none for
12.2.0 in a range that ends with 12.2.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from archspec.cpu import TARGETS

from tfbuild.cpus.features import Correction, Feature, computing, corrections, table
from tfbuild.cpus.targets import Target
from tfbuild.errors import CompilerError

FAMILIES = ("gcc", "clang")
LEARNED = "-fprofile-use="
"""Before the hash of a profile: a source is compiled with what a training run told."""
COUNTING = "-fprofile-generate"
"""A source counts the branches that it takes: code for a training run."""
_EXTRA = re.compile(
    r"-O[1-3]|-f[a-z][a-z0-9-]*(=[a-z0-9-]+)?|-mprefer-vector-width=(128|256|512)"
    r"|-mno-avx512f|-mtune=[a-z0-9_-]+|-DEIGEN_[A-Z0-9_]+=[0-9]+"
)


def march_flags(target: Target, family: str, version: str) -> tuple[str, ...]:
    """-march, -mtune and feature flags, always explicit.

    Raises CompilerError for a compiler that is unknown, or too old for the target or for an extra.
    """
    words = _own_flags(target.name, family, version)
    for correction in _corrections(target.name, family, version):
        words = list(correction.instead) or words
        words = _extended(words, correction.add)
    if target.tune != target.name:
        words = _tuned(words, target.tune, family, version)
    return tuple(_extended(words, _extra_flags(target, family, version)))


def extra_flags(text: str) -> tuple[str, ...]:
    """What somebody wants beside the target's flags, words with spaces between: how to compile, not
    for which CPU. Raises CompilerError.

    What changes results is left to admission; of -D only Eigen's own switches.
    """
    words = tuple(dict.fromkeys(text.split()))
    for word in words:
        if not _EXTRA.fullmatch(word):
            raise CompilerError(
                f"{word} is no flag that kernels may get beside the target's",
                hint="Known: -O1 to -O3, -f…, -mno-avx512f, -mprefer-vector-width=256, -mtune=…, "
                "-DEIGEN_…=…; --arch says for which CPU",
            )
    return words


def link_flags(family: str, words: Collection[str]) -> tuple[str, ...]:
    """What objects ask of the linker that were compiled with these words among others: bitcode is
    compiled in the link, clang's by lld alone, and counters need their runtime.

    Raises CompilerError for words that this compiler has no use for.
    """
    learning = [word for word in words if word == COUNTING or word.startswith(LEARNED)]
    if learning and family != "clang":
        raise CompilerError(
            f"{learning[0]} is for clang: the profiles of {family} are of another kind",
            hint="Build with --compiler clang-16",
        )
    late = [word for word in words if re.fullmatch(r"-flto(=[a-z]+)?", word)]
    lto = ("-fuse-ld=lld",) if family == "clang" else ("-flto=auto",)
    return (*(lto if late else ()), *((COUNTING,) if COUNTING in words else ()))


def learned(words: Iterable[str]) -> tuple[str, ...]:
    """The hashes of the profiles that these words name."""
    found = {word.removeprefix(LEARNED) for word in words if word.startswith(LEARNED)}
    return tuple(sorted(found))


def known(target: Target, family: str, version: str) -> tuple[str, ...]:
    """The extras of the target that this compiler has a flag for."""
    rows = table(target.family)
    return tuple(
        name
        for name in target.extras
        if _numbers(rows[name].since.get(family, "0")) <= _numbers(version)
    )


def implied_features(macros: Mapping[str, str]) -> frozenset[str]:
    """The features that a compiler has switched on, as its macros show."""
    architecture = "aarch64" if "__aarch64__" in macros else "x86_64"
    rows = table(architecture).values()
    return frozenset(row.name for row in rows if row.macro and row.macro in macros)


def required_features(target: Target, macros: Mapping[str, str]) -> frozenset[str]:
    """What a CPU must have to run code that was compiled so.

    Those of the target's features that compilers use by themselves, and what the compiler may use
    beyond them: archspec's skylake does not name PREFETCHW, the compilers' skylake uses it. A
    feature that no compiler uses by itself is not asked for: hypervisors hide just these, and the
    audit counts the instructions to prove that none is there.
    """
    return computing(target.features | implied_features(macros), target.family)


def verify(target: Target, family: str, version: str, macros: Mapping[str, str]) -> None:
    """Raises CompilerError when the macros show that the flags did not do what they should.

    They must show every feature of the target that this compiler has a macro for, and none that is
    banned.
    """
    rows = table(target.family)
    shown = implied_features(macros)
    absent = sorted(covered_features(target, family, version) - shown)
    if absent:
        raise CompilerError(
            f"{family} {version} does not switch on {', '.join(absent)} for {target.spec}",
            hint="Use a newer compiler, or a target without them",
        )
    banned = sorted(name for name in shown if rows[name].banned)
    if banned:
        raise CompilerError(
            f"{family} {version} switches on {banned[0]} for {target.spec}: "
            f"{rows[banned[0]].banned}",
            hint="Use another target",
        )


def covered_features(target: Target, family: str, version: str) -> frozenset[str]:
    """The features of the target that this compiler's macros can and must show."""
    rows = table(target.family)
    unable = {
        name
        for correction in _corrections(target.name, family, version)
        for name in correction.uncovered
    }
    return frozenset(
        name
        for name in target.features - unable
        if rows[name].macro
        and not rows[name].banned
        and not _is_silent(rows[name], family, version)
    )


def _is_silent(feature: Feature, family: str, version: str) -> bool:
    last = feature.silent.get(family)
    return last is not None and _within(version, f":{last}")


def _own_flags(name: str, family: str, version: str) -> list[str]:
    """What archspec gives: of the entries for this version the one that begins last."""
    if family not in FAMILIES:
        raise CompilerError(
            f"{family} has no flags for {name}", hint=f"Use {' or '.join(_needed(name))}"
        )
    fitting = [entry for entry in _entries(name, family) if _within(version, entry["versions"])]
    if not fitting:
        needed = " or ".join(_needed(name)) or "another target: no compiler is known for it"
        raise CompilerError(f"{family} {version} is too old for {name}", hint=f"Use {needed}")
    entry = max(fitting, key=lambda entry: _numbers(entry["versions"].partition(":")[0]))
    return entry["flags"].format(name=entry.get("name", name)).split()


def _entries(name: str, family: str) -> list[dict[str, str]]:
    entries: list[dict[str, str]] = TARGETS[name].compilers.get(family, [])
    return entries


def _needed(name: str) -> list[str]:
    """The oldest version of each compiler that serves the target."""
    firsts = {
        family: min((entry["versions"].partition(":")[0] for entry in entries), key=_numbers)
        for family in FAMILIES
        if (entries := _entries(name, family))
    }
    return [f"{family} {first}".strip() for family, first in firsts.items()]


def _corrections(name: str, family: str, version: str) -> Iterable[Correction]:
    for correction in corrections():
        versions = correction.versions.get(family)
        if name in correction.targets and versions and _within(version, versions):
            yield correction


def _extra_flags(target: Target, family: str, version: str) -> list[str]:
    rows = table(target.family)
    for name in target.extras:
        first = rows[name].since.get(family, "0")
        if _numbers(version) < _numbers(first):
            raise CompilerError(
                f"{family} {version} does not know {name}", hint=f"Use {family} {first} or later"
            )
    return [rows[name].flag for name in target.extras]


def _tuned(words: list[str], tune: str, family: str, version: str) -> list[str]:
    """The same flags with -mtune for another target, when this compiler knows one for it."""
    try:
        theirs = _own_flags(tune, family, version)
    except CompilerError:
        return words
    names = [word.partition("=")[2] for word in theirs if word.startswith(("-mtune=", "-mcpu="))]
    if not names:
        return words
    kept = [word for word in words if not word.startswith("-mtune=")]
    return [*kept, f"-mtune={names[0].partition('+')[0]}"]


def _extended(words: list[str], added: Iterable[str]) -> list[str]:
    """Flags that begin with + become part of -march= or -mcpu=, the others follow."""
    result = list(words)
    for flag in dict.fromkeys(added):
        if not flag.startswith("+"):
            result.append(flag)
            continue
        at = next(i for i, word in enumerate(result) if word.startswith(("-march=", "-mcpu=")))
        if flag not in re.findall(r"\+[^+]+", result[at]):
            result[at] += flag
    return result


def _within(version: str, versions: str) -> bool:
    """Is a version in first:last? Both are included, 12.2.0 in :12.2 too; either may be open."""
    first, _, last = versions.partition(":")
    number = _numbers(version)
    low, high = _numbers(first), _numbers(last)
    return low <= number and (not last or number[: len(high)] <= high)


def _numbers(version: str) -> tuple[int, ...]:
    if not re.fullmatch(r"(\d+(\.\d+)*)?", version):
        raise CompilerError(f"{version!r} is not a compiler version", hint="Give one like 16.0.6")
    return tuple(int(part) for part in version.split(".")) if version else ()
