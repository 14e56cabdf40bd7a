"""Adds version, platform, guard and metadata to the wheel of TensorFlow's build, and tests it."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from tfbuild.auditing import libraries, manylinux
from tfbuild.auditing.libraries import LibraryFacts, Member
from tfbuild.kernelbuild.admission import build_probe_env
from tfbuild.packing import notices, package_metadata, repack, tuned
from tfbuild.packing.tuned import TreeLibrary, Tuned, TunedTree
from tfbuild.planning import guard
from tfbuild.planning.plan import FullPlan, Plan, Scope
from tfbuild.tools import environment
from tfbuild.tools.environment import Environment
from tfcore.cpus.cpu import Cpu
from tfcore.errors import AgreementError, CommandError, HostError, WheelError
from tfcore.run import run
from tfcore.settings import Paths

_TRY_S = 600.0
_ONES = 512.0 * 512.0  # the sum that tfbuild.probe.full_build computes
_REFUSAL = "ImportError: this TensorFlow cannot run here"


def finish_wheel(
    raw: Path,
    plan: FullPlan,
    *,
    paths: Paths,
    bazel: str,
    source_sha256: str,
    licence: bytes = b"",
    profile_sha256: str = "",
) -> Path:
    """Return the wheel `raw` repacked with its own version, platform, guard and package
    metadata, in the plan's work folder.

    `bazel` is the version that built it, `licence` the tree's LICENSE, for a raw wheel
    without one. The platform is the oldest manylinux tag that all libraries satisfy; without
    any it stays linux_x86_64, which pip installs anywhere on Linux and public indexes refuse.
    Raises WheelError, DiskError.
    """
    members = libraries.read_members(raw)
    tree_libraries = libraries.filter_libraries(members)
    if not tree_libraries:
        raise WheelError(f"{raw.name} contains no library", hint="Bazel built another target")
    library_facts = libraries.read_facts(raw, tree_libraries, paths.cache / "census")
    tree = _create_tuned_tree(plan, tree_libraries, library_facts, profile_sha256)
    facts = Tuned(
        scope=Scope.FULL,
        key=plan.key,
        release=plan.release,
        compiler=f"{plan.compiler} {plan.compiler_version}",
        bazel=bazel,
        tree=tree,
        source_file=_find_source_name(plan, source_sha256),
        source_sha256=source_sha256,
        stock_sha256=plan.stock.sha256 if plan.stock else "",
    )
    add: dict[str, Path | bytes] = {
        **guard.build_full_wheel_files(plan.target, plan.required),
        **guard.build_defaults_file(plan.target.family, facts.carriers),
    }
    licences = _add_licence(raw, members, licence)
    metadata = package_metadata.build_tree_metadata(
        facts,
        tree,
        package=plan.package,
        version=plan.version,
        added=add,
        has_third_party=notices.THIRD_PARTY in members,
        licences=licences,
    )
    return repack.repack(
        raw,
        local=plan.local,
        platform=_choose_platform(plan, library_facts),
        add=add,
        edit={guard.INIT: guard.guard_init},
        out_dir=paths.work / plan.key[:16] / "wheel",
        dist_info_files=licences | metadata,
    )


def _create_tuned_tree(
    plan: FullPlan,
    members: Mapping[str, Member],
    shown: Mapping[str, LibraryFacts],
    profile_sha256: str,
) -> TunedTree:
    recipe = plan.full_recipe
    options = {
        "lto": "thin" if recipe.lto else "",
        "training": recipe.training,
        "profile_sha256": profile_sha256,
    }
    return TunedTree(
        name=plan.target.local,
        target=plan.target.spec,
        plan_key=plan.key,
        required_features=plan.required,
        flags=plan.flags,
        options={name: value for name, value in options.items() if value},
        defaults=plan.defaults,
        libraries={
            file: TreeLibrary(
                size=members[file].size,
                sha256=members[file].sha256,
                floors=shown[file].floors,
                census=shown[file].census,
            )
            for file in sorted(members)
        },
    )


def _find_source_name(plan: Plan, sha256: str) -> str:
    """Return the plan's name for the sources with this hash."""
    names = (pin.file.name for pin in plan.sources if pin.file.sha256 == sha256)
    return next(names, "the user's source tree")


def _choose_platform(plan: Plan, shown: Mapping[str, LibraryFacts]) -> str:
    demands = {PurePosixPath(file).name: (f.floors, f.needed) for file, f in shown.items()}
    return manylinux.choose_platform(plan.target.family, demands)


def _add_licence(raw: Path, names: Collection[str], licence: bytes) -> dict[str, bytes]:
    """Return TensorFlow's licence for a wheel that was built without one, or nothing. Raises
    WheelError.
    """
    if notices.has_licence(names):
        return {}
    if not licence:
        raise WheelError(
            f"neither {raw.name} nor the tree contains TensorFlow's LICENSE",
            hint="Restore LICENSE in the tree: a wheel without it must not be distributed",
        )
    return {notices.LICENCE: licence}


def try_wheel(
    wheel: Path,
    plan: Plan,
    *,
    requirements: str,
    cpu: Cpu,
    paths: Paths,
    links: Path | None = None,
) -> dict[str, Any]:
    """Install the wheel, use it, and return the answer of tfbuild.probe.full_build.

    `requirements` is the text of the locked dependencies, `links` a folder with their wheels.
    On a CPU that lacks a required feature the wheel must refuse to be imported, and the
    answer is {"refused": [features]}. Raises AgreementError, HostError, and whatever
    environment.create raises.
    """
    arm = environment.create(
        wheel, python=plan.python, requirements=requirements, paths=paths, links=links
    )
    facts = tuned.read_tuned(wheel)
    assert facts is not None  # noqa: S101  (finish_wheel wrote it)
    return run_probe(arm, tuned.list_nearest_missing(facts, cpu), paths.work / plan.key[:16])


def run_probe(
    arm: Environment, absent: tuple[str, ...], folder: Path, launcher: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Run tfbuild.probe.full_build in an environment, and return its answer.

    `absent` are the features that the wheel needs and the CPU lacks; `launcher` is put before
    the interpreter, for an emulator. Raises HostError, AgreementError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    answer = folder / "whole.json"
    answer.unlink(missing_ok=True)
    command: list[str | Path] = [*launcher, arm.python, "-m", "tfbuild.probe.full_build", answer]
    try:
        run(command, cwd=folder, env=build_probe_env(), log=folder / "whole.log", timeout_s=_TRY_S)
    except CommandError as error:
        if absent and _REFUSAL in error.last_line:
            return {"refused": list(absent)}
        raise HostError(f"{arm.wheel.name} does not run here: {error.message}") from error
    if absent:
        raise HostError(f"{arm.wheel.name} was imported on a CPU without {', '.join(absent)}")
    if not answer.is_file():
        raise HostError(f"{arm.wheel.name} ended its process before the end of the test")
    results: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if results["sum"] != _ONES:
        raise AgreementError(f"{arm.wheel.name} sums {_ONES:.0f} ones to {results['sum']}")
    if not all(math.isfinite(loss) for loss in results["losses"]):
        raise AgreementError(
            f"{arm.wheel.name} trains a small model to the losses {results['losses']}"
        )
    return results
