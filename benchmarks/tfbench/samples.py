"""Samples, and the file that gets each one as it comes: a run that is killed loses nothing."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfbuild.errors import DiskError, RecordError
from tfbuild.records import canonical


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """`steps` training steps of one arm. Its place in the schedule makes it one of its kind.

    `run_delay_s` adds up, over all threads, the time that they were ready and had no CPU.
    """

    workload: str
    vcpus: int
    launch: int
    block: int
    position: int
    arm: str
    steps: int
    wall_s: float
    cpu_s: float
    run_delay_s: float


@contextlib.contextmanager
def journal(path: Path) -> Iterator[Callable[[Sample], None]]:
    """Start the file anew and give a function that appends one sample.

    A line is one write, so whoever reads, or kills the run, meets whole lines. Raises DiskError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    except OSError as error:
        raise DiskError(f"cannot write {path}: {error.strerror}") from error

    def append(sample: Sample) -> None:
        line = (canonical(sample) + "\n").encode()
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


def read_samples(path: Path) -> tuple[Sample, ...]:
    """All whole lines; a last line without its end is what a full disk leaves, and is dropped.

    Raises RecordError.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    samples = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            samples.append(Sample(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise RecordError(f"{path}, line {number} is not a sample ({error})") from error
    return tuple(samples)
