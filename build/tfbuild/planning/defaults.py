"""Run-time defaults of a tuned wheel for its target, each with its evidence.

defaults.toml has the levers and their measurements; a comparison.json adds measurements. This
module decides which levers a wheel contains and which of them are on.
shipped/_tensorwright_defaults.py sets them at import.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from packaging.version import Version

from tfcore.comparisons import comparison as comparisons
from tfcore.comparisons.comparison import ComparedCell, Comparison
from tfcore.comparisons.interval import Verdict
from tfcore.console import format_vcpus
from tfcore.cpus.cpu import Cpu, Vcpus
from tfcore.cpus.features import load_features
from tfcore.cpus.targets import STOCK_SPECS, Target
from tfcore.errors import UsageError
from tfcore.records import decode_record

QUOTA = "quota"
"""The value that stands for the CPUs of the process's cgroup quota, rounded up."""
BF16 = "bf16"
"""The lever that changes results; its name is also part of the wheel's local version."""
_CAPS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
# oneDNN 3.2's names of ISAs (src/cpu/platform.hpp), and the features of each.
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
    """Stock's time over the setting's time: above 1 the setting is faster.

    `low` and `high` are the 95 % interval, and `verdict` is that of the comparison; None and
    empty if not recorded.
    """

    value: float
    low: float | None = None
    high: float | None = None
    verdict: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeverMeasurement:
    """A comparison of one lever with stock.

    `isa` is the kind of CPU that it applies to, empty for any. `cpu` is the CPU that it was
    measured on. `ratios` are by workload.
    """

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
        return statistics.geometric_mean(ratio.value for ratio in self.ratios.values())

    @property
    def wins(self) -> bool:
        """True if the mean is above 1 and no workload is slower. With verdicts, at least one
        must be "faster"; without verdicts, no interval may lie below 1.
        """
        if any(ratio.high is not None and ratio.high < 1 for ratio in self.ratios.values()):
            return False
        verdicts = {ratio.verdict for ratio in self.ratios.values()}
        gains = verdicts == {""} or Verdict.FASTER in verdicts
        return self.mean > 1 and gains and Verdict.SLOWER not in verdicts


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultLever:
    """A run-time setting that a wheel may contain; defaults.toml documents each field."""

    name: str
    set: Mapping[str, str]
    leave: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    opt_in: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Default:
    """A lever in a wheel, whether it is on, and the comparisons that apply to the target.

    A `guarded` one may be set only where native/low_precision.cc is loaded.
    """

    lever: DefaultLever
    on: bool
    evidence: tuple[LeverMeasurement, ...] = ()
    guarded: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultsRequest:
    """The requested run-time defaults. `evidence` is used in addition to that of defaults.toml."""

    bf16: bool = False
    trust_emulated: bool = False
    evidence: tuple[LeverMeasurement, ...] = ()


NOTHING_REQUESTED = DefaultsRequest()


class LowPrecision(StrEnum):
    """Behaviour of bfloat16 and float16 programs with oneDNN on, in stock TensorFlow on a CPU
    with AVX2.
    """

    FAILS = "fails"
    RUNS = "runs"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseTraits:
    """The traits that decide whether evidence of one release applies to another.

    `policy` is how port.cc chooses oneDNN's default; `onednn` and `keras` are the versions in
    the wheel of the patch release `release`; `low_precision` was observed with that wheel.
    """

    release: str
    policy: str
    onednn: str
    keras: int
    low_precision: LowPrecision

    @property
    def kind(self) -> tuple[str, int, int]:
        """The policy and the major versions of oneDNN and Keras; equal if evidence of one
        release applies to the other.
        """
        return self.policy, Version(self.onednn).major, self.keras


@functools.cache
def load_levers() -> tuple[DefaultLever, ...]:
    return tuple(decode_record(DefaultLever, row) for row in _load_table()["lever"])


@functools.cache
def load_known_measurements() -> tuple[LeverMeasurement, ...]:
    return tuple(decode_record(LeverMeasurement, row) for row in _load_table()["evidence"])


@functools.cache
def load_traits() -> Mapping[str, ReleaseTraits]:
    rows = (decode_record(ReleaseTraits, row) for row in _load_table()["release"])
    return {row.release: row for row in rows}


def is_evidence_for(evidence: str, release: str) -> bool:
    """Return whether evidence of one release applies to another, by the rule of defaults.toml."""
    known = load_traits()
    both = evidence in known and release in known
    return evidence == release or (both and known[evidence].kind == known[release].kind)


@functools.cache
def _load_table() -> Mapping[str, list[dict[str, Any]]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


# ---- the defaults of a wheel ----


def choose_defaults(
    target: Target, release: str, defaults_request: DefaultsRequest = NOTHING_REQUESTED
) -> tuple[Default, ...]:
    """Return the defaults of a wheel for a target: those with an effect on such a CPU.

    A default is on if a measured comparison won and none lost; emulated comparisons count
    only if they are trusted and nothing was measured. Evidence of another release applies if
    `is_evidence_for` allows it and none was measured with this release. The control wheel has
    no defaults.

    Raises UsageError if bfloat16 is requested and no CPU of the target's family has the
    features for it.
    """
    if target.spec in STOCK_SPECS:
        return ()
    known = load_features(target.family).keys()
    fitting = [
        candidate for candidate in load_levers() if known >= {*candidate.needs, *candidate.unless}
    ]
    if defaults_request.bf16 and not any(candidate.name == BF16 for candidate in fitting):
        raise UsageError(f"--bf16 needs a CPU with AMX, but {target.spec} is for {target.family}")
    return tuple(
        _choose_default(lever, find_isa(target.features), release, defaults_request)
        for lever in fitting
        if target.features.isdisjoint(lever.unless) and (defaults_request.bf16 or not lever.opt_in)
    )


def _choose_default(
    lever: DefaultLever, isa: str, release: str, defaults_request: DefaultsRequest
) -> Default:
    applicable = tuple(
        measurement
        for measurement in (*load_known_measurements(), *defaults_request.evidence)
        if measurement.lever == lever.name
        and is_evidence_for(measurement.release, release)
        and measurement.isa in {"", isa}
    )
    of_release = tuple(measurement for measurement in applicable if measurement.release == release)
    if _select_measured(of_release):
        applicable = of_release
    counted = _select_measured(applicable)
    if not counted and defaults_request.trust_emulated:
        counted = applicable
    return Default(
        lever=lever,
        on=lever.opt_in or _has_won(counted),
        evidence=applicable,
        guarded=lever.name == "onednn" and _fuses_unsupported_types(release),
    )


def _select_measured(evidence: Iterable[LeverMeasurement]) -> tuple[LeverMeasurement, ...]:
    """Select the measurements on CPUs that were not emulated."""
    return tuple(row for row in evidence if row.source is MeasurementSource.MEASURED)


def _has_won(counted: Sequence[LeverMeasurement]) -> bool:
    return bool(counted) and all(measurement.wins for measurement in counted)


def _fuses_unsupported_types(release: str) -> bool:
    """Return whether the release fuses ops of types that oneDNN does not support."""
    traits = load_traits().get(release)
    return traits is not None and traits.low_precision is LowPrecision.FAILS


def needs_low_precision_guard(defaults: Sequence[Default]) -> bool:
    """Return whether a wheel with these defaults needs native/low_precision.cc."""
    return any(default.on and default.guarded for default in defaults)


def turn_off_guarded(defaults: Iterable[Default]) -> tuple[Default, ...]:
    """Turn off the defaults that need native/low_precision.cc, for a wheel without it."""
    return tuple(
        dataclasses.replace(default, on=default.on and not default.guarded) for default in defaults
    )


def find_isa(features: Collection[str]) -> str:
    """Return oneDNN's name of the ISA that it uses on such a CPU; empty below SSE 4.1."""
    return next((name for name, needed in _ISAS.items() if needed <= {*features}), "")


def find_default_problems(defaults: Sequence[Default], target: Target) -> Iterator[str]:
    """Yield a line for each default in tuned.json that this version does not set for the target."""
    known = {lever.name: lever for lever in load_levers()}
    names = [default.lever.name for default in defaults]
    if len({*names}) < len(names):
        yield "tuned.json lists a default twice"
    for default in defaults:
        assignments = _format_assignments(default.lever)
        if known.get(default.lever.name) != default.lever:
            yield f"tuned.json lists the unknown default {assignments}"
        elif target.features.intersection(default.lever.unless):
            yield f"tuned.json lists the default {assignments}, which stock already has there"


# ---- measurements from comparisons ----


def read_measurements(path: Path) -> tuple[LeverMeasurement, ...]:
    """Read the lever measurements of a finished comparison.json.

    They come from arms that differ from the baseline in one lever only.

    Raises RecordError, and UsageError if the comparison has no such arm.
    """
    comparison = comparisons.load(path)
    measurements = tuple(
        measurement
        for lever in load_levers()
        for measurement in _extract_measurements(lever, comparison)
    )
    if not measurements:
        raise UsageError(
            f"{path} has no arm that differs from its baseline in one default only",
            hint="Compare such arms, for example --arms stock,onednn=stock:onednn=on",
        )
    return measurements


def _extract_measurements(
    lever: DefaultLever, comparison: Comparison
) -> Iterator[LeverMeasurement]:
    """Yield the measurements of one lever in a finished comparison."""
    if not comparison.complete or not comparison.arms:
        return
    baseline, *other_arms = comparison.arms
    before, cpu = dict(baseline.env), comparison.host.cpu
    cap = next((before[name] for name in _CAPS if name in before), "")
    variables = {*lever.set, *lever.leave}
    emulated = bool(cap or variables.intersection(before))
    idle = not emulated and not cpu.features.isdisjoint(lever.unless)
    for arm in other_arms:
        after = dict(arm.env)
        changed = {name for name, _ in before.items() ^ after.items()}
        same = arm.wheel_sha256 == baseline.wheel_sha256 and changed <= variables
        if not same or idle or not lever.set.items() <= after.items():
            continue
        for vcpus, ratios in _collect_ratios(comparison.cells, arm.name).items():
            yield LeverMeasurement(
                lever=lever.name,
                source=MeasurementSource.EMULATED if emulated else MeasurementSource.MEASURED,
                isa=cap or find_isa(cpu.features),
                cpu=cpu.name,
                release=baseline.tensorflow,
                vcpus=vcpus,
                setting=" ".join(f"{name}={value}" for name, value in sorted(before.items())),
                made=comparison.made,
                ratios=ratios,
            )


def _collect_ratios(cells: Sequence[ComparedCell], arm: str) -> dict[int, dict[str, LeverRatio]]:
    """Return the arm's ratios by the number of vCPUs, then by workload."""
    ratios: dict[int, dict[str, LeverRatio]] = {}
    for cell in cells:
        for speedup in cell.speedups:
            if speedup.arm == arm:
                value, low, high = (
                    speedup.interval.value,
                    speedup.interval.low,
                    speedup.interval.high,
                )
                ratio = LeverRatio(value=value, low=low, high=high, verdict=speedup.verdict)
                ratios.setdefault(cell.vcpus, {})[cell.workload] = ratio
    return ratios


# ---- descriptions ----


def describe(default: Default) -> str:
    """Describe a default in one line: what is set, whether it is on, and why."""
    lever = default.lever
    return (
        f"{_format_assignments(lever)}: {'on' if default.on else 'off'}, {_explain_state(default)}"
    )


def _explain_state(default: Default) -> str:
    evidence = (
        "; ".join(map(_format_measurement, default.evidence))
        or "not measured with this release or a similar one"
    )
    if default.lever.opt_in:
        return f"and changes results; {evidence}"
    if default.guarded and not default.on and _has_won(_select_measured(default.evidence)):
        return f"because a full build lacks the pass that makes it safe; {evidence}"
    return evidence


def _format_measurement(measurement: LeverMeasurement) -> str:
    where = f"{format_vcpus(measurement.vcpus)} of {measurement.cpu}"
    count = f"{len(measurement.ratios)} workloads"
    scope = f"{count}, {where}, TensorFlow {measurement.release}"
    emulated = measurement.source is MeasurementSource.EMULATED
    how = "under emulation" if emulated else "measured"
    return f"speedup {measurement.mean:.2f}x {how} ({scope})"


def _format_assignments(lever: DefaultLever) -> str:
    return " ".join(f"{name}={value}" for name, value in lever.set.items())


def describe_levers(cpu: Cpu, vcpus: Vcpus, release: str) -> dict[str, str]:
    """Describe each lever in one line: stock's setting on this CPU, or what a wheel can set."""
    known = load_features(cpu.architecture).keys()
    fitting = [
        candidate for candidate in load_levers() if known >= {*candidate.needs, *candidate.unless}
    ]
    return {lever.name: _describe_lever(lever, cpu, vcpus, release) for lever in fitting}


def _describe_lever(lever: DefaultLever, cpu: Cpu, vcpus: Vcpus, release: str) -> str:
    present = [name for name in lever.unless if name in cpu.features]
    if present:
        return f"nothing to set: stock does this itself on a CPU with {present[0]}"
    if not cpu.features.issuperset(lever.needs):
        return f"no effect on a CPU without {lever.needs[0]}"
    if QUOTA in lever.set.values() and vcpus.usable >= vcpus.affinity:
        return f"nothing to set: stock starts {vcpus.affinity} threads, and no CPU quota is lower"
    default = _choose_default(lever, find_isa(cpu.features), release, NOTHING_REQUESTED)
    prefix = "with --bf16 a tuned wheel sets" if lever.opt_in else "a tuned wheel can set"
    return f"{prefix} {describe(default)}".replace(f"={QUOTA}", f"={vcpus.usable}")
