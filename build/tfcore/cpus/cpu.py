"""Reads this machine's CPU: its model, its features, and how many CPUs this process may use."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archspec.cpu import TARGETS
from archspec.cpu.schema import TARGETS_JSON

from tfcore.console import suggest_spelling
from tfcore.cpus.features import list_feature_names, normalize_features
from tfcore.errors import CpuError, UsageError
from tfcore.records import hash_record

# Linux writes these keys in every block. The last one comes after the features.
_X86_64_KEYS = ("vendor_id", "cpu family", "model", "flags", "bogomips")
_AARCH64_KEYS = ("Features", "CPU implementer", "CPU part", "CPU revision")
# py-cpuinfo 9.0 reads these from EBX of leaf 0x80000001, but they are in EDX.
_MISREAD = frozenset({"3dnow", "3dnowext"})
_HINT = "Name the target instead: --arch NAME"
MASK = "TENSORWRIGHT_MASK"
"""Environment variable: comma-separated features to hide. The dispatcher reads it too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cpu:
    """A CPU as its operating system shows it.

    `features` are archspec's names of the features that all processors have. On aarch64
    `family` is the architecture, `model` the part number and `stepping` the revision.
    `hypervisor` is None if the CPU does not show it.
    """

    architecture: str
    vendor: str
    name: str
    family: int
    model: int
    stepping: int
    microcode: str
    hypervisor: bool | None
    features: frozenset[str]

    @property
    def kind(self) -> str:
        """Return a hash of the CPU's kind.

        CPUs that differ in stepping or visible features are of different kinds: they run
        different code.
        """
        return hash_record((self.vendor, self.family, self.model, self.stepping, self.features))


@dataclass(frozen=True, kw_only=True, slots=True)
class Vcpus:
    """The numbers of CPUs of a machine.

    `quota` is in CPUs, None without one. `usable` is how many may run at the same time.
    """

    machine: int
    affinity: int
    quota: float | None
    usable: int


def read_cpu(path: Path = Path("/proc/cpuinfo"), env: Mapping[str, str] = os.environ) -> Cpu:
    """Return the CPU of this machine, without the features that TENSORWRIGHT_MASK hides.

    Raises CpuError if neither the kernel nor CPUID shows enough, UsageError if the mask has an
    unknown name.
    """
    try:
        cpu = parse_cpuinfo(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, CpuError) as reason:
        cpu = _query_py_cpuinfo(reason)
    return apply_mask(cpu, env.get(MASK, ""))


def apply_mask(cpu: Cpu, mask: str) -> Cpu:
    """Return the CPU without the features of a mask, which has the dispatcher's syntax.

    Raises UsageError for an unknown name.
    """
    hidden, known_names = [name for name in mask.split(",") if name], list_feature_names()
    for name in hidden:
        if name not in known_names:
            raise UsageError(
                f"{MASK} names an unknown CPU feature: {name!r}",
                hint=suggest_spelling(name.strip(), known_names)
                or "build/tfcore/cpus/features.toml lists the names",
            )
    return dataclasses.replace(cpu, features=cpu.features.difference(hidden))


def parse_cpuinfo(text: str) -> Cpu:
    """Parse a /proc/cpuinfo text of x86-64 or aarch64.

    Raises CpuError.
    """
    blocks = [block for block in _parse_blocks(text) if "processor" in block]
    if not blocks:
        raise CpuError("/proc/cpuinfo lists no processor", hint=_HINT)
    if "vendor_id" in blocks[0]:
        _require_keys(blocks, _X86_64_KEYS)
        cpu = _parse_x86_64(blocks)
        if "sse2" in cpu.features:
            return cpu
        raise CpuError(
            "/proc/cpuinfo is truncated: its flags lack sse2, which every x86-64 CPU has",
            hint=_HINT,
        )
    if "CPU implementer" in blocks[0] or "Features" in blocks[0]:
        _require_keys(blocks, _AARCH64_KEYS)
        return _parse_aarch64(blocks)
    raise CpuError(
        "/proc/cpuinfo has neither a vendor_id (x86-64) nor a CPU implementer (aarch64)",
        hint=_HINT,
    )


def compute_x86_64_level(features: frozenset[str]) -> int:
    """Return the x86-64 psABI level, 1 to 4, that these features reach."""
    level = 1
    while level < 4 and TARGETS[f"x86_64_v{level + 1}"].features <= features:  # noqa: PLR2004
        level += 1
    return level


def read_vcpus(root: Path = Path("/")) -> Vcpus:
    """Return how many CPUs this process may use: its affinity, capped by its cgroup's quota."""
    affinity = len(os.sched_getaffinity(0))
    return compute_vcpus(
        machine=os.cpu_count() or affinity, affinity=affinity, quota=read_cgroup_quota(root)
    )


def compute_vcpus(*, machine: int, affinity: int, quota: float | None) -> Vcpus:
    usable = affinity if quota is None else min(affinity, max(1, math.ceil(quota)))
    return Vcpus(machine=machine, affinity=affinity, quota=quota, usable=usable)


def read_numa_nodes(cpus: Iterable[int], root: Path = Path("/")) -> dict[int, int]:
    """Return the NUMA node of each CPU, without the CPUs for which Linux lists none."""
    folder = root / "sys/devices/system/cpu"
    pairs = ((cpu, path.name) for cpu in cpus for path in folder.glob(f"cpu{cpu}/node[0-9]*"))
    return {cpu: int(name.removeprefix("node")) for cpu, name in pairs}


def read_cgroup_quota(root: Path = Path("/")) -> float | None:
    """Return the least CPU quota of this process's cgroup and those above it, in CPUs.

    Reads version 2 (cpu.max) and version 1 (cpu.cfs_quota_us). In a container the path may
    name folders that only the host can see; those that exist are read. None without a quota.
    """
    try:
        text = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    base = root / "sys/fs/cgroup"
    quotas: list[float] = []
    rows = (line.split(":", 2) for line in text.splitlines())
    for _, controllers, path in (row for row in rows if len(row) == 3):  # noqa: PLR2004
        if not controllers:
            quotas += _read_quotas(base, path, _read_quota_v2)
            quotas += _read_quotas(base / "unified", path, _read_quota_v2)
        elif "cpu" in controllers.split(","):
            for mount in dict.fromkeys((controllers, "cpu")):
                quotas += _read_quotas(base / mount, path, _read_quota_v1)
    return min(quotas, default=None)


def _read_quotas(mount: Path, path: str, read: Callable[[Path], float | None]) -> Iterator[float]:
    folder = mount / path.strip("/")
    for level in (folder, *folder.parents):
        if level == mount.parent:
            return
        quota = read(level)
        if quota is not None:
            yield quota


def _read_quota_v2(folder: Path) -> float | None:
    match _read_words(folder / "cpu.max"):
        case [quota, period] if quota != "max":
            return int(quota) / int(period)
    return None


def _read_quota_v1(folder: Path) -> float | None:
    match _read_words(folder / "cpu.cfs_quota_us") + _read_words(folder / "cpu.cfs_period_us"):
        case [quota, period] if int(quota) > 0:
            return int(quota) / int(period)
    return None


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except OSError:
        return []


def _parse_blocks(text: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each processor.

    A last line without a line end is truncated, so it is ignored.
    """
    complete = text[: text.rfind("\n") + 1]
    for block in complete.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines() if ":" in line)
        yield {key.strip(): value.strip() for key, _, value in pairs}


def _require_keys(blocks: list[dict[str, str]], keys: tuple[str, ...]) -> None:
    for block in blocks:
        absent = [key for key in keys if not block.get(key)]
        if absent:
            raise CpuError(
                f"/proc/cpuinfo is truncated: processor {block['processor']} "
                f"has no {', '.join(absent)}",
                hint=_HINT,
            )


def _parse_x86_64(blocks: list[dict[str, str]]) -> Cpu:
    first = blocks[0]
    flags = [frozenset(block["flags"].split()) for block in blocks]
    return Cpu(
        architecture="x86_64",
        vendor=first["vendor_id"],
        name=first.get("model name", "unknown"),
        family=_parse_number(first, "cpu family"),
        model=_parse_number(first, "model"),
        stepping=_parse_number(first, "stepping"),
        microcode=first.get("microcode", ""),
        hypervisor="hypervisor" in flags[0],
        features=normalize_features(frozenset.intersection(*flags), "x86_64"),
    )


def _parse_aarch64(blocks: list[dict[str, str]]) -> Cpu:
    first = blocks[0]
    features = [frozenset(block["Features"].split()) for block in blocks]
    vendors: Mapping[str, str] = TARGETS_JSON["conversions"]["arm_vendors"]
    vendor = vendors.get(first["CPU implementer"], first["CPU implementer"])
    return Cpu(
        architecture="aarch64",
        vendor=vendor,
        name=first.get("model name", f"{vendor} part {first['CPU part']}"),
        family=_parse_number(first, "CPU architecture"),
        model=_parse_number(first, "CPU part"),
        stepping=_parse_number(first, "CPU revision"),
        microcode="",
        hypervisor=None,
        features=normalize_features(frozenset.intersection(*features), "aarch64"),
    )


def _parse_number(block: Mapping[str, str], key: str) -> int:
    """Return a decimal or 0x… number, 0 for other texts.

    The kernel writes "unknown" for a stepping that it cannot read.
    """
    try:
        return int(block.get(key, ""), 0)
    except ValueError:
        return 0


def _query_py_cpuinfo(reason: Exception) -> Cpu:
    """Return the CPU from py-cpuinfo, which runs the CPUID instruction.

    Takes over a second. Raises CpuError.
    """
    import cpuinfo  # noqa: PLC0415

    try:
        info: dict[str, Any] = cpuinfo.get_cpu_info()
    except Exception as error:
        raise CpuError(f"cannot read the CPU: {reason}; {error}", hint=_HINT) from error
    architecture = {"X86_64": "x86_64", "ARM_8": "aarch64"}.get(info.get("arch", ""))
    flags = frozenset(info.get("flags", ())) - _MISREAD
    if architecture is None or not flags:
        raise CpuError(f"cannot read the CPU: {reason}", hint=_HINT)
    return Cpu(
        architecture=architecture,
        vendor=str(info.get("vendor_id_raw", "unknown")),
        name=str(info.get("brand_raw", "unknown")),
        family=int(info.get("family", 0)),
        model=int(info.get("model", 0)),
        stepping=int(info.get("stepping", 0)),
        microcode="",
        hypervisor="hypervisor" in flags if architecture == "x86_64" else None,
        features=normalize_features(flags, architecture),
    )
