"""What the CPU has. In a full build tensorflow/__init__.py begins with that question (need_cpu);
in every tuned wheel the run-time defaults depend on it (missing).

On x86-64 it is CPUID, as glibc has read it (<sys/platform/x86.h>, from glibc 2.33 on), for an
emulator such as qemu-x86_64 shows its host's /proc/cpuinfo. Elsewhere it is /proc/cpuinfo.
TENSORWRIGHT_MASK=avx2,fma acts as if the CPU lacked these, to try the refusal; a name in it that is
no feature's is refused, too (unknown).
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._tensorwright import FOLDER, read_cpuinfo, where

RISK = "TENSORWRIGHT_RISK_SIGILL"
DATA = "_tensorwright_cpu.json"

# Leaf and subleaf of CPUID to the numbers of <bits/platform/x86.h>.
_NUMBERS = {(1, 0): 0, (7, 0): 1, (0x80000001, 0): 2, (0xD, 1): 3, (7, 1): 6}


class _Leaf(ctypes.Structure):
    """glibc's struct cpuid_feature: EAX to EDX as the CPU says, and what of it can be used."""

    _fields_ = (("cpuid", ctypes.c_uint32 * 4), ("active", ctypes.c_uint32 * 4))


def need_cpu() -> None:
    """Raises ImportError, which says what this CPU lacks, before any of TensorFlow is loaded."""
    if os.environ.get(RISK, "0") not in ("", "0"):
        return
    try:
        said = json.loads((FOLDER / DATA).read_text(encoding="utf-8"))
        target, needs = said["target"], said["needs"]
        shown, mask = cpuinfo_features(), os.environ.get("TENSORWRIGHT_MASK", "")
        wrong = unknown(mask, _known()["mask"])
        lacks = missing(needs, shown, mask)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise _refusal(f"what this CPU or {DATA} says cannot be read ({error})") from error
    if wrong:
        raise _refusal(
            f"TENSORWRIGHT_MASK names {wrong[0]!r}, which is no CPU feature that is known"
        )
    if lacks:
        page = where(os.environ.get("TENSORWRIGHT_INDEX", ""))
        if shown.intersection(lacks).difference(mask.split(",")):
            page = (
                "Which page of your index has others is not known: /proc/cpuinfo shows another CPU"
            )
        raise _refusal(f"it is built for {target}, and this CPU lacks {', '.join(lacks)}. {page}")


def missing(needs: Mapping[str, Any], shown: set[str], mask: str) -> list[str]:
    """Those of the needed features that the CPU has not. `shown` are those of /proc/cpuinfo."""
    hidden = mask.split(",")
    return sorted(
        name for name, bits in needs.items() if name in hidden or not _has(name, bits, shown)
    )


def unknown(mask: str, known: Sequence[str]) -> list[str]:
    """The names of a mask that are no feature's, as the dispatcher tells them."""
    return [name for name in mask.split(",") if name and name not in known]


def has_cpuid() -> bool:
    """Whether glibc tells what CPUID says, so that /proc/cpuinfo need not be read."""
    return _leaf((1, 0)) is not None


def cpuinfo_features() -> set[str]:
    """What /proc/cpuinfo shows, archspec's names; nothing where it is of another family, as an
    emulator's is."""
    known = _known()
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        return read_cpuinfo(text, known)[2]
    except (OSError, ValueError, KeyError):
        return set()


def _known() -> Any:  # noqa: ANN401  (JSON)
    return json.loads((FOLDER / "_tensorwright.json").read_text(encoding="utf-8"))


def _has(name: str, bits: Mapping[str, Sequence[int]], shown: set[str]) -> bool:
    """`bits` are places in CPUID: the feature's own, and one that is usable only when the operating
    system saves the registers that it needs."""
    own = _leaf(bits["cpuid"]) if "cpuid" in bits else None
    if own is None:
        return name in shown
    if not own.cpuid[bits["cpuid"][2]] >> bits["cpuid"][3] & 1:
        return False
    state = _leaf(bits["usable"]) if "usable" in bits else None
    return state is None or bool(state.active[bits["usable"][2]] >> bits["usable"][3] & 1)


def _leaf(place: Sequence[int]) -> _Leaf | None:
    """None where glibc does not tell."""
    number = _NUMBERS.get((place[0], place[1]))
    return None if number is None else _asked(number)


@functools.cache
def _asked(number: int) -> _Leaf | None:
    """None before glibc 2.33."""
    try:
        ask = ctypes.CDLL(None)["__x86_get_cpuid_feature_leaf"]
    except (OSError, AttributeError):
        return None
    ask.argtypes, ask.restype = [ctypes.c_uint], ctypes.POINTER(_Leaf)
    leaf: _Leaf = ask(number).contents
    return leaf


def _refusal(why: str) -> ImportError:
    return ImportError(
        f"this TensorFlow cannot run here: {why}. {RISK}=1 imports it all the same, and the "
        "process may then die of an illegal instruction at any time",
        name="tensorflow",
    )
