"""Export samples as pyperf JSON, for pyperf's tools.

The format is that of pyperf 1.0 and later (pyperf/_bench.py): a suite has benchmarks, a benchmark
has runs, and a run is a process with its values, in seconds per loop. Metadata are stored at the
outermost of these three levels for which they are valid.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfbench.inside.phases import JUDGED
from tfbench.measuring.samples import Sample
from tfcore.comparisons.comparison import ArmFacts, Comparison
from tfcore.errors import SampleError


def export_suites(comparison: Comparison, samples: Iterable[Sample]) -> dict[str, str]:
    """Return a pyperf file as text for each arm in the samples, including the baseline's repeat.

    A benchmark is WORKLOAD@VCPUS, a run is a launch, and its values are the seconds per step
    of each sample. No gate is applied. Raises SampleError if there are no samples of steps.
    """
    grouped = _group_samples(samples)
    if not grouped:
        raise SampleError("no samples of steps to export", hint="Measure first: invoke compare")
    facts = {arm.name: arm for arm in comparison.arms}
    return {
        arm: _format_suite(
            cells, {**_describe_host(comparison), **_describe_arm(arm, facts.get(arm))}
        )
        for arm, cells in grouped.items()
    }


def _group_samples(samples: Iterable[Sample]) -> dict[str, dict[str, dict[int, list[Sample]]]]:
    """Group samples of steps by arm, benchmark and launch, in their order."""
    grouped: dict[str, dict[str, dict[int, list[Sample]]]] = {}
    for sample in samples:
        if sample.phase in JUDGED:
            cells = grouped.setdefault(sample.arm, {})
            launches = cells.setdefault(f"{sample.workload}@{sample.vcpus}", {})
            launches.setdefault(sample.launch, []).append(sample)
    return grouped


def _format_suite(
    cells: Mapping[str, Mapping[int, Sequence[Sample]]], metadata: Mapping[str, str | int]
) -> str:
    suite = {
        "version": "1.0",
        "metadata": {**metadata, "unit": "second"},
        "benchmarks": [
            {
                "metadata": {"name": name},
                "runs": [_build_run(samples) for samples in launches.values()],
            }
            for name, launches in cells.items()
        ],
    }
    return json.dumps(suite, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"


def _build_run(samples: Sequence[Sample]) -> dict[str, Any]:
    return {
        "metadata": {"loops": samples[0].steps},
        "values": [sample.wall_s / sample.steps for sample in samples],
    }


def _describe_host(comparison: Comparison) -> dict[str, str | int]:
    """Return the metadata of the host, under pyperf's names where they exist."""
    host = comparison.host
    return {
        "cpu_count": host.vcpus.machine,
        **_clean_metadata(
            cpu_model_name=host.cpu.name,
            cpu_affinity=",".join(map(str, host.affinity)),
            kernel=host.kernel,
            microcode=host.cpu.microcode,
            hugepages=host.hugepages,
            clocksource=host.clocksource,
            measured=comparison.made,
        ),
    }


def _describe_arm(name: str, facts: ArmFacts | None) -> dict[str, str]:
    """Return the metadata of an arm. The baseline's repeat has only its name."""
    if facts is None:
        return _clean_metadata(arm=name)
    return _clean_metadata(
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


def _clean_metadata(**values: str) -> dict[str, str]:
    """Remove line breaks and empty texts, which pyperf rejects."""
    cleaned = {name: " ".join(value.split()) for name, value in values.items()}
    return {name: value for name, value in cleaned.items() if value}
