"""The finished wheel: put together, tried in a real TensorFlow, and let into the pool."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbuild import admission, dispatcher, elf, environment, repack, settings, tuned
from tfbuild.admission import Verdict
from tfbuild.cpu import Cpu
from tfbuild.download import sha256_of
from tfbuild.environment import Environment
from tfbuild.errors import AgreementError, CommandError, HostError, RecordError
from tfbuild.plan import KERNEL_LIBRARY, Plan, need_stock
from tfbuild.records import load, save
from tfbuild.run import run
from tfbuild.settings import Places
from tfbuild.tuned import Tuned
from tfbuild.workspace import Workspace

MANIFEST_SCHEMA = 1
_TRY_S = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A wheel in the pool and the manifest beside it. `reused` if it was there already."""

    wheel: Path
    manifest: Path
    verdicts: tuple[Verdict, ...]
    reused: bool


def assemble(
    workspace: Workspace, verdicts: tuple[Verdict, ...], *, stock: Path, source_sha256: str
) -> Path:
    """The stock wheel with the linked library inside, in the plan's work folder."""
    plan = workspace.plan
    recipe = plan.kernel_recipe
    assert recipe is not None  # noqa: S101  (a kernels plan has one)
    inside = f"{recipe.load_folder}/{dispatcher.LIBRARY_FOLDER}"
    facts = _facts(workspace, verdicts, source_sha256)
    return repack.repack(
        stock,
        local=plan.target.local,
        add={
            f"{recipe.load_folder}/{dispatcher.LIBRARY}": workspace.dispatcher,
            f"{inside}/{KERNEL_LIBRARY}": workspace.library,
        },
        out_dir=workspace.folder.parent / "wheel",
        dist_info_files={tuned.FILE: facts.to_bytes()},
    )


def _facts(workspace: Workspace, verdicts: tuple[Verdict, ...], source_sha256: str) -> Tuned:
    plan = workspace.plan
    return Tuned(
        plan_key=plan.key,
        release=plan.release,
        target=plan.target.spec,
        required_features=plan.required,
        flags=plan.flags,
        compiler=f"{plan.compiler} {plan.compiler_version}",
        bazel=workspace.bazel.version,
        kernels=tuple(verdict.unit for verdict in verdicts if verdict.admitted),
        registrations=sum(verdict.kernels for verdict in verdicts),
        stay_stock={each.unit: each.reason for each in verdicts if not each.admitted},
        floors=elf.floors(workspace.library),
        source_sha256=source_sha256,
        stock_sha256=need_stock(plan).sha256,
    )


def try_out(wheel: Path, plan: Plan, *, lock: str, cpu: Cpu, places: Places) -> dict[str, Any]:
    """Install the wheel and use it: it must import and compute, and run its own kernels where this
    CPU can. Raises AgreementError, HostError."""
    arm = environment.create(wheel, python=plan.python, lock=lock, places=places)
    found = smoke(arm, places.work / plan.key[:16])
    facts = tuned.read_tuned(wheel)
    assert facts is not None  # noqa: S101  (we have just made it)
    if not found["computes"]:
        raise AgreementError(f"{wheel.name} does not compute what it should")
    if tuned.lacking(facts, cpu):
        if found["loaded"] is not None:
            raise HostError(f"{wheel.name} loaded kernels that this CPU cannot run")
        return found
    if found["loaded"] != plan.target.local:
        raise HostError(f"{wheel.name} does not load its kernels: {found['reason']}")
    for mode in ("eager", "function"):
        idle = [op for op, count in found[mode].items() if not count]
        if idle:
            raise AgreementError(f"{wheel.name} does not run its own {', '.join(idle)} ({mode})")
    return found


def smoke(arm: Environment, folder: Path, launcher: tuple[str, ...] = ()) -> dict[str, Any]:
    """What tfbuild.probe.smoke finds in an environment. `launcher` goes before the interpreter, as
    an emulator does. Raises HostError when TensorFlow does not even import."""
    answer = folder / "smoke.json"
    answer.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    words: list[str | Path] = [*launcher, arm.python, "-P", "-m", "tfbuild.probe.smoke", answer]
    try:
        run(words, env=admission.probe_env(), log=folder / "smoke.log", timeout_s=_TRY_S)
    except CommandError as error:
        raise HostError(f"{arm.wheel.name} does not run here: {error.message}") from error
    return dict(json.loads(answer.read_text(encoding="utf-8")))


def admit_to_pool(
    fresh: Path, plan: Plan, verdicts: tuple[Verdict, ...], found: Mapping[str, Any], places: Places
) -> Built:
    """Move the wheel into the pool, whole or not at all, and write its manifest last."""
    facts = {
        "schema": MANIFEST_SCHEMA,
        "plan_key": plan.key,
        "sha256": sha256_of(fresh),
        "size": fresh.stat().st_size,
        "verdicts": verdicts,
        "smoke": {name: found[name] for name in found if name != "file"},
        "plan": plan,
    }
    settings.need_disk(places.pool, fresh.stat().st_size, "the finished wheel")
    places.pool.mkdir(parents=True, exist_ok=True)
    final = places.pool / fresh.name
    if final.is_file() and (old := sha256_of(final)) != facts["sha256"]:
        environment.discard(old, places)
    part = places.pool / f".{fresh.name}.part"
    try:
        shutil.move(fresh, part)
        part.replace(final)
    finally:
        part.unlink(missing_ok=True)
    manifest = final.with_suffix(".json")
    save(manifest, facts)
    return Built(wheel=final, manifest=manifest, verdicts=verdicts, reused=False)


def find_finished(plan: Plan, places: Places) -> Built | None:
    """The wheel of exactly this plan, if the pool has it whole."""
    stem = f"{plan.package.replace('-', '_')}-{plan.version}"
    for manifest in sorted(places.pool.glob(f"{stem}-*.json")):
        with contextlib.suppress(RecordError):
            fields = load(manifest, schema=MANIFEST_SCHEMA)
            wheel = manifest.with_suffix(".whl")
            if fields["plan_key"] != plan.key or not wheel.is_file():
                continue
            if sha256_of(wheel) == fields["sha256"]:
                verdicts = tuple(Verdict(**row) for row in fields["verdicts"])
                return Built(wheel=wheel, manifest=manifest, verdicts=verdicts, reused=True)
    return None
