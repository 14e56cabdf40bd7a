"""The dispatcher's table of targets and its compile flags (for native/dispatcher.c)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jinja2

from tfcore.cpus import features
from tfcore.cpus.features import Feature, list_feature_names
from tfcore.errors import TargetError

SOURCE = Path(__file__).parents[1] / "native" / "dispatcher.c"
HEADER = "dispatcher_targets.h"

LIBRARY = "libtfkernel_tensorwright.so"
"""The dispatcher's name in `kernels.FOLDER`."""
LIBRARY_FOLDER = "tensorwright"
"""The folder of the kernel libraries, beside the dispatcher: TensorFlow loads nothing from it."""

TABLE = "tensorwright_targets"
"""The symbol of its table, for programs that read the file."""

# The dispatcher runs on every CPU of the architecture.
_BASELINES = {"x86_64": "-march=x86-64", "aarch64": "-march=armv8-a"}
LINK_FLAGS = (
    "-shared",
    "-s",
    f"-Wl,-soname,{LIBRARY}",
    "-Wl,--no-undefined",
    # Before glibc 2.34, dlopen is in libdl. It is named by file: newer glibcs have no libdl.so.
    "-Wl,--no-as-needed",
    "-l:libdl.so.2",
)

Register = Literal["eax", "ebx", "ecx", "edx"]
REGISTERS: tuple[Register, ...] = ("eax", "ebx", "ecx", "edx")
"""In the order of tw_register."""
_WORDS = {1: "AT_HWCAP", 2: "AT_HWCAP2"}
WORDS = {16: 1, 26: 2}
"""The words of HwcapFeature by their numbers in the auxiliary vector (elf.h)."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def list_compile_flags(architecture: str) -> tuple[str, ...]:
    """Return the flags that the dispatcher is compiled with for an architecture."""
    return (
        *("-std=c11", "-O2", "-g0", "-fPIC", "-fvisibility=hidden"),
        *(_BASELINES[architecture], "-mtune=generic"),
        *("-Wall", "-Wextra"),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class DispatchFeature:
    """A CPU feature as CPUID reports it; `xcr0` is the state that the OS must save for it."""

    name: str
    leaf: int
    subleaf: int
    register: Register
    bit: int
    xcr0: int

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.register not in REGISTERS or self.bit not in range(32):
            raise TargetError(f"{self.name}: CPUID has no bit {self.register}[{self.bit}]")

    @property
    def place(self) -> str:
        """The initializers of the tw_feature members after the name, in C."""
        register = f"TW_{self.register.upper()}"
        return f"{self.leaf:#x}, {self.subleaf}, {register}, {self.bit}, {self.xcr0:#x}"


@dataclass(frozen=True, kw_only=True, slots=True)
class HwcapFeature:
    """A CPU feature as Linux reports it in the auxiliary vector: AT_HWCAP is word 1, AT_HWCAP2
    word 2."""

    name: str
    word: int
    bit: int

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.word not in _WORDS or self.bit not in range(64):
            raise TargetError(f"{self.name}: word {self.word} of AT_HWCAP has no bit {self.bit}")

    @property
    def place(self) -> str:
        """The initializers of the tw_feature members after the name, in C."""
        return f"{_WORDS[self.word]}, {self.bit}"


@dataclass(frozen=True, kw_only=True, slots=True)
class DispatchTarget:
    """A kernel library of the wheel and all features that its code may use."""

    name: str
    library: str
    features: tuple[DispatchFeature | HwcapFeature, ...]

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_name(self.library)
        if self.name == "off":
            raise TargetError(
                "a target cannot have the name off: TENSORWRIGHT_TARGET=off selects no target"
            )


def build_target(name: str, library: str, required: Sequence[str], family: str) -> DispatchTarget:
    """Return the table row of a kernel library.

    It lists those of the required features that CPUID or Linux reports.

    Raises TargetError for an unknown feature or family.
    """
    rows = features.load_features(family)
    unknown = [feature for feature in required if feature not in rows]
    if unknown:
        raise TargetError(f"unknown {family} feature {unknown[0]}")
    located = (_locate_feature(rows[feature]) for feature in required)
    return DispatchTarget(name=name, library=library, features=tuple(filter(None, located)))


def _locate_feature(row: Feature) -> DispatchFeature | HwcapFeature | None:
    """Return where the dispatcher reads a feature; None if neither CPUID nor Linux reports it."""
    if row.hwcap is not None:
        return HwcapFeature(name=row.name, word=row.hwcap.word, bit=row.hwcap.bit)
    if row.cpuid is None:
        return None
    return DispatchFeature(
        name=row.name,
        leaf=row.cpuid.leaf,
        subleaf=row.cpuid.subleaf,
        register=row.cpuid.register,
        bit=row.cpuid.bit,
        xcr0=row.xcr0,
    )


def render_header(targets: Sequence[DispatchTarget], templates_dir: Path) -> str:
    """Render the text of HEADER.

    The dispatcher selects the first target that fits, so the best comes first.

    Raises TargetError if there is no target, or one is listed twice.
    """
    names = [target.name for target in targets]
    if not names:
        raise TargetError("a dispatcher needs at least one target")
    if len(set(names)) < len(names):
        raise TargetError(f"a target is listed twice: {', '.join(names)}")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701  (C, not HTML; names are checked above)
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    known = list_feature_names().union(
        feature.name for target in targets for feature in target.features
    )
    return environment.get_template(f"{HEADER}.j2").render(
        folder=LIBRARY_FOLDER, known=sorted(known), targets=targets
    )


def _check_name(name: str) -> None:
    """Raise TargetError for a name that is not safe in C strings and paths."""
    if not _NAME.fullmatch(name):
        raise TargetError(f"{name!r} is not a valid name in a dispatcher")
