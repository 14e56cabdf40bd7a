"""The CPU that we are on: what it is, what it can do, and how much of it is ours."""

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

from tfbuild.console import did_you_mean
from tfbuild.cpus.features import canonical, every_name
from tfbuild.errors import CpuError, UsageError
from tfbuild.records import key_of

# Present in every block that Linux writes; the last of each comes after the features.
_X86_64_KEYS = ("vendor_id", "cpu family", "model", "flags", "bogomips")
_AARCH64_KEYS = ("Features", "CPU implementer", "CPU part", "CPU revision")
# py-cpuinfo 9.0 takes these from EBX of leaf 0x80000001, where they are in EDX.
_MISREAD = frozenset({"3dnow", "3dnowext"})
_HINT = "Name the target instead: --arch NAME"
MASK = "TENSORWRIGHT_MASK"
"""Features with commas between that the CPU is taken to lack: the dispatcher's own variable."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cpu:
    """A CPU as its operating system shows it.

    `features` are archspec's names, of all processors in common. On aarch64 `family` is the
    architecture, `model` the part number and `stepping` the revision. `hypervisor` is None where
    a CPU cannot tell.
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
        """A hash: a CPU with another stepping or with hidden features runs other code."""
        return key_of((self.vendor, self.family, self.model, self.stepping, self.features))


@dataclass(frozen=True, kw_only=True, slots=True)
class Vcpus:
    """`quota` is in CPUs, None without one. `usable` is what may run at the same time."""

    machine: int
    affinity: int
    quota: float | None
    usable: int


def read_cpu(path: Path = Path("/proc/cpuinfo"), env: Mapping[str, str] = os.environ) -> Cpu:
    """The CPU of this machine, without what TENSORWRIGHT_MASK hides of it.

    Raises CpuError when neither the kernel nor CPUID tells enough, UsageError for a mask with a
    name that is no feature's.
    """
    try:
        seen = parse_cpuinfo(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, CpuError) as reason:
        seen = _from_py_cpuinfo(reason)
    return masked(seen, env.get(MASK, ""))


def masked(cpu: Cpu, mask: str) -> Cpu:
    """The CPU without the features of a mask, which are read as the dispatcher reads them. Raises
    UsageError for a name that is no feature's."""
    hidden, known = [name for name in mask.split(",") if name], every_name()
    for name in hidden:
        if name not in known:
            raise UsageError(
                f"{MASK} names {name!r}, which is no CPU feature that is known",
                hint=did_you_mean(name.strip(), known)
                or "Features are called as in build/tfbuild/cpus/features.toml",
            )
    return dataclasses.replace(cpu, features=cpu.features.difference(hidden))


def parse_cpuinfo(text: str) -> Cpu:
    """The CPU that a /proc/cpuinfo text of x86-64 or aarch64 describes. Raises CpuError."""
    blocks = [block for block in _blocks(text) if "processor" in block]
    if not blocks:
        raise CpuError("/proc/cpuinfo lists no processor", hint=_HINT)
    if "vendor_id" in blocks[0]:
        _require(blocks, _X86_64_KEYS)
        cpu = _x86_64(blocks)
        if "sse2" in cpu.features:
            return cpu
        raise CpuError(
            "/proc/cpuinfo lists no sse2, which every x86-64 has: its flags are cut short",
            hint=_HINT,
        )
    if "CPU implementer" in blocks[0] or "Features" in blocks[0]:
        _require(blocks, _AARCH64_KEYS)
        return _aarch64(blocks)
    raise CpuError(
        "/proc/cpuinfo has neither a vendor_id (x86-64) nor a CPU implementer (aarch64)",
        hint=_HINT,
    )


def x86_64_level(features: frozenset[str]) -> int:
    """The x86-64 psABI level, 1 to 4, that these features reach."""
    level = 1
    while level < 4 and TARGETS[f"x86_64_v{level + 1}"].features <= features:  # noqa: PLR2004
        level += 1
    return level


def read_vcpus(root: Path = Path("/")) -> Vcpus:
    """How many CPUs this process may use: its affinity, capped by its cgroup's quota."""
    affinity = len(os.sched_getaffinity(0))
    return vcpus(machine=os.cpu_count() or affinity, affinity=affinity, quota=cgroup_quota(root))


def vcpus(*, machine: int, affinity: int, quota: float | None) -> Vcpus:
    usable = affinity if quota is None else min(affinity, max(1, math.ceil(quota)))
    return Vcpus(machine=machine, affinity=affinity, quota=quota, usable=usable)


def nodes_of(cpus: Iterable[int], root: Path = Path("/")) -> dict[int, int]:
    """The NUMA node of each CPU; without those of which Linux says nothing."""
    folder = root / "sys/devices/system/cpu"
    found = ((cpu, path.name) for cpu in cpus for path in folder.glob(f"cpu{cpu}/node[0-9]*"))
    return {cpu: int(name.removeprefix("node")) for cpu, name in found}


def cgroup_quota(root: Path = Path("/")) -> float | None:
    """The least CPU quota of this process's cgroup and those above it, in CPUs.

    Reads version 2 (cpu.max) and version 1 (cpu.cfs_quota_us). In a container the path may name
    folders that only the host can see; what is there is read.
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
            quotas += _walk(base, path, _quota_v2)
            quotas += _walk(base / "unified", path, _quota_v2)
        elif "cpu" in controllers.split(","):
            for mount in dict.fromkeys((controllers, "cpu")):
                quotas += _walk(base / mount, path, _quota_v1)
    return min(quotas, default=None)


def _walk(mount: Path, path: str, read: Callable[[Path], float | None]) -> Iterator[float]:
    folder = mount / path.strip("/")
    for level in (folder, *folder.parents):
        if level == mount.parent:
            return
        quota = read(level)
        if quota is not None:
            yield quota


def _quota_v2(folder: Path) -> float | None:
    match _words(folder / "cpu.max"):
        case [quota, period] if quota != "max":
            return int(quota) / int(period)
    return None


def _quota_v1(folder: Path) -> float | None:
    match _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us"):
        case [quota, period] if int(quota) > 0:
            return int(quota) / int(period)
    return None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except OSError:
        return []


def _blocks(text: str) -> Iterator[dict[str, str]]:
    """Each processor's lines. A last line without an end is cut, so its value is not taken."""
    whole = text[: text.rfind("\n") + 1]
    for block in whole.split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines() if ":" in line)
        yield {key.strip(): value.strip() for key, _, value in pairs}


def _require(blocks: list[dict[str, str]], keys: tuple[str, ...]) -> None:
    for block in blocks:
        absent = [key for key in keys if not block.get(key)]
        if absent:
            raise CpuError(
                f"/proc/cpuinfo is cut short: processor {block['processor']} "
                f"has no {', '.join(absent)}",
                hint=_HINT,
            )


def _x86_64(blocks: list[dict[str, str]]) -> Cpu:
    first = blocks[0]
    flags = [frozenset(block["flags"].split()) for block in blocks]
    return Cpu(
        architecture="x86_64",
        vendor=first["vendor_id"],
        name=first.get("model name", "unknown"),
        family=_number(first, "cpu family"),
        model=_number(first, "model"),
        stepping=_number(first, "stepping"),
        microcode=first.get("microcode", ""),
        hypervisor="hypervisor" in flags[0],
        features=canonical(frozenset.intersection(*flags), "x86_64"),
    )


def _aarch64(blocks: list[dict[str, str]]) -> Cpu:
    first = blocks[0]
    features = [frozenset(block["Features"].split()) for block in blocks]
    vendors: Mapping[str, str] = TARGETS_JSON["conversions"]["arm_vendors"]
    vendor = vendors.get(first["CPU implementer"], first["CPU implementer"])
    return Cpu(
        architecture="aarch64",
        vendor=vendor,
        name=first.get("model name", f"{vendor} part {first['CPU part']}"),
        family=_number(first, "CPU architecture"),
        model=_number(first, "CPU part"),
        stepping=_number(first, "CPU revision"),
        microcode="",
        hypervisor=None,
        features=canonical(frozenset.intersection(*features), "aarch64"),
    )


def _number(block: Mapping[str, str], key: str) -> int:
    """Decimal or 0x…; the kernel writes "unknown" for a stepping that it cannot read."""
    try:
        return int(block.get(key, ""), 0)
    except ValueError:
        return 0


def _from_py_cpuinfo(reason: Exception) -> Cpu:
    """Ask py-cpuinfo, which runs the CPUID instruction itself. Takes over a second."""
    import cpuinfo  # noqa: PLC0415

    try:
        seen: dict[str, Any] = cpuinfo.get_cpu_info()
    except Exception as error:
        raise CpuError(f"this CPU could not be read: {reason}; {error}", hint=_HINT) from error
    architecture = {"X86_64": "x86_64", "ARM_8": "aarch64"}.get(seen.get("arch", ""))
    flags = frozenset(seen.get("flags", ())) - _MISREAD
    if architecture is None or not flags:
        raise CpuError(f"this CPU could not be read: {reason}", hint=_HINT)
    return Cpu(
        architecture=architecture,
        vendor=str(seen.get("vendor_id_raw", "unknown")),
        name=str(seen.get("brand_raw", "unknown")),
        family=int(seen.get("family", 0)),
        model=int(seen.get("model", 0)),
        stepping=int(seen.get("stepping", 0)),
        microcode="",
        hypervisor="hypervisor" in flags if architecture == "x86_64" else None,
        features=canonical(flags, architecture),
    )
