"""From the wheel that TensorFlow's own build leaves to one that says what it is, and is tried."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from tfbuild.auditing import libraries, manylinux
from tfbuild.auditing.libraries import LibraryFacts, Member
from tfbuild.cpus.cpu import Cpu
from tfbuild.errors import AgreementError, CommandError, HostError, WheelError
from tfbuild.kernelbuild.admission import build_probe_env
from tfbuild.packing import notices, papers, repack, tuned
from tfbuild.packing.tuned import TreeLibrary, Tuned, TunedTree
from tfbuild.planning import guard
from tfbuild.planning.plan import Plan, Scope
from tfbuild.run import run
from tfbuild.settings import Paths
from tfbuild.tools import environment
from tfbuild.tools.environment import Environment

_TRY_S = 600.0
_ONES = 512.0 * 512.0  # what tfbuild.probe.full_build adds up
_REFUSAL = "ImportError: this TensorFlow cannot run here"


def finish(
    raw: Path,
    plan: Plan,
    *,
    paths: Paths,
    bazel: str,
    source_sha256: str,
    licence: bytes = b"",
    profile_sha256: str = "",
) -> Path:
    """The wheel `raw` with its own version, platform, guard and papers, in the plan's work folder.

    `bazel` is the version that built it, `licence` the tree's LICENSE, for a raw wheel without one.
    The platform is the oldest that the libraries keep to: without any it stays linux_x86_64, which
    pip installs anywhere on Linux and public indexes refuse. Raises WheelError, DiskError.
    """
    every = libraries.read_members(raw)
    own = libraries.filter_libraries(every)
    if not own:
        raise WheelError(f"{raw.name} has no library", hint="Bazel built another target")
    shown = libraries.read_facts(raw, own, paths.cache / "census")
    tree = _tree(plan, own, shown, profile_sha256)
    facts = Tuned(
        scope=Scope.FULL,
        key=plan.key,
        release=plan.release,
        compiler=f"{plan.compiler} {plan.compiler_version}",
        bazel=bazel,
        tree=tree,
        source_file=_name_of(plan, source_sha256),
        source_sha256=source_sha256,
        stock_sha256=plan.stock.sha256 if plan.stock else "",
    )
    add: dict[str, Path | bytes] = {
        **guard.build_full_wheel_files(plan.target, plan.required),
        **guard.build_defaults_file(plan.target.family, facts.carriers),
    }
    licences = _lacking(raw, every, licence)
    written = papers.build_tree_metadata(
        facts,
        tree,
        package=plan.package,
        version=plan.version,
        added=add,
        own=notices.THIRD_PARTY in every,
        licences=licences,
    )
    return repack.repack(
        raw,
        local=plan.local,
        platform=_platform(plan, shown),
        add=add,
        edit={guard.INIT: guard.guard_init},
        out_dir=paths.work / plan.key[:16] / "wheel",
        dist_info_files=licences | written,
    )


def _tree(
    plan: Plan, own: Mapping[str, Member], shown: Mapping[str, LibraryFacts], profile_sha256: str
) -> TunedTree:
    recipe = plan.full_recipe
    assert recipe is not None  # noqa: S101  (a plan of scope full has one)
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
                size=own[file].size,
                sha256=own[file].sha256,
                floors=shown[file].floors,
                census=shown[file].census,
            )
            for file in sorted(own)
        },
    )


def _name_of(plan: Plan, sha256: str) -> str:
    """What the plan calls the sources with this hash."""
    found = (pin.file.name for pin in plan.sources if pin.file.sha256 == sha256)
    return next(found, "a source tree of the user's own")


def _platform(plan: Plan, shown: Mapping[str, LibraryFacts]) -> str:
    demands = {PurePosixPath(file).name: (f.floors, f.needed) for file, f in shown.items()}
    return manylinux.choose_platform(plan.target.family, demands)


def _lacking(raw: Path, names: Collection[str], licence: bytes) -> dict[str, bytes]:
    """TensorFlow's licence, for a wheel that its build made without one. Raises WheelError."""
    if notices.has_licence(names):
        return {}
    if not licence:
        raise WheelError(
            f"{raw.name} does not hold TensorFlow's LICENSE, and the tree has none",
            hint="Without it, it must not be passed on",
        )
    return {notices.LICENCE: licence}


def try_out(
    wheel: Path,
    plan: Plan,
    *,
    requirements: str,
    cpu: Cpu,
    paths: Paths,
    links: Path | None = None,
) -> dict[str, Any]:
    """Install the wheel and use it: what tfbuild.probe.full_build answers.

    `requirements` is the text of the locked dependencies, `links` a folder with their wheels. On a
    CPU that lacks what the wheel needs, it must refuse to be imported, and the answer is
    {"refused": [features]}. Raises AgreementError, HostError, and what environment.create
    does.
    """
    arm = environment.create(
        wheel, python=plan.python, requirements=requirements, paths=paths, links=links
    )
    facts = tuned.read_tuned(wheel)
    assert facts is not None  # noqa: S101  (finish has just made it)
    return probe(arm, tuned.list_nearest_missing(facts, cpu), paths.work / plan.key[:16])


def probe(
    arm: Environment, absent: tuple[str, ...], folder: Path, launcher: tuple[str, ...] = ()
) -> dict[str, Any]:
    """What tfbuild.probe.full_build finds in an environment. `absent` are the features that the
    wheel needs and the CPU has not; `launcher` goes before the interpreter, as an emulator does."""
    folder.mkdir(parents=True, exist_ok=True)
    answer = folder / "whole.json"
    answer.unlink(missing_ok=True)
    words: list[str | Path] = [*launcher, arm.python, "-m", "tfbuild.probe.full_build", answer]
    try:
        run(words, cwd=folder, env=build_probe_env(), log=folder / "whole.log", timeout_s=_TRY_S)
    except CommandError as error:
        if absent and _REFUSAL in error.last_line:
            return {"refused": list(absent)}
        raise HostError(f"{arm.wheel.name} does not run here: {error.message}") from error
    if absent:
        raise HostError(f"{arm.wheel.name} was imported on a CPU without {', '.join(absent)}")
    if not answer.is_file():
        raise HostError(f"{arm.wheel.name} ended its process before it was tried to the end")
    found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if found["sum"] != _ONES:
        raise AgreementError(f"{arm.wheel.name} adds up {_ONES:.0f} ones to {found['sum']}")
    if not all(math.isfinite(loss) for loss in found["losses"]):
        raise AgreementError(f"{arm.wheel.name} trains to losses of {found['losses']}")
    return found
