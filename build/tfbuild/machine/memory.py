"""Choose the number of parallel compiles of a full build by the memory that they need.

The memory of a job comes from a public build that reached its limit (memory.toml, `seen`). That
build used GCC; clang needs less by a measured factor. The sources measured here need less and do
not decide, because those of MLIR and LLVM could not be compiled alone. The largest measured compile
must always fit.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from packaging.version import Version

from tfbuild.planning import jobs
from tfcore.errors import RecordError

SCHEMA = 1
_TABLE = "memory.toml"
# EasyBuild's default (jvm_max_memory in easyblocks/t/tensorflow.py); Java's is a quarter.
_HEAP_MB = 4096
_LEAST_HEAP_MB = 1024
# EasyBuild's limit: "bazel hangs with 176 jobs" (the same file).
_MOST_JOBS = 128
# Bazel's estimate for a static link (CppLinkAction.MIN_STATIC_LINK_RESOURCES).
_LINK_MB = 1536
# Bazel 4.2.3 lacks --local_resources; 7.7.1 accepts both options. So --local_ram_resources is
# used before 8.
_FIRST_WITH_LOCAL_RESOURCES = Version("8")
_BASIS = (
    "EasyBuild ran at most {jobs} jobs of {family} in {memory} MB (TensorFlow 2.18.1); measured "
    "here: {sources} sources of TensorFlow {release} with {compiler}, at most {largest} MB; not "
    "measured: MLIR and LLVM sources, the link of libtensorflow_cc"
)
_LTO = "the memory of link-time optimization"


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryModel:
    """Memory in megabytes: of one job among many, and of the largest compile or link."""

    per_job: int
    largest: int

    def estimate_peak_mb(self, count: int) -> int:
        """Estimate the peak memory of `count` parallel jobs, in megabytes."""
        return max(count * self.per_job, self.largest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """The jobs and the memory that a build may use, in megabytes.

    `memory_mb` is for the programs that Bazel runs, `heap_mb` for Bazel's Java heap, `peak_mb`
    the model's estimate of both together. `limited_by` and `basis` explain the budget in words.
    """

    jobs: int
    memory_mb: int
    heap_mb: int
    peak_mb: int
    limited_by: str
    basis: str

    @property
    def fits(self) -> bool:
        return self.peak_mb <= self.memory_mb + self.heap_mb


def choose_budget(
    memory_mb: int, cores: int, *, family: str = "clang", lto: bool = False, jobs_option: str = ""
) -> Budget:
    """Choose as many jobs as there are cores, if the estimated peak stays within `memory_mb`.

    One job is always allowed: preflight checks whether it fits. `jobs_option` is --jobs, which is
    used unchanged. Raises UsageError if it is not a positive number.
    """
    expected = build_model(family)
    heap = max(_LEAST_HEAP_MB, min(_HEAP_MB, memory_mb // 4))

    def estimate_need(count: int) -> int:
        return heap + expected.estimate_peak_mb(count)

    max_jobs = min(cores, _MOST_JOBS)
    fitting = [count for count in range(1, max_jobs + 1) if estimate_need(count) <= memory_mb]
    count = max(fitting, default=1)
    limited_by = (
        "the number of CPUs" if max_jobs == cores else f"the maximum of {_MOST_JOBS} jobs for Bazel"
    )
    if count < max_jobs:
        limited_by = (
            f"memory ({memory_mb} MB free, {estimate_need(count + 1)} MB needed for one more job)"
        )
    if not fitting:
        limited_by = f"memory ({memory_mb} MB free, {estimate_need(1)} MB needed for one job)"
    if jobs_option:
        requested = jobs.choose_jobs(cores, memory_mb, 0, jobs_option)
        count, limited_by = requested.count, requested.limited_by
    return Budget(
        jobs=count,
        memory_mb=max(0, memory_mb - heap),
        heap_mb=heap,
        peak_mb=estimate_need(count),
        limited_by=limited_by,
        basis=f"{_describe_basis()}, {_LTO}" if lto else _describe_basis(),
    )


def build_resource_options(
    bazel_version: str, budget: Budget
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the startup options and the build options that keep Bazel within the budget.

    --jobs is the effective limit. Bazel assumes 250 MB for any compile, older ones 200 MB
    (CppCompileAction, AbstractAction.DEFAULT_RESOURCE_SET), so its memory option alone permits
    too many compiles (tensorflow#42066). The memory option limits links and tests.
    """
    amount = budget.memory_mb
    if Version(bazel_version) < _FIRST_WITH_LOCAL_RESOURCES:
        memory = f"--local_ram_resources={amount}"
    else:
        memory = f"--local_resources=memory={amount}"
    return (f"--host_jvm_args=-Xmx{budget.heap_mb}m",), (f"--jobs={budget.jobs}", memory)


@functools.cache
def build_model(family: str = "clang") -> MemoryModel:
    """Build the memory model of a family of compilers, "clang" or "gcc"."""
    table = _load_table()
    observation = table["seen"]
    # Convert both values to clang, then to the family.
    per_job = (
        (observation["memory_mb"] - observation["heap_mb"])
        / observation["jobs"]
        / _read_factor(observation["family"])
    )
    return MemoryModel(
        per_job=round(per_job * _read_factor(family)),
        largest=max(_LINK_MB, round(table["heaviest"]["megabytes"] * _read_factor(family))),
    )


def _read_factor(family: str) -> float:
    return 1.0 if family == "clang" else float(_load_table()["gcc"]["memory"])


def _describe_basis() -> str:
    table = _load_table()
    observation = table["seen"]
    return _BASIS.format(
        jobs=observation["jobs"],
        family=observation["family"],
        memory=observation["memory_mb"],
        sources=sum(row["measured"] for row in table["class"].values()),
        release=table["release"],
        compiler=table["compiler"],
        largest=table["heaviest"]["megabytes"],
    )


@functools.cache
def _load_table() -> Mapping[str, Any]:
    text = resources.files("tfbuild.machine").joinpath(_TABLE).read_text("utf-8")
    table = tomllib.loads(text)
    if table["schema"] != SCHEMA:
        raise RecordError(f"{_TABLE} has schema {table['schema']}, this code reads {SCHEMA}")
    return table
