"""What a tuned wheel offers this CPU, and what each of its kernels was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbuild.cpus.cpu import Cpu
from tfbuild.errors import RecordError, WheelError
from tfbuild.kernelbuild import pool
from tfbuild.kernelbuild.pool import WheelPart
from tfbuild.measured.kernels import TypedOp
from tfbuild.packing.tuned import KernelLibrary, choose_build, read_tuned
from tfbuild.records import decode_record, hash_record, load
from tfbuild.upstream.download import hash_file

_RECIPE = ("release", "compiler", "compiler_version", "flags", "sources", "stock", "kernel_recipe")
"""The fields of a plan that decide what any kernel source becomes, beside what is its own: its
flags, and the improved implementations that are included before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelKernels:
    """`units` has the unit of each registration, `recipes` a hash per unit of all that its code
    follows from: sources, compiler, flags and our own part."""

    wheel: Path
    release: str
    library: KernelLibrary
    units: Mapping[TypedOp, str]
    recipes: Mapping[str, str]
    sources: Mapping[str, tuple[str, ...]]

    def flags(self, units: frozenset[str]) -> dict[str, tuple[str, ...]]:
        """What the sources of these units are compiled with beside the target's flags."""
        own = {source for unit in units for source in self.sources[unit]}
        return {path: flags for path, flags in self.library.source_flags.items() if path in own}


def read_wheel_kernels(wheel: Path, cpu: Cpu) -> WheelKernels:
    """Raises WheelError for a wheel without kernels that run here, RecordError without its own
    manifest beside it, which says which source registers what."""
    tuned = read_tuned(wheel)
    library = None if tuned is None else choose_build(tuned, cpu)
    if tuned is None or not isinstance(library, KernelLibrary):
        raise WheelError(
            f"{wheel.name} has no kernels for this CPU",
            hint="Build one that has: invoke build --arch native",
        )
    manifest = wheel.with_suffix(".json")
    fields = load(manifest, schema=pool.SCHEMA)
    if fields.get("sha256") != (seen := hash_file(wheel)):
        raise RecordError(
            f"{manifest} is the manifest of another wheel: {wheel.name} has sha256 {seen[:12]}…",
            hint="Take the wheel and its manifest from one build",
        )
    try:
        part, plan = _made(fields, library.target)
        sources = {unit["name"]: tuple(unit["sources"]) for unit in plan["kernels"]}
        recipe = {name: plan[name] for name in _RECIPE}
        improved = recipe["kernel_recipe"]["improved"]
        recipe["kernel_recipe"] = {**recipe["kernel_recipe"], "improved": None}
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{manifest} is no manifest of {wheel.name} ({error})") from error
    flags = library.source_flags
    return WheelKernels(
        wheel=wheel,
        release=tuned.release,
        library=library,
        units={each: row.unit for row in part.verdicts for each in row.registrations},
        recipes={
            unit: hash_record(
                {
                    "recipe": recipe,
                    "sources": {each: (flags.get(each, ()), improved.get(each)) for each in paths},
                }
            )
            for unit, paths in sources.items()
        },
        sources=sources,
    )


def _made(fields: Mapping[str, Any], target: str) -> tuple[WheelPart, Mapping[str, Any]]:
    """What the manifest says of the library for a target: its part and its plan."""
    for row, plan in zip(fields["parts"], fields["plans"], strict=True):
        part = decode_record(WheelPart, row)
        if part.target == target:
            return part, plan
    raise KeyError(target)
