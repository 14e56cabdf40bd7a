"""The inputs of a kernels build: the stock wheel and its parts, and TensorFlow's sources."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from tfbuild.packing import notices, wheel
from tfbuild.planning.plan import KernelRecipe, KernelsPlan, require_stock
from tfbuild.tools import environment, foreign_environments
from tfbuild.tools.emulation import PYTHON, Emulator, find_emulator
from tfbuild.tools.environment import Environment
from tfbuild.upstream import local_sources, lock_files, releases, source, source_matching
from tfbuild.upstream.download import Pin, hash_file
from tfbuild.upstream.fused_ops import WORKSPACE_FOLDER, load_fused_groups
from tfbuild.upstream.kernels import FOLDER
from tfbuild.upstream.source import SourcePin, Staging
from tfbuild.upstream.source_matching import SourceMatch
from tfcore import console
from tfcore.console import suggest_spelling
from tfcore.cpus.cpu import Cpu, read_cpu
from tfcore.errors import KernelError, PythonError
from tfcore.settings import Paths


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildInputs:
    """The inputs of every target of a fleet: the stock wheel and its parts, the sources."""

    stock: Path
    headers: Path
    staged: Path
    source_sha256: str
    nearness: SourceMatch


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildSetup(BuildInputs):
    """The inputs of a fleet, and the environment and CPU that run the conformance tests.

    The environment has the stock wheel. The CPU is an emulator's for another architecture
    than this machine's.
    """

    arm: Environment
    python: str
    cpu: Cpu
    emulator: Emulator | None


def prepare_setup(
    plan: KernelsPlan, paths: Paths, given_source: Path | None, given_stock: Path | None
) -> BuildSetup:
    """Fetch, unpack and install what the plan is built on.

    Raises ReleaseError before anything is fetched if the dependencies are not locked.
    """
    read_requirements(plan)  # (fails before anything is fetched)
    emulator = prepare_emulator(plan, paths)
    inputs = prepare_inputs(plan, paths, given_source, given_stock)
    with console.report_step("stock environment"):
        arm = create_environment(plan, inputs.stock, emulator, paths)
    return BuildSetup(
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


def prepare_inputs(
    plan: KernelsPlan, paths: Paths, given_source: Path | None, given_stock: Path | None
) -> BuildInputs:
    """Fetch and unpack what the plan is compiled from."""
    recipe, wheel_pin = plan.kernel_recipe, require_stock(plan)
    with console.report_step(f"TensorFlow {plan.release} sources"):
        pin, staged = _stage_sources(plan, recipe.staging, given_source, paths)
        local_sources.require_release(staged, plan.release)
        _require_sources(plan, staged)
    with console.report_step(f"stock wheel {wheel_pin.name}"):
        stock = fetch_stock_wheel(plan, wheel_pin, paths, given_stock)
        headers = unpack_stock(stock, wheel_pin.sha256, recipe, paths)
        include, is_release_source = (
            headers / recipe.include_roots[0],
            pin.kind != local_sources.KIND,
        )
        notices.find_missing_licence(stock, staged)  # (fails now, not after hours)
        notices.list_header_libraries(stock)
        near = source_matching.compare(
            staged,
            include,
            is_own=is_release_source,
            commit="" if is_release_source else pin.origin,
        )
    if near.differing or not is_release_source:
        console.print_message(near.summary)
    return BuildInputs(
        stock=stock,
        headers=headers,
        staged=staged,
        source_sha256=pin.file.sha256,
        nearness=near,
    )


def prepare_emulator(plan: KernelsPlan, paths: Paths) -> Emulator | None:
    """Return the emulator of the plan's kernels.

    It is None if they are of this machine's architecture. Raises ToolError, and PythonError for a
    Python that is not the emulator's.
    """
    if plan.target.family == platform.machine():
        return None
    emulator = find_emulator(plan.target.family, paths)
    if plan.python != PYTHON:
        raise PythonError(
            f"the conformance test for {plan.target.family} runs under {emulator.name}, in Python "
            f"{PYTHON} only",
            hint=f"Add that Python: --python {PYTHON},{plan.python}",
        )
    return emulator


def create_environment(
    plan: KernelsPlan,
    wheel: Path,
    emulator: Emulator | None,
    paths: Paths,
    sibling: Environment | None = None,
) -> Environment:
    """Create an environment with the plan's stock wheel, or one made from it, and dependencies."""
    requirements = read_requirements(plan)
    if emulator is not None:
        return foreign_environments.create(
            wheel, emulator, requirements=requirements, paths=paths, sibling=sibling
        )
    return environment.create(
        wheel, python=plan.python, requirements=requirements, paths=paths, sibling=sibling
    )


def fetch_stock_wheel(plan: KernelsPlan, pin: Pin, paths: Paths, stock_path: Path | None) -> Path:
    """Return the plan's stock wheel.

    It is the given file, the file of its name in a given folder, or fetched.
    """
    path = stock_path / pin.name if stock_path is not None and stock_path.is_dir() else stock_path
    return environment.fetch_wheel(f"{plan.package}=={plan.release}", pin, paths, path)


def _stage_sources(
    plan: KernelsPlan, staging: Staging, path: Path | None, paths: Paths
) -> tuple[SourcePin, Path]:
    """Return the plan's source that was used, and the tree that a kernels build reads of it."""
    pin = plan.sources[0]
    if pin.kind == local_sources.KIND and path is not None and path.is_dir():
        return pin, local_sources.stage(path, pin, staging, paths)
    archive = source.fetch_source(plan.sources, paths, path)
    sha256 = hash_file(archive)
    used = next(candidate for candidate in plan.sources if candidate.file.sha256 == sha256)
    return used, source.stage(archive, sha256, staging, paths)


def read_requirements(plan: KernelsPlan) -> str:
    """Return the locked dependencies of the plan's stock wheel."""
    tag = releases.format_python_tag(plan.python)
    stock = releases.require_stock_wheel(plan.release_record, plan.package, tag, plan.target.family)
    return lock_files.load_requirements(stock)


def unpack_stock(stock: Path, sha256: str, recipe: KernelRecipe, paths: Paths) -> Path:
    """Unpack headers and libraries of the stock wheel into a folder named by its hash.

    Headers of other projects are unpacked only if the compiler needs them: half of the wheel's
    headers are LLVM's, gRPC's and others', and Bazel would hash them for each source.
    """
    folder = paths.stock / sha256[:16]
    if not folder.is_dir():
        roots = tuple(f"{root}/" for root in recipe.include_roots)
        externals = f"{roots[0]}external/"
        wheel.extract(stock, (*roots, *recipe.libraries), folder, without=(externals,))
    return folder


def _require_sources(plan: KernelsPlan, staged: Path) -> None:
    for unit in plan.kernels:
        for name in unit.sources:
            if not name.startswith(f"{WORKSPACE_FOLDER}/") and not (staged / name).is_file():
                present = [path.stem for path in (staged / FOLDER).rglob("*.cc")]
                known = (*present, *load_fused_groups())
                file = name.removeprefix(f"{FOLDER}/")
                raise KernelError(
                    f"TensorFlow {plan.release} has no kernel source {file}",
                    hint=suggest_spelling(unit.name, known),
                )
