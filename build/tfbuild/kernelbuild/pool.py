"""The pool of finished wheels, each with its manifest beside it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.plan import Plan
from tfbuild.tools import environment
from tfbuild.upstream.download import hash_file
from tfcore import settings
from tfcore.errors import RecordError
from tfcore.records import decode_record, load, save
from tfcore.settings import Paths

SCHEMA = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelPart:
    """The part of a built wheel for one target, with its size in bytes.

    Kernels in a stock wheel also have the verdicts on them, as compiled for `ran_as`.
    """

    target: str
    ran_as: str = ""
    size: int
    verdicts: tuple[UnitVerdict, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltWheel:
    """A wheel in the pool and the manifest beside it. `reused` if it was there already."""

    wheel: Path
    manifest: Path
    parts: tuple[WheelPart, ...]
    reused: bool


def add_wheel(
    fresh: Path,
    fleet: Fleet[Plan],
    parts: tuple[WheelPart, ...],
    paths: Paths,
    **details: object,
) -> BuiltWheel:
    """Move a wheel into the pool, whole or not at all, and write its manifest last.

    `details` go into the manifest beside the plans: how the wheel was tested, and how its
    build went.
    """
    facts: Mapping[str, object] = {
        "schema": SCHEMA,
        "key": fleet.key,
        "sha256": hash_file(fresh),
        "size": fresh.stat().st_size,
        "parts": parts,
        **details,
        "plans": fleet.plans,
    }
    settings.require_disk(paths.pool, fresh.stat().st_size, "the finished wheel")
    paths.pool.mkdir(parents=True, exist_ok=True)
    final = paths.pool / fresh.name
    if final.is_file() and (old := hash_file(final)) != facts["sha256"]:
        environment.discard(old, paths)
    # A process with another cache may build the same wheel.
    part = paths.pool / f".{fresh.name}.{os.getpid()}.part"
    try:
        shutil.move(fresh, part)
        part.replace(final)
    finally:
        part.unlink(missing_ok=True)
    manifest = final.with_suffix(".json")
    save(manifest, facts)
    return BuiltWheel(wheel=final, manifest=manifest, parts=parts, reused=False)


def find_wheel(fleet: Fleet[Plan], paths: Paths) -> BuiltWheel | None:
    """Return the wheel of exactly these plans, if the pool has it whole."""
    stem = f"{fleet.first.package.replace('-', '_')}-{fleet.version}"
    for manifest in sorted(paths.pool.glob(f"{stem}-*.json")):
        with contextlib.suppress(RecordError):
            fields = load(manifest, schema=SCHEMA)
            wheel = manifest.with_suffix(".whl")
            if fields["key"] != fleet.key or not wheel.is_file():
                continue
            if hash_file(wheel) == fields["sha256"]:
                parts = tuple(decode_record(WheelPart, row) for row in fields["parts"])
                return BuiltWheel(wheel=wheel, manifest=manifest, parts=parts, reused=True)
    return None
