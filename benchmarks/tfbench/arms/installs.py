"""From a line-up to arms that can be started: wheels are found, fetched and installed."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from tfbench.arms import admitting, lineup
from tfbench.arms.arm import Arm
from tfbench.arms.levers import Pairs, find_malloc, pairs, tolerance
from tfbench.arms.lineup import ArmSpec, is_path, path_of
from tfbuild import console
from tfbuild.commands import HOT, Request
from tfbuild.cpus.cpu import read_cpu
from tfbuild.errors import HostError, UsageError, WheelError
from tfbuild.measured.kernels import KernelTable
from tfbuild.packing import admitted, tuned, wheel
from tfbuild.packing.tuned import KernelLibrary, Tuned, TunedTree
from tfbuild.planning.defaults import BF16
from tfbuild.planning.request import choose_python
from tfbuild.run import run
from tfbuild.settings import Paths
from tfbuild.tools import environment
from tfbuild.tools.environment import Environment
from tfbuild.tools.requirement import ExactRequirement, parse_exact
from tfbuild.upstream import kernels, releases

MINI = "mini, the two of a quick try: invoke build makes a wheel of those that gain"
_PRELOAD = "LD_PRELOAD"
_REFUSED = "cannot be preloaded"  # what glibc's dynamic linker says before it goes on without
_PROBE_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelSource:
    """What is installed: the wheel at `path`, or, without one, what pip fetches for `requirement`
    (NAME==VERSION). `python` is the version of the interpreter, such as 3.11.
    """

    path: Path | None = None
    requirement: str = ""
    python: str

    @property
    def title(self) -> str:
        return self.path.name if self.path else self.requirement


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmChoice:
    """An arm, what is installed for it, and what its processes are started with."""

    spec: ArmSpec
    source: WheelSource
    env: Pairs


def choose(specs: Sequence[ArmSpec], candidate: str, paths: Paths) -> tuple[ArmChoice, ...]:
    """What each arm needs. Nothing is installed and nothing fetched.

    `candidate` is the path of the wheel that `tuned` means; empty for the newest of the pool that
    this CPU can run. Raises UsageError, WheelError, HostError, ReleaseError, PythonError.
    """
    if candidate and not {*lineup.WHEELS} & {spec.wheel for spec in specs}:
        raise UsageError(
            f"the candidate {candidate} is not in the line-up",
            hint=f"It is what the wheel {lineup.TUNED} of an arm means",
        )
    finder = _Finder(specs, candidate, paths)
    choices = tuple(
        ArmChoice(spec=spec, source=finder.source(spec.wheel), env=environment_of(spec))
        for spec in specs
    )
    for choice in choices:
        _need_preloadable(choice)
    return choices


def describe(choices: Iterable[ArmChoice]) -> str:
    """A line per arm: its name, what would be installed, what it would be started with."""
    rows = [
        (choice.spec.name, f"{_contents(choice.source)}  {_shown(choice)}") for choice in choices
    ]
    width = max(len(name) for name, _ in rows)
    return "".join(f"{name:<{width}}  {text}".rstrip() + "\n" for name, text in rows)


def _contents(source: WheelSource) -> str:
    """What is installed; of a tuned wheel, of what kernels it is."""
    if source.path is None:
        return source.requirement
    facts = tuned.read_tuned(source.path)
    return f"{source.path} ({_kernels_in(facts)})" if facts else str(source.path)


def _kernels_in(facts: Tuned) -> str:
    if facts.tree is not None:
        return "a full build"
    choice = kernels.format_choice(facts.kernels)
    if choice == kernels.MINI:
        return f"kernels: {MINI}"
    many = choice if choice == HOT else console.format_count(len(facts.kernels), "unit")
    return f"kernels: {many}"


def _shown(choice: ArmChoice) -> str:
    """The arm's environment as a shell would read it."""
    return shlex.join("=".join(pair) for pair in choice.env)


def install(choices: Sequence[ArmChoice], paths: Paths) -> tuple[Arm, ...]:
    """The arms, in order. A wheel is installed once, and its arms share the environment.

    Kernels of a wheel that this CPU takes and that never ran on their own target are admitted
    first. Raises PythonError, DownloadError, ChecksumError, WheelError, CommandError, and
    KernelError for a wheel with kernels that are not admitted.
    """
    made: dict[WheelSource, Environment] = {}
    for path in dict.fromkeys(choice.source.path for choice in choices):
        if path is not None:
            console.print_note(_contents(_source(path)))
            admitting.need_admitted(path, read_cpu(), paths)
    for choice in choices:
        if choice.source not in made:
            names = [other.spec.name for other in choices if other.source == choice.source]
            with console.report_step(f"environment of {', '.join(names)}: {choice.source.title}"):
                made[choice.source] = _create(choice.source, paths)
    return tuple(_arm(choice, made[choice.source]) for choice in choices)


def newest_runnable(paths: Paths) -> Path:
    """The wheel of the pool that was built last among the tuned ones that this CPU can run. One of
    the kernels `mini` is for trying the tools: it comes after all others."""
    cpu = read_cpu()
    small: list[Path] = []
    found = sorted(paths.pool.glob("*.whl"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found:
        try:
            facts = tuned.read_tuned(path)
        except WheelError as error:
            console.warn(f"passed over: {error}")
            continue
        if not facts or tuned.is_control(facts) or tuned.list_nearest_missing(facts, cpu):
            continue
        if kernels.format_choice(facts.kernels) != kernels.MINI:
            return path
        small.append(path)
    if small:
        return small[0]
    if found:
        raise HostError(
            f"none of the {len(found)} wheels in {paths.pool} is tuned and runs on this CPU",
            hint="Build one for it: invoke build --arch native",
        )
    raise WheelError(f"there is no wheel in {paths.pool} yet", hint="Make one: invoke build")


def environment_of(spec: ArmSpec) -> Pairs:
    """The environment variables of the arm's levers and its own. Raises UsageError when a library
    that it preloads is not here."""
    try:
        found = [pairs(name, value, find_malloc) for name, value in spec.levers]
    except UsageError as error:
        raise UsageError(f"arm {spec.name}: {error.message}", hint=error.hint) from error
    return (*(pair for each in found for pair in each), *spec.env)


class _Finder:
    """What the words of a line-up mean; `stock` and `control` follow from the candidate."""

    def __init__(self, specs: Sequence[ArmSpec], candidate: str, paths: Paths) -> None:
        self._wheels = [spec.wheel for spec in specs]
        self._given = candidate
        self._paths = paths

    def source(self, text: str) -> WheelSource:
        match text:
            case lineup.STOCK:
                return self._stock
            case lineup.TUNED:
                return _source(self._candidate)
            case lineup.CONTROL:
                return _source(tuned.find_control(self._candidate, self._paths.pool))
            case path if is_path(path):
                return _source(_existing(path))
            case requirement:
                return WheelSource(
                    requirement=str(parse_exact(requirement)), python=self._stock.python
                )

    @functools.cached_property
    def _candidate(self) -> Path:
        return _existing(self._given) if self._given else newest_runnable(self._paths)

    @functools.cached_property
    def _stock(self) -> WheelSource:
        """The published wheel that the candidate was made from; without a candidate in the line-up
        that of the first wheel given by its path, else of the default release."""
        paths = [text for text in self._wheels if is_path(text)]
        if self._given or {lineup.TUNED, lineup.CONTROL} & {*self._wheels}:
            return _published(self._candidate)
        return _published(_existing(paths[0])) if paths else _default_stock()


def _published(path: Path) -> WheelSource:
    """What was published under the wheel's name and public version, for its Python."""
    return WheelSource(requirement=str(exact_of(path)), python=wheel.read_identity(path).python)


def _default_stock() -> WheelSource:
    request = Request()
    release = releases.find_release(request.release)
    return WheelSource(
        requirement=f"{releases.choose_cpu_package(release, platform.machine())}=={release.version}",
        python=choose_python(release.pythons),
    )


def _source(path: Path) -> WheelSource:
    return WheelSource(path=path, python=wheel.read_identity(path).python)


def exact_of(path: Path) -> ExactRequirement:
    """The package of a wheel and its version without the local part. Raises WheelError."""
    identity = wheel.read_identity(path)
    return ExactRequirement(name=identity.name, version=Version(identity.version).public)


def _existing(text: str) -> Path:
    """Raises WheelError when there is no such file, HostError when this CPU cannot run it."""
    path = path_of(text)
    if not path.is_file():
        raise WheelError(f"there is no wheel {path}", hint="Give the path of a .whl file")
    facts = tuned.read_tuned(path)
    if facts is not None:
        tuned.check_runnable(path, facts, read_cpu())
    return path.resolve()


def _create(source: WheelSource, paths: Paths) -> Environment:
    python = source.python
    if source.path is None:
        return environment.create_from_requirement(source.requirement, python=python, paths=paths)
    needs = environment.resolve_requirements(exact_of(source.path), python=python, paths=paths)
    return environment.create(source.path, python=python, requirements=needs, paths=paths)


def _arm(choice: ArmChoice, made: Environment) -> Arm:
    spec, facts = choice.spec, tuned.read_tuned(made.wheel)
    build = tuned.choose_build(facts, read_cpu()) if facts else None
    standing = admitting.standing_of(made.wheel, read_cpu())
    return Arm(
        name=spec.name,
        python=made.python,
        label=" ".join((made.wheel.name, *map("=".join, spec.settings))),
        env=choice.env,
        wheel_sha256=made.wheel_sha256,
        tuned=facts is not None and facts.tree is None,
        whole=facts is not None and facts.tree is not None,
        tolerance=tolerance_of(spec, build),
        kernel_table=kernel_table_of(build),
        admission=admitted.describe(standing) if standing else "",
    )


def tolerance_of(spec: ArmSpec, build: KernelLibrary | TunedTree | None) -> float:
    """At least that of bfloat16 for a build that rounds products to it by default."""
    rounding = build is not None and any(
        each.lever.name == BF16 and each.on for each in build.defaults
    )
    return tolerance([BF16], spec.tolerance) if rounding else spec.tolerance


def kernel_table_of(build: KernelLibrary | TunedTree | None) -> KernelTable | None:
    """What its kernels were chosen by, if anything was measured."""
    if not isinstance(build, KernelLibrary) or not build.measured:
        return None
    name = Path(build.file).name
    return KernelTable(library=name, measured_on=build.measured_on, rows=build.measured)


def _need_preloadable(choice: ArmChoice) -> None:
    """Raises UsageError for a library that the dynamic linker would only grumble about: the arm
    would run without it."""
    preload = dict(choice.env).get(_PRELOAD)
    if preload is None:
        return
    env = {"PATH": os.environ.get("PATH", os.defpath), _PRELOAD: preload}
    done = run([sys.executable, "-I", "-S", "-c", ""], env=env, check=False, timeout_s=_PROBE_S)
    if _REFUSED in done.output or done.returncode:
        said = done.output.strip().splitlines() or [f"a program exits with {done.returncode}"]
        raise UsageError(
            f"arm {choice.spec.name}: {preload} cannot be preloaded ({said[-1]})",
            hint="Give the whole path of a shared library for this machine",
        )
