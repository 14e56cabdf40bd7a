"""Time an index of many wheels: `PYTHONPATH=build:wheels:. python -m tests.tools.crowd [N]`.

N small wheels (1,000 unless told) go into an index in a temporary folder for all x86-64 targets,
then one more wheel, then everything again from the pool. Prints the seconds of each.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.builders.index_wheels import stand_in
from tests.builders.publications import put

from tfwheels.folder import Folder

TARGETS = ("haswell", "skylake", "skylake_avx512", "icelake", "sapphirerapids", "zen2", "zen4")
PYTHONS = ("cp39", "cp310", "cp311", "cp312")


def crowd(folder: Path, count: int) -> tuple[Path, ...]:
    """So many wheels: versions of TensorFlow, each stock and tuned for seven targets, for four
    Pythons."""
    return tuple(wheel for wheel, _ in zip(_wheels(folder), range(count), strict=False))


def _wheels(folder: Path) -> Iterator[Path]:
    for minor in range(1000):
        for python in PYTHONS:
            yield stand_in(folder, f"2.{minor}.0", python=python)
            for target in TARGETS:
                version = f"2.{minor}.0+{target.replace('_', '.')}"
                yield stand_in(folder, version, targets=(target,), python=python)


def _timed(label: str, folder: Path, wheels: tuple[Path, ...], *, reindex: bool = False) -> None:
    started = time.perf_counter()
    done = put(Folder(root=folder), *wheels, reindex=reindex)
    seconds = time.perf_counter() - started
    print(f"{label}: {seconds:.2f} s, {len(done.pages)} pages written")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheels = crowd(folder / "wheels", count)
        index = folder / "index"
        _timed(f"{count} wheels published", index, wheels)
        _timed("one wheel added", index, (stand_in(folder, "3.0.0+zen4", targets=("zen4",)),))
        _timed("reindexed from the pool", index, (), reindex=True)


if __name__ == "__main__":
    main()
