"""What `invoke detect` answers: this CPU, what fits it, and what the stock wheel leaves unused."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from tfbuild.cpus.cpu import Cpu, Vcpus, compute_x86_64_level, read_cpu, read_vcpus
from tfbuild.cpus.features import STOCK_BASELINE, list_unused
from tfbuild.cpus.targets import Match, match_cpu

_WIDTH = 96
_INDENT = 14


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
    """Describe the detection for a person, with one line or a few for each answer.

    `defaults` maps the name of each run-time default to what holds here.
    """
    cpu, matched = detection.cpu, detection.match
    rows = [
        ("CPU", _format_cpu(cpu)),
        ("level", f"x86-64-v{detection.level}" if detection.level else cpu.architecture),
        ("best target", f"{matched.best.spec}, all of whose features are there"),
        ("native", matched.native.spec),
        *(("near miss", f"{miss.name} lacks {', '.join(miss.missing)}") for miss in matched.near),
        ("vCPUs", _format_vcpus(detection.vcpus)),
        ("unused", " ".join(detection.unused) or "nothing that TensorFlow has a name for"),
        *(("default", f"{name}: {text}") for name, text in (defaults or {}).items()),
        *(("note", note) for note in detection.notes),
    ]
    return "\n".join(_format_row(name, text) for name, text in rows)


def _format_row(name: str, text: str) -> str:
    # A target's extras are joined by +, which is a good place to break a long line too.
    return textwrap.fill(
        text.replace("+", " +"),
        _WIDTH,
        initial_indent=f"{name:<{_INDENT}}",
        subsequent_indent=" " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(" +", "+")


def _format_cpu(cpu: Cpu) -> str:
    suffix = ", virtual machine" if cpu.hypervisor else ""
    numbers = f"family {cpu.family} model {cpu.model} stepping {cpu.stepping}"
    return f"{cpu.name} ({cpu.vendor}, {numbers}{suffix})"


def _format_vcpus(vcpus: Vcpus) -> str:
    quota = "no quota" if vcpus.quota is None else f"quota {vcpus.quota:g}"
    return f"{vcpus.usable} usable: {vcpus.machine} in all, affinity {vcpus.affinity}, {quota}"


def _describe_tuning(found: Match) -> tuple[str, ...]:
    """Return a note if native is tuned for a near miss.

    That target lacks only features that no compiler uses by itself.
    """
    return tuple(
        f"no compiler uses {', '.join(miss.missing)} by itself: native is tuned for {miss.name}, "
        "and a wheel for that runs here, too"
        for miss in found.near
        if miss.name == found.native.tune
    )


def _describe_quota(vcpus: Vcpus) -> tuple[str, ...]:
    if vcpus.quota is None or vcpus.quota >= vcpus.affinity:
        return ()
    shared = f"the quota of {vcpus.quota:g} CPUs is shared by threads on {vcpus.affinity}"
    return (f"{shared}: for measuring, pin to CPUs instead",)
