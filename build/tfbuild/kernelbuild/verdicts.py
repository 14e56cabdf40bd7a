"""Verdicts that were found before, so that what was admitted once is not tried again.

A verdict holds for the bytes of a unit's library, as long as the judge, the TensorFlow that it was
held against, and the CPU stay the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from tfbuild.cpus.cpu import Cpu
from tfbuild.errors import RecordError
from tfbuild.kernelbuild import admission
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.records import decode_record, hash_record, load, save
from tfbuild.tools.environment import Environment
from tfbuild.upstream.download import hash_file

SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdicts:
    """Verdicts kept in `folder`, of the judge whose hash is `judge`."""

    folder: Path
    judge: str

    def recall(self, unit: str, library: Path) -> UnitVerdict | None:
        """The verdict that was kept; None for a library that is new, or whose record is damaged."""
        path = self._path(unit, library)
        if not path.is_file():
            return None
        with contextlib.suppress(RecordError, TypeError, ValueError, KeyError):
            return decode_record(UnitVerdict, load(path, schema=SCHEMA)["verdict"])
        return None

    def keep(self, library: Path, verdict: UnitVerdict) -> None:
        """Keep the verdict on a library. Raises DiskError."""
        if not verdict.lost:
            save(self._path(verdict.unit, library), {"schema": SCHEMA, "verdict": verdict})

    def _path(self, unit: str, library: Path) -> Path:
        return self.folder / f"{hash_record((self.judge, unit, hash_file(library)))}.json"


def verdicts_in(
    folder: Path, environment: Environment, staged: Path, copts: tuple[str, ...], cpu: Cpu
) -> Verdicts:
    """Verdicts of today's judge against this TensorFlow, on this CPU. `staged` lies in a folder
    that is named by the hash of the sources, whose headers say what belongs to kernels."""
    judge = (admission.judge_sha256(), environment.folder.name, staged.parent.name, copts, cpu.kind)
    return Verdicts(folder=folder, judge=hash_record(judge))
