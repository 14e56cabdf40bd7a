"""What was timed before, kept in the cache: by CPU, by all that the kernel's code follows from, by
call site and threads. So a second selection times only what is new."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tfbench.inside.call_sites import CallSite
from tfbench.kernels.judging import Series
from tfbuild.errors import RecordError
from tfbuild.records import decode_record, hash_record, load, save

SCHEMA = 4
"""Of the timings, too: what is timed in another way than before is timed anew."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownTimes:
    """A file of the cache."""

    schema: int = SCHEMA
    series: Series


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """`cpu` is the kind that it is, see `Cpu.kind`."""

    folder: Path
    cpu: str

    def recall(self, recipe: str, site: CallSite, threads: int) -> Series | None:
        """None for what was never timed, and for a file that is damaged."""
        try:
            fields = load(self._path(recipe, site, threads), schema=SCHEMA)
            return decode_record(KnownTimes, fields).series
        except (RecordError, TypeError, ValueError, KeyError):
            return None

    def keep(self, recipe: str, site: CallSite, threads: int, series: Series) -> None:
        """Raises DiskError."""
        save(self._path(recipe, site, threads), KnownTimes(series=series))

    def _path(self, recipe: str, site: CallSite, threads: int) -> Path:
        key = hash_record({"cpu": self.cpu, "recipe": recipe, "place": site, "threads": threads})
        return self.folder / key[:2] / f"{key}.json"
