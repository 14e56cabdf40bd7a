"""Levers: settings of an installed TensorFlow that need no build.

A lever is a name with a value, such as `onednn=off`. It becomes environment variables of the arm's
processes. Pure, except `find_malloc`, which reads the dynamic linker's cache of libraries.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from tfbench.inside.worker import JIT
from tfbuild import packages
from tfbuild.console import format_choices, suggest_spelling
from tfbuild.errors import UsageError
from tfbuild.run import run

Pairs: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of levers or of environment variables."""

ISAS = (
    *("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2"),
    *("AVX512_CORE", "AVX512_CORE_VNNI", "AVX512_CORE_BF16", "AVX512_CORE_FP16"),
    *("AVX512_CORE_AMX", "AVX512_CORE_AMX_FP16"),
)
"""Names that oneDNN 3.2 accepts ("CPU Dispatcher Control" in its developer guide). It ignores
others, so newer names would do nothing in TensorFlow 2.14, which has oneDNN 3.2.1."""
BFLOAT16_TOLERANCE = 5e-2
"""Tolerance of arms that round the inputs of float32 products to bfloat16 (relative error 2^-9).

With that rounding emulated in every MatMul and Conv of the six workloads, forward and backward, the
first five losses changed by at most 3.6e-3 (relative) and the predictions after them by 2.0e-2
(absolute; both mnist_mlp). Keras's mixed_bfloat16, which rounds far more, gave 2.1e-2 and 0.14.
"""
XLA_TOLERANCE = 0.5
"""Tolerance of arms with XLA. XLA draws other dropout masks, so losses differ as between two seeds.
In eleven models the first five losses changed by at most 0.40 (bert_tiny), the predictions after
them by 0.11 (mnist_mlp); without dropout by 5e-4 (resnet18) and 2.5e-4 (fcn_series). The report
shows the differences."""
_PRELOAD = "LD_PRELOAD"
_LDCONFIG_FOLDERS = ("/sbin", "/usr/sbin")  # (not on every user's PATH)
_LDCONFIG_MACHINES = {"x86_64": "x86-64", "aarch64": "AArch64"}
_LDCONFIG_LINE = re.compile(r"\t(?P<name>\S+) \((?P<tags>[^)]*)\) => (?P<path>.+)")
_NUMBER = re.compile(r"[1-9][0-9]{0,3}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = ("PATH", "HOME", "LD_LIBRARY_PATH")
_OURS_BEGIN = ("PYTHON", "TENSORWRIGHT_")


class ValueKind(StrEnum):
    """The kinds of values that a lever takes in addition to its words."""

    WORD = "nothing else"
    NUMBER = "a whole number from 1 to 9999"
    MALLOC = "the absolute path of a library"


@dataclass(frozen=True, kw_only=True, slots=True)
class Lever:
    """A setting of an installed TensorFlow that needs no build.

    `words` maps each word to the values of the variables. A number is the value of all of them.
    `tolerance` is wider for a lever that changes the precision.
    """

    name: str
    doc: str
    variables: tuple[str, ...]
    takes: ValueKind = ValueKind.WORD
    words: Mapping[str, tuple[str, ...]]
    tolerance: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Malloc:
    """A library that replaces malloc.

    It has file names, the preferred one first, and a Debian 12 package.
    """

    files: tuple[str, ...]
    package: str


MALLOCS = {
    "jemalloc": Malloc(files=("libjemalloc.so",), package="libjemalloc2"),
    "mimalloc": Malloc(files=("libmimalloc.so",), package="libmimalloc2.0"),
    "tcmalloc": Malloc(
        files=("libtcmalloc_minimal.so", "libtcmalloc.so"), package="libtcmalloc-minimal4"
    ),
}

_TABLE = (
    Lever(
        name="onednn",
        doc="oneDNN's graph operations; stock TensorFlow turns them on if the CPU has AVX512_VNNI, "
        "AVX512_BF16, AVX_VNNI or AMX",
        # MKL builds read only the second one, other builds only the first: core/util/port.cc.
        variables=("TF_ENABLE_ONEDNN_OPTS", "TF_DISABLE_MKL"),
        words={"on": ("1", "0"), "off": ("0", "1")},
    ),
    Lever(
        name="contraction",
        doc="GEMM that oneDNN generates for Eigen's contractions; off uses Eigen's compiled one",
        variables=("TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL",),
        words={"off": ("0",)},
    ),
    Lever(
        name="isa",
        doc="newest instructions that oneDNN may generate",
        variables=("ONEDNN_MAX_CPU_ISA",),
        words={name: (name,) for name in ISAS},
    ),
    Lever(
        name="intra",
        doc="threads per operation; default: the vCPUs of the cell",
        variables=("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"),
        takes=ValueKind.NUMBER,
        words={},
    ),
    Lever(
        name="inter",
        doc="operations that run in parallel; default: the vCPUs of the cell",
        variables=("TF_NUM_INTEROP_THREADS",),
        takes=ValueKind.NUMBER,
        words={},
    ),
    Lever(
        name="bf16",
        # With 2.14.1, results on a CPU with AVX512_BF16 but without AMX do not change at all.
        doc="let oneDNN round float32 inputs to bfloat16, which it does on CPUs with AMX",
        # Only five forward kernels read TF_SET_ONEDNN_FPMATH_MODE: core/util/mkl_util.h.
        variables=("ONEDNN_DEFAULT_FPMATH_MODE",),
        words={"on": ("BF16",)},
        tolerance=BFLOAT16_TOLERANCE,
    ),
    Lever(
        name="xla",
        doc="compile the training step or the request with XLA, as compile(jit_compile=True) does",
        variables=(JIT,),  # (TF_XLA_FLAGS would exclude parts of the graph without a report)
        words={"on": ("True",)},
        tolerance=XLA_TOLERANCE,
    ),
    Lever(
        name="malloc",
        doc="memory allocator, loaded before all other libraries",
        variables=(_PRELOAD,),
        takes=ValueKind.MALLOC,
        words=dict.fromkeys(MALLOCS, ()),
    ),
)
LEVERS: Mapping[str, Lever] = {lever.name: lever for lever in _TABLE}


def find_lever(name: str) -> Lever:
    """Return the lever of this name.

    Raises UsageError if there is none.
    """
    if name not in LEVERS:
        raise UsageError(f"unknown lever {name!r}", hint=suggest(name, LEVERS))
    return LEVERS[name]


def check_lever(name: str, value: str) -> None:
    """Raise UsageError for an unknown lever or a value that it does not take."""
    lever = find_lever(name)
    match lever.takes:
        case ValueKind.NUMBER:
            fits = _NUMBER.fullmatch(value) is not None
        case ValueKind.MALLOC:
            fits = value in lever.words or _is_preloadable(value)
        case _:
            fits = value in lever.words
    if not fits:
        allowed = (*lever.words, *(() if lever.takes == ValueKind.WORD else (lever.takes,)))
        raise UsageError(
            f"{name} is {value!r}, but must be {format_choices(allowed)}",
            hint=suggest_spelling(value, lever.words),
        )


def check_variable(name: str, value: str) -> None:
    """Raise UsageError for an environment variable that an arm may not set."""
    if not _VARIABLE.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid name of an environment variable")
    if name in _OURS or name.startswith(_OURS_BEGIN):
        raise UsageError(f"{name} cannot be set for an arm: the comparison depends on it")
    if not value.isprintable():
        raise UsageError(f"the value of {name} ({value!r}) contains unprintable characters")


def resolve_lever(name: str, value: str, malloc: Callable[[str], Path]) -> Pairs:
    """Return the environment variables that a lever sets.

    `malloc` finds a library by its name, as `find_malloc` does. Raises UsageError.
    """
    check_lever(name, value)
    lever = find_lever(name)
    match lever.takes:
        case ValueKind.NUMBER:
            values = (value,) * len(lever.variables)
        case ValueKind.MALLOC:
            values = (str(malloc(value)) if value in MALLOCS else value,)
        case _:
            values = lever.words[value]
    return tuple(zip(lever.variables, values, strict=True))


def list_variables(levers: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the environment variables that these levers set, in their order."""
    return tuple(variable for name in levers for variable in find_lever(name).variables)


def find_widest_tolerance(levers: Iterable[str], otherwise: float) -> float:
    """Return the widest tolerance that one of these levers needs, at least `otherwise`."""
    tolerances = (find_lever(name).tolerance for name in levers)
    return max([otherwise, *(wide for wide in tolerances if wide is not None)])


def suggest(word: str, known: Collection[str]) -> str:
    """Return a hint with the most similar known word, or else with all of them."""
    return suggest_spelling(word, known) or f"Use one of {', '.join(known)}"


def _is_preloadable(text: str) -> bool:
    """Return whether the dynamic linker reads the text as one path.

    It splits LD_PRELOAD at colons and white space.
    """
    return text.startswith("/") and text.isprintable() and not re.search(r"[\s:]", text)


def find_malloc(name: str) -> Path:
    """Find a library of `MALLOCS` in the dynamic linker's cache.

    Raises UsageError, with the Debian package to install.
    """
    folders = os.pathsep.join((os.environ.get("PATH", os.defpath), *_LDCONFIG_FOLDERS))
    ldconfig = shutil.which("ldconfig", path=folders)
    listing = run([ldconfig, "-p"]).output if ldconfig else ""
    path = malloc_among(parse_ldconfig(listing, platform.machine()), name)
    if path is None:
        package = MALLOCS[name].package
        raise UsageError(
            f"{name} is not installed on this machine",
            hint=f"{packages.suggest_install(name, package)}. Or give the absolute path of its "
            f"library: malloc=/…/{MALLOCS[name].files[0]}",
        )
    return path


def parse_ldconfig(listing: str, machine: str) -> dict[str, Path]:
    """Parse the output of `ldconfig -p`: paths by file name, without those of other machines."""
    tag = _LDCONFIG_MACHINES.get(machine, machine)
    lines = (_LDCONFIG_LINE.fullmatch(line) for line in listing.splitlines())
    matches = (line for line in lines if line and tag in line["tags"].split(","))
    return {line["name"]: Path(line["path"]) for line in matches}


def malloc_among(libraries: Mapping[str, Path], name: str) -> Path | None:
    """Return the newest of these libraries that replaces malloc under this name."""
    for file in MALLOCS[name].files:
        versions = {key.removeprefix(f"{file}."): path for key, path in libraries.items()}
        known = {int(text): path for text, path in versions.items() if text.isdecimal()}
        if known:
            return known[max(known)]
    return None
