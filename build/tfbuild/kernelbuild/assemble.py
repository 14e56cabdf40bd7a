"""The finished wheel: put together, and tried in a real TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbuild.binaries import census, elf
from tfbuild.cpus.cpu import Cpu
from tfbuild.errors import AgreementError, CommandError, HostError
from tfbuild.kernelbuild import admission
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.measured.kernels import TypedOp
from tfbuild.packing import notices, papers, repack, tuned
from tfbuild.packing.tuned import KernelLibrary, Tuned, UnitConformance
from tfbuild.planning import dispatcher, guard
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.plan import Plan, require_stock
from tfbuild.run import run
from tfbuild.settings import Paths
from tfbuild.tools.environment import Environment
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.nearness import SourceMatch

_TRY_S = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkedLibrary:
    """A plan's linked library, on its way into the wheel, what admission said of its units, which
    ran as compiled for `ran_as`, and the kernels that it registers."""

    plan: Plan
    ran_as: str
    library: Path
    verdicts: tuple[UnitVerdict, ...]
    registrations: tuple[TypedOp, ...]


def assemble(
    fleet: Fleet,
    made: Sequence[LinkedLibrary],
    dispatching: Path,
    *,
    stock: Path,
    bazel: str,
    source_sha256: str,
    nearness: SourceMatch,
    tree: Path,
    out_dir: Path,
) -> Path:
    """The stock wheel with the libraries, their dispatcher and what says so inside, in `out_dir`.
    `bazel` is the version that compiled them, `tree` has the staged sources."""
    facts = facts_of(fleet, made, bazel=bazel, source_sha256=source_sha256, nearness=nearness)
    add: dict[str, Path | bytes] = {f"{_folder(fleet)}/{dispatcher.LIBRARY}": dispatching}
    add |= {said.file: each.library for said, each in zip(facts.libraries, made, strict=True)}
    add |= _guards(fleet, facts)
    return repack.repack(
        stock,
        local=fleet.local,
        add=add,
        edit={guard.INIT: guard.amend_init},
        pinned=True,  # (as it was fetched)
        out_dir=out_dir,
        dist_info_files=papers_of(facts, fleet, stock, tree),
    )


def _folder(fleet: Fleet) -> str:
    """Where TensorFlow loads the dispatcher from."""
    recipe = fleet.first.kernel_recipe
    assert recipe is not None  # noqa: S101  (a kernels plan has one)
    return recipe.load_folder


def facts_of(
    fleet: Fleet,
    made: Sequence[LinkedLibrary],
    *,
    bazel: str,
    source_sha256: str,
    nearness: SourceMatch,
) -> Tuned:
    """What the wheel will say of itself."""
    folder = f"{_folder(fleet)}/{dispatcher.LIBRARY_FOLDER}"
    return Tuned(
        key=fleet.key,
        release=fleet.first.release,
        compiler=f"{fleet.first.compiler} {fleet.first.compiler_version}",
        bazel=bazel,
        libraries=tuple(_facts(each, folder) for each in made),
        source_file=_name_of(fleet.first, source_sha256),
        source_sha256=source_sha256,
        nearness=nearness,
        stock_sha256=require_stock(fleet.first).sha256,
    )


def _name_of(plan: Plan, sha256: str) -> str:
    """What the plan calls the sources with this hash."""
    return next(pin.file.name for pin in plan.sources if pin.file.sha256 == sha256)


def _guards(fleet: Fleet, facts: Tuned) -> dict[str, bytes]:
    """What asks the CPU, and sets the defaults, at import."""
    family = fleet.first.target.family
    return guard.build_guard_files(family) | guard.build_defaults_file(family, facts.carriers)


def papers_of(facts: Tuned, fleet: Fleet, stock: Path, tree: Path) -> dict[str, bytes]:
    """What goes into dist-info: the record, the bill of materials, and what licences ask for."""
    licences = notices.find_missing_licence(stock, tree)
    libraries = (f"{_folder(fleet)}/{dispatcher.LIBRARY}", *(e.file for e in facts.libraries))
    return licences | papers.build_kernels_metadata(
        facts,
        stock,
        package=fleet.first.package,
        version=fleet.version,
        stock_file=require_stock(fleet.first).name,
        added=[*libraries, *_guards(fleet, facts)],
        licences=licences,
    )


def _facts(made: LinkedLibrary, folder: str) -> KernelLibrary:
    plan, verdicts = made.plan, made.verdicts
    return KernelLibrary(
        name=plan.target.local,
        target=plan.target.spec,
        file=f"{folder}/{plan.library}",
        size=made.library.stat().st_size,
        sha256=hash_file(made.library),
        plan_key=plan.key,
        required_features=plan.required,
        flags=plan.flags,
        source_flags=plan.source_flags,
        sources=plan.sources_compiled if plan.only_selected else (),
        kernels=tuple(verdict.unit for verdict in verdicts if verdict.admitted),
        admission={each.unit: _admitted(each, made) for each in verdicts if each.admitted},
        registrations=made.registrations,
        measured=plan.measured,
        measured_on=plan.measured_on,
        defaults=plan.defaults,
        stay_stock={each.unit: each.reason for each in verdicts if not each.admitted},
        floors=elf.read_version_floors(made.library),
        census=census.count_instructions(made.library),
    )


def _admitted(verdict: UnitVerdict, made: LinkedLibrary) -> UnitConformance:
    ops = {each.op for each in verdict.registrations} & {each.op for each in made.registrations}
    return UnitConformance(ran_as=made.ran_as, ops=tuple(sorted(ops)))


def try_out(
    wheel: Path, fleet: Fleet, arm: Environment, *, cpu: Cpu, paths: Paths
) -> dict[str, Any]:
    """Use the wheel that is installed in `arm`: it must import and compute, and run its own kernels
    where this CPU can, beside the stock ones. Raises AgreementError, HostError."""
    found = smoke(arm, paths.work / fleet.key[:16], promises=True)
    broken = found.pop("broken")
    facts = tuned.read_tuned(wheel)
    assert facts is not None  # noqa: S101  (we have just made it)
    if not found["computes"]:
        raise AgreementError(f"{wheel.name} does not compute what it should")
    library = tuned.choose_build(facts, cpu)
    if library is None:
        if found["loaded"] is not None:
            raise HostError(f"{wheel.name} loaded kernels that this CPU cannot run")
        return found
    if found["loaded"] != library.name:
        raise HostError(f"{wheel.name} does not load its kernels: {found['reason']}")
    for mode in ("eager", "function"):
        idle = [op for op, count in found[mode].items() if not count]
        if idle:
            raise AgreementError(f"{wheel.name} does not run its own {', '.join(idle)} ({mode})")
    _need_promised(wheel, broken)
    return found


def _need_promised(wheel: Path, failed: Mapping[str, str]) -> None:
    """Raises AgreementError for what TensorFlow's documentation promises and is not so."""
    for name, problem in failed.items():
        raise AgreementError(f"{wheel.name}, with tuned and stock kernels mixed: {name}: {problem}")


def smoke(arm: Environment, folder: Path, *, promises: bool = False) -> dict[str, Any]:
    """What tfbuild.probe.smoke finds in an environment, with the broken `promises` if asked for.
    Raises HostError when TensorFlow does not even import."""
    answer, log = folder / "smoke.json", folder / "smoke.log"
    answer.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    words: list[str | Path] = [*arm.command, "-m", "tfbuild.probe.smoke", answer]
    words += ["promises"] * promises
    try:
        run(words, cwd=folder, env=admission.probe_env(), log=log, timeout_s=_TRY_S)
    except CommandError as error:
        raise HostError(f"{arm.wheel.name} does not run here: {error.message}") from error
    return dict(json.loads(answer.read_text(encoding="utf-8")))
