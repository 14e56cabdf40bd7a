"""What a wheel is built for: one of archspec's microarchitectures, perhaps with extra features."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from archspec.cpu import TARGETS
from archspec.cpu.microarchitecture import Microarchitecture

from tfbuild.console import did_you_mean
from tfbuild.cpus.cpu import Cpu
from tfbuild.cpus.features import ARCHITECTURES, STOCK_BASELINE, computing, table
from tfbuild.cpus.models import model_of
from tfbuild.errors import TargetError

STOCK_FLAGS = "+".join(("x86_64", *sorted(STOCK_BASELINE)))
"""The target that the published x86-64 wheels are compiled for."""
STOCK_SPECS = (STOCK_FLAGS, "aarch64")
"""Those of both architectures; the aarch64 wheels are compiled for the first version, armv8-a."""
_STOCK_FLAGS_LOCAL = "stock.flags"

# A target that lacks more than this is not near.
_FEW_FEATURES = 5
_FEW_MISSES = 5
_FEW_SHOWN = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """`name` and `tune` are archspec's; `extras` are features added to those of `name`.

    `features` are all that the wheel may use, the extras too. archspec lists none for the generic
    aarch64 targets.
    """

    name: str
    extras: tuple[str, ...] = ()
    tune: str
    family: str
    vendor: str
    features: frozenset[str]

    @property
    def spec(self) -> str:
        """The target as text; x86_64_v4+avx512_bf16/zen4 is tuned for zen4."""
        tuned = "" if self.tune == self.name else f"/{self.tune}"
        return "+".join((self.name, *self.extras)) + tuned

    @property
    def local(self) -> str:
        """A PEP 440 local version that names the target; the hash stands for extras and tuning."""
        name = self.name.replace("_", ".")
        if self.spec == self.name:
            return name
        if self.spec == STOCK_FLAGS:
            return _STOCK_FLAGS_LOCAL
        # A segment of digits only would be compared, and shown, as a number.
        return f"{name}.plus{hashlib.sha256(self.spec.encode()).hexdigest()[:6]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class NearMiss:
    """A newer target of the same maker and what the CPU lacks of it."""

    name: str
    missing: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """What fits a CPU.

    `best` is the newest target all of whose features it has. `native` adds what the CPU has beyond
    it, so that one hidden flag does not cost AVX-512.
    """

    best: Target
    native: Target
    near: tuple[NearMiss, ...]
    notes: tuple[str, ...]


def parse_target(spec: str) -> Target:
    """Read NAME[+FEATURE...][/TUNE]. Raises TargetError for a name, feature or tuning unknown."""
    head, _, tune = spec.strip().lower().partition("/")
    name, *extras = (part.replace("-", "_") for part in head.split("+"))
    base = _known(name)
    tuned = _known(tune.replace("-", "_")) if tune else base
    family = str(base.family)
    if str(tuned.family) != family:
        raise TargetError(f"{base.name} cannot be tuned for {tuned.name}, which is {tuned.family}")
    for extra in extras:
        _check_extra(extra, family)
    return _target(base, extras=extras, tune=tuned.name)


def all_targets(family: str | None = None) -> tuple[Target, ...]:
    """Every target that can be built for, of one family or of all, ancestors first."""
    families = ARCHITECTURES if family is None else (family,)
    found = [uarch for uarch in TARGETS.values() if str(uarch.family) in families]
    ranked = sorted(found, key=lambda u: (families.index(str(u.family)), u.vendor != "generic"))
    return tuple(_target(uarch) for uarch in ranked)


def match(cpu: Cpu) -> Match:
    """The targets that fit a CPU exactly, nearly and best."""
    best = _best(cpu)
    near = _near(best, cpu)
    native = _native(best, near, cpu)
    return Match(
        best=_target(best),
        native=native,
        near=near[:_FEW_MISSES],
        notes=_notes(native, cpu),
    )


def resolve(spec: str, cpu: Cpu) -> Target:
    """The target that an --arch means on this CPU; `native` becomes a name and extras."""
    return match(cpu).native if spec.strip().lower() == "native" else parse_target(spec)


def stand_ins(target: Target) -> Iterator[Target]:
    """Older targets of the same line, nearest first, each with what `target` has beyond it that a
    flag can switch on: for a compiler that is older than the target."""
    rows = table(target.family)
    for uarch in sorted(TARGETS[target.name].ancestors, key=_depth, reverse=True):
        beyond = computing(target.features - uarch.features, target.family)
        extras = [name for name in beyond if rows[name].flag and not rows[name].banned]
        yield _target(uarch, extras=extras)


def missing(target: Target, cpu: Cpu) -> tuple[str, ...]:
    """The features that the CPU lacks of those that a compiler uses by itself for the target, as no
    wheel asks for others; the family itself where that is another."""
    if target.family != cpu.architecture:
        return (target.family,)
    return tuple(sorted(computing(target.features, target.family) - cpu.features))


@functools.cache
def _names() -> tuple[str, ...]:
    return tuple(name for name, uarch in TARGETS.items() if str(uarch.family) in ARCHITECTURES)


def _known(name: str) -> Microarchitecture:
    if name in _names():
        return TARGETS[name]
    raise TargetError(
        f"there is no target called {name or '(nothing)'}",
        hint=_meant(name) or did_you_mean(name, _names()) or "invoke targets lists all",
    )


def _meant(name: str) -> str:
    """The targets that a compiler's own name, or the beginning of any name, stands for."""
    called = _called()
    alike = (target for own, target in called.items() if own.startswith(name) and len(name) > 1)
    found = [called[name]] if name in called else list(dict.fromkeys(alike))
    return f"Did you mean {' or '.join(found)}?" if found else ""


@functools.cache
def _called() -> dict[str, str]:
    """The target that each name means: its own, and the -march of gcc and clang by archspec's data.
    Entries with further flags approximate a target that the compiler does not know."""
    return {name: name for name in _names()} | {
        str(entry["name"]).replace("-", "_"): name
        for name in _names()
        for family in ("gcc", "clang")
        for entry in TARGETS[name].compilers.get(family, ())
        if "name" in entry and entry["flags"] == "-march={name} -mtune={name}"
    }


def _check_extra(extra: str, family: str) -> None:
    feature = table(family).get(extra)
    if feature is None or not feature.flag:
        usable = [row.name for row in table(family).values() if row.flag and not row.banned]
        raise TargetError(
            f"{extra or '(nothing)'} is not a feature that can be added on {family}",
            hint=did_you_mean(extra, usable),
        )
    if feature.banned:
        raise TargetError(f"{extra} cannot be used: {feature.banned}")


def _target(uarch: Microarchitecture, *, extras: Iterable[str] = (), tune: str = "") -> Target:
    base = frozenset(uarch.features)
    added = tuple(sorted(set(extras) - base))
    return Target(
        name=uarch.name,
        extras=added,
        tune=tune or uarch.name,
        family=str(uarch.family),
        vendor=uarch.vendor,
        features=base | frozenset(added),
    )


def _best(cpu: Cpu) -> Microarchitecture:
    """What archspec.cpu.host chooses, for a CPU that need not be this machine's.

    The deepest descendant of the best generic target counts: so a server CPU that lacks a niche
    feature is not taken for a much older one.
    """
    fitting = [
        uarch
        for uarch in TARGETS.values()
        if str(uarch.family) == cpu.architecture
        and uarch.vendor in (cpu.vendor, "generic")
        and uarch.features <= cpu.features
        and not _unseen(uarch)
    ]
    generic = max((u for u in fitting if u.vendor == "generic"), key=_depth)
    part = [u for u in fitting if cpu.architecture == "aarch64" and _is_part(u, cpu)]
    return max((u for u in part or fitting if generic in u.ancestors), key=_depth, default=generic)


def _unseen(uarch: Microarchitecture) -> bool:
    """The versions of the Arm architecture: no list of features tells which one a CPU has."""
    family = str(uarch.family)
    return family == "aarch64" and uarch.vendor == "generic" and uarch.name != family


def _is_part(uarch: Microarchitecture, cpu: Cpu) -> bool:
    return bool(uarch.cpu_part == f"0x{cpu.model:03x}")


def _depth(uarch: Microarchitecture) -> tuple[int, int]:
    return len(uarch.ancestors), len(uarch.features)


def _near(best: Microarchitecture, cpu: Cpu) -> tuple[NearMiss, ...]:
    """The maker's targets beyond `best`; those that a compiler would miss least come first."""
    beyond = [
        uarch
        for uarch in TARGETS.values()
        if uarch.vendor == cpu.vendor and best in uarch.ancestors and uarch.features - cpu.features
    ]

    model = model_of(cpu)
    said = model.target if model else ""

    def rank(uarch: Microarchitecture) -> tuple[int, int, bool, int, str]:
        absent = uarch.features - cpu.features
        hard = len(computing(absent, cpu.architecture))
        gain = len(_gain(best, uarch, cpu))
        return hard, -gain, uarch.name != said, len(absent), uarch.name

    misses = (
        NearMiss(name=uarch.name, missing=tuple(sorted(uarch.features - cpu.features)))
        for uarch in sorted(beyond, key=rank)
    )
    return tuple(miss for miss in misses if len(miss.missing) <= _FEW_FEATURES)


def _native(best: Microarchitecture, near: tuple[NearMiss, ...], cpu: Cpu) -> Target:
    """`best` with what the CPU shares with the nearest miss.

    It is tuned for that miss when only features that compilers never use keep it away.
    """
    # The part number of an aarch64 CPU tells which core it is, also in a virtual machine.
    credible = (m for m in near if cpu.architecture != "aarch64" or _is_part(TARGETS[m.name], cpu))
    miss = next(credible, None)
    if miss is None:
        return _target(best)
    extras = _gain(best, TARGETS[miss.name], cpu)
    masked = not computing(miss.missing, cpu.architecture)
    return _target(best, extras=extras, tune=miss.name if extras and masked else "")


def _gain(best: Microarchitecture, nearest: Microarchitecture, cpu: Cpu) -> tuple[str, ...]:
    rows = table(cpu.architecture)
    shared = computing(nearest.features & cpu.features - best.features, cpu.architecture)
    return tuple(name for name in shared if rows[name].flag and not rows[name].banned)


def _notes(native: Target, cpu: Cpu) -> tuple[str, ...]:
    """Where the model number and the flags disagree."""
    model = model_of(cpu)
    if model is None:
        return ()
    said, seen = TARGETS[model.target], TARGETS[native.tune]
    number = f"family {cpu.family} model {cpu.model} is {model.name} ({said.name})"
    if cpu.architecture == "aarch64":
        number = f"part 0x{cpu.model:03x} is {said.name}"
    if said in seen.ancestors:
        more = _listed(seen.features & cpu.features - said.features)
        return (f"{number}, but the flags are those of {seen.name}: it has {more}",)
    absent = said.features - cpu.features
    if absent:
        by = "hypervisor" if cpu.hypervisor else "kernel, BIOS or part"
        return (f"{number}, but it shows no {_listed(absent)} (hidden by its {by})",)
    return ()


def _listed(names: frozenset[str] | set[str]) -> str:
    """The first few, and how many more."""
    first = sorted(names)[:_FEW_SHOWN]
    rest = len(names) - len(first)
    return ", ".join(first) + (f" and {rest} more" if rest else "")
