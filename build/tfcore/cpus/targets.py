"""The targets of wheels: microarchitectures of archspec, optionally with extra features."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from archspec.cpu import TARGETS
from archspec.cpu.microarchitecture import Microarchitecture

from tfcore.console import format_choices, suggest_spelling
from tfcore.cpus.cpu import Cpu
from tfcore.cpus.features import ARCHITECTURES, STOCK_BASELINE, filter_codegen, load_features
from tfcore.cpus.models import find_model, load_models
from tfcore.errors import TargetError

STOCK_FLAGS = "+".join(("x86_64", *sorted(STOCK_BASELINE)))
"""The target that the published x86-64 wheels are compiled for."""
_STOCK_SPECS = {"x86_64": STOCK_FLAGS, "aarch64": "aarch64"}
"""The targets of the published wheels, by machine. Those for aarch64 are compiled for armv8-a:
linux_arm64 in .bazelrc."""
STOCK_SPECS = tuple(_STOCK_SPECS.values())
_STOCK_FLAGS_LOCAL = "stock.flags"

# A CPU that lacks more features than this is not a near miss.
_FEW_FEATURES = 5
_FEW_MISSES = 5
_FEW_SHOWN = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A microarchitecture that a wheel is built for, optionally with extra features.

    `name` and `tune` are archspec's; `extras` are features added to those of `name`.
    `features` are all features that the wheel may use, with the extras. archspec lists none
    for the generic aarch64 targets.
    """

    name: str
    extras: tuple[str, ...] = ()
    tune: str
    family: str
    vendor: str
    features: frozenset[str]

    @property
    def spec(self) -> str:
        """Return the target as text.

        x86_64_v4+avx512_bf16/zen4 is tuned for zen4.
        """
        tuned = "" if self.tune == self.name else f"/{self.tune}"
        return "+".join((self.name, *self.extras)) + tuned

    @property
    def local(self) -> str:
        """Return a PEP 440 local version that names the target.

        A hash stands for extras and tuning.
        """
        name = self.name.replace("_", ".")
        if self.spec == self.name:
            return name
        if self.spec == STOCK_FLAGS:
            return _STOCK_FLAGS_LOCAL
        # Without "plus" a hash of digits only would be compared, and shown, as a number.
        return f"{name}.plus{hashlib.sha256(self.spec.encode()).hexdigest()[:6]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class NearMiss:
    """A newer target of the same maker, and the features that the CPU lacks for it."""

    name: str
    missing: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """The targets that fit a CPU.

    `best` is the newest target of which the CPU has all features. `native` adds features that
    the CPU has and `best` lacks, so that one hidden flag does not cost AVX-512.
    """

    best: Target
    native: Target
    near: tuple[NearMiss, ...]
    notes: tuple[str, ...]


def parse_target(spec: str) -> Target:
    """Parse NAME[+FEATURE...][/TUNE].

    Raises TargetError for an unknown name, feature or tuning.
    """
    head, _, tune = spec.strip().lower().partition("/")
    name, *extras = (part.replace("-", "_") for part in head.split("+"))
    base = _find_uarch(name)
    tuned = _find_uarch(tune.replace("-", "_")) if tune else base
    family = str(base.family)
    if str(tuned.family) != family:
        raise TargetError(
            f"{base.name} ({family}) cannot be tuned for {tuned.name} ({tuned.family})"
        )
    for extra in extras:
        _check_extra(extra, family)
    return _create_target(base, extras=extras, tune=tuned.name)


def create_stock_target(machine: str) -> Target:
    """Return the target that the published wheels for a machine are compiled for.

    A build for it differs from the stock wheel in the compiler, not in the flags. Raises
    TargetError for a machine whose stock flags are not known.
    """
    if machine not in _STOCK_SPECS:
        raise TargetError(
            f"the flags of TensorFlow's {machine} wheels are not known",
            hint="--arch stock supports x86_64 and aarch64; invoke targets lists other targets",
        )
    return parse_target(_STOCK_SPECS[machine])


def list_targets(family: str | None = None) -> tuple[Target, ...]:
    """Return the targets of one family or of all, ancestors first."""
    families = ARCHITECTURES if family is None else (family,)
    uarches = [uarch for uarch in TARGETS.values() if str(uarch.family) in families]
    ranked = sorted(uarches, key=lambda u: (families.index(str(u.family)), u.vendor != "generic"))
    return tuple(_create_target(uarch) for uarch in ranked)


def match_cpu(cpu: Cpu) -> Match:
    """Return the best target of a CPU, its native target and near misses."""
    best = _choose_best(cpu)
    misses = _find_near_misses(best, cpu)
    native = _choose_native(best, misses, cpu)
    return Match(
        best=_create_target(best),
        native=native,
        near=misses[:_FEW_MISSES],
        notes=_describe_conflicts(native, cpu),
    )


def list_proxy_targets(target: Target) -> Iterator[Target]:
    """Yield older targets of the same line, nearest first, for a compiler older than the target.

    Each has as extras the features of `target` that it lacks and that a flag can enable.
    """
    rows = load_features(target.family)
    for uarch in sorted(TARGETS[target.name].ancestors, key=_compute_depth, reverse=True):
        beyond = filter_codegen(target.features - uarch.features, target.family)
        extras = [name for name in beyond if rows[name].flag and not rows[name].banned]
        yield _create_target(uarch, extras=extras)


def find_missing_features(target: Target, cpu: Cpu) -> tuple[str, ...]:
    """Return the features of the target that the CPU lacks and that compilers use by themselves.

    Wheels require no others. For a CPU of another family the result is the target's family.
    """
    if target.family != cpu.architecture:
        return (target.family,)
    return tuple(sorted(filter_codegen(target.features, target.family) - cpu.features))


@functools.cache
def _list_names() -> tuple[str, ...]:
    return tuple(name for name, uarch in TARGETS.items() if str(uarch.family) in ARCHITECTURES)


def _find_uarch(name: str) -> Microarchitecture:
    if name in _list_names():
        return TARGETS[name]
    raise TargetError(
        f"there is no target {name or '(nothing)'}",
        hint=_suggest_targets(name)
        or suggest_spelling(name, _list_names())
        or "See invoke targets",
    )


def _suggest_targets(name: str) -> str:
    """Return a hint with the targets for a compiler's name of a CPU, or that begin with `name`."""
    aliases = _load_aliases()
    similar = (
        target for alias, target in aliases.items() if alias.startswith(name) and len(name) > 1
    )
    matches = [aliases[name]] if name in aliases else list(dict.fromkeys(similar))
    return f"Did you mean {format_choices(matches)}?" if matches else ""


@functools.cache
def _load_aliases() -> dict[str, str]:
    """Return the target for each name.

    Names are the target's own, those of CPU models (Emerald Rapids: emeraldrapids), and the -march
    of gcc and clang in archspec's data. Excludes entries with further flags: they approximate a
    target that the compiler does not support.
    """
    models = {re.sub("[^a-z0-9]+", "", model.name.lower()): model.target for model in load_models()}
    return (
        models
        | {name: name for name in _list_names()}
        | {
            str(entry["name"]).replace("-", "_"): name
            for name in _list_names()
            for family in ("gcc", "clang")
            for entry in TARGETS[name].compilers.get(family, ())
            if "name" in entry and entry["flags"] == "-march={name} -mtune={name}"
        }
    )


def _check_extra(extra: str, family: str) -> None:
    feature = load_features(family).get(extra)
    if feature is None or not feature.flag:
        usable = [row.name for row in load_features(family).values() if row.flag and not row.banned]
        raise TargetError(
            f"{extra or '(nothing)'} is not a CPU feature that can be added to {family} targets",
            hint=suggest_spelling(extra, usable),
        )
    if feature.banned:
        raise TargetError(f"{extra} cannot be used: {feature.banned}")


def _create_target(
    uarch: Microarchitecture, *, extras: Iterable[str] = (), tune: str = ""
) -> Target:
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


def _choose_best(cpu: Cpu) -> Microarchitecture:
    """Return the target that archspec.cpu.host would choose on a machine with this CPU.

    It is the deepest descendant of the best generic target. So a server CPU that lacks a
    niche feature does not become a much older one.
    """
    fitting = [
        uarch
        for uarch in TARGETS.values()
        if str(uarch.family) == cpu.architecture
        and uarch.vendor in (cpu.vendor, "generic")
        and uarch.features <= cpu.features
        and not _is_arm_version(uarch)
    ]
    generic = max((u for u in fitting if u.vendor == "generic"), key=_compute_depth)
    part = [u for u in fitting if cpu.architecture == "aarch64" and _is_part(u, cpu)]
    return max(
        (u for u in part or fitting if generic in u.ancestors), key=_compute_depth, default=generic
    )


def _is_arm_version(uarch: Microarchitecture) -> bool:
    """Return True for the versions of the Arm architecture.

    A CPU's features do not show its version.
    """
    family = str(uarch.family)
    return family == "aarch64" and uarch.vendor == "generic" and uarch.name != family


def _is_part(uarch: Microarchitecture, cpu: Cpu) -> bool:
    return bool(uarch.cpu_part == f"0x{cpu.model:03x}")


def _compute_depth(uarch: Microarchitecture) -> tuple[int, int]:
    return len(uarch.ancestors), len(uarch.features)


def _find_near_misses(best: Microarchitecture, cpu: Cpu) -> tuple[NearMiss, ...]:
    """Return the maker's targets beyond `best`.

    Targets for which a compiler would lose the fewest features come first.
    """
    beyond = [
        uarch
        for uarch in TARGETS.values()
        if uarch.vendor == cpu.vendor and best in uarch.ancestors and uarch.features - cpu.features
    ]

    model = find_model(cpu)
    model_target = model.target if model else ""

    def compute_rank(uarch: Microarchitecture) -> tuple[int, int, bool, int, str]:
        absent = uarch.features - cpu.features
        hard = len(filter_codegen(absent, cpu.architecture))
        gain = len(_list_gain(best, uarch, cpu))
        return hard, -gain, uarch.name != model_target, len(absent), uarch.name

    misses = (
        NearMiss(name=uarch.name, missing=tuple(sorted(uarch.features - cpu.features)))
        for uarch in sorted(beyond, key=compute_rank)
    )
    return tuple(miss for miss in misses if len(miss.missing) <= _FEW_FEATURES)


def _choose_native(best: Microarchitecture, near: tuple[NearMiss, ...], cpu: Cpu) -> Target:
    """Return `best` with the features that the CPU shares with the nearest miss.

    It is tuned for that miss if the CPU lacks only features that compilers never use.
    """
    # The part number of an aarch64 CPU identifies the core, also in a virtual machine.
    credible = (m for m in near if cpu.architecture != "aarch64" or _is_part(TARGETS[m.name], cpu))
    miss = next(credible, None)
    if miss is None:
        return _create_target(best)
    extras = _list_gain(best, TARGETS[miss.name], cpu)
    masked = not filter_codegen(miss.missing, cpu.architecture)
    return _create_target(best, extras=extras, tune=miss.name if extras and masked else "")


def _list_gain(best: Microarchitecture, nearest: Microarchitecture, cpu: Cpu) -> tuple[str, ...]:
    rows = load_features(cpu.architecture)
    shared = filter_codegen(nearest.features & cpu.features - best.features, cpu.architecture)
    return tuple(name for name in shared if rows[name].flag and not rows[name].banned)


def _describe_conflicts(native: Target, cpu: Cpu) -> tuple[str, ...]:
    """Return a note if the model number and the flags disagree."""
    model = find_model(cpu)
    if model is None:
        return ()
    claimed, shown = TARGETS[model.target], TARGETS[native.tune]
    number = f"family {cpu.family} model {cpu.model} is {model.name} ({claimed.name})"
    if cpu.architecture == "aarch64":
        number = f"part 0x{cpu.model:03x} is {claimed.name}"
    if claimed in shown.ancestors:
        more = _format_names(shown.features & cpu.features - claimed.features)
        return (f"{number}, but the flags match {shown.name}: {more}",)
    absent = claimed.features - cpu.features
    if absent:
        reason = (
            "hidden by the hypervisor or the kernel"
            if cpu.hypervisor
            else "hidden by the kernel or BIOS, or absent from this model"
        )
        return (f"{number}, but this CPU lacks {_format_names(absent)} ({reason})",)
    return ()


def _format_names(names: frozenset[str] | set[str]) -> str:
    """Format the first few names, and how many more there are."""
    first = sorted(names)[:_FEW_SHOWN]
    remaining = len(names) - len(first)
    return ", ".join(first) + (f" and {remaining} more" if remaining else "")
