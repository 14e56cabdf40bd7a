"""The plan: one frozen record of all decisions about a wheel's bytes, made before the build.

The plan's key is the hash of its canonical JSON: the same key means the same wheel. Facts that
differ between machines but not between wheels (paths, the number of jobs) are not part of it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from packaging.version import Version

from tfbuild.planning import dispatcher, guard
from tfbuild.planning.defaults import (
    BF16,
    NOTHING_REQUESTED,
    Default,
    DefaultsRequest,
    choose_defaults,
    turn_off_guarded,
)
from tfbuild.planning.selection import Selection
from tfbuild.upstream import kernels, releases
from tfbuild.upstream.download import Pin
from tfbuild.upstream.kernels import KernelUnit
from tfbuild.upstream.releases import KernelFacts, Release
from tfbuild.upstream.source import SourcePin, Staging
from tfcore import settings
from tfcore.comparisons.kernels import KernelRow, TypedOp
from tfcore.console import format_choices
from tfcore.cpus import flags
from tfcore.cpus.compilers import Compiler
from tfcore.cpus.targets import Target
from tfcore.errors import CompilerError, PythonError, UsageError, WheelError
from tfcore.records import hash_record

SCHEMA = 1
NATIVE = Path(__file__).parents[1] / "native"
_NATIVE_SUFFIXES = (".c", ".cc", ".h")
KERNEL_LIBRARY = "libtensorwright_kernels.so"
"""Bazel's name of a kernel library; the wheel has a different name for each target."""
# The first release whose Bazel build accepts a local version.
_FIRST_WITH_SUFFIX = Version("2.20")

# Contracted multiply-adds would give other results than the stock wheel.
_PINNED = ("-ffp-contract=off",)
_QUIET = ("-w", "-g0")
# Link-time optimisation in parallel; lld reads clang's bitcode without a plugin.
_THIN_LTO = ("-flto=thin",)


class Scope(StrEnum):
    KERNELS = "kernels"
    FULL = "full"


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRecipe:
    """How a kernel library and the dispatcher are compiled.

    `improved` maps a source to the header of its replacement kernels, which is included
    before it.
    """

    cxx_standard: str
    copts: tuple[str, ...]
    linkopts: tuple[str, ...]
    dispatcher_copts: tuple[str, ...]
    dispatcher_linkopts: tuple[str, ...]
    staging: Staging
    include_roots: tuple[str, ...]
    libraries: tuple[str, ...]
    load_folder: str
    improved: Mapping[str, str]
    recipe_sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FullRecipe:
    """How the whole tree is built.

    {python_bin} and {clang} in `configure_env` are replaced on the build machine.
    `wheel_folder` is the folder in which Bazel writes the wheel; empty if the built script
    takes the folder as an argument. `copts` and `linkopts` apply to code for the target only.
    `training` is empty, or the SHA-256 of the program that is run to profile the branches
    (PGO). `guard_sha256` is the hash of the files that are added to the wheel.
    """

    target: str
    wheel_folder: str
    copts: tuple[str, ...]
    per_file_copts: tuple[str, ...]
    linkopts: tuple[str, ...] = ()
    options: tuple[str, ...]
    repo_env: tuple[tuple[str, str], ...]
    configure_env: tuple[tuple[str, str], ...]
    lto: bool = False
    training: str = ""
    guard_sha256: str

    @property
    def program(self) -> str:
        """The path of the program that packs the wheel, if the Bazel target is one."""
        return f"bazel-bin/{self.target.removeprefix('//').replace(':', '/')}"


@dataclass(frozen=True, kw_only=True, slots=True)
class BasePlan:
    """The fields of both kinds of plan: all decisions about one wheel.

    `required` are the CPU features that its code needs. `source_flags` are appended to `flags`
    for some kernel sources. With a `selection` only its kernels are registered, and with
    `only_selected` only they are compiled; `measured` are the measurements that it is based on,
    and `measured_on` names their CPU and code. `defaults` are the run-time defaults for this
    target.

    The key is the hash of all fields, so each kind of plan also has those of the other, empty.
    """

    schema: int = SCHEMA
    scope: Scope
    release: str
    package: str
    python: str
    target: Target
    compiler: str
    compiler_version: str
    flags: tuple[str, ...]
    required: tuple[str, ...]
    bazel: str
    sources: tuple[SourcePin, ...]
    stock: Pin | None
    kernels: tuple[KernelUnit, ...] = ()
    source_flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    selection: tuple[TypedOp, ...] | None = None
    only_selected: bool = False
    measured: tuple[KernelRow, ...] = ()
    measured_on: str = ""
    defaults: tuple[Default, ...] = ()
    kernel_recipe: KernelRecipe | None = None
    full_recipe: FullRecipe | None = None

    @property
    def key(self) -> str:
        return hash_record(self)

    @property
    def release_record(self) -> Release:
        """The record of the release, which is not part of the key."""
        return releases.find_release(self.release)

    @property
    def local(self) -> str:
        """The local version (PEP 440): the target, and bfloat16."""
        return f"{self.target.local}.{BF16}" if self.bf16 else self.target.local

    @property
    def bf16(self) -> bool:
        """Whether float32 products may round their inputs to bfloat16."""
        return any(default.lever.name == BF16 for default in self.defaults)

    @property
    def version(self) -> str:
        """The version of a wheel for this target alone."""
        return f"{self.release}+{self.local}"


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelsPlan(BasePlan):
    """The plan of a stock wheel with tuned kernels."""

    scope: Scope = Scope.KERNELS
    kernel_recipe: KernelRecipe

    @property
    def sources_compiled(self) -> tuple[str, ...]:
        """The sources of all kernel groups, without duplicates."""
        return tuple(sorted({source for unit in self.kernels for source in unit.sources}))

    @property
    def library(self) -> str:
        """The file name of the target's kernel library in the wheel."""
        return f"libtensorwright_kernels.{self.target.local}.so"


@dataclass(frozen=True, kw_only=True, slots=True)
class FullPlan(BasePlan):
    """The plan of a wheel for which the whole tree is compiled."""

    scope: Scope = Scope.FULL
    full_recipe: FullRecipe

    @property
    def local(self) -> str:
        """The local version (PEP 440): the target, the options of the build, and bfloat16."""
        lto, training = self.full_recipe.lto, self.full_recipe.training
        return _format_full_local(self.target, lto=lto, training=training, bf16=self.bf16)


Plan = KernelsPlan | FullPlan
AnyPlan = TypeVar("AnyPlan", bound=Plan)


def _format_full_local(target: Target, *, lto: bool, training: str, bf16: bool) -> str:
    """Return the local version of a full build, which distinguishes the wheels for one target."""
    marks = ("full", "lto" if lto else "", "pgo" if training else "", BF16 if bf16 else "")
    return ".".join([target.local, *filter(None, marks)])


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The time, memory and disk space of a build on a machine with `jobs` parallel compiles."""

    seconds: float
    memory_mb: int
    disk_mb: int
    basis: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """What a request means for one target and one Python: all that `make_plan` needs.

    `macros` are those that the compiler defines for the target. `kernel_choice` are the words of
    --kernels, which a `selection` replaces, and `without` the kernels to exclude from either.
    `extra_flags` are those of --flags. `training` is empty, or the SHA-256 of the program of
    --pgo. `sources` are those of --source; empty for the release's own.
    """

    scope: Scope
    release: Release
    package: str
    python: str
    target: Target
    compiler: Compiler
    macros: Mapping[str, str]
    kernel_choice: str
    without: tuple[str, ...] = ()
    selection: Selection | None = None
    extra_flags: tuple[str, ...] = ()
    lto: bool = False
    training: str = ""
    defaults_request: DefaultsRequest = NOTHING_REQUESTED
    sources: tuple[SourcePin, ...] = ()


def make_plan(resolved: Resolved) -> Plan:
    """Make the plan of a wheel, of the kind that the scope says.

    Raises UsageError, CompilerError, ReleaseError, PythonError. A stock wheel that does not
    exist for the machine is None in the plan; `require_stock` raises the error.
    """
    make = make_full_plan if resolved.scope is Scope.FULL else make_kernels_plan
    return make(resolved)


def make_kernels_plan(resolved: Resolved) -> KernelsPlan:
    """Make the plan of a stock wheel with tuned kernels, as `make_plan` does."""
    release, target, compiler = resolved.release, resolved.target, resolved.compiler
    march, required = _choose_code(resolved)
    if resolved.lto or resolved.training:
        raise UsageError(f"--{'lto' if resolved.lto else 'pgo'} needs --scope full")
    selection = resolved.selection
    if selection and not selection.kept:
        raise UsageError(
            "the selection has no kernels: none was faster than the stock kernel",
            hint="Install the stock wheel, or select among other kernels",
        )
    units = select_units(resolved)
    if resolved.without:
        units = kernels.exclude_units(units, resolved.without, release.version)
        selection = selection and reduce_selection(selection, units, release.version)
    if not units:
        raise UsageError("--without excludes all kernels", hint="Exclude fewer kernels")
    units = filter_sources(units, selection.sources if selection else ())
    source_flags = _collect_source_flags(units, selection, resolved.extra_flags)
    recipe = build_kernel_recipe(release, compiler, units, source_flags)
    releases.require_python(release, releases.format_python_tag(resolved.python))
    # Code with other flags was not measured, and a search for flags has no measurements.
    selected = selection if selection and selection.rows and not resolved.extra_flags else None
    return KernelsPlan(
        release=release.version,
        package=resolved.package,
        python=resolved.python,
        target=target,
        compiler=compiler.family,
        compiler_version=compiler.version,
        flags=march,
        required=required,
        bazel=releases.read_kernels_bazel(),
        sources=resolved.sources or list_source_pins(release),
        stock=_find_stock(release, resolved.package, resolved.python, target.family),
        kernels=units,
        source_flags=source_flags,
        selection=selection.kept if selection else None,
        only_selected=bool(selection and selection.sources),
        measured=selected.rows if selected else (),
        measured_on=f"{selected.cpu}, code for {selected.target}" if selected else "",
        defaults=choose_defaults(target, release.version, resolved.defaults_request),
        kernel_recipe=recipe,
    )


def make_full_plan(resolved: Resolved) -> FullPlan:
    """Make the plan of a wheel for which the whole tree is compiled, as `make_plan` does."""
    release, target, compiler = resolved.release, resolved.target, resolved.compiler
    selection = resolved.selection
    march, required = _choose_code(resolved)
    if selection or resolved.extra_flags or resolved.without:
        option = "selection" if selection else "flags" if resolved.extra_flags else "without"
        raise UsageError(f"--{option} needs --scope kernels")
    recipe = build_full_recipe(resolved, march, required)
    defaults = choose_defaults(target, release.version, resolved.defaults_request)
    return FullPlan(
        release=release.version,
        package=resolved.package,
        python=resolved.python,
        target=target,
        compiler=compiler.family,
        compiler_version=compiler.version,
        flags=march,
        required=required,
        bazel=release.bazel,
        sources=list_source_pins(release),
        stock=_find_stock(release, resolved.package, resolved.python, target.family),
        # A full build has no kernel library, which contains native/low_precision.cc.
        defaults=turn_off_guarded(defaults),
        full_recipe=recipe,
    )


def _choose_code(resolved: Resolved) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the compiler flags for the target, and the CPU features that the code needs.

    Raises CompilerError; UsageError for a Python or a package that does not exist.
    """
    target, compiler = resolved.target, resolved.compiler
    march = flags.compute_march_flags(target, compiler.family, compiler.version)
    required = tuple(sorted(flags.compute_required_features(target, resolved.macros)))
    _check_python(resolved.python)
    _check_package(resolved.release, resolved.package)
    return march, required


def select_units(resolved: Resolved) -> tuple[KernelUnit, ...]:
    """Return the kernel groups of the selection, or else those that --kernels names.

    Raises UsageError.
    """
    selection = resolved.selection
    choice = ",".join(selection.kernels) if selection else resolved.kernel_choice
    return kernels.select(choice, resolved.release.version)


def reduce_selection(
    selection: Selection, units: tuple[KernelUnit, ...], release: str
) -> Selection:
    """Return the selection reduced to these kernel groups."""
    remaining = {source for unit in units for source in unit.sources}
    ops = {
        op
        for row in kernels.load_known_sources(release).values()
        if row.unit in selection.kernels and row.unit not in {unit.name for unit in units}
        for op in row.ops
    }
    excluded = {*selection.kernels} - {unit.name for unit in units}
    ops |= {op for name in excluded for op, _ in kernels.find_fused_registrations(name)}
    return dataclasses.replace(
        selection,
        kernels=tuple(unit.name for unit in units),
        flags={source: words for source, words in selection.flags.items() if source in remaining},
        kept=tuple(choice for choice in selection.kept if choice.op not in ops),
        rows=tuple(row for row in selection.rows if row.op not in ops),
    )


def filter_sources(
    units: tuple[KernelUnit, ...], sources: Collection[str]
) -> tuple[KernelUnit, ...]:
    """Return the kernel groups with only these of their sources; unchanged if there are none."""
    return tuple(
        dataclasses.replace(
            unit, sources=tuple(source for source in unit.sources if source in sources)
        )
        if sources
        else unit
        for unit in units
    )


def _collect_source_flags(
    units: tuple[KernelUnit, ...], selection: Selection | None, extra: tuple[str, ...]
) -> Mapping[str, tuple[str, ...]]:
    """Return flags by source: those for all sources if given, else those of the selection."""
    if extra:
        return {source: extra for unit in units for source in unit.sources}
    compiled = {source for unit in units for source in unit.sources}
    selected = selection.flags if selection else {}
    return {source: words for source, words in selected.items() if source in compiled}


def _check_python(python: str) -> None:
    if not re.fullmatch(r"[0-9]+\.[0-9]+", python):
        raise UsageError(
            f"--python {python} is not a Python version",
            hint="Use the form 3.11, without a patch number",
        )


def _check_package(release: Release, package: str) -> None:
    known = sorted({wheel.package for wheel in release.wheels})
    if package not in known:
        raise UsageError(f"--package {package} is unknown", hint=f"Use {format_choices(known)}")


def build_kernel_recipe(
    release: Release,
    compiler: Compiler,
    units: tuple[KernelUnit, ...],
    source_flags: Mapping[str, tuple[str, ...]],
) -> KernelRecipe:
    """Return the recipe of a kernel library.

    Raises ReleaseError for a release that the kernels scope does not support, CompilerError for
    source flags that the compiler does not support.
    """
    facts = releases.find_kernel_facts(release, compiler.architecture)
    unique = ("-fno-gnu-unique",) if compiler.family == "gcc" else ()
    defines = tuple(define.flag for define in facts.defines)
    hidden = ("-fvisibility=hidden", "-include", "tensorwright/registration.h")
    return KernelRecipe(
        cxx_standard=f"c++{release.cxx_standard}",
        copts=(*facts.flags, *unique, *_QUIET, *_PINNED, *hidden, *defines),
        linkopts=(
            # The library uses its own copies of templates, not those of the stock library.
            "-Wl,-Bsymbolic",
            "-Wl,--no-undefined",
            "-Wl,--gc-sections",
            "-Wl,-z,now",
            *(f"-Lexternal/tf_wheel/{Path(library).parent}" for library in facts.libraries[:1]),
            *(f"-l:{Path(library).name}" for library in facts.libraries),
            *flags.compute_link_flags(
                compiler.family, {w for words in source_flags.values() for w in words}
            ),
        ),
        dispatcher_copts=dispatcher.list_compile_flags(compiler.architecture),
        dispatcher_linkopts=dispatcher.LINK_FLAGS,
        staging=build_staging(facts),
        include_roots=facts.include_roots,
        libraries=facts.libraries,
        load_folder=facts.load_folder,
        improved={
            source: header
            for unit in units
            for source in unit.sources
            if (header := kernels.find_replacement_header(source))
        },
        recipe_sha256=_hash_recipe(compiler.architecture),
    )


def build_staging(facts: KernelFacts) -> Staging:
    return Staging(prefixes=facts.staged_prefixes, suffixes=facts.staged_suffixes)


def read_native_files() -> dict[str, bytes]:
    """Return our own sources: path below native/ → bytes."""
    paths = sorted(path for path in NATIVE.rglob("*.*") if path.suffix in _NATIVE_SUFFIXES)
    return {str(path.relative_to(NATIVE)): path.read_bytes() for path in paths}


@functools.cache
def _hash_recipe(family: str) -> str:
    """Return the hash of our own part of a wheel, such as the registration header."""
    templates = settings.TEMPLATES
    header = templates / f"{dispatcher.HEADER}.j2"
    paths = (*sorted((templates / "kernels").iterdir()), header)
    parts = {path.name: path.read_bytes() for path in paths}
    return _hash_parts(
        parts
        | read_native_files()
        | guard.build_guard_files(family)
        | {guard.INIT: guard.DEFAULTS + guard.CHECK}
    )


def _hash_parts(parts: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in parts.items():
        digest.update(name.encode() + b"\0" + content + b"\0")
    return digest.hexdigest()


def build_full_recipe(
    resolved: Resolved, march: tuple[str, ...], required: tuple[str, ...]
) -> FullRecipe:
    """Return the recipe of a full build.

    Raises CompilerError for options that need clang, PythonError for a Python that the
    release cannot be built for.
    """
    release, target, python = resolved.release, resolved.target, resolved.python
    family, lto, training = resolved.compiler.family, resolved.lto, resolved.training
    if python not in release.pythons:
        raise PythonError(
            f"TensorFlow {release.version} cannot be built for Python {python}",
            hint=f"Choose --python from {', '.join(release.pythons)}",
        )
    if (lto or training) and family != "clang":
        raise CompilerError(
            f"--{'lto' if lto else 'pgo'} needs clang, not {family}",
            hint="Use clang, for example --compiler clang-16",
        )
    # XNNPACK sets -mcpu for each of its files; a global -mcpu breaks it (google/XNNPACK#5566).
    spare_xnnpack = target.family == "aarch64"
    options = [*release.options, "--config=tensorwright"]
    if release.distinct_host:
        options.insert(0, "--distinct_host_configuration=true")
    bf16 = resolved.defaults_request.bf16
    local = _format_full_local(target, lto=lto, training=training, bf16=bf16)
    configure = dict(release.configure_env)
    if family != "clang" and "TF_NEED_CLANG" in configure:
        configure["TF_NEED_CLANG"] = "0"
        configure.pop("CLANG_COMPILER_PATH", None)
    return FullRecipe(
        target=release.wheel_target,
        wheel_folder=release.wheel_folder,
        copts=(*(() if spare_xnnpack else march), *(_THIN_LTO if lto else ())),
        linkopts=(*_THIN_LTO, "-fuse-ld=lld") if lto else (),
        lto=lto,
        training=training,
        guard_sha256=_hash_parts(
            {**guard.build_full_wheel_files(target, required), guard.INIT: guard.FIRST},
        ),
        per_file_copts=tuple(f"-.*XNNPACK/.*@{flag}" for flag in march) if spare_xnnpack else (),
        options=tuple(options),
        repo_env=_build_repo_env(release, local, resolved.package, python),
        configure_env=tuple(sorted(configure.items())),
    )


def _build_repo_env(
    release: Release, local: str, package: str, python: str
) -> tuple[tuple[str, str], ...]:
    """Return the environment of the tree's Bazel repositories.

    It contains the Python; the name of the wheel, if Bazel names it; and from 2.20 on the local
    version.

    Source: tensorflow/docs, site/en/install/source.md of March 2025.
    """
    pairs = dict(releases.fill_placeholders(release.repo_env, python=python))
    if "WHEEL_NAME" in pairs:
        pairs["WHEEL_NAME"] = package.replace("-", "_")
    if Version(release.version) >= _FIRST_WITH_SUFFIX:
        pairs["ML_WHEEL_VERSION_SUFFIX"] = f"+{local}"
    return tuple(pairs.items())


def list_source_pins(release: Release) -> tuple[SourcePin, ...]:
    """List the pins of the release's sources: at its home, and at Debian if that has them."""
    archive, debian = release.archive, release.debian
    name = f"{archive.folder}.tar.gz"
    home = SourcePin(kind="home", origin=archive.url, file=Pin(name=name, sha256=archive.sha256))
    if debian is None:
        return (home,)
    tarball = Pin(name=debian.file, sha256=debian.sha256, size=debian.size)
    origin = f"{debian.suite}/{debian.package}"
    return (home, SourcePin(kind="debian", origin=origin, file=tarball))


def _find_stock(release: Release, package: str, python: str, machine: str) -> Pin | None:
    try:
        wheel = releases.require_stock_wheel(
            release, package, releases.format_python_tag(python), machine
        )
    except (PythonError, WheelError):
        return None
    return Pin(name=wheel.file, sha256=wheel.sha256, size=wheel.size)


def require_stock(plan: Plan) -> Pin:
    """Return the stock wheel.

    Raises PythonError or WheelError that names what exists instead.
    """
    if plan.stock is None:
        tag = releases.format_python_tag(plan.python)
        releases.require_stock_wheel(plan.release_record, plan.package, tag, plan.target.family)
        raise WheelError(f"{plan.package} {plan.release} has no wheel for Python {plan.python}")
    return plan.stock


def estimate(plan: KernelsPlan, jobs: int) -> Estimate:
    """Estimate time, memory and disk space of a build, with the basis of the figures."""
    cost = kernels.estimate_cost(plan.kernels, only_selected=plan.only_selected)
    fixed_s = 75.0  # unpacking, Bazel, linking, conformance test, packing: measured on 2 cores
    return Estimate(
        seconds=cost.seconds / jobs + fixed_s,
        memory_mb=cost.megabytes * jobs + 2_000,
        disk_mb=4_500,
        basis=f"estimated from compile times of the selected parts of {cost.sources} sources on "
        "one core of a cloud VM"
        if plan.only_selected
        else f"estimated from compile times of {cost.measured} of {cost.sources} sources on one "
        "core of a cloud VM; the others are assumed to take the median time",
    )
