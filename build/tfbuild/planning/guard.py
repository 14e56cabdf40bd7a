"""What a tuned wheel carries to be safe on any CPU.

In a wheel of kernels TENSORWRIGHT_REQUIRE=1 makes a fallback an error (shipped/_tensorwright.py). A
full build has nothing to fall back to: there the import itself asks the CPU first, before any
library is loaded (shipped/_tensorwright_cpu.py). Both name the page of an index that is right for
the CPU, so they get archspec's targets as data: a user's environment need not have archspec.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from archspec.cpu import TARGETS
from archspec.cpu.microarchitecture import Microarchitecture
from archspec.cpu.schema import TARGETS_JSON

from tfbuild.cpus.features import Feature, canonical, canonical_names, table
from tfbuild.cpus.targets import Target
from tfbuild.errors import TargetError, WheelError
from tfbuild.records import canonical as as_json

PACKAGE = "tensorflow"
INIT = f"{PACKAGE}/__init__.py"
DATA = f"{PACKAGE}/_tensorwright.json"
NEEDS = f"{PACKAGE}/_tensorwright_cpu.json"
"""What the CPU must have, in a full build."""
_SHIPPED = Path(__file__).parents[1] / "shipped"
_CODE = _SHIPPED / "_tensorwright.py"
_REGISTERS = ("eax", "ebx", "ecx", "edx")
_ZMM = 0xE0  # of XCR0
_CPU_CODE = _SHIPPED / "_tensorwright_cpu.py"

CHECK = b"""
# Added by Tensorwright: TENSORWRIGHT_REQUIRE=1 makes an import with stock kernels an ImportError.
if _os.environ.get("TENSORWRIGHT_REQUIRE", "0") not in ("", "0"):
  from tensorflow import _tensorwright
  _tensorwright.require()
"""
FIRST = b"""\
# Added by Tensorwright: all of this TensorFlow is compiled for CPUs with certain features, and on
# another it would die of an illegal instruction. So they are asked for before anything is loaded.
from tensorflow import _tensorwright_cpu
_tensorwright_cpu.need_cpu()
"""
# TensorFlow's own __init__.py imports os so, and loads the dispatcher so.
_MARKS = (rb"^import os as _os$", rb"^ +_ll\.load_library\(_kernel_dir\)$")


def files(family: str) -> dict[str, bytes]:
    """The members to add to a wheel for this family: our module and its data."""
    return {
        f"{PACKAGE}/{_CODE.name}": _CODE.read_bytes(),
        DATA: (as_json(_known(family)) + "\n").encode(),
    }


def whole_files(target: Target, required: Iterable[str]) -> dict[str, bytes]:
    """The members to add to a full build for `target`, whose code needs the features `required`.

    Raises TargetError for a feature that nobody knows.
    """
    needs = {name: _places(_feature(name, target.family)) for name in sorted(required)}
    return {
        **files(target.family),
        f"{PACKAGE}/{_CPU_CODE.name}": _CPU_CODE.read_bytes(),
        NEEDS: (as_json({"target": target.spec, "needs": needs}) + "\n").encode(),
    }


def _feature(name: str, family: str) -> Feature:
    if name not in table(family):
        raise TargetError(f"{name} is no feature of {family} that is known")
    return table(family)[name]


def _places(feature: Feature) -> dict[str, tuple[int, ...]]:
    """Where CPUID shows a feature, and where that its registers are saved; nothing on aarch64."""
    places = {"cpuid": feature.cpuid}
    rows = table(feature.architecture)
    if feature.xcr0:
        places["usable"] = rows["avx512f" if feature.xcr0 & _ZMM else "avx"].cpuid
    return {
        name: (bit.leaf, bit.subleaf, _REGISTERS.index(bit.register), bit.bit)
        for name, bit in places.items()
        if bit is not None
    }


def guarded(init: bytes) -> bytes:
    """tensorflow/__init__.py with the question to the CPU before its first statement.

    Only a docstring and imports from __future__ stay before it, as Python demands. Raises
    WheelError for what is no Python, or has no line of its own for that statement.
    """
    try:
        body = ast.parse(init).body
        kept = next((n for n, each in enumerate(body) if not _leads(each, n)), len(body))
        lines = init.splitlines(keepends=True)
        place = _first_line(body[kept]) - 1 if kept < len(body) else len(lines)
        before, after = b"".join(lines[:place]), b"".join(lines[place:])
        text = before + (b"\n" if place and not before.endswith(b"\n") else b"") + FIRST + after
        both = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise WheelError(f"{INIT} is not whole ({error})") from error
    ours = ast.parse(FIRST).body
    if [*map(ast.dump, both)] != [*map(ast.dump, (*body[:kept], *ours, *body[kept:]))]:
        raise WheelError(f"{INIT} has no line before which the CPU can be asked")
    return text


def _leads(statement: ast.stmt, number: int) -> bool:
    """Whether the statement of this number must stay before any other."""
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__"
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return docstring and number == 0


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)])


def amended(init: bytes) -> bytes:
    """tensorflow/__init__.py with the check at its end. Raises WheelError when it is not
    TensorFlow's, as far as the check depends on it."""
    text = init.rstrip(b"\n") + b"\n" + CHECK
    for mark in _MARKS:
        if not re.search(mark, init, re.MULTILINE):
            raise WheelError(
                f"{INIT} is not one that this version knows: it has no line {mark.decode()}"
            )
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise WheelError(f"{INIT} is not whole ({error})") from error
    return text


def _can_be_seen(uarch: Microarchitecture) -> bool:
    """Not the versions of the Arm architecture: no list of features tells which one a CPU has."""
    family = str(uarch.family)
    return uarch.vendor != "generic" or family in {"x86_64", uarch.name}


def _known(family: str) -> dict[str, Any]:
    """archspec's targets that a CPU can be recognised as, and what a kernel's names mean."""
    targets = [
        {
            "name": uarch.name,
            "vendor": uarch.vendor,
            "part": uarch.cpu_part,
            "features": frozenset(uarch.features),
            "ancestors": [ancestor.name for ancestor in uarch.ancestors],
        }
        for uarch in TARGETS.values()
        if str(uarch.family) == family and _can_be_seen(uarch)
    ]
    names = {name: canonical([name], family) for name in canonical_names(family)}
    vendors = TARGETS_JSON["conversions"]["arm_vendors"] if family == "aarch64" else {}
    return {"targets": targets, "features": names, "vendors": vendors}
