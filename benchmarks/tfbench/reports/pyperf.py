"""Samples as pyperf's JSON and back, so that its tools read ours and ours read its.

The format is that of pyperf 1.0 and later (pyperf/_bench.py): a suite of benchmarks, each with
runs, each a process with its values; a value is seconds per loop. Metadata stand at the outermost
of the three places where they hold.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tfbench.costs import cost
from tfbench.costs.cost import Amount
from tfbench.inside.phases import JUDGED
from tfbench.measuring.matching import FieldDifference
from tfbench.measuring.samples import Sample
from tfbench.measuring.statistics import FEWEST_LAUNCHES, Values, combined
from tfbuild.errors import HostError, SampleError, UsageError
from tfbuild.measured.comparison import ArmFacts, Comparison
from tfbuild.records import MOST, parse_json, shown

VERSION = "1.0"
READABLE = (VERSION, 6)
"""6 differs in what warm-up values mean, and those are not read."""
HOST_KEYS = (
    *("cpu_model_name", "cpu_count", "cpu_affinity", "platform", "aslr", "kernel", "microcode"),
    *("hugepages", "clocksource"),
)
"""Metadata that must be equal, where both files have them, for two files to be compared."""
SEQUENTIAL = (
    "The two files were measured one after the other, not in turns: what the machine did meanwhile"
    " is in these ratios, and not in their intervals."
)
_DEFAULT_UNIT = "second"

Metadata: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """A benchmark of a file: seconds per loop of each run that has values, and what was noted."""

    name: str
    runs: tuple[tuple[float, ...], ...]
    metadata: Metadata

    @property
    def logs(self) -> Values:
        """The logarithm of each run's mean."""
        return np.log([np.mean(run) for run in self.runs])


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteRatio:
    """A benchmark of both files. `speedup` is baseline over candidate: above 1 the candidate is
    faster. It is a plain number where a file has one run only. Seconds are per loop, the geometric
    mean over runs."""

    name: str
    baseline_s: float
    candidate_s: float
    speedup: Amount


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteContrast:
    """Two files against each other. `alone` are the benchmarks that only one of them has."""

    ratios: tuple[SuiteRatio, ...]
    mean: Amount
    """The geometric mean of the speedups."""
    alone: tuple[str, ...]
    note: str = SEQUENTIAL


def suites(comparison: Comparison, samples: Iterable[Sample]) -> dict[str, str]:
    """A file's text for each arm in the samples, the baseline's repeat among them.

    A benchmark is WORKLOAD@VCPUS, a run is a launch, its values are the seconds per step
    of each sample. No gate is applied. Raises SampleError for none.
    """
    grouped = _grouped(samples)
    if not grouped:
        raise SampleError("there are no samples of steps to export")
    facts = {arm.name: arm for arm in comparison.arms}
    return {
        arm: _suite(cells, {**_host(comparison), **_arm(arm, facts.get(arm))})
        for arm, cells in grouped.items()
    }


def read(path: Path) -> tuple[Timing, ...]:
    """The benchmarks of a file, which may be gzipped (.gz). Runs that only calibrate are left out.

    Raises UsageError for a file that cannot be read, SampleError for one that is not pyperf's, that
    counts something else than seconds, and for values that are not times.
    """
    data = _loaded(path)
    if not isinstance(data, dict) or data.get("version") not in READABLE:
        version = data.get("version") if isinstance(data, dict) else None
        raise SampleError(
            f"{path} has version {shown(version)} of pyperf's format, readable is {VERSION}",
            hint=f"Have pyperf write it again: python -m pyperf convert {path.name} -o NEW",
        )
    try:
        found = [_timing(bench, data.get("metadata") or {}) for bench in data["benchmarks"]]
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise SampleError(f"{path} is not a file of pyperf ({error})") from error
    if not found:
        raise SampleError(f"{path} has no benchmarks")
    names = [each.name for each in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SampleError(f"{path} has {twice} twice")
    return tuple(found)


def contrast(baseline: Sequence[Timing], candidate: Sequence[Timing]) -> SuiteContrast:
    """The speedup of each benchmark that both have, with Welch's interval over runs.

    Raises SampleError when they have none in common, HostError when they are of two machines.
    """
    ours, theirs = ({each.name: each for each in timings} for timings in (baseline, candidate))
    common = [name for name in ours if name in theirs]
    if not common:
        raise SampleError(
            f"the two files have no benchmark in common: {', '.join(ours)} and {', '.join(theirs)}"
        )
    for name in common:
        _check_host(ours[name], theirs[name])
    ratios = tuple(_ratio(ours[name], theirs[name]) for name in common)
    return SuiteContrast(
        ratios=ratios,
        mean=cost.geometric_mean([each.speedup for each in ratios]),
        alone=tuple(name for name in {**ours, **theirs} if name not in common),
    )


def _grouped(samples: Iterable[Sample]) -> dict[str, dict[str, dict[int, list[Sample]]]]:
    """Samples of steps by arm, benchmark and launch, in the order in which they come."""
    grouped: dict[str, dict[str, dict[int, list[Sample]]]] = {}
    for sample in samples:
        if sample.phase in JUDGED:
            cells = grouped.setdefault(sample.arm, {})
            launches = cells.setdefault(f"{sample.workload}@{sample.vcpus}", {})
            launches.setdefault(sample.launch, []).append(sample)
    return grouped


def _suite(cells: Mapping[str, Mapping[int, Sequence[Sample]]], metadata: Metadata) -> str:
    suite = {
        "version": VERSION,
        "metadata": {**metadata, "unit": _DEFAULT_UNIT},
        "benchmarks": [
            {
                "metadata": {"name": name},
                "runs": [_run(samples) for samples in launches.values()],
            }
            for name, launches in cells.items()
        ],
    }
    return json.dumps(suite, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"


def _run(samples: Sequence[Sample]) -> dict[str, Any]:
    return {
        "metadata": {"loops": samples[0].steps},
        "values": [sample.wall_s / sample.steps for sample in samples],
    }


def _host(comparison: Comparison) -> dict[str, str | int]:
    """Under pyperf's own names where it has one."""
    host = comparison.host
    return {
        "cpu_count": host.vcpus.machine,
        **_texts(
            cpu_model_name=host.cpu.name,
            cpu_affinity=",".join(map(str, host.affinity)),
            kernel=host.kernel,
            microcode=host.cpu.microcode,
            hugepages=host.hugepages,
            clocksource=host.clocksource,
            measured=comparison.made,
        ),
    }


def _arm(name: str, facts: ArmFacts | None) -> dict[str, str]:
    """The baseline's repeat has no facts of its own."""
    if facts is None:
        return _texts(arm=name)
    return _texts(
        arm=name,
        label=facts.label,
        wheel_sha256=facts.wheel_sha256,
        env=" ".join(f"{key}={value}" for key, value in facts.env),
        tensorflow=facts.tensorflow,
        git_version=facts.git_version,
        compiler_version=facts.compiler_version,
        python_version=facts.python,
        numpy=facts.numpy,
        threading=facts.threading,
    )


def _texts(**values: str) -> dict[str, str]:
    """pyperf refuses empty texts and ends of lines."""
    words = {name: " ".join(value.split()) for name, value in values.items()}
    return {name: value for name, value in words.items() if value}


def _loaded(path: Path) -> Any:  # noqa: ANN401  (the border between JSON and records)
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            return parse_json(file.read(MOST + 1))
    except gzip.BadGzipFile as error:
        raise SampleError(f"{path} is not gzipped ({error})") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, EOFError, zlib.error) as error:
        raise SampleError(f"{path} is not whole JSON ({error})") from error


def _timing(bench: Mapping[str, Any], shared: Metadata) -> Timing:
    """Raises KeyError, TypeError, AttributeError and ValueError for what pyperf does not write."""
    runs = bench["runs"]
    first = runs[0].get("metadata", {}) if runs else {}
    metadata = {**shared, **bench.get("metadata", {}), **first}
    name, unit = metadata["name"], metadata.get("unit", _DEFAULT_UNIT)
    if not isinstance(name, str) or not name.isprintable():
        raise TypeError(f"{shown(name)} is no name")
    if unit != _DEFAULT_UNIT:
        raise ValueError(f"{name} is counted in {shown(unit)}, not in seconds")
    values = tuple(tuple(run["values"]) for run in runs if run.get("values"))
    if not values:
        raise ValueError(f"{name} has no values")
    for value in (value for run in values for value in run):
        if isinstance(value, bool) or not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} took {value} seconds, which is not a time")
    return Timing(name=name, runs=values, metadata=metadata)


def _check_host(one: Timing, other: Timing) -> None:
    found = [
        FieldDifference(what=key, one=str(one.metadata[key]), other=str(other.metadata[key]))
        for key in HOST_KEYS
        if key in one.metadata and key in other.metadata
        if one.metadata[key] != other.metadata[key]
    ]
    if found:
        raise HostError(
            f"the two files are of different machines: {'; '.join(map(str, found))}",
            hint="Measure both on one machine",
        )


def _ratio(baseline: Timing, candidate: Timing) -> SuiteRatio:
    ours, theirs = baseline.logs, candidate.logs
    speedup: Amount = math.exp(ours.mean() - theirs.mean())
    if min(len(ours), len(theirs)) >= FEWEST_LAUNCHES:
        # The mean of the two is half their difference, and so is its interval.
        speedup = cost.carry(combined([ours, -theirs]), lambda each: each**2)
    return SuiteRatio(
        name=baseline.name,
        baseline_s=math.exp(ours.mean()),
        candidate_s=math.exp(theirs.mean()),
        speedup=speedup,
    )
