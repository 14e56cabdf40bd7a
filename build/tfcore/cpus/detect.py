"""The result of `invoke detect`: the CPU, its targets, and features without stock code."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from tfcore.cpus.cpu import Cpu, Vcpus, compute_x86_64_level, read_cpu, read_vcpus
from tfcore.cpus.features import STOCK_BASELINE, list_unused
from tfcore.cpus.targets import Match, match_cpu

_WIDTH = 96
_INDENT = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Detection:
    """The result of `invoke detect`.

    `level` is the x86-64 psABI level, None on aarch64. `unused` are TensorFlow's own names of
    features.
    """

    cpu: Cpu
    vcpus: Vcpus
    level: int | None
    match: Match
    unused: tuple[str, ...]
    notes: tuple[str, ...]


def detect(baseline: frozenset[str] = STOCK_BASELINE) -> Detection:
    """Examine this machine.

    `baseline` are the features that the stock wheel is compiled for. Raises CpuError if the
    CPU cannot be read.
    """
    return examine(read_cpu(), read_vcpus(), baseline)


def examine(cpu: Cpu, vcpus: Vcpus, baseline: frozenset[str] = STOCK_BASELINE) -> Detection:
    x86_64 = cpu.architecture == "x86_64"
    matched = match_cpu(cpu)
    return Detection(
        cpu=cpu,
        vcpus=vcpus,
        level=compute_x86_64_level(cpu.features) if x86_64 else None,
        match=matched,
        unused=list_unused(cpu.features, baseline) if x86_64 else (),
        notes=(*matched.notes, *_describe_tuning(matched), *_describe_quota(vcpus)),
    )


def describe(detection: Detection, defaults: Mapping[str, str] | None = None) -> str:
    """Describe the detection as text, with one or more lines for each item.

    `defaults` maps the name of each run-time default to its description for this CPU.
    """
    cpu, matched = detection.cpu, detection.match
    rows = [
        ("CPU", _format_cpu(cpu)),
        ("level", f"x86-64-v{detection.level}" if detection.level else cpu.architecture),
        ("best target", f"{matched.best.spec} (this CPU has all features of this target)"),
        ("--arch native", matched.native.spec),
        *(
            ("near miss", f"{miss.name}, whose {', '.join(miss.missing)} this CPU lacks")
            for miss in matched.near
        ),
        ("vCPUs", _format_vcpus(detection.vcpus)),
        ("not in stock", " ".join(detection.unused) or "none that TensorFlow names"),
        *(("at import", f"{name}: {text}") for name, text in (defaults or {}).items()),
        *(("note", note) for note in detection.notes),
    ]
    return "\n".join(_format_row(name, text) for name, text in rows)


def _format_row(name: str, text: str) -> str:
    # Long lines also break before the + that joins a target's extras.
    filled = textwrap.fill(
        text.replace("+", " +"),
        _WIDTH,
        initial_indent=f"{name:<{_INDENT}}",
        subsequent_indent=" " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return re.sub(r"(?<=\S) \+", "+", filled)


def _format_cpu(cpu: Cpu) -> str:
    suffix = ", virtual machine" if cpu.hypervisor else ""
    numbers = f"family {cpu.family} model {cpu.model} stepping {cpu.stepping}"
    return f"{cpu.name} ({cpu.vendor}, {numbers}{suffix})"


def _format_vcpus(vcpus: Vcpus) -> str:
    quota = "no CPU quota" if vcpus.quota is None else f"CPU quota {vcpus.quota:g}"
    return (
        f"{vcpus.usable} usable (the machine has {vcpus.machine}, this process may run on "
        f"{vcpus.affinity}, {quota})"
    )


def _describe_tuning(match: Match) -> tuple[str, ...]:
    """Return a note if native is tuned for a near miss.

    The CPU lacks only features of it that no compiler uses by itself.
    """
    return tuple(
        f"compilers do not use {', '.join(miss.missing)} unless the source asks for it, so "
        f"native is tuned for {miss.name}, and a wheel for {miss.name} runs here"
        for miss in match.near
        if miss.name == match.native.tune
    )


def _describe_quota(vcpus: Vcpus) -> tuple[str, ...]:
    if vcpus.quota is None or vcpus.quota >= vcpus.affinity:
        return ()
    shared = f"threads on {vcpus.affinity} CPUs share a quota of {vcpus.quota:g} CPUs"
    return (f"{shared}: to measure, pin to CPUs instead",)
