"""What `invoke detect` answers: this CPU, what fits it, and what the stock wheel leaves unused."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from tfbuild.cpus.cpu import Cpu, Vcpus, read_cpu, read_vcpus, x86_64_level
from tfbuild.cpus.features import STOCK_BASELINE, unused_by
from tfbuild.cpus.targets import Match, match

_WIDTH = 96
_INDENT = 14


@dataclass(frozen=True, kw_only=True, slots=True)
class Detection:
    """`level` is the x86-64 psABI level, None on aarch64. `unused` are TensorFlow's own names."""

    cpu: Cpu
    vcpus: Vcpus
    level: int | None
    match: Match
    unused: tuple[str, ...]
    notes: tuple[str, ...]


def detect(baseline: frozenset[str] = STOCK_BASELINE) -> Detection:
    """Look at this machine. `baseline` are the features that the stock wheel is compiled for.

    Raises CpuError when the CPU cannot be read.
    """
    return examine(read_cpu(), read_vcpus(), baseline)


def examine(cpu: Cpu, vcpus: Vcpus, baseline: frozenset[str] = STOCK_BASELINE) -> Detection:
    x86_64 = cpu.architecture == "x86_64"
    found = match(cpu)
    return Detection(
        cpu=cpu,
        vcpus=vcpus,
        level=x86_64_level(cpu.features) if x86_64 else None,
        match=found,
        unused=unused_by(cpu.features, baseline) if x86_64 else (),
        notes=(*found.notes, *_masked(found), *_shares(vcpus)),
    )


def describe(detection: Detection, defaults: Mapping[str, str] | None = None) -> str:
    """The detection for a person, a line or a few for each answer.

    `defaults` says by its name what of each run-time default holds here.
    """
    cpu, found = detection.cpu, detection.match
    rows = [
        ("CPU", _cpu_line(cpu)),
        ("level", f"x86-64-v{detection.level}" if detection.level else cpu.architecture),
        ("best target", f"{found.best.spec}, all of whose features are there"),
        ("native", found.native.spec),
        *(("near miss", f"{miss.name} lacks {', '.join(miss.missing)}") for miss in found.near),
        ("vCPUs", _vcpus_line(detection.vcpus)),
        ("unused", " ".join(detection.unused) or "nothing that TensorFlow has a name for"),
        *(("default", f"{name}: {text}") for name, text in (defaults or {}).items()),
        *(("note", note) for note in detection.notes),
    ]
    return "\n".join(_row(name, text) for name, text in rows)


def _row(name: str, text: str) -> str:
    # A target's extras are joined by +, which is a good place to break a long line too.
    return textwrap.fill(
        text.replace("+", " +"),
        _WIDTH,
        initial_indent=f"{name:<{_INDENT}}",
        subsequent_indent=" " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(" +", "+")


def _cpu_line(cpu: Cpu) -> str:
    where = ", virtual machine" if cpu.hypervisor else ""
    numbers = f"family {cpu.family} model {cpu.model} stepping {cpu.stepping}"
    return f"{cpu.name} ({cpu.vendor}, {numbers}{where})"


def _vcpus_line(vcpus: Vcpus) -> str:
    quota = "no quota" if vcpus.quota is None else f"quota {vcpus.quota:g}"
    return f"{vcpus.usable} usable: {vcpus.machine} in all, affinity {vcpus.affinity}, {quota}"


def _masked(found: Match) -> tuple[str, ...]:
    """What only features keep away that no compiler uses by itself: then native is tuned for it."""
    return tuple(
        f"no compiler uses {', '.join(miss.missing)} by itself: native is tuned for {miss.name}, "
        "and a wheel for that runs here, too"
        for miss in found.near
        if miss.name == found.native.tune
    )


def _shares(vcpus: Vcpus) -> tuple[str, ...]:
    if vcpus.quota is None or vcpus.quota >= vcpus.affinity:
        return ()
    shared = f"the quota of {vcpus.quota:g} CPUs is shared by threads on {vcpus.affinity}"
    return (f"{shared}: for measuring, pin to CPUs instead",)
