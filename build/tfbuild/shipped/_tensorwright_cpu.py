"""Detects the features of the CPU. In a full build tensorflow/__init__.py calls need_cpu first; in
every tuned wheel the run-time defaults depend on list_missing.

On x86-64 the source is CPUID as glibc reports it (<sys/platform/x86.h>, from glibc 2.33 on), since
an emulator such as qemu-x86_64 shows the /proc/cpuinfo of its host. Elsewhere it is /proc/cpuinfo.
TENSORWRIGHT_MASK=avx2,fma hides these features, to test the refusal. A name in it that is no
feature is an error (list_unknown).
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._tensorwright import FOLDER, describe_wheel_page, read_cpuinfo

RISK = "TENSORWRIGHT_RISK_SIGILL"
DATA = "_tensorwright_cpu.json"

# Leaf and subleaf of CPUID to the numbers of <bits/platform/x86.h>.
_NUMBERS = {(1, 0): 0, (7, 0): 1, (0x80000001, 0): 2, (0xD, 1): 3, (7, 1): 6}


class _Leaf(ctypes.Structure):
    """The struct cpuid_feature of glibc: EAX to EDX as CPUID reports them, and which of their
    bits are usable.
    """

    _fields_ = (("cpuid", ctypes.c_uint32 * 4), ("active", ctypes.c_uint32 * 4))


def need_cpu() -> None:
    """Raise ImportError with the features that this CPU lacks, before any of TensorFlow is
    loaded.
    """
    if os.environ.get(RISK, "0") not in ("", "0"):
        return
    try:
        data = json.loads((FOLDER / DATA).read_text(encoding="utf-8"))
        target, needs = data["target"], data["needs"]
        cpuinfo, mask = read_features(), os.environ.get("TENSORWRIGHT_MASK", "")
        unknown_names = list_unknown(mask, _read_data()["mask"])
        lacks = list_missing(needs, cpuinfo, mask)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise _create_error(f"the CPU features or {DATA} cannot be read ({error})") from error
    if unknown_names:
        raise _create_error(
            f"TENSORWRIGHT_MASK names {unknown_names[0]!r}, which is not a known CPU feature"
        )
    if lacks:
        page = describe_wheel_page(os.environ.get("TENSORWRIGHT_INDEX", ""))
        if cpuinfo.intersection(lacks).difference(mask.split(",")):
            page = "The index page for this CPU is unknown: /proc/cpuinfo shows another CPU"
        raise _create_error(
            f"it is built for {target}, but this CPU lacks {', '.join(lacks)}. {page}"
        )


def list_missing(needs: Mapping[str, Any], shown: set[str], mask: str) -> list[str]:
    """List the needed features that the CPU lacks. `shown` are the features in /proc/cpuinfo."""
    masked = mask.split(",")
    return sorted(
        name
        for name, bits in needs.items()
        if name in masked or not _has_feature(name, bits, shown)
    )


def list_unknown(mask: str, known: Sequence[str]) -> list[str]:
    """List the names in a mask that are no CPU features, as the dispatcher detects them."""
    return [name for name in mask.split(",") if name and name not in known]


def has_cpuid() -> bool:
    """Return whether glibc reports CPUID, so that /proc/cpuinfo need not be read."""
    return _leaf((1, 0)) is not None


def read_features() -> set[str]:
    """Return the features in /proc/cpuinfo by archspec's names, or an empty set if it shows a
    CPU of another family, as under an emulator.
    """
    data = _read_data()
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        return read_cpuinfo(text, data)[2]
    except (OSError, ValueError, KeyError):
        return set()


def _read_data() -> Any:
    return json.loads((FOLDER / "_tensorwright.json").read_text(encoding="utf-8"))


def _has_feature(name: str, bits: Mapping[str, Sequence[int]], shown: set[str]) -> bool:
    """Return whether the CPU has a feature. `bits` are positions in CPUID: `cpuid` is the
    feature's own bit; `usable` is set only if the operating system saves the registers that
    the feature needs.
    """
    leaf = _leaf(bits["cpuid"]) if "cpuid" in bits else None
    if leaf is None:
        return name in shown
    if not leaf.cpuid[bits["cpuid"][2]] >> bits["cpuid"][3] & 1:
        return False
    state = _leaf(bits["usable"]) if "usable" in bits else None
    return state is None or bool(state.active[bits["usable"][2]] >> bits["usable"][3] & 1)


def _leaf(place: Sequence[int]) -> _Leaf | None:
    """Return a leaf of CPUID, or None if glibc does not report it."""
    number = _NUMBERS.get((place[0], place[1]))
    return None if number is None else _query_leaf(number)


@functools.cache
def _query_leaf(number: int) -> _Leaf | None:
    """Query glibc for a leaf of CPUID; None before glibc 2.33."""
    try:
        get_leaf = ctypes.CDLL(None)["__x86_get_cpuid_feature_leaf"]
    except (OSError, AttributeError):
        return None
    get_leaf.argtypes, get_leaf.restype = [ctypes.c_uint], ctypes.POINTER(_Leaf)
    leaf: _Leaf = get_leaf(number).contents
    return leaf


def _create_error(reason: str) -> ImportError:
    return ImportError(
        f"this TensorFlow cannot run here: {reason}. {RISK}=1 imports it anyway; the process may "
        "then end with an illegal instruction at any time",
        name="tensorflow",
    )
