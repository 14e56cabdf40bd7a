"""A cache of timings, by CPU, inputs of the kernel's code, call site and number of threads.

A later selection times only what is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tfbench.inside.call_sites import CallSite
from tfbench.kernels.keep_rules import Series
from tfcore.errors import RecordError
from tfcore.records import decode_record, hash_record, load, save

SCHEMA = 4
"""Also raised when the method of timing changes, so that nothing old is reused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownTimes:
    """The content of a file of the cache."""

    schema: int = SCHEMA
    series: Series


@dataclass(frozen=True, kw_only=True, slots=True)
class TimingCache:
    """A cache of timings. `cpu` is the kind of the CPU, see `Cpu.kind`."""

    folder: Path
    cpu: str

    def load_series(self, recipe: str, site: CallSite, threads: int) -> Series | None:
        """Load the series of a call site; None if it was never timed or the file is damaged."""
        try:
            fields = load(self._build_path(recipe, site, threads), schema=SCHEMA)
            return decode_record(KnownTimes, fields).series
        except (RecordError, TypeError, ValueError, KeyError):
            return None

    def save_series(self, recipe: str, site: CallSite, threads: int, series: Series) -> None:
        """Save the series of a call site. Raises DiskError if it cannot be written."""
        save(self._build_path(recipe, site, threads), KnownTimes(series=series))

    def _build_path(self, recipe: str, site: CallSite, threads: int) -> Path:
        key = hash_record({"cpu": self.cpu, "recipe": recipe, "place": site, "threads": threads})
        return self.folder / key[:2] / f"{key}.json"
