"""The journal of a measurement: a run that is killed loses nothing, and goes on from it.

One file, one JSON object a line, written as things happen: how each arm of a launch started, each
sample, and the end of the launch, or whose worker ended it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tfbuild.errors import DiskError, RecordError, SampleError
from tfbuild.records import canonical, plain, write_atomic

TRAIN, VALIDATE, AUGMENT = "train", "validate", "augment"


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """An arm's start in one launch: its worker's facts, first losses and predictions, None where
    one is no finite number."""

    workload: str
    vcpus: int
    launch: int
    arm: str
    facts: Mapping[str, Any]
    losses: tuple[float | None, ...]
    predictions: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """`steps` steps of one arm. Its place in the schedule makes it one of its kind.

    Raises SampleError for times that are not positive numbers.
    """

    workload: str
    vcpus: int
    launch: int
    phase: str
    block: int
    position: int
    arm: str
    steps: int
    at_s: float
    """Seconds since the cell's launch began, when the sample ended."""
    wall_s: float
    elapsed_s: float
    """The same by the clock of the process that asked for it, with the question and the answer."""
    cpu_s: float
    idle_s: float
    """Wall seconds since the worker's sample before, in which it had nothing to do."""
    idle_cpu_s: float
    """CPU time that its threads took nevertheless."""
    run_delay_s: float
    """Over all threads, the time that they were ready and had no CPU."""
    busy_s: float
    """CPU time that all processes together took of the cell's CPUs, in ticks of 10 ms."""
    steal_s: float
    """What the hypervisor took from the CPUs of the cell."""
    throttled_s: float
    """What the cgroup's quota took."""
    switches: int
    """Involuntary context switches."""
    canary_s: float
    """A fixed piece of Python, right before and after: it does not depend on the arm."""

    def __post_init__(self) -> None:
        for name in ("wall_s", "elapsed_s", "canary_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise SampleError(f"{self.arm}: {name} of a sample is {value}, which is not a time")


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """A launch that was measured to its end. `profiles` are of arms with tuned kernels."""

    workload: str
    vcpus: int
    launch: int
    seconds: float
    warm_up: int
    """Rounds of warming up."""
    steady: bool
    """Whether the last of them had no trend."""
    peak_mb: Mapping[str, float]
    """The largest resident memory of each arm's worker so far."""
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """The worker of an arm failed and ended the launch. The arm is left out of all later ones."""

    workload: str
    vcpus: int
    launch: int
    arm: str
    reason: str


Entry: TypeAlias = Start | Sample | End | Fault
_KINDS: Mapping[str, type[Start | Sample | End | Fault]] = {
    "start": Start,
    "sample": Sample,
    "end": End,
    "fault": Fault,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


@contextlib.contextmanager
def journal(path: Path) -> Iterator[Callable[[Entry], None]]:
    """Open the file at its end and give a function that appends one entry.

    A line is one write, so whoever reads, or kills the run, meets whole lines. Half a line that an
    earlier run left is cut off. Raises DiskError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_half_line(path)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise DiskError(f"cannot write {path}: {error.strerror}") from error

    def append(entry: Entry) -> None:
        line = (canonical({"is": _NAMES[type(entry)], **plain(entry)}) + "\n").encode()
        try:
            written = os.write(handle, line)
        except OSError as error:
            raise DiskError(f"cannot write {path}: {error.strerror}") from error
        if written < len(line):
            raise DiskError(f"cannot write {path}: the disk took {written} of {len(line)} bytes")

    try:
        yield append
    finally:
        os.close(handle)


def _cut_half_line(path: Path) -> None:
    if path.is_file() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        write_atomic(path, content[: content.rfind(b"\n") + 1])


def read_journal(path: Path) -> tuple[Entry, ...]:
    """All whole lines; a last line without its end is what a full disk leaves, and is dropped.

    Raises RecordError.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise RecordError(f"cannot read {path}: {reason}") from error
    entries = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            fields = json.loads(line)
            entries.append(_KINDS[fields.pop("is")](**_tuples(fields)))
        except (ValueError, TypeError, KeyError, AttributeError, SampleError) as error:
            raise RecordError(f"{path}, line {number} is not an entry ({error})") from error
    return tuple(entries)


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
