"""Assembly of the finished wheel, and its test in a real TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbuild.binaries import census, elf
from tfbuild.kernelbuild import admission
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.packing import notices, package_metadata, repack, tuned
from tfbuild.packing.tuned import KernelLibrary, Tuned, UnitConformance
from tfbuild.planning import dispatcher, guard
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.plan import KernelsPlan, require_stock
from tfbuild.tools.environment import Environment
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.source_matching import SourceMatch
from tfcore.comparisons.kernels import TypedOp
from tfcore.cpus.cpu import Cpu
from tfcore.errors import AgreementError, CommandError, HostError
from tfcore.run import run
from tfcore.settings import Paths

_TRY_S = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkedLibrary:
    """A plan's linked library, with its conformance test results and the kernels it registers.

    The kernels were run as compiled for `ran_as`.
    """

    plan: KernelsPlan
    ran_as: str
    library: Path
    verdicts: tuple[UnitVerdict, ...]
    registrations: tuple[TypedOp, ...]


def assemble_wheel(
    fleet: Fleet[KernelsPlan],
    libraries: Sequence[LinkedLibrary],
    dispatching: Path,
    *,
    stock: Path,
    bazel: str,
    source_sha256: str,
    nearness: SourceMatch,
    tree: Path,
    out_dir: Path,
) -> Path:
    """Write the stock wheel with the libraries, their dispatcher and metadata to `out_dir`.

    `bazel` is the version that compiled the libraries, `tree` has the staged sources.
    """
    facts = build_record(
        fleet, libraries, bazel=bazel, source_sha256=source_sha256, nearness=nearness
    )
    add: dict[str, Path | bytes] = {
        f"{fleet.first.kernel_recipe.load_folder}/{dispatcher.LIBRARY}": dispatching
    }
    add |= {
        entry.file: linked.library for entry, linked in zip(facts.libraries, libraries, strict=True)
    }
    add |= _render_guards(fleet, facts)
    return repack.repack(
        stock,
        local=fleet.local,
        add=add,
        edit={guard.INIT: guard.amend_init},
        pinned=True,  # (its hash was checked when it was fetched)
        out_dir=out_dir,
        dist_info_files=render_metadata(facts, fleet, stock, tree),
    )


def build_record(
    fleet: Fleet[KernelsPlan],
    libraries: Sequence[LinkedLibrary],
    *,
    bazel: str,
    source_sha256: str,
    nearness: SourceMatch,
) -> Tuned:
    """Build the record that becomes the wheel's tuned.json."""
    folder = f"{fleet.first.kernel_recipe.load_folder}/{dispatcher.LIBRARY_FOLDER}"
    return Tuned(
        key=fleet.key,
        release=fleet.first.release,
        compiler=f"{fleet.first.compiler} {fleet.first.compiler_version}",
        bazel=bazel,
        libraries=tuple(_build_library_record(linked, folder) for linked in libraries),
        source_file=_find_source_name(fleet.first, source_sha256),
        source_sha256=source_sha256,
        nearness=nearness,
        stock_sha256=require_stock(fleet.first).sha256,
    )


def _find_source_name(plan: KernelsPlan, sha256: str) -> str:
    """Return the plan's file name of the sources with this hash."""
    return next(pin.file.name for pin in plan.sources if pin.file.sha256 == sha256)


def _render_guards(fleet: Fleet[KernelsPlan], facts: Tuned) -> dict[str, bytes]:
    """Render the files that detect the CPU and set the defaults at import."""
    family = fleet.first.target.family
    return guard.build_guard_files(family) | guard.build_defaults_file(family, facts.carriers)


def render_metadata(
    facts: Tuned, fleet: Fleet[KernelsPlan], stock: Path, tree: Path
) -> dict[str, bytes]:
    """Render the files of dist-info: the record, the bill of materials, and licence notices."""
    licences = notices.find_missing_licence(stock, tree)
    libraries = (
        f"{fleet.first.kernel_recipe.load_folder}/{dispatcher.LIBRARY}",
        *(e.file for e in facts.libraries),
    )
    return licences | package_metadata.build_kernels_metadata(
        facts,
        stock,
        package=fleet.first.package,
        version=fleet.version,
        stock_file=require_stock(fleet.first).name,
        added=[*libraries, *_render_guards(fleet, facts)],
        licences=licences,
    )


def _build_library_record(library: LinkedLibrary, folder: str) -> KernelLibrary:
    plan, verdicts = library.plan, library.verdicts
    return KernelLibrary(
        name=plan.target.local,
        target=plan.target.spec,
        file=f"{folder}/{plan.library}",
        size=library.library.stat().st_size,
        sha256=hash_file(library.library),
        plan_key=plan.key,
        required_features=plan.required,
        flags=plan.flags,
        source_flags=plan.source_flags,
        sources=plan.sources_compiled if plan.only_selected else (),
        kernels=tuple(verdict.unit for verdict in verdicts if verdict.admitted),
        admission={
            result.unit: _build_admission(result, library) for result in verdicts if result.admitted
        },
        registrations=library.registrations,
        measured=plan.measured,
        measured_on=plan.measured_on,
        defaults=plan.defaults,
        stay_stock={result.unit: result.reason for result in verdicts if not result.admitted},
        floors=elf.read_version_floors(library.library),
        census=census.count_instructions(library.library),
    )


def _build_admission(verdict: UnitVerdict, library: LinkedLibrary) -> UnitConformance:
    ops = {kernel.op for kernel in verdict.registrations} & {
        kernel.op for kernel in library.registrations
    }
    return UnitConformance(ran_as=library.ran_as, ops=tuple(sorted(ops)))


def check_wheel(
    wheel: Path, fleet: Fleet[KernelsPlan], arm: Environment, *, cpu: Cpu, paths: Paths
) -> dict[str, Any]:
    """Check the wheel that is installed in `arm`, and return the smoke test's report.

    It must import and compute. If this CPU can run its kernels, it must run them beside the
    stock ones. Raises AgreementError, HostError.
    """
    report = run_smoke_test(arm, paths.work / fleet.key[:16], promises=True)
    broken = report.pop("broken")
    facts = tuned.read_tuned(wheel)
    assert facts is not None  # noqa: S101  (assemble_wheel wrote it)
    if not report["computes"]:
        raise AgreementError(f"{wheel.name} computes wrong values")
    library = tuned.choose_build(facts, cpu)
    if library is None:
        if report["loaded"] is not None:
            raise HostError(f"{wheel.name} loaded kernels that this CPU cannot run")
        return report
    if report["loaded"] != library.name:
        raise HostError(f"{wheel.name} does not load its kernels: {report['reason']}")
    for mode in ("eager", "function"):
        idle = [op for op, count in report[mode].items() if not count]
        if idle:
            raise AgreementError(
                f"{wheel.name} does not run its tuned kernels of {', '.join(idle)} ({mode})"
            )
    _require_promises(wheel, broken)
    return report


def _require_promises(wheel: Path, failed: Mapping[str, str]) -> None:
    """Raise AgreementError if something that TensorFlow's documentation promises does not hold."""
    for name, problem in failed.items():
        raise AgreementError(f"{wheel.name}, with tuned and stock kernels mixed: {name}: {problem}")


def run_smoke_test(arm: Environment, folder: Path, *, promises: bool = False) -> dict[str, Any]:
    """Run tfbuild.probe.smoke in an environment, and return its report.

    With `promises` the report lists the broken ones. Raises HostError if TensorFlow does not
    even import.
    """
    answer, log = folder / "smoke.json", folder / "smoke.log"
    answer.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [*arm.command, "-m", "tfbuild.probe.smoke", answer]
    command += ["promises"] * promises
    try:
        run(command, cwd=folder, env=admission.build_probe_env(), log=log, timeout_s=_TRY_S)
    except CommandError as error:
        raise HostError(f"{arm.wheel.name} does not run here: {error.message}") from error
    return dict(json.loads(answer.read_text(encoding="utf-8")))
