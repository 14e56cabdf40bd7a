"""The record of a tuned wheel: tuned.json in dist-info."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfbuild.packing.wheel import WheelIdentity, open_wheel, read_identity, read_member
from tfbuild.planning.defaults import Default
from tfbuild.planning.guard import Carrier
from tfbuild.planning.plan import Scope
from tfbuild.upstream import kernels
from tfbuild.upstream.source_matching import SourceMatch
from tfcore.comparisons.kernels import KernelRow, TypedOp
from tfcore.cpus.cpu import Cpu
from tfcore.cpus.targets import STOCK_SPECS, Target, create_stock_target
from tfcore.errors import HostError, WheelError
from tfcore.records import decode_record, format_json, parse_json, quote_value

SCHEMA = 7
FILE = "tuned.json"
_PLACE = r"[^/]+\.dist-info/" + re.escape(FILE)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitConformance:
    """The conformance test that a kernel group passed.

    `ops` are the ops of its kernels. `ran_as` is the target that they were compiled for in the
    test: the library's target, or a proxy target if the building CPU could not run that.
    """

    ran_as: str
    ops: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelLibrary:
    """A kernel library in the wheel, compiled for one target.

    `name` is its name in the dispatcher (TENSORWRIGHT_TARGET), `file` its member of the
    wheel. `flags` apply to all sources, `source_flags` are additional flags of some sources.
    `sources` are the sources of which only the selected kernels are compiled; if there are
    none, all sources of `kernels` are compiled whole. `registrations` are the kernels that
    replace the stock ones. `measured` are a selection's measurements of each candidate,
    `measured_on` their CPU and code; without a selection both are empty, and every kernel that
    passed the conformance test is registered. `defaults` are the run-time defaults on CPUs that
    run the library. `floors` are the newest versions of the runtime libraries that it requires.
    `stay_stock` has a reason for each kernel group that failed the conformance test,
    `admission` the test that each of `kernels` passed. `census` counts instructions by CPUID
    feature.
    """

    name: str
    target: str
    file: str
    size: int
    sha256: str
    plan_key: str
    required_features: tuple[str, ...]
    flags: tuple[str, ...]
    source_flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    kernels: tuple[str, ...]
    admission: Mapping[str, UnitConformance]
    registrations: tuple[TypedOp, ...]
    measured: tuple[KernelRow, ...] = ()
    measured_on: str = ""
    defaults: tuple[Default, ...] = ()
    stay_stock: Mapping[str, str]
    floors: Mapping[str, str]
    census: Mapping[str, int]

    @property
    def ran_as(self) -> tuple[str, ...]:
        """The targets that its kernel groups were compiled for in the conformance test."""
        return tuple(sorted({conformance.ran_as for conformance in self.admission.values()}))

    def list_registrations(self, unit: str) -> tuple[TypedOp, ...]:
        """List the registrations that belong to a kernel group: no op is in two groups."""
        return tuple(
            registration
            for registration in self.registrations
            if registration.op in self.admission[unit].ops
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeLibrary:
    """A library of a full build: size, hash, floors and census as in KernelLibrary."""

    size: int
    sha256: str
    floors: Mapping[str, str]
    census: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedTree:
    """The result of a full build for one target: the whole wheel.

    A CPU must have `required_features` to import the wheel. `options` are the plan's options,
    such as lto and profile; `libraries` are by their members of the wheel. `name` and
    `defaults` are as in KernelLibrary.
    """

    name: str
    target: str
    plan_key: str
    required_features: tuple[str, ...]
    flags: tuple[str, ...]
    options: Mapping[str, str]
    defaults: tuple[Default, ...] = ()
    libraries: Mapping[str, TreeLibrary]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """The inputs and the contents of a tuned wheel, without times or paths of a machine.

    A wheel of kernels has `libraries`, in the order in which the dispatcher tries them; a
    full build has a `tree` instead. `stock_sha256` is the hash of the published wheel that it
    is built from or, for a full build, compared with; empty if none is known. `source_file` is
    the name of the source archive, or the label of a tree without a name; `nearness` compares
    the headers of the kernel sources with those of the stock wheel.
    """

    schema: int = SCHEMA
    scope: Scope = Scope.KERNELS
    key: str
    release: str
    compiler: str
    bazel: str
    libraries: tuple[KernelLibrary, ...] = ()
    tree: TunedTree | None = None
    source_file: str
    source_sha256: str
    nearness: SourceMatch | None = None
    stock_sha256: str

    @property
    def builds(self) -> tuple[KernelLibrary | TunedTree, ...]:
        """The builds, one per target."""
        return self.libraries if self.tree is None else (self.tree,)

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(build.target for build in self.builds)

    @property
    def carriers(self) -> tuple[Carrier, ...]:
        """The name, required features and defaults of each target."""
        return tuple((build.name, build.required_features, build.defaults) for build in self.builds)

    @property
    def kernels(self) -> frozenset[str]:
        """The kernel groups of all libraries."""
        return frozenset(unit for library in self.libraries for unit in library.kernels)

    def to_bytes(self) -> bytes:
        return format_json(self).encode()


def read_tuned(wheel: Path) -> Tuned | None:
    """Read the record in a wheel; None for a wheel that is not tuned.

    Raises WheelError.
    """
    with open_wheel(wheel) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(_PLACE, name)]
    if not names:
        return None
    if len(names) > 1:
        raise WheelError(f"{wheel.name} has {len(names)} {FILE} files: {', '.join(sorted(names))}")
    return parse(read_member(wheel, names[0]), wheel.name)


def parse(text: bytes, wheel: str) -> Tuned:
    """Parse the record of a wheel with this file name.

    Raises WheelError.
    """
    try:
        fields = parse_json(text)
        schema = fields["schema"]
        if schema != SCHEMA:
            raise WheelError(
                f"{wheel}: {FILE} has schema {quote_value(schema)}, this version reads {SCHEMA}",
                hint="Build the wheel again",
            )
        tuned = decode_record(Tuned, fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WheelError(f"{wheel}: {FILE} cannot be read ({error})") from error
    present = (bool(tuned.libraries), tuned.tree is not None and bool(tuned.tree.libraries))
    if present != (tuned.scope is Scope.KERNELS, tuned.scope is Scope.FULL):
        raise WheelError(f"{wheel}: the libraries in {FILE} do not match its scope ({tuned.scope})")
    return tuned


def choose_build(tuned: Tuned, cpu: Cpu) -> KernelLibrary | TunedTree | None:
    """Return the library that the dispatcher selects on this CPU, or the tree of a full build.

    None if the CPU runs the stock kernels, or cannot import a full build.
    """
    fitting = (build for build in tuned.builds if not list_missing_features(build, cpu))
    return next(fitting, None)


def list_nearest_missing(tuned: Tuned, cpu: Cpu) -> tuple[str, ...]:
    """List the features that this CPU lacks for the nearest target of the wheel; empty if it can
    run one.
    """
    return min((list_missing_features(build, cpu) for build in tuned.builds), key=len)


def list_runnable(tuned: Tuned, cpu: Cpu) -> tuple[KernelLibrary, ...]:
    """List the kernel libraries that this CPU can run. The dispatcher selects the first."""
    return tuple(library for library in tuned.libraries if not list_missing_features(library, cpu))


def list_missing_features(build: KernelLibrary | TunedTree, cpu: Cpu) -> tuple[str, ...]:
    """List the features that a library requires and this CPU lacks."""
    return tuple(sorted(set(build.required_features) - cpu.features))


def check_runnable(wheel: Path, tuned: Tuned, cpu: Cpu) -> None:
    """Raise HostError that names the missing features if this CPU cannot run the wheel."""
    missing = list_nearest_missing(tuned, cpu)
    if missing:
        raise HostError(
            f"{wheel.name} is built for {', '.join(tuned.targets)}, and this CPU lacks "
            f"{', '.join(missing)}",
            hint="Compare it on a CPU that has them, or build one for this CPU: --arch native",
        )


def is_control(tuned: Tuned) -> bool:
    """Return whether the wheel is only a control: its kernels have the stock wheel's flags."""
    return len(tuned.targets) == 1 and tuned.targets[0] in STOCK_SPECS


def find_control(wheel: Path, pool: Path) -> Path:
    """Return the wheel of `pool` that differs from a tuned one only in the flags of its kernels.

    The flags are the stock wheel's; release, package, Python, kernels and compiler are the
    same.

    Raises WheelError with the command that builds it, and TargetError for a machine whose
    stock flags are not known.
    """
    tuned = read_tuned(wheel)
    if tuned is None:
        raise WheelError(f"{wheel.name} is not a tuned wheel, so it has no control wheel")
    if tuned.scope is Scope.FULL:
        raise WheelError(
            f"{wheel.name} is a full build: its control must be a full build, too",
            hint="Compare it with stock, or give the path of a full build for --arch stock",
        )
    identity = read_identity(wheel)
    target = create_stock_target(identity.machine)
    difference = ""
    for path in _find_namesakes(identity, f"{tuned.release}+{target.local}", pool):
        control = read_tuned(path)
        difference = (
            "it is not tuned" if control is None else _describe_difference(control, tuned, target)
        )
        if not difference:
            return path
    reason = (
        f"the control wheel in {pool} does not match: {difference}"
        if difference
        else f"{pool} contains none"
    )
    raise WheelError(
        f"no control wheel for {wheel.name}: {reason}",
        hint=f"Build it: {_format_control_command(identity, tuned)}",
    )


def _format_control_command(identity: WheelIdentity, tuned: Tuned) -> str:
    """Return the command that builds the control of a wheel."""
    family, _, version = tuned.compiler.partition(" ")
    options = {
        "arch": "stock",
        "release": tuned.release,
        "package": identity.name,
        "python": identity.python,
        "kernels": kernels.format_choice(tuned.kernels),
        "compiler": f"{'g++' if family == 'gcc' else family}-{version.partition('.')[0]}",
    }
    return "invoke build " + " ".join(f"--{name} {value}" for name, value in options.items())


def _find_namesakes(own_identity: WheelIdentity, version: str, pool: Path) -> list[Path]:
    """Find the wheels of the pool with this version, and the name, Python and machine of
    `own_identity`.
    """
    paths = pool.glob(f"{own_identity.name.replace('-', '_')}-{version}-*.whl")
    wheels = {path: read_identity(path) for path in sorted(paths)}
    python_and_machine = (own_identity.python, own_identity.machine)
    return [
        path
        for path, identity in wheels.items()
        if (identity.python, identity.machine) == python_and_machine
    ]


def _describe_difference(control: Tuned, tuned: Tuned, target: Target) -> str:
    """Return why `control` is not the control of `tuned`; empty if it is."""
    if control.targets != (target.spec,):
        return f"it is built for {', '.join(control.targets)}"
    if control.scope is not tuned.scope:
        return f"its scope is {control.scope}"
    if control.compiler != tuned.compiler:
        return f"it is compiled by {control.compiler}, not by {tuned.compiler}"
    if control.kernels != tuned.kernels:
        have, want = (", ".join(sorted(record.kernels)) for record in (control, tuned))
        return f"its kernels are {have}, not {want}"
    return ""
