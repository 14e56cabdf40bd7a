"""The kernels of a tuned wheel for this CPU, and the inputs of their code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbuild.kernelbuild import pool
from tfbuild.kernelbuild.pool import WheelPart
from tfbuild.packing.tuned import KernelLibrary, choose_build, read_tuned
from tfbuild.upstream.download import hash_file
from tfcore.comparisons.kernels import TypedOp
from tfcore.cpus.cpu import Cpu
from tfcore.errors import RecordError, WheelError
from tfcore.records import decode_record, hash_record, load

_RECIPE = ("release", "compiler", "compiler_version", "flags", "sources", "stock", "kernel_recipe")
"""The fields of a plan that affect the code of every kernel source. In addition, a source has its
own flags, and the replacement kernels that are included before it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelKernels:
    """The kernels that a tuned wheel has for this CPU.

    `units` has the kernel group of each registration, `recipes` a hash per group of all
    inputs of its code: sources, compiler, flags and Tensorwright's code.
    """

    wheel: Path
    release: str
    library: KernelLibrary
    units: Mapping[TypedOp, str]
    recipes: Mapping[str, str]
    sources: Mapping[str, tuple[str, ...]]

    def select_flags(self, units: frozenset[str]) -> dict[str, tuple[str, ...]]:
        """Return the flags of these kernel groups' sources, in addition to the target's flags."""
        group_sources = {source for unit in units for source in self.sources[unit]}
        return {
            path: flags
            for path, flags in self.library.source_flags.items()
            if path in group_sources
        }


def read_wheel_kernels(wheel: Path, cpu: Cpu) -> WheelKernels:
    """Read the kernels of a wheel that run on this CPU.

    Raises WheelError if it has none, and RecordError without its own manifest beside it,
    which lists what each source registers.
    """
    tuned = read_tuned(wheel)
    library = None if tuned is None else choose_build(tuned, cpu)
    if tuned is None or not isinstance(library, KernelLibrary):
        raise WheelError(
            f"{wheel.name} has no kernels for this CPU",
            hint="Build one for it: invoke build --arch native",
        )
    manifest = wheel.with_suffix(".json")
    fields = load(manifest, schema=pool.SCHEMA)
    if fields.get("sha256") != (digest := hash_file(wheel)):
        raise RecordError(
            f"{manifest} is the manifest of another wheel: {wheel.name} has sha256 {digest[:12]}…",
            hint="Use the wheel and the manifest of the same build",
        )
    try:
        part, plan = _find_plan(fields, library.target)
        sources = {unit["name"]: tuple(unit["sources"]) for unit in plan["kernels"]}
        recipe = {name: plan[name] for name in _RECIPE}
        replacements = recipe["kernel_recipe"]["improved"]
        recipe["kernel_recipe"] = {**recipe["kernel_recipe"], "improved": None}
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(
            f"{manifest} is not a valid manifest of {wheel.name} ({error})"
        ) from error
    flags = library.source_flags
    return WheelKernels(
        wheel=wheel,
        release=tuned.release,
        library=library,
        units={
            registration: row.unit for row in part.verdicts for registration in row.registrations
        },
        recipes={
            unit: hash_record(
                {
                    "recipe": recipe,
                    "sources": {
                        path: (flags.get(path, ()), replacements.get(path)) for path in paths
                    },
                }
            )
            for unit, paths in sources.items()
        },
        sources=sources,
    )


def _find_plan(fields: Mapping[str, Any], target: str) -> tuple[WheelPart, Mapping[str, Any]]:
    """Find the part and the plan of the library for a target in the manifest."""
    for row, plan in zip(fields["parts"], fields["plans"], strict=True):
        part = decode_record(WheelPart, row)
        if part.target == target:
            return part, plan
    raise KeyError(target)
