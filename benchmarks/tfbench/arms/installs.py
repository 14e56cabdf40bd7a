"""Install the arms of a line-up: find, download and install their wheels."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from tfbench.arms import lineup, wheel_conformance
from tfbench.arms.arm import TOLERANCE, Arm
from tfbench.arms.lever_table import LEVERS, OTHER_BACKEND, PRELOAD
from tfbench.arms.levers import Pairs, find_malloc, find_widest_tolerance, resolve_lever
from tfbench.arms.lineup import ArmSpec, is_path
from tfbench.inside.runtimes import JAX
from tfbuild.commands import HOT, Request
from tfbuild.packing import conformance, tuned, wheel
from tfbuild.packing.tuned import KernelLibrary, Tuned, TunedTree
from tfbuild.planning.defaults import BF16
from tfbuild.planning.request import choose_python, require_release
from tfbuild.tools import environment
from tfbuild.tools.environment import Environment
from tfbuild.tools.requirement import ExactRequirement, parse_exact
from tfbuild.upstream import kernels, releases
from tfbuild.upstream.lock_files import filter_requirements
from tfcore import console
from tfcore.comparisons.kernels import KernelTable
from tfcore.cpus.cpu import read_cpu
from tfcore.errors import HostError, UsageError, WheelError
from tfcore.run import run
from tfcore.settings import Paths, expand_home

RUNTIMES = Path(__file__).with_name("runtimes")
"""The folder with a lock file per runtime."""
_RUNTIMES_SINCE = "3.11"
"""The first Python of these lock files."""
_JAX_SINCE = "2.20"
"""The first TensorFlow whose locked NumPy and ml_dtypes this JAX accepts. (Keras 3 is in 2.16.)"""
MINI = "mini, two kernels for a quick try; build the hot ones with invoke build"
_REFUSED = "cannot be preloaded"  # glibc's dynamic linker prints this and continues without it
_PROBE_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelSource:
    """The source of an arm's TensorFlow.

    It is the wheel at `path`, or without a path the wheel that pip downloads for `requirement`
    (NAME==VERSION). `python` is the version of the interpreter, such as 3.11. `runtime` is the
    package that computes models instead of TensorFlow, if any.
    """

    path: Path | None = None
    requirement: str = ""
    python: str
    runtime: str = ""

    @property
    def title(self) -> str:
        wheel_title = self.path.name if self.path else self.requirement
        return f"{wheel_title} with {self.runtime}" if self.runtime else wheel_title


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmChoice:
    """An arm, its wheel, and the environment variables of its processes."""

    spec: ArmSpec
    source: WheelSource
    env: Pairs


def choose(specs: Sequence[ArmSpec], candidate: str, paths: Paths) -> tuple[ArmChoice, ...]:
    """Choose the wheel and the environment of each arm; nothing is installed or downloaded.

    `candidate` is the path of the wheel that `tuned` means; empty for the newest of the pool
    that this CPU can run. Raises UsageError, WheelError, HostError, ReleaseError,
    PythonError.
    """
    if candidate and not {*lineup.WHEELS} & {spec.wheel for spec in specs}:
        raise UsageError(
            f"no arm of the line-up uses --candidate {candidate}",
            hint=f"Add an arm with the wheel {lineup.TUNED}, which stands for --candidate",
        )
    finder = _SourceFinder(specs, candidate, paths)
    choices = tuple(
        ArmChoice(spec=spec, source=_choose_source(spec, finder), env=build_arm_environment(spec))
        for spec in specs
    )
    for choice in choices:
        _require_preloadable(choice)
    return choices


def _choose_source(spec: ArmSpec, finder: _SourceFinder) -> WheelSource:
    """Choose the source of an arm.

    Raises UsageError if its runtime does not support its Python or its release.
    """
    source = replace(finder.resolve(spec.wheel), runtime=spec.runtime)
    if spec.runtime and Version(source.python) < Version(_RUNTIMES_SINCE):
        raise UsageError(
            f"arm {spec.name}: {spec.runtime} needs Python {_RUNTIMES_SINCE} or newer, but "
            f"{source.requirement} is for Python {source.python}",
            hint=f"Compare wheels for Python {_RUNTIMES_SINCE} or newer",
        )
    if spec.runtime == JAX:
        _require_jax_release(spec.name, source.requirement)
    return source


def _require_jax_release(arm: str, requirement: str) -> None:
    """Raise UsageError if the packages of this TensorFlow are too old for JAX."""
    if Version(parse_exact(requirement).version) < Version(_JAX_SINCE):
        raise UsageError(
            f"arm {arm}: {JAX} needs TensorFlow {_JAX_SINCE} or newer, not {requirement}",
            hint=f"Use, for example, {arm}=tensorflow-cpu=={_JAX_SINCE}.0:{OTHER_BACKEND}={JAX}",
        )


def load_runtime_packages(runtime: str, python: str) -> str:
    """Return the locked packages that an arm's environment has for its runtime; "" for none."""
    if not runtime:
        return ""
    lock = (RUNTIMES / f"{runtime}.txt").read_text(encoding="utf-8")
    return filter_requirements(lock, python, platform.machine())


def describe(choices: Iterable[ArmChoice]) -> str:
    """Describe each arm in a line: its name, what would be installed, and its environment."""
    rows = [
        (choice.spec.name, f"{_describe_source(choice.source)}  {_format_environment(choice)}")
        for choice in choices
    ]
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:<{width}}  {text}".rstrip() + "\n" for name, text in rows)


def _describe_source(source: WheelSource) -> str:
    """Describe what is installed, and the kernels of a tuned wheel."""
    if source.path is None:
        return source.title
    facts = tuned.read_tuned(source.path)
    return f"{source.path} ({_describe_kernels(facts)})" if facts else str(source.path)


def _describe_kernels(facts: Tuned) -> str:
    if facts.tree is not None:
        return "a full build"
    choice = kernels.format_choice(facts.kernels)
    if choice == kernels.MINI:
        return f"kernels: {MINI}"
    amount = choice if choice == HOT else console.format_count(len(facts.kernels), "kernel group")
    return f"kernels: {amount}"


def _format_environment(choice: ArmChoice) -> str:
    """Format the arm's environment as a shell would read it."""
    return shlex.join("=".join(pair) for pair in choice.env)


def install(choices: Sequence[ArmChoice], paths: Paths) -> tuple[Arm, ...]:
    """Install the arms and return them, in order.

    A wheel is installed once, and its arms share the environment. If the kernels that this CPU
    selects never ran on their target, the conformance test runs first. Raises PythonError,
    DownloadError, ChecksumError, WheelError, CommandError, and KernelError for a wheel with
    kernels that fail the test.
    """
    environments: dict[WheelSource, Environment] = {}
    for path in dict.fromkeys(choice.source.path for choice in choices):
        if path is not None:
            console.print_note(_describe_source(_create_source(path)))
            wheel_conformance.require_conformance(path, read_cpu(), paths)
    for choice in choices:
        if choice.source not in environments:
            names = [
                other_choice.spec.name
                for other_choice in choices
                if other_choice.source == choice.source
            ]
            with console.report_step(f"environment of {', '.join(names)}: {choice.source.title}"):
                environments[choice.source] = _create_environment(choice.source, paths)
    return tuple(_create_arm(choice, environments[choice.source]) for choice in choices)


def find_newest_runnable(paths: Paths) -> Path:
    """Return the newest tuned wheel of the pool that this CPU can run.

    Raises HostError, WheelError.
    """
    cpu = read_cpu()
    for path, facts in list_tuned(paths):
        if not tuned.list_nearest_missing(facts, cpu):
            return path
    count = sum(1 for _ in paths.pool.glob("*.whl"))
    if count:
        raise HostError(
            f"none of the {count} wheels in {paths.pool} is tuned and runs on this CPU",
            hint="Build one: invoke build --arch native",
        )
    raise WheelError(f"no wheel in {paths.pool}", hint="Build one: invoke build")


def list_tuned(paths: Paths) -> Iterator[tuple[Path, Tuned]]:
    """Yield the tuned wheels of the pool, the newest first, without controls.

    Wheels of the kernels `mini` are for trying the tools, so they come last.
    """
    mini_wheels: list[tuple[Path, Tuned]] = []
    for path in sorted(
        paths.pool.glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime, reverse=True
    ):
        try:
            facts = tuned.read_tuned(path)
        except WheelError as error:
            console.warn(f"skipped: {error}")
            continue
        if not facts or tuned.is_control(facts):
            continue
        if kernels.format_choice(facts.kernels) == kernels.MINI:
            mini_wheels.append((path, facts))
        else:
            yield path, facts
    yield from mini_wheels


def build_arm_environment(spec: ArmSpec) -> Pairs:
    """Return the environment variables of the arm: those of its levers, and those of `env`.

    Raises UsageError if a library to preload is not installed.
    """
    try:
        groups = [resolve_lever(name, value, find_malloc) for name, value in spec.levers]
    except UsageError as error:
        raise UsageError(f"arm {spec.name}: {error.message}", hint=error.hint) from error
    return (*(pair for group in groups for pair in group), *spec.env)


class _SourceFinder:
    """A resolver of the wheels that a line-up names.

    `stock` and `control` depend on the candidate.
    """

    def __init__(self, specs: Sequence[ArmSpec], candidate: str, paths: Paths) -> None:
        self._wheels = [spec.wheel for spec in specs]
        self._given = candidate
        self._paths = paths

    def resolve(self, text: str) -> WheelSource:
        match text:
            case lineup.STOCK:
                return self._stock
            case lineup.TUNED:
                return _create_source(self._candidate)
            case lineup.CONTROL:
                return _create_source(tuned.find_control(self._candidate, self._paths.pool))
            case path if is_path(path):
                return _create_source(_require_wheel(path))
            case requirement:
                return WheelSource(
                    requirement=str(parse_exact(requirement)), python=self._stock.python
                )

    @functools.cached_property
    def _candidate(self) -> Path:
        return _require_wheel(self._given) if self._given else find_newest_runnable(self._paths)

    @functools.cached_property
    def _stock(self) -> WheelSource:
        """Return the published wheel that the candidate was built from.

        Without a candidate in the line-up it is that of the first wheel given by a path, or else
        of the default release.
        """
        paths = [text for text in self._wheels if is_path(text)]
        if self._given or {lineup.TUNED, lineup.CONTROL} & {*self._wheels}:
            return _find_published(self._candidate)
        return _find_published(_require_wheel(paths[0])) if paths else _choose_default_stock()


def _find_published(path: Path) -> WheelSource:
    """Return the published wheel of the same name, public version and Python."""
    return WheelSource(requirement=str(read_exact(path)), python=wheel.read_identity(path).python)


def _choose_default_stock() -> WheelSource:
    release = require_release(Request())
    package = releases.choose_cpu_package(release, platform.machine())
    return WheelSource(
        requirement=f"{package}=={release.version}",
        python=choose_python(release.pythons),
    )


def _create_source(path: Path) -> WheelSource:
    return WheelSource(path=path, python=wheel.read_identity(path).python)


def read_exact(path: Path) -> ExactRequirement:
    """Return the package of a wheel and its version without the local part.

    Raises WheelError.
    """
    identity = wheel.read_identity(path)
    return ExactRequirement(name=identity.name, version=Version(identity.version).public)


def _require_wheel(text: str) -> Path:
    """Return the path of a wheel.

    Raises WheelError if there is no such file, HostError if this CPU cannot run it.
    """
    path = expand_home(text)
    if not path.is_file():
        raise WheelError(f"wheel not found: {path}", hint="Give the path of a .whl file")
    facts = tuned.read_tuned(path)
    if facts is not None:
        tuned.check_runnable(path, facts, read_cpu())
    return path.resolve()


def _create_environment(source: WheelSource, paths: Paths) -> Environment:
    python = source.python
    if source.path is None:
        more = load_runtime_packages(source.runtime, python)
        return environment.create_from_requirement(
            source.requirement, python=python, paths=paths, more=more
        )
    needs = environment.resolve_requirements(read_exact(source.path), python=python, paths=paths)
    return environment.create(source.path, python=python, requirements=needs, paths=paths)


def _create_arm(choice: ArmChoice, arm_environment: Environment) -> Arm:
    spec, facts = choice.spec, tuned.read_tuned(arm_environment.wheel)
    build = tuned.choose_build(facts, read_cpu()) if facts else None
    status = wheel_conformance.find_status(arm_environment.wheel, read_cpu())
    return Arm(
        name=spec.name,
        python=arm_environment.python,
        label=" ".join((arm_environment.wheel.name, *map("=".join, spec.settings))),
        env=choice.env,
        wheel_sha256=arm_environment.wheel_sha256,
        tuned=facts is not None and facts.tree is None,
        whole=facts is not None and facts.tree is not None,
        tolerance=choose_tolerance(spec, build),
        kernel_table=build_kernel_table(build),
        admission=conformance.describe(status) if status else "",
    )


def choose_tolerance(spec: ArmSpec, build: KernelLibrary | TunedTree | None) -> float:
    """Return the tolerance of an arm: the user's, or the widest that its levers need, among them
    bfloat16 if its build rounds to it.
    """
    if spec.tolerance is not None:
        return spec.tolerance
    defaults = build.defaults if build else ()
    names = [name for name, _ in spec.levers]
    names += [BF16 for default in defaults if default.lever.name == BF16 and default.on]
    return find_widest_tolerance([LEVERS[name] for name in names], TOLERANCE)


def build_kernel_table(build: KernelLibrary | TunedTree | None) -> KernelTable | None:
    """Build the table of the measurements that selected the kernels; None if there are none."""
    if not isinstance(build, KernelLibrary) or not build.measured:
        return None
    name = Path(build.file).name
    return KernelTable(library=name, measured_on=build.measured_on, rows=build.measured)


def _require_preloadable(choice: ArmChoice) -> None:
    """Raise UsageError for a library that cannot be preloaded.

    The dynamic linker only warns about it, and the arm would run without it.
    """
    preload = dict(choice.env).get(PRELOAD)
    if preload is None:
        return
    env = {"PATH": os.environ.get("PATH", os.defpath), PRELOAD: preload}
    result = run([sys.executable, "-I", "-S", "-c", ""], env=env, check=False, timeout_s=_PROBE_S)
    if _REFUSED in result.output or result.returncode:
        lines = result.output.strip().splitlines() or [f"a program exits with {result.returncode}"]
        raise UsageError(
            f"arm {choice.spec.name}: {preload} cannot be preloaded ({lines[-1]})",
            hint="Give the absolute path of a shared library for this machine",
        )
