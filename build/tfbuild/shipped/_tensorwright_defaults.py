"""Sets this wheel's run-time defaults, before TensorFlow's libraries read their environment.

tensorflow/__init__.py calls `apply` before anything else, unless TENSORWRIGHT_DEFAULTS is 0. The
target is the one whose kernels the dispatcher will take. A variable of the user's own always
stays. What is set lies in os.environ, so processes that this one starts have it too.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ._tensorwright import FOLDER, read_cpuinfo
from ._tensorwright_cpu import has_cpuid, missing, unknown

DATA = "_tensorwright_defaults.json"
QUOTA = "quota"


def apply() -> None:
    """Never raises: with data that cannot be read TensorFlow runs as it would by itself."""
    try:
        data = json.loads((FOLDER / DATA).read_text(encoding="utf-8"))
        target, settings = choose(data, os.environ)
        os.environ.update(settings)
    except Exception as error:  # noqa: BLE001  (whatever it is, the import must go on)
        _say(1, f"run-time defaults are left out ({error!r})")
        return
    if settings:
        shown = " ".join(f"{name}={value}" for name, value in settings.items())
        _say(0, f"{shown} for {target}; TENSORWRIGHT_DEFAULTS=0 leaves that out")


def choose(
    data: Mapping[str, Any], environment: Mapping[str, str], root: Path = Path("/")
) -> tuple[str, dict[str, str]]:
    """The target that fits this CPU first, and what to set for it; nothing without one.

    `data` is that of DATA; `root` has proc and sys in it.
    """
    wanted = environment.get("TENSORWRIGHT_TARGET", "")
    if wanted == "off":
        return "", {}
    mask = environment.get("TENSORWRIGHT_MASK", "")
    if unknown(mask, data["mask"]):
        return "", {}
    shown = set() if has_cpuid() else _cpuinfo(root, data)
    places = data["places"]

    def lacks(names: Iterable[str]) -> list[str]:
        return missing({name: places[name] for name in names}, shown, mask)

    for target in data["targets"]:
        if (wanted and _plain(wanted) != _plain(target["name"])) or lacks(target["needs"]):
            continue
        chosen: dict[str, str] = {}
        for default in target["defaults"]:
            own = {*default["set"], *default["leave"]}
            moot = len(lacks(default["unless"])) < len(default["unless"])
            idle = moot or lacks(default["needs"]) or own.intersection(environment)
            if default["on"] and not idle:
                chosen.update(_values(default["set"], root))
        return str(target["name"]), chosen
    return "", {}


def _plain(name: str) -> str:
    """skylake_avx512 is skylake.avx512 in the wheel's version."""
    return name.replace("_", ".").replace("-", ".")


def _values(variables: Mapping[str, str], root: Path) -> Iterator[tuple[str, str]]:
    for name, value in variables.items():
        if value != QUOTA:
            yield name, value
            continue
        cpus, mine = quota(root), len(os.sched_getaffinity(0))
        if cpus is not None and cpus < mine:
            yield name, str(cpus)


def _cpuinfo(root: Path, data: Mapping[str, Any]) -> set[str]:
    """The features of the first processor: reading all of them takes long on a large machine."""
    with (root / "proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        return read_cpuinfo("".join(itertools.takewhile(str.strip, lines)), data)[2]


# ---- the cgroup's quota, as tfbuild.cpus.cpu.cgroup_quota reads it ----


def quota(root: Path = Path("/")) -> int | None:
    """The least CPU quota of this process's cgroup and those above it, rounded up; None without."""
    base, found = root / "sys/fs/cgroup", list[int]()
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, *rest = line.split(":", 2)
        if len(rest) != 2:  # noqa: PLR2004  (hierarchy, controllers, path)
            continue
        controllers, path = rest
        if not controllers:
            for mount in (base, base / "unified"):
                found += (_cpus(_text(each / "cpu.max")) for each in _levels(mount, path))
        elif "cpu" in controllers.split(","):
            for mount in {base / controllers, base / "cpu"}:
                for each in _levels(mount, path):
                    pair = (_text(each / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
                    found.append(_cpus(" ".join(pair)))
    return min(filter(None, found), default=None)


def _levels(mount: Path, path: str) -> Iterator[Path]:
    """The folder of a cgroup and those above it. In a container only the mount may be there."""
    folder = mount / path.strip("/")
    return itertools.takewhile(lambda each: each != mount.parent, (folder, *folder.parents))


def _cpus(pair: str) -> int:
    """Quota and period in microseconds as whole CPUs, at least one; 0 for none."""
    numbers = [int(word) if word.isdecimal() else 0 for word in pair.split()]
    if len(numbers) != 2 or not all(numbers):  # noqa: PLR2004
        return 0
    return -(-numbers[0] // numbers[1])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _say(level: int, text: str) -> None:
    """One line on stderr, unless TensorFlow was told to keep quiet at this level."""
    if "0" + str(level) < "0" + os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")[:1]:
        return
    with contextlib.suppress(OSError):
        os.write(2, f"tensorwright: {text}\n".encode(errors="replace"))
