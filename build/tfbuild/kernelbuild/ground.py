"""What a build of kernels stands on: the stock wheel and its parts, TensorFlow's sources."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from tfbuild import console
from tfbuild.console import suggest_spelling
from tfbuild.cpus.cpu import Cpu, read_cpu
from tfbuild.errors import KernelError, PythonError
from tfbuild.packing import notices, wheel
from tfbuild.planning.plan import KernelRecipe, Plan, require_stock
from tfbuild.settings import Paths
from tfbuild.tools import emulated, environment
from tfbuild.tools.emulation import PYTHON, Emulator, find_emulator
from tfbuild.tools.environment import Environment
from tfbuild.upstream import given, kernels, locked, nearness, releases, source
from tfbuild.upstream.download import Pin, hash_file
from tfbuild.upstream.kernels import FOLDER, OWN
from tfbuild.upstream.nearness import SourceMatch
from tfbuild.upstream.source import SourcePin, Staging


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """What every target of a fleet is compiled from: the stock wheel and its parts, the sources."""

    stock: Path
    headers: Path
    staged: Path
    source_sha256: str
    nearness: SourceMatch


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground(Inputs):
    """The same, and what kernels are admitted in: an environment with the stock wheel and the CPU
    that runs them, which is an emulator's for another architecture than this machine's."""

    arm: Environment
    python: str
    cpu: Cpu
    emulator: Emulator | None


def ground_for(
    plan: Plan, paths: Paths, given_source: Path | None, given_stock: Path | None
) -> Ground:
    """Fetch, unpack and install what the plan is built on.

    Raises ReleaseError before anything is fetched when the dependencies are not locked.
    """
    needs_of(plan)  # (or nothing is fetched)
    emulator = emulator_for(plan, paths)
    inputs = inputs_for(plan, paths, given_source, given_stock)
    with console.report_step("stock environment"):
        arm = installed(plan, inputs.stock, emulator, paths)
    return Ground(
        stock=inputs.stock,
        headers=inputs.headers,
        staged=inputs.staged,
        source_sha256=inputs.source_sha256,
        nearness=inputs.nearness,
        arm=arm,
        python=plan.python,
        cpu=emulator.cpu if emulator else read_cpu(),
        emulator=emulator,
    )


def inputs_for(
    plan: Plan, paths: Paths, given_source: Path | None, given_stock: Path | None
) -> Inputs:
    """Fetch and unpack what the plan is compiled from."""
    recipe, wheel_pin = plan.kernel_recipe, require_stock(plan)
    assert recipe is not None  # noqa: S101  (a kernels plan has one)
    with console.report_step(f"TensorFlow {plan.release} sources"):
        pin, staged = _staged(plan, recipe.staging, given_source, paths)
        given.require_release(staged, plan.release)
        _need_sources(plan, staged)
    with console.report_step(f"stock wheel {wheel_pin.name}"):
        stock = stock_wheel_of(plan, wheel_pin, paths, given_stock)
        headers = unpack_stock(stock, wheel_pin.sha256, recipe, paths)
        include, own = headers / recipe.include_roots[0], pin.kind != given.KIND
        notices.find_missing_licence(stock, staged)  # (hours before they are needed)
        notices.list_header_libraries(stock)
        near = nearness.compare(staged, include, own=own, commit="" if own else pin.origin)
    if near.differing or not own:
        console.print_message(near.summary)
    return Inputs(
        stock=stock,
        headers=headers,
        staged=staged,
        source_sha256=pin.file.sha256,
        nearness=near,
    )


def emulator_for(plan: Plan, paths: Paths) -> Emulator | None:
    """What runs the plan's kernels where this machine is of another architecture. Raises ToolError,
    and PythonError for a Python that is not the emulator's."""
    if plan.target.family == platform.machine():
        return None
    emulator = find_emulator(plan.target.family, paths)
    if plan.python != PYTHON:
        raise PythonError(
            f"kernels for {plan.target.family} are admitted under {emulator.name} here, in Python "
            f"{PYTHON}",
            hint=f"Add it: --python {PYTHON},{plan.python}",
        )
    return emulator


def installed(
    plan: Plan,
    wheel: Path,
    emulator: Emulator | None,
    paths: Paths,
    like: Environment | None = None,
) -> Environment:
    """An environment with the plan's stock wheel, or one made from it, and its dependencies."""
    needs = needs_of(plan)
    if emulator is not None:
        return emulated.create(wheel, emulator, requirements=needs, paths=paths, like=like)
    return environment.create(wheel, python=plan.python, requirements=needs, paths=paths, like=like)


def stock_wheel_of(plan: Plan, pin: Pin, paths: Paths, given: Path | None) -> Path:
    """The plan's stock wheel: the given one, or of a given folder the one of its name."""
    own = given / pin.name if given is not None and given.is_dir() else given
    return environment.fetch_wheel(f"{plan.package}=={plan.release}", pin, paths, own)


def _staged(
    plan: Plan, staging: Staging, path: Path | None, paths: Paths
) -> tuple[SourcePin, Path]:
    """Which of the plan's sources were had, and the tree that a kernels build reads of them."""
    pin = plan.sources[0]
    if pin.kind == given.KIND and path is not None and path.is_dir():
        return pin, given.stage(path, pin, staging, paths)
    archive = source.fetch_source(plan.sources, paths, path)
    sha256 = hash_file(archive)
    had = next(each for each in plan.sources if each.file.sha256 == sha256)
    return had, source.stage(archive, sha256, staging, paths)


def needs_of(plan: Plan) -> str:
    """The locked dependencies of the plan's stock wheel."""
    release = releases.find_release(plan.release)
    tag = releases.format_python_tag(plan.python)
    stock = releases.require_stock_wheel(release, plan.package, tag, plan.target.family)
    return locked.load_requirements(stock)


def unpack_stock(stock: Path, sha256: str, recipe: KernelRecipe, paths: Paths) -> Path:
    """Headers and libraries of the stock wheel, in a folder named by its hash. Of the headers of
    other projects only those that the compiler looks for: half of the wheel's are LLVM's, gRPC's
    and others', and Bazel would hash them for each source.
    """
    folder = paths.stock / sha256[:16]
    if not folder.is_dir():
        roots = tuple(f"{root}/" for root in recipe.include_roots)
        others = f"{roots[0]}external/"
        wheel.extract(stock, (*roots, *recipe.libraries), folder, without=(others,))
    return folder


def _need_sources(plan: Plan, staged: Path) -> None:
    for unit in plan.kernels:
        for name in unit.sources:
            if not name.startswith(f"{OWN}/") and not (staged / name).is_file():
                present = [path.stem for path in (staged / FOLDER).rglob("*.cc")]
                known = (*present, *kernels.list_fused_ops())
                file = name.removeprefix(f"{FOLDER}/")
                raise KernelError(
                    f"TensorFlow {plan.release} has no kernel source {file}",
                    hint=suggest_spelling(unit.name, known),
                )
