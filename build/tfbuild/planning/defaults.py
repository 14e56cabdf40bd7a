"""Run-time settings that a tuned wheel makes for its target, each with what it is founded on.

defaults.toml has the levers and what was measured of them; a comparison.json adds to that. Here is
decided which of them a wheel carries and which are on; shipped/_tensorwright_defaults.py sets them.
"""

from __future__ import annotations

import functools
import statistics
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from packaging.version import Version

from tfbuild.console import format_vcpus as vcpus_text
from tfbuild.cpus.cpu import Cpu, Vcpus
from tfbuild.cpus.features import load_features
from tfbuild.cpus.targets import STOCK_SPECS, Target
from tfbuild.errors import UsageError
from tfbuild.measured import comparison as comparisons
from tfbuild.measured.comparison import ComparedCell, Comparison
from tfbuild.measured.interval import Verdict
from tfbuild.records import decode_record

QUOTA = "quota"
"""The value that stands for the CPUs of the process's cgroup quota, rounded up."""
BF16 = "bf16"
"""The lever that changes results, and its part of a wheel's local version."""
_CAPS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
# oneDNN 3.2's names of what it generates code for, src/cpu/platform.hpp, and the features of each.
_ISAS: Mapping[str, frozenset[str]] = {
    "AVX512_CORE": frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq"}),
    "AVX2": frozenset({"avx2"}),
    "AVX": frozenset({"avx"}),
    "SSE41": frozenset({"sse4_1"}),
}


class MeasurementSource(StrEnum):
    MEASURED = "measured"
    EMULATED = "emulated"


@dataclass(frozen=True, kw_only=True, slots=True)
class LeverRatio:
    """Stock's time over the setting's, above 1 where the setting is faster, its 95 % interval and
    the verdict of the comparison; None and empty where they were not kept."""

    value: float
    low: float | None = None
    high: float | None = None
    verdict: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeverMeasurement:
    """A comparison of one lever with stock. `isa` is the kind of CPU that it speaks of, empty for
    any; `cpu` the one that it was made on; `ratios` are by workload."""

    lever: str
    source: MeasurementSource
    isa: str
    cpu: str
    release: str
    vcpus: int
    setting: str = ""
    made: str = ""
    ratios: Mapping[str, LeverRatio]

    @property
    def mean(self) -> float:
        """The geometric mean of the ratios."""
        return statistics.geometric_mean(each.value for each in self.ratios.values())

    @property
    def wins(self) -> bool:
        """Faster on the whole, and no workload slower. With verdicts, one must say faster; without,
        no interval may lie below 1."""
        if any(each.high is not None and each.high < 1 for each in self.ratios.values()):
            return False
        verdicts = {each.verdict for each in self.ratios.values()}
        gains = verdicts == {""} or Verdict.FASTER in verdicts
        return self.mean > 1 and gains and Verdict.SLOWER not in verdicts


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultLever:
    """A setting that may be made; defaults.toml says what each field means."""

    name: str
    set: Mapping[str, str]
    leave: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    opt_in: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Default:
    """A lever in a wheel, whether it is on there, and the comparisons that speak of its target."""

    lever: DefaultLever
    on: bool
    evidence: tuple[LeverMeasurement, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultsRequest:
    """What was asked for. `evidence` is beside that of defaults.toml."""

    bf16: bool = False
    trust_emulated: bool = False
    evidence: tuple[LeverMeasurement, ...] = ()


NO_WISHES = DefaultsRequest()


class LowPrecision(StrEnum):
    """What programs of bfloat16 and float16 do with oneDNN on, in stock on a CPU with AVX2."""

    FAILS = "fails"
    RUNS = "runs"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseTraits:
    """What decides whether evidence of one release speaks for another, of the patch release whose
    wheel was read: how port.cc picks oneDNN's default, oneDNN's and Keras's major versions."""

    release: str
    policy: str
    onednn: str
    keras: int
    low_precision: LowPrecision

    @property
    def kind(self) -> tuple[str, int, int]:
        """Equal where evidence of one speaks for the other."""
        return self.policy, Version(self.onednn).major, self.keras


@functools.cache
def levers() -> tuple[DefaultLever, ...]:
    return tuple(decode_record(DefaultLever, row) for row in _table()["lever"])


@functools.cache
def known_measurements() -> tuple[LeverMeasurement, ...]:
    return tuple(decode_record(LeverMeasurement, row) for row in _table()["evidence"])


@functools.cache
def _traits() -> Mapping[str, ReleaseTraits]:
    rows = (decode_record(ReleaseTraits, row) for row in _table()["release"])
    return {row.release: row for row in rows}


def speaks_for(evidence: str, release: str) -> bool:
    """Whether evidence of one release says something of another: the rule of defaults.toml."""
    known = _traits()
    both = evidence in known and release in known
    return evidence == release or (both and known[evidence].kind == known[release].kind)


@functools.cache
def _table() -> Mapping[str, list[dict[str, Any]]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


# ---- what a wheel carries ----


def decide(
    target: Target, release: str, wishes: DefaultsRequest = NO_WISHES
) -> tuple[Default, ...]:
    """The defaults of a wheel for a target: those that could do something on a CPU of it.

    One is on with a comparison that was measured and won, and none that was measured and lost;
    what was emulated counts only where it is trusted and nothing was measured. Evidence of another
    release speaks where `speaks_for` says so and none was measured with this one. The control
    wheel has none.
    Raises UsageError for bfloat16 where no CPU of the target's family has what it takes.
    """
    if target.spec in STOCK_SPECS:
        return ()
    known = load_features(target.family).keys()
    fitting = [each for each in levers() if known >= {*each.needs, *each.unless}]
    if wishes.bf16 and not any(each.name == BF16 for each in fitting):
        raise UsageError(f"--bf16 is for CPUs with AMX, {target.spec} is for {target.family}")
    return tuple(
        _default(lever, isa_of(target.features), release, wishes)
        for lever in fitting
        if target.features.isdisjoint(lever.unless) and (wishes.bf16 or not lever.opt_in)
    )


def _default(lever: DefaultLever, isa: str, release: str, wishes: DefaultsRequest) -> Default:
    speaking = tuple(
        each
        for each in (*known_measurements(), *wishes.evidence)
        if each.lever == lever.name and speaks_for(each.release, release) and each.isa in {"", isa}
    )
    own = tuple(each for each in speaking if each.release == release)
    if any(each.source is MeasurementSource.MEASURED for each in own):
        speaking = own
    measured = [each for each in speaking if each.source is MeasurementSource.MEASURED]
    counted = measured or (speaking if wishes.trust_emulated else ())
    won = bool(counted) and all(each.wins for each in counted)
    return Default(lever=lever, on=lever.opt_in or won, evidence=speaking)


def guards_low_precision(defaults: Sequence[Default], release: str) -> bool:
    """Return whether a wheel with these defaults needs native/low_precision.cc: oneDNN is on in it,
    and this release fuses ops of types that oneDNN does not support."""
    traits = _traits().get(release)
    fails = traits is not None and traits.low_precision is LowPrecision.FAILS
    return fails and any(each.on and each.lever.name == "onednn" for each in defaults)


def isa_of(features: Collection[str]) -> str:
    """oneDNN's name of the code that it generates for such a CPU, as far as levers differ by it."""
    return next((name for name, needed in _ISAS.items() if needed <= {*features}), "")


def undue(defaults: Sequence[Default], target: Target) -> Iterator[str]:
    """What a wheel for this target says of its defaults and this version would not, a line each."""
    known = {lever.name: lever for lever in levers()}
    names = [each.lever.name for each in defaults]
    if len({*names}) < len(names):
        yield "tuned.json has a default twice"
    for each in defaults:
        what = _assignments(each.lever)
        if known.get(each.lever.name) != each.lever:
            yield f"tuned.json has a default {what}, which this version does not know"
        elif target.features.intersection(each.lever.unless):
            yield f"tuned.json has a default {what}, which TensorFlow takes there by itself"


# ---- what a comparison says ----


def read_measurements(path: Path) -> tuple[LeverMeasurement, ...]:
    """What a finished comparison.json says of levers: arms that differ from its baseline in nothing
    else. Raises RecordError, and UsageError for a comparison of something else."""
    comparison = comparisons.load(path)
    found = tuple(each for lever in levers() for each in _said_of(lever, comparison))
    if not found:
        raise UsageError(
            f"{path} has no arm that differs from its baseline in a default only",
            hint="Compare such: --arms stock,onednn=stock:onednn=on",
        )
    return found


def _said_of(lever: DefaultLever, comparison: Comparison) -> Iterator[LeverMeasurement]:
    if not comparison.complete or not comparison.arms:
        return
    baseline, *others = comparison.arms
    before, cpu = dict(baseline.env), comparison.host.cpu
    cap = next((before[name] for name in _CAPS if name in before), "")
    own = {*lever.set, *lever.leave}
    emulated = bool(cap or own.intersection(before))
    idle = not emulated and not cpu.features.isdisjoint(lever.unless)
    for arm in others:
        after = dict(arm.env)
        changed = {name for name, _ in before.items() ^ after.items()}
        same = arm.wheel_sha256 == baseline.wheel_sha256 and changed <= own
        if not same or idle or not lever.set.items() <= after.items():
            continue
        for vcpus, ratios in _ratios(comparison.cells, arm.name).items():
            yield LeverMeasurement(
                lever=lever.name,
                source=MeasurementSource.EMULATED if emulated else MeasurementSource.MEASURED,
                isa=cap or isa_of(cpu.features),
                cpu=cpu.name,
                release=baseline.tensorflow,
                vcpus=vcpus,
                setting=" ".join(f"{name}={value}" for name, value in sorted(before.items())),
                made=comparison.made,
                ratios=ratios,
            )


def _ratios(cells: Sequence[ComparedCell], arm: str) -> dict[int, dict[str, LeverRatio]]:
    """By the number of vCPUs, then by workload."""
    found: dict[int, dict[str, LeverRatio]] = {}
    for cell in cells:
        for each in cell.speedups:
            if each.arm == arm:
                value, low, high = each.interval.value, each.interval.low, each.interval.high
                ratio = LeverRatio(value=value, low=low, high=high, verdict=each.verdict)
                found.setdefault(cell.vcpus, {})[cell.workload] = ratio
    return found


# ---- for a person ----


def describe(default: Default) -> str:
    """One line: what is set, whether it is on, and why."""
    lever = default.lever
    return f"{_assignments(lever)}: {'on' if default.on else 'off'}, {_why(default)}"


def _why(default: Default) -> str:
    known = (
        "; ".join(map(_line, default.evidence))
        or "nothing was measured of it with this release or one like it"
    )
    return f"and it changes results; {known}" if default.lever.opt_in else known


def _line(measurement: LeverMeasurement) -> str:
    where = f"{vcpus_text(measurement.vcpus)} of {measurement.cpu}"
    count = f"{len(measurement.ratios)} workloads"
    of = f"{count}, {where}, TensorFlow {measurement.release}"
    return f"{measurement.source} {measurement.mean:.2f}x ({of})"


def _assignments(lever: DefaultLever) -> str:
    return " ".join(f"{name}={value}" for name, value in lever.set.items())


def of_cpu(cpu: Cpu, vcpus: Vcpus, release: str) -> dict[str, str]:
    """What stock TensorFlow does here, and what a tuned wheel can set: a line by lever."""
    known = load_features(cpu.architecture).keys()
    fitting = [each for each in levers() if known >= {*each.needs, *each.unless}]
    return {lever.name: _here(lever, cpu, vcpus, release) for lever in fitting}


def _here(lever: DefaultLever, cpu: Cpu, vcpus: Vcpus, release: str) -> str:
    own = [name for name in lever.unless if name in cpu.features]
    if own:
        return f"stock does it by itself on a CPU with {own[0]}"
    if not cpu.features.issuperset(lever.needs):
        return f"nothing to set on a CPU without {lever.needs[0]}"
    if QUOTA in lever.set.values() and vcpus.usable >= vcpus.affinity:
        return f"stock starts {vcpus.affinity}, and no quota is below that"
    default = _default(lever, isa_of(cpu.features), release, NO_WISHES)
    can = "with --bf16 a tuned wheel sets" if lever.opt_in else "a tuned wheel can set"
    return f"{can} {describe(default)}".replace(f"={QUOTA}", f"={vcpus.usable}")
