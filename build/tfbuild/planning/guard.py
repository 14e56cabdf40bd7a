"""What a tuned wheel carries to make a fallback an error: TENSORWRIGHT_REQUIRE=1.

The code is in shipped/_tensorwright.py. It names the page of an index that is right for the CPU, so
it gets archspec's targets as data: a user's environment need not have archspec.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from archspec.cpu import TARGETS
from archspec.cpu.microarchitecture import Microarchitecture
from archspec.cpu.schema import TARGETS_JSON

from tfbuild.cpus.features import canonical, canonical_names
from tfbuild.errors import WheelError
from tfbuild.records import canonical as as_json

PACKAGE = "tensorflow"
INIT = f"{PACKAGE}/__init__.py"
DATA = f"{PACKAGE}/_tensorwright.json"
_CODE = Path(__file__).parents[1] / "shipped" / "_tensorwright.py"

CHECK = b"""
# Added by Tensorwright: TENSORWRIGHT_REQUIRE=1 makes an import with stock kernels an ImportError.
if _os.environ.get("TENSORWRIGHT_REQUIRE", "0") not in ("", "0"):
  from tensorflow import _tensorwright
  _tensorwright.require()
"""
# TensorFlow's own __init__.py imports os so, and loads the dispatcher so.
_MARKS = (rb"^import os as _os$", rb"^ +_ll\.load_library\(_kernel_dir\)$")


def files(family: str) -> dict[str, bytes]:
    """The members to add to a wheel for this family: our module and its data."""
    return {
        f"{PACKAGE}/{_CODE.name}": _CODE.read_bytes(),
        DATA: (as_json(_known(family)) + "\n").encode(),
    }


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
