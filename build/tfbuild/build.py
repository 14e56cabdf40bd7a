"""From a plan to a tuned wheel: the kernels scope."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfbuild import (
    admission,
    bazel,
    dispatcher,
    elf,
    environment,
    releases,
    render,
    repack,
    settings,
    source,
    talk,
    wheel,
)
from tfbuild.admission import Verdict
from tfbuild.bazel import Bazel
from tfbuild.compilers import Compiler
from tfbuild.download import sha256_of
from tfbuild.environment import Environment
from tfbuild.errors import CommandError, KernelError, RecordError
from tfbuild.jobs import Jobs
from tfbuild.kernels import FOLDER, KernelUnit, closest
from tfbuild.plan import KERNEL_LIBRARY, KernelRecipe, Plan, need_stock
from tfbuild.records import load, plain, pretty, save
from tfbuild.run import Completed
from tfbuild.settings import Places

MANIFEST_SCHEMA = 1
_DISK_BYTES = 4_500_000_000
_FAILED = re.compile(r"^ERROR: .*?Compiling (\S+) failed", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A finished wheel in the pool, its manifest, and the environment it was tried in."""

    wheel: Path
    manifest: Path
    verdicts: tuple[Verdict, ...]
    reused: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Workspace:
    """Everything that Bazel is called with."""

    bazel: Bazel
    folder: Path
    options: tuple[str, ...]
    places: Places


def build(
    plan: Plan,
    *,
    compiler: Compiler,
    jobs: Jobs,
    places: Places,
    given_source: Path | None = None,
    given_stock: Path | None = None,
    keep_going: bool = False,
) -> Built:
    """Make the plan's wheel, or find it finished. Every stage that is done is not done again."""
    pin = need_stock(plan)
    finished = find_finished(plan, places)
    if finished is not None:
        talk.note(f"{finished.wheel.name} is already built")
        return finished
    recipe = plan.kernel_recipe
    assert recipe is not None  # noqa: S101  (a kernels plan has one)
    settings.need_disk(places.cache, _DISK_BYTES, "building a tuned wheel")
    work = places.work / plan.key[:16]
    with talk.step(f"stock wheel {pin.name}"):
        requirement = f"{plan.package}=={plan.release}"
        stock = environment.fetch_wheel(requirement, pin, places, given_stock)
        headers = unpack_stock(stock, pin.sha256, recipe, places)
    with talk.step(f"TensorFlow {plan.release} sources"):
        archive = source.fetch_source(plan.sources, places, given_source)
        staged = source.stage(archive, _sha256(plan, archive), recipe.staging, places)
        _need_sources(plan, staged)
    with talk.step("stock environment"):
        arm = environment.create(stock, python=plan.python, lock=lock_of(plan), places=places)
    workspace = _workspace(plan, compiler, jobs, places, work, staged, headers)
    with talk.step(f"compile {len(plan.kernels)} kernel units, {jobs.count} at once"):
        libraries, failed = _compile(plan, workspace, keep_going)
    with talk.step("admission"):
        verdicts = _admit(libraries, failed, staged, headers, recipe, arm, work)
    with talk.step("link, assemble and try the wheel"):
        return _finish(plan, workspace, verdicts, stock, places)


def find_finished(plan: Plan, places: Places) -> Built | None:
    """The wheel of exactly this plan, if the pool has it whole."""
    found = places.pool / f"{plan.package.replace('-', '_')}-{plan.version}"
    for manifest in sorted(found.parent.glob(f"{found.name}-*.json")):
        with contextlib.suppress(RecordError):
            fields = load(manifest, schema=MANIFEST_SCHEMA)
            path = manifest.with_suffix(".whl")
            whole = path.is_file() and path.stat().st_size == fields["size"]
            if fields["plan_key"] == plan.key and whole:
                verdicts = tuple(Verdict(**row) for row in fields["verdicts"])
                return Built(wheel=path, manifest=manifest, verdicts=verdicts, reused=True)
    return None


def lock_of(plan: Plan) -> str:
    release = releases.find_release(plan.release)
    tag = f"cp{plan.python.replace('.', '')}"
    stock = releases.stock_wheel(release, plan.package, tag, plan.target.family)
    return releases.dependency_lock(stock).name


def unpack_stock(stock: Path, sha256: str, recipe: KernelRecipe, places: Places) -> Path:
    """Headers and libraries of the stock wheel, in a folder named by its hash."""
    folder = places.stock / sha256[:16]
    if not folder.is_dir():
        prefixes = (f"{recipe.include_roots[0]}/", *recipe.libraries)
        wheel.extract(stock, prefixes, folder)
    return folder


def _sha256(plan: Plan, archive: Path) -> str:
    known = {pin.file.name: pin.file.sha256 for pin in plan.sources}
    return known.get(archive.name) or plan.sources[0].file.sha256


def _need_sources(plan: Plan, staged: Path) -> None:
    for unit in plan.kernels:
        for name in unit.sources:
            if not (staged / name).is_file():
                present = [path.stem for path in (staged / FOLDER).rglob("*.cc")]
                raise KernelError(
                    f"TensorFlow {plan.release} has no kernel source {name.removeprefix(FOLDER)[1:]}",
                    hint=closest(unit.name, present),
                )


def _workspace(
    plan: Plan,
    compiler: Compiler,
    jobs: Jobs,
    places: Places,
    work: Path,
    staged: Path,
    headers: Path,
) -> _Workspace:
    """Render the workspace and the BUILD files beside it, and settle Bazel's options."""
    found = bazel.find_bazel(places, plan.bazel, plan.bazel_sha256)
    folder = work / "workspace"
    render.write(render.render(plan, places.templates), folder)
    texts = render.repositories(plan, places.templates)
    folders = {"tf_source": staged, "tf_wheel": headers, "rules_cc": places.tools / "rules_cc"}
    for name, at in folders.items():
        render.write(texts[name], at)
    options = (
        *bazel.repository_options(found, folders),
        f"--disk_cache={places.cache / 'bazel-disk-cache'}",
        f"--repo_env=CC={compiler.path}",
        f"--jobs={jobs.count}",
    )
    return _Workspace(bazel=found, folder=folder, options=options, places=places)


def _compile(
    plan: Plan, workspace: _Workspace, keep_going: bool
) -> tuple[dict[str, Path], dict[str, str]]:
    """Each unit's library for admission, and the reason of each unit that did not compile."""
    log = workspace.folder.parent / "compile.log"
    out = _bin(workspace)
    targets = tuple(f"//:admission/{unit.label}.so" for unit in plan.kernels)
    with talk.counting("actions", len(targets)) as count:
        done = _bazel_build(workspace, targets, log, count.advance, keep_going=keep_going)
    if done.returncode == 0:
        return {unit.name: out / f"admission/{unit.label}.so" for unit in plan.kernels}, {}
    failed = _failures(plan.kernels, done.output)
    if not failed:
        raise CommandError(f"Bazel failed (whole output: {log}):\n{_tail(done.output)}")
    unit, reason = next(iter(failed.items()))
    if not keep_going:
        raise KernelError(
            f"kernel {unit} does not compile (whole output: {log}):\n{reason}\n",
            hint="Leave it out with --kernels, or build the others with --keep-going",
        )
    for name, why in failed.items():
        talk.warn(f"kernel {name} does not compile and stays stock:\n{why}")
    rest = [unit for unit in plan.kernels if unit.name not in failed]
    return {unit.name: out / f"admission/{unit.label}.so" for unit in rest}, failed


def _bin(workspace: _Workspace) -> Path:
    return bazel.output_folder(
        workspace.bazel,
        workspace=workspace.folder,
        options=workspace.options,
        places=workspace.places,
    )


def _bazel_build(
    workspace: _Workspace,
    targets: tuple[str, ...],
    log: Path,
    on_progress: Callable[[int, int, str], None] = lambda *_: None,
    *,
    keep_going: bool = False,
) -> Completed:
    return bazel.build(
        workspace.bazel,
        targets,
        workspace=workspace.folder,
        options=workspace.options,
        places=workspace.places,
        log=log,
        on_progress=on_progress,
        keep_going=keep_going,
    )


def _failures(units: tuple[KernelUnit, ...], output: str) -> dict[str, str]:
    """The units whose sources Bazel names as failed, each with the compiler's last lines."""
    owner = {source: unit.name for unit in units for source in unit.sources}
    failed: dict[str, str] = {}
    for found in _FAILED.finditer(output):
        name = owner.get(found[1].removeprefix("external/tf_source/"))
        if name is not None:
            lines = output[found.end() :].splitlines()
            errors = [line for line in lines[:200] if " error: " in line or "Killed" in line]
            failed.setdefault(name, "\n".join(errors[:5]) or _tail(output))
    return failed


def _tail(output: str) -> str:
    return "\n".join(output.splitlines()[-20:])


def _admit(
    libraries: dict[str, Path],
    failed: dict[str, str],
    staged: Path,
    headers: Path,
    recipe: KernelRecipe,
    arm: Environment,
    work: Path,
) -> tuple[Verdict, ...]:
    verdicts = admission.admit(
        libraries,
        staged=staged,
        stock_libraries=[headers / library for library in recipe.libraries],
        copts=recipe.copts,
        environment=arm,
        folder=work,
    )
    broken = (Verdict(unit=name, reason=f"it does not compile: {w}") for name, w in failed.items())
    every = tuple(sorted((*verdicts, *broken), key=lambda verdict: verdict.unit))
    for verdict in every:
        if not verdict.admitted:
            talk.warn(f"kernel {verdict.unit} stays stock: {verdict.reason}")
    if not any(verdict.admitted for verdict in every):
        raise KernelError("no kernel was admitted, so there is no wheel to make")
    return every


def _finish(
    plan: Plan, workspace: _Workspace, verdicts: tuple[Verdict, ...], stock: Path, places: Places
) -> Built:
    """Link what was admitted, put it into the wheel, try the wheel, and let it into the pool."""
    recipe = plan.kernel_recipe
    assert recipe is not None  # noqa: S101
    work = workspace.folder.parent
    good = {verdict.unit for verdict in verdicts if verdict.admitted}
    units = tuple(unit for unit in plan.kernels if unit.name in good)
    text = render.admitted(units, places.templates)
    render.write({"admitted.bzl": text}, workspace.folder)
    targets = (f"//:{KERNEL_LIBRARY}", f"//:{dispatcher.LIBRARY}")
    done = _bazel_build(workspace, targets, work / "link.log")
    if done.returncode:
        raise CommandError(
            f"linking failed (whole output: {work / 'link.log'}):\n{_tail(done.output)}"
        )
    out = _bin(workspace)
    library = out / KERNEL_LIBRARY
    facts = tuned_json(plan, units, verdicts, library, workspace.bazel)
    fresh = repack.repack(
        stock,
        local=plan.target.local,
        add={
            f"{recipe.load_folder}/{dispatcher.LIBRARY}": out / dispatcher.LIBRARY,
            f"{recipe.load_folder}/{dispatcher.LIBRARY_FOLDER}/{KERNEL_LIBRARY}": library,
        },
        out_dir=work / "wheel",
        dist_info_files={"tuned.json": pretty(facts).encode()},
    )
    sha256 = sha256_of(fresh)
    size = fresh.stat().st_size
    places.pool.mkdir(parents=True, exist_ok=True)
    final = places.pool / fresh.name
    part = places.pool / f".{fresh.name}.part"
    shutil.move(fresh, part)
    part.replace(final)
    manifest = final.with_suffix(".json")
    own = {"schema": MANIFEST_SCHEMA, "plan_key": plan.key, "sha256": sha256, "size": size}
    save(manifest, own | {"tuned": facts, "verdicts": verdicts, "plan": plan})
    return Built(wheel=final, manifest=manifest, verdicts=verdicts, reused=False)


def tuned_json(
    plan: Plan,
    units: tuple[KernelUnit, ...],
    verdicts: tuple[Verdict, ...],
    library: Path,
    used: Bazel,
) -> dict[str, object]:
    """What the wheel says of itself (dist-info/tuned.json). No time and no path stands in it."""
    refused = {verdict.unit: verdict.reason for verdict in verdicts if not verdict.admitted}
    facts = {
        "schema": MANIFEST_SCHEMA,
        "plan_key": plan.key,
        "release": plan.release,
        "target": plan.target.spec,
        "required_features": plan.required,
        "flags": plan.flags,
        "compiler": f"{plan.compiler} {plan.compiler_version}",
        "bazel": used.version,
        "kernels": [unit.name for unit in units],
        "registrations": sum(verdict.kernels for verdict in verdicts if verdict.admitted),
        "stay_stock": refused,
        "floors": elf.floors(library),
        "source_sha256": {pin.file.name: pin.file.sha256 for pin in plan.sources},
        "stock_sha256": plan.stock.sha256 if plan.stock else "",
    }
    return dict(plain(facts))
