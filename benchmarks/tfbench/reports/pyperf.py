"""Samples as pyperf's JSON, so that its tools read ours.

The format is that of pyperf 1.0 and later (pyperf/_bench.py): a suite of benchmarks, each with
runs, each a process with its values; a value is seconds per loop. Metadata stand at the outermost
of the three places where they hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfbench.inside.phases import JUDGED
from tfbench.measuring.samples import Sample
from tfbuild.errors import SampleError
from tfbuild.measured.comparison import ArmFacts, Comparison


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


def _grouped(samples: Iterable[Sample]) -> dict[str, dict[str, dict[int, list[Sample]]]]:
    """Samples of steps by arm, benchmark and launch, in the order in which they come."""
    grouped: dict[str, dict[str, dict[int, list[Sample]]]] = {}
    for sample in samples:
        if sample.phase in JUDGED:
            cells = grouped.setdefault(sample.arm, {})
            launches = cells.setdefault(f"{sample.workload}@{sample.vcpus}", {})
            launches.setdefault(sample.launch, []).append(sample)
    return grouped


def _suite(
    cells: Mapping[str, Mapping[int, Sequence[Sample]]], metadata: Mapping[str, str | int]
) -> str:
    suite = {
        "version": "1.0",
        "metadata": {**metadata, "unit": "second"},
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
