"""What a tuned wheel says of itself: dist-info/tuned.json."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild.cpus.cpu import Cpu
from tfbuild.cpus.targets import STOCK_FLAGS, Target
from tfbuild.errors import HostError, WheelError
from tfbuild.packing.wheel import WheelIdentity, opened, read_identity, read_member
from tfbuild.records import pretty, read
from tfbuild.upstream import kernels, releases

SCHEMA = 2
FILE = "tuned.json"
_PLACE = r"[^/]+\.dist-info/" + re.escape(FILE)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelLibrary:
    """A library of kernels in the wheel, compiled for one target.

    `name` is what the dispatcher calls it (TENSORWRIGHT_TARGET), `file` its member of the wheel.
    `floors` are the newest versions of the runtime libraries that it asks for; `stay_stock` gives a
    reason for each unit that was not admitted; `census` counts instructions by CPUID feature.
    """

    name: str
    target: str
    file: str
    size: int
    sha256: str
    plan_key: str
    required_features: tuple[str, ...]
    flags: tuple[str, ...]
    kernels: tuple[str, ...]
    registrations: int
    stay_stock: Mapping[str, str]
    floors: Mapping[str, str]
    census: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """What the wheel was made from and how. No time and no path of a machine stands in it.

    `libraries` are in the order in which the dispatcher tries them.
    """

    schema: int = SCHEMA
    key: str
    release: str
    compiler: str
    bazel: str
    libraries: tuple[KernelLibrary, ...]
    source_sha256: str
    stock_sha256: str

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(library.target for library in self.libraries)

    @property
    def kernels(self) -> frozenset[str]:
        """The units of all libraries."""
        return frozenset(unit for library in self.libraries for unit in library.kernels)

    def to_bytes(self) -> bytes:
        return pretty(self).encode()


def read_tuned(wheel: Path) -> Tuned | None:
    """The record in a wheel; None for a wheel that is not tuned. Raises WheelError."""
    with opened(wheel) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(_PLACE, name)]
    if not names:
        return None
    if len(names) > 1:
        raise WheelError(f"{wheel.name} has {len(names)} records: {', '.join(sorted(names))}")
    try:
        fields = json.loads(read_member(wheel, names[0]))
        seen = fields["schema"]
        if seen != SCHEMA:
            raise WheelError(
                f"{wheel.name} has {FILE} of schema {seen}, this version reads {SCHEMA}",
                hint="Build it anew",
            )
        tuned = read(Tuned, fields)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WheelError(f"{wheel.name} has a {FILE} that cannot be read ({error})") from error
    if not tuned.libraries:
        raise WheelError(f"{wheel.name} has a {FILE} without a library")
    return tuned


def chosen(tuned: Tuned, cpu: Cpu) -> KernelLibrary | None:
    """The library that the dispatcher takes on this CPU; None where the stock kernels run."""
    fitting = (each for each in tuned.libraries if not _absent(each, cpu))
    return next(fitting, None)


def lacking(tuned: Tuned, cpu: Cpu) -> tuple[str, ...]:
    """The features that this CPU has not of the library that it comes nearest to; empty when it can
    run one."""
    return min((_absent(each, cpu) for each in tuned.libraries), key=len)


def _absent(library: KernelLibrary, cpu: Cpu) -> tuple[str, ...]:
    return tuple(sorted(set(library.required_features) - cpu.features))


def need_runnable(wheel: Path, tuned: Tuned, cpu: Cpu) -> None:
    """Raises HostError that names what this CPU lacks."""
    absent = lacking(tuned, cpu)
    if absent:
        raise HostError(
            f"{wheel.name} is built for {', '.join(tuned.targets)}, and this CPU lacks "
            f"{', '.join(absent)}",
            hint="Compare it on a machine that has them, or build one for this CPU: --arch native",
        )


def is_control(tuned: Tuned) -> bool:
    """Whether the kernels have the stock wheel's own flags: such a wheel is for comparing only."""
    return tuned.targets == (STOCK_FLAGS,)


def find_control(wheel: Path, pool: Path) -> Path:
    """The wheel of `pool` that differs from a tuned one in the flags of its kernels only, which are
    the stock wheel's: same release, package, Python, kernels and compiler.

    Raises WheelError with the command that makes it, and TargetError for a machine whose stock
    flags are not known.
    """
    tuned = read_tuned(wheel)
    if tuned is None:
        raise WheelError(f"{wheel.name} is not a tuned wheel, so it has no control")
    own = read_identity(wheel)
    target = releases.stock_target(releases.find_release(tuned.release), own.machine)
    seen = ""
    for path in _namesakes(own, f"{tuned.release}+{target.local}", pool):
        control = read_tuned(path)
        seen = "it is not tuned" if control is None else _difference(control, tuned, target)
        if not seen:
            return path
    what = f"the control wheel in {pool} does not fit: {seen}" if seen else f"{pool} has none"
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
        "kernels": kernels.choice_of(tuned.kernels),
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
    if control.compiler != tuned.compiler:
        return f"it is compiled by {control.compiler}, not by {tuned.compiler}"
    if control.kernels != tuned.kernels:
        have, want = (", ".join(sorted(each.kernels)) for each in (control, tuned))
        return f"its kernels are {have}, not {want}"
    return ""
