"""What a tuned wheel says of itself: dist-info/tuned.json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfbuild.cpus.cpu import Cpu
from tfbuild.cpus.targets import STOCK_SPECS, Target
from tfbuild.errors import HostError, WheelError
from tfbuild.measured.kernels import KernelRow, TypedOp
from tfbuild.packing.wheel import WheelIdentity, opened, read_identity, read_member
from tfbuild.planning.defaults import Default
from tfbuild.planning.guard import Carrier
from tfbuild.planning.plan import Scope
from tfbuild.records import decode_record, format_json, parse_json, quote_value
from tfbuild.upstream import kernels, releases
from tfbuild.upstream.nearness import SourceMatch

SCHEMA = 7
FILE = "tuned.json"
_PLACE = r"[^/]+\.dist-info/" + re.escape(FILE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Admitted:
    """How a unit was admitted: its kernels of these `ops` were run as compiled for `ran_as`, which
    is another target than the library's where the building CPU could not run that."""

    ran_as: str
    ops: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelLibrary:
    """A library of kernels in the wheel, compiled for one target.

    `name` is what the dispatcher calls it (TENSORWRIGHT_TARGET), `file` its member of the wheel.
    `flags` are those of every source, `source_flags` what some get beside them. `sources` are what
    was compiled where that was only what had been selected; without them it was all of `kernels`.
    `registrations` are the kernels that take the place of the stock ones, and `measured` what a
    selection knows of each candidate, `measured_on` of which CPU and code; without a selection both
    are empty, and all that was admitted is registered.
    `defaults` are what is set at run time where it runs. `floors` are the newest versions of the
    runtime libraries that it asks for; `stay_stock` gives a reason for each unit that was not
    admitted, `admission` says how each of `kernels` was; `census` counts instructions by CPUID
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
    admission: Mapping[str, Admitted]
    registrations: tuple[TypedOp, ...]
    measured: tuple[KernelRow, ...] = ()
    measured_on: str = ""
    defaults: tuple[Default, ...] = ()
    stay_stock: Mapping[str, str]
    floors: Mapping[str, str]
    census: Mapping[str, int]

    @property
    def ran_as(self) -> tuple[str, ...]:
        """The targets that its units were compiled for when they were admitted."""
        return tuple(sorted({each.ran_as for each in self.admission.values()}))

    def registrations_of(self, unit: str) -> tuple[TypedOp, ...]:
        """Those of its registrations that are a unit's: no op is in two units."""
        return tuple(each for each in self.registrations if each.op in self.admission[unit].ops)


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeLibrary:
    """A library that a full build made: bytes, floors and census as of a KernelLibrary."""

    size: int
    sha256: str
    floors: Mapping[str, str]
    census: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedTree:
    """What a full build compiled for one target: all of the wheel.

    A CPU must have `required_features` to import it at all. `options` are the plan's own, such as
    lto and profile; `libraries` are by their members of the wheel. `name` and `defaults` are as a
    KernelLibrary's.
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
    """What the wheel was made from and how. No time and no path of a machine stands in it.

    A wheel of kernels has `libraries`, in the order in which the dispatcher tries them; one of a
    full build has a `tree` instead. `stock_sha256` is the published wheel that it is made of, or,
    of a full build, that it is compared with; empty where none is known. `source_file` is the name
    of the archive of the sources, or what a tree without a name is called; `nearness` is how near
    the sources of kernels are to that wheel's.
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
        """What is compiled for each target."""
        return self.libraries if self.tree is None else (self.tree,)

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(build.target for build in self.builds)

    @property
    def carriers(self) -> tuple[Carrier, ...]:
        """Each target's name, required features and defaults."""
        return tuple((each.name, each.required_features, each.defaults) for each in self.builds)

    @property
    def kernels(self) -> frozenset[str]:
        """The units of all libraries."""
        return frozenset(unit for library in self.libraries for unit in library.kernels)

    def to_bytes(self) -> bytes:
        return format_json(self).encode()


def read_tuned(wheel: Path) -> Tuned | None:
    """The record in a wheel; None for a wheel that is not tuned. Raises WheelError."""
    with opened(wheel) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(_PLACE, name)]
    if not names:
        return None
    if len(names) > 1:
        raise WheelError(f"{wheel.name} has {len(names)} records: {', '.join(sorted(names))}")
    return parse(read_member(wheel, names[0]), wheel.name)


def parse(text: bytes, wheel: str) -> Tuned:
    """The record that stands in a wheel of this name. Raises WheelError."""
    try:
        fields = parse_json(text)
        schema = fields["schema"]
        if schema != SCHEMA:
            raise WheelError(
                f"{wheel} has {FILE} of schema {quote_value(schema)}, this version reads {SCHEMA}",
                hint="Build it anew",
            )
        tuned = decode_record(Tuned, fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WheelError(f"{wheel} has a {FILE} that cannot be read ({error})") from error
    there = (bool(tuned.libraries), tuned.tree is not None and bool(tuned.tree.libraries))
    if there != (tuned.scope is Scope.KERNELS, tuned.scope is Scope.FULL):
        raise WheelError(f"{wheel} has a {FILE} without the libraries of its scope")
    return tuned


def chosen(tuned: Tuned, cpu: Cpu) -> KernelLibrary | TunedTree | None:
    """What this CPU runs: the library that the dispatcher takes, or the whole of a full build.

    None where it runs the stock kernels, or cannot import a full build.
    """
    fitting = (each for each in tuned.builds if not absent(each, cpu))
    return next(fitting, None)


def lacking(tuned: Tuned, cpu: Cpu) -> tuple[str, ...]:
    """The features that this CPU has not of the target that it comes nearest to; empty when it can
    run one."""
    return min((absent(each, cpu) for each in tuned.builds), key=len)


def runnable(tuned: Tuned, cpu: Cpu) -> tuple[KernelLibrary, ...]:
    """The kernel libraries that this CPU can run, though the dispatcher takes but the first."""
    return tuple(each for each in tuned.libraries if not absent(each, cpu))


def absent(build: KernelLibrary | TunedTree, cpu: Cpu) -> tuple[str, ...]:
    """The features that this CPU lacks of those that a library requires."""
    return tuple(sorted(set(build.required_features) - cpu.features))


def need_runnable(wheel: Path, tuned: Tuned, cpu: Cpu) -> None:
    """Raises HostError that names what this CPU lacks."""
    lacks = lacking(tuned, cpu)
    if lacks:
        raise HostError(
            f"{wheel.name} is built for {', '.join(tuned.targets)}, and this CPU lacks "
            f"{', '.join(lacks)}",
            hint="Compare it on a machine that has them, or build one for this CPU: --arch native",
        )


def is_control(tuned: Tuned) -> bool:
    """Whether the kernels have the stock wheel's own flags: such a wheel is for comparing only."""
    return len(tuned.targets) == 1 and tuned.targets[0] in STOCK_SPECS


def find_control(wheel: Path, pool: Path) -> Path:
    """The wheel of `pool` that differs from a tuned one in the flags of its kernels only, which are
    the stock wheel's: same release, package, Python, kernels and compiler.

    Raises WheelError with the command that makes it, and TargetError for a machine whose stock
    flags are not known.
    """
    tuned = read_tuned(wheel)
    if tuned is None:
        raise WheelError(f"{wheel.name} is not a tuned wheel, so it has no control")
    if tuned.scope is Scope.FULL:
        raise WheelError(
            f"{wheel.name} is a full build, whose control would be another full build",
            hint="Compare it with stock, or with a full build of --arch stock given by its path",
        )
    own = read_identity(wheel)
    target = releases.create_stock_target(releases.find_release(tuned.release), own.machine)
    difference = ""
    for path in _namesakes(own, f"{tuned.release}+{target.local}", pool):
        control = read_tuned(path)
        difference = "it is not tuned" if control is None else _difference(control, tuned, target)
        if not difference:
            return path
    what = (
        f"the control wheel in {pool} does not fit: {difference}"
        if difference
        else f"{pool} has none"
    )
    raise WheelError(
        f"no control wheel for {wheel.name}: {what}",
        hint=f"Make it: {_command_for(own, tuned)}",
    )


def _command_for(own: WheelIdentity, tuned: Tuned) -> str:
    """What builds the control of a wheel."""
    family, _, version = tuned.compiler.partition(" ")
    options = {
        "arch": "stock",
        "release": tuned.release,
        "package": own.name,
        "python": own.python,
        "kernels": kernels.format_choice(tuned.kernels),
        "compiler": f"{'g++' if family == 'gcc' else family}-{version.partition('.')[0]}",
    }
    return "invoke build " + " ".join(f"--{name} {value}" for name, value in options.items())


def _namesakes(own: WheelIdentity, version: str, pool: Path) -> list[Path]:
    """The wheels of the pool with this version, and the name, Python and machine of `own`."""
    found = pool.glob(f"{own.name.replace('-', '_')}-{version}-*.whl")
    wheels = {path: read_identity(path) for path in sorted(found)}
    alike = (own.python, own.machine)
    return [path for path, each in wheels.items() if (each.python, each.machine) == alike]


def _difference(control: Tuned, tuned: Tuned, target: Target) -> str:
    """What keeps `control` from being the control of `tuned`; empty when nothing does."""
    if control.targets != (target.spec,):
        return f"it is built for {', '.join(control.targets)}"
    if control.scope is not tuned.scope:
        return f"it is of scope {control.scope}"
    if control.compiler != tuned.compiler:
        return f"it is compiled by {control.compiler}, not by {tuned.compiler}"
    if control.kernels != tuned.kernels:
        have, want = (", ".join(sorted(each.kernels)) for each in (control, tuned))
        return f"its kernels are {have}, not {want}"
    return ""
