"""The cache of conformance test results, so that no library is tested twice.

A result is valid for the bytes of a kernel group's library, as long as the test code, the
TensorFlow that it was compared with, and the CPU stay the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from tfbuild.kernelbuild import admission
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.tools.environment import Environment
from tfbuild.upstream.download import hash_file
from tfcore.cpus.cpu import Cpu
from tfcore.errors import RecordError
from tfcore.records import decode_record, hash_record, load, save

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictCache:
    """A cache of verdicts in `folder`, of the conformance tests whose hash is `judge`."""

    folder: Path
    judge: str

    def find(self, unit: str, library: Path) -> UnitVerdict | None:
        """Return the cached verdict; None for a library that is new, or whose record is damaged."""
        path = self._locate_record(unit, library)
        if not path.is_file():
            return None
        with contextlib.suppress(RecordError, TypeError, ValueError, KeyError):
            return decode_record(UnitVerdict, load(path, schema=SCHEMA)["verdict"])
        return None

    def store(self, library: Path, verdict: UnitVerdict) -> None:
        """Store the verdict on a library. Raises DiskError."""
        if not verdict.lost:
            save(self._locate_record(verdict.unit, library), {"schema": SCHEMA, "verdict": verdict})

    def _locate_record(self, unit: str, library: Path) -> Path:
        return self.folder / f"{hash_record((self.judge, unit, hash_file(library)))}.json"


def open_verdicts(
    folder: Path, environment: Environment, staged: Path, copts: tuple[str, ...], cpu: Cpu
) -> VerdictCache:
    """Open the cache of verdicts of today's tests against this TensorFlow, on this CPU.

    `staged` is in a folder that is named by the hash of the sources. Their headers show which
    names belong to kernels.
    """
    key_parts = (
        admission.hash_test_code(),
        environment.folder.name,
        staged.parent.name,
        copts,
        cpu.kind,
    )
    return VerdictCache(folder=folder, judge=hash_record(key_parts))
