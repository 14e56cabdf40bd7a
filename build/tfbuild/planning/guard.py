"""The files that make a tuned wheel safe on any CPU.

In a wheel of kernels, TENSORWRIGHT_REQUIRE=1 turns a fallback to stock into an error
(shipped/_tensorwright.py). A full build has no stock kernels, so its import checks the CPU before
it loads a library (shipped/_tensorwright_cpu.py). Both name the page of an index for the CPU. They
contain archspec's targets as data, because a user's environment may lack archspec.

Both begin with the wheel's run-time defaults (shipped/_tensorwright_defaults.py), because the
libraries read these when they are loaded.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

from archspec.cpu import TARGETS
from archspec.cpu.microarchitecture import Microarchitecture
from archspec.cpu.schema import TARGETS_JSON

from tfbuild.planning.defaults import Default
from tfcore.cpus.features import (
    Feature,
    list_feature_names,
    load_aliases,
    load_features,
    normalize_features,
)
from tfcore.cpus.targets import Target
from tfcore.errors import TargetError, WheelError
from tfcore.records import convert_record
from tfcore.records import format_canonical as as_json

PACKAGE = "tensorflow"
INIT = f"{PACKAGE}/__init__.py"
DATA = f"{PACKAGE}/_tensorwright.json"
NEEDS = f"{PACKAGE}/_tensorwright_cpu.json"
"""The features that a full build requires."""
_SHIPPED = Path(__file__).parents[1] / "shipped"
_CODE, _CPU_CODE, _DEFAULTS_CODE = (
    _SHIPPED / f"_tensorwright{name}.py" for name in ("", "_cpu", "_defaults")
)
DEFAULTS_DATA = f"{PACKAGE}/{_DEFAULTS_CODE.stem}.json"
_REGISTERS = ("eax", "ebx", "ecx", "edx")
_ZMM = 0xE0  # the bits of XCR0 for AVX-512

Carrier: TypeAlias = tuple[str, Iterable[str], Iterable[Default]]
"""A target's name in the wheel, the CPU features that it requires, and its defaults."""

DEFAULTS = b"""\
# Added by Tensorwright: defaults for this CPU, for variables that the environment does not set.
import os as _os
if _os.environ.get("TENSORWRIGHT_DEFAULTS") != "0":
  from tensorflow import _tensorwright_defaults
  _tensorwright_defaults.apply()
"""
"""The first lines of tensorflow/__init__.py in a wheel of kernels."""
CHECK = b"""
# Added by Tensorwright: with TENSORWRIGHT_REQUIRE=1, a fallback to stock kernels is an ImportError.
if _os.environ.get("TENSORWRIGHT_REQUIRE", "0") not in ("", "0"):
  from tensorflow import _tensorwright
  _tensorwright.require()
"""
NEED = b"""\
# Added by Tensorwright: this TensorFlow is compiled for CPUs with certain features. On others it
# would die of an illegal instruction, so the features are checked before any library is loaded.
from tensorflow import _tensorwright_cpu
_tensorwright_cpu.need_cpu()
"""
FIRST = NEED + DEFAULTS
"""The first lines of tensorflow/__init__.py in a full build."""
# The lines of TensorFlow's __init__.py that import os and load the dispatcher.
_MARKS = (rb"^import os as _os$", rb"^ +_ll\.load_library\(_kernel_dir\)$")


def build_guard_files(family: str) -> dict[str, bytes]:
    """Return the members to add to any wheel for this family: our modules and the table of CPU
    targets.
    """
    modules = (_CODE, _CPU_CODE, _DEFAULTS_CODE)
    members = {f"{PACKAGE}/{module.name}": module.read_bytes() for module in modules}
    return {**members, DATA: _encode_json(_build_target_data(family))}


def build_defaults_file(family: str, carriers: Iterable[Carrier]) -> dict[str, bytes]:
    """Return the member with the run-time defaults of a wheel's targets, the preferred first.

    Raises TargetError for an unknown feature.
    """
    targets = []
    features: set[str] = set()
    for name, required, defaults in carriers:
        rows = [
            {
                **convert_record(default.lever),
                "on": default.on,
                "evidence": default.evidence,
                **({"guarded": True} if default.guarded else {}),
            }
            for default in defaults
        ]
        targets.append({"name": name, "needs": sorted(required), "defaults": rows})
        features.update(required)
        features.update(*((*default.lever.needs, *default.lever.unless) for default in defaults))
    known = {
        "features": _map_features(family),
        "vendors": _list_vendors(family),
        "mask": sorted(list_feature_names()),
    }
    return {
        DEFAULTS_DATA: _encode_json(
            {**known, "places": _locate_features(features, family), "targets": targets}
        )
    }


def build_full_wheel_files(target: Target, required: Iterable[str]) -> dict[str, bytes]:
    """Return the members to add to a full build for `target`.

    `required` are the features that its code needs.

    Raises TargetError for an unknown feature.
    """
    needs = _locate_features(required, target.family)
    return {
        **build_guard_files(target.family),
        NEEDS: _encode_json({"target": target.spec, "needs": needs}),
    }


def _encode_json(value: object) -> bytes:
    return (as_json(value) + "\n").encode()


def _locate_features(required: Iterable[str], family: str) -> dict[str, Any]:
    """Return where each of these features is reported; no location for one without a CPUID bit.

    Raises TargetError for a feature that the family does not have.
    """
    return {name: _locate_bits(_find_feature(name, family)) for name in sorted(required)}


def _find_feature(name: str, family: str) -> Feature:
    if name not in load_features(family):
        raise TargetError(f"unknown {family} feature {name}")
    return load_features(family)[name]


def _locate_bits(feature: Feature) -> dict[str, tuple[int, ...]]:
    """Return where CPUID reports a feature, and where it reports that the OS saves its
    registers; empty on aarch64.
    """
    paths = {"cpuid": feature.cpuid}
    rows = load_features(feature.architecture)
    if feature.xcr0:
        paths["usable"] = rows["avx512f" if feature.xcr0 & _ZMM else "avx"].cpuid
    return {
        name: (bit.leaf, bit.subleaf, _REGISTERS.index(bit.register), bit.bit)
        for name, bit in paths.items()
        if bit is not None
    }


def guard_init(init: bytes) -> bytes:
    """Return tensorflow/__init__.py of a full build: the CPU check and the defaults come first.

    Raises WheelError if it is not valid Python, or its first statement does not start a line.
    """
    return _insert_at_start(init, FIRST)


def _insert_at_start(init: bytes, first: bytes) -> bytes:
    """Return the module with `first` before its first statement.

    Only a docstring and imports from __future__ stay before it, as Python requires.

    Raises WheelError if it is not valid Python, or that statement does not start a line.
    """
    try:
        body = ast.parse(init).body
        leading = next(
            (n for n, statement in enumerate(body) if not _is_leading(statement, n)), len(body)
        )
        lines = init.splitlines(keepends=True)
        index = _find_first_line(body[leading]) - 1 if leading < len(body) else len(lines)
        before, after = b"".join(lines[:index]), b"".join(lines[index:])
        text = before + (b"\n" if index and not before.endswith(b"\n") else b"") + first + after
        combined = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise WheelError(f"{INIT} is not valid Python ({error})") from error
    inserted = ast.parse(first).body
    if [*map(ast.dump, combined)] != [
        *map(ast.dump, (*body[:leading], *inserted, *body[leading:]))
    ]:
        raise WheelError(f"{INIT} has no line where Tensorwright's lines can be inserted")
    return text


def _is_leading(statement: ast.stmt, number: int) -> bool:
    """Return whether the statement with this number must precede all others."""
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__"
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return docstring and number == 0


def _find_first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def amend_init(init: bytes) -> bytes:
    """Return tensorflow/__init__.py of a wheel of kernels: defaults first, the check at its end.

    Raises WheelError if it is not TensorFlow's, as far as the check depends on it.
    """
    for mark in _MARKS:
        if not re.search(mark, init, re.MULTILINE):
            raise WheelError(f"{INIT} is not TensorFlow's: no line matches {mark.decode()}")
    return _insert_at_start(init, DEFAULTS).rstrip(b"\n") + b"\n" + CHECK


def _is_detectable(uarch: Microarchitecture) -> bool:
    """Return whether a CPU can be recognised as this target.

    False for versions of the Arm architecture: no list of features shows which one a CPU has.
    """
    family = str(uarch.family)
    return uarch.vendor != "generic" or family in {"x86_64", uarch.name}


def _build_target_data(family: str) -> dict[str, Any]:
    """Return archspec's detectable targets, and the features behind the kernel's names."""
    targets = [
        {
            "name": uarch.name,
            "vendor": uarch.vendor,
            "part": uarch.cpu_part,
            "features": frozenset(uarch.features),
            "ancestors": [ancestor.name for ancestor in uarch.ancestors],
        }
        for uarch in TARGETS.values()
        if str(uarch.family) == family and _is_detectable(uarch)
    ]
    return {
        "targets": targets,
        "features": _map_features(family),
        "vendors": _list_vendors(family),
        "mask": sorted(list_feature_names()),
    }


def _map_features(family: str) -> dict[str, Any]:
    return {name: normalize_features([name], family) for name in load_aliases(family)}


def _list_vendors(family: str) -> dict[str, Any]:
    return TARGETS_JSON["conversions"]["arm_vendors"] if family == "aarch64" else {}
