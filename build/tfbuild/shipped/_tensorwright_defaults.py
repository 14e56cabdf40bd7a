"""Sets this wheel's run-time defaults, before TensorFlow's libraries read their environment.

tensorflow/__init__.py calls `apply` before anything else, unless TENSORWRIGHT_DEFAULTS is 0. The
target is the one whose kernels the dispatcher will load. A variable that the user has set never
changes. The variables are set in os.environ, so child processes inherit them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ._tensorwright import FOLDER, read_cpuinfo
from ._tensorwright_cpu import has_cpuid, list_missing, list_unknown

DATA = "_tensorwright_defaults.json"
QUOTA = "quota"


def apply() -> None:
    """Set the run-time defaults. Never raises: if the data cannot be read, TensorFlow runs with
    its own defaults.
    """
    try:
        data = json.loads((FOLDER / DATA).read_text(encoding="utf-8"))
        loads_kernels = loads_kernel_libraries(FOLDER, os.environ)
        target, settings = choose_settings(data, os.environ, loads_kernels=loads_kernels)
        os.environ.update(settings)
    except Exception as error:  # noqa: BLE001  (the import must continue after any error)
        _print_line(1, f"run-time defaults are not set ({error!r})")
        return
    if settings:
        assignments = " ".join(f"{name}={value}" for name, value in settings.items())
        _print_line(0, f"{assignments} for {target}; TENSORWRIGHT_DEFAULTS=0 turns this off")


def choose_settings(
    data: Mapping[str, Any],
    environment: Mapping[str, str],
    root: Path = Path("/"),
    *,
    loads_kernels: bool = True,
) -> tuple[str, dict[str, str]]:
    """Return the first target that fits this CPU, and the variables to set for it; both empty if
    none fits.

    `data` is the content of DATA; `root` contains proc and sys. Defaults that need the kernel
    library, because it has a pass that makes them safe, are set only if TensorFlow `loads_kernels`.
    """
    requested = environment.get("TENSORWRIGHT_TARGET", "")
    if requested == "off":
        return "", {}
    mask = environment.get("TENSORWRIGHT_MASK", "")
    if list_unknown(mask, data["mask"]):
        return "", {}
    cpuinfo = set() if has_cpuid() else _read_features(root, data)
    places = data["places"]

    def list_lacking(names: Iterable[str]) -> list[str]:
        return list_missing({name: places[name] for name in names}, cpuinfo, mask)

    for target in data["targets"]:
        if (
            requested and _normalize_name(requested) != _normalize_name(target["name"])
        ) or list_lacking(target["needs"]):
            continue
        settings: dict[str, str] = {}
        for default in target["defaults"]:
            names_used = {*default["set"], *default["leave"]}
            is_pointless = len(list_lacking(default["unless"])) < len(default["unless"])
            is_skipped = (
                is_pointless
                or (default.get("guarded", False) and not loads_kernels)
                or list_lacking(default["needs"])
                or names_used.intersection(environment)
            )
            if default["on"] and not is_skipped:
                settings.update(_resolve_values(default["set"], root))
        return str(target["name"]), settings
    return "", {}


def loads_kernel_libraries(folder: Path, environment: Mapping[str, str]) -> bool:
    """Return whether TensorFlow will load kernel libraries from its package in `folder`.

    It does so only in a site-packages folder and without TF_PLUGGABLE_DEVICE_LIBRARY_PATH
    (tensorflow/__init__.py). With a device plugin, our dispatcher loads none.
    """
    roots = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    root = str(folder.parent)
    if "site-packages" not in root and root not in roots:
        return False
    plugins = folder.parent / "tensorflow-plugins"
    has_plugin = plugins.is_dir() and any(plugins.iterdir())
    return not has_plugin and "TF_PLUGGABLE_DEVICE_LIBRARY_PATH" not in environment


def _normalize_name(name: str) -> str:
    """Return the name as in the wheel's version: skylake_avx512 becomes skylake.avx512."""
    return name.replace("_", ".").replace("-", ".")


def _resolve_values(variables: Mapping[str, str], root: Path) -> Iterator[tuple[str, str]]:
    for name, value in variables.items():
        if value != QUOTA:
            yield name, value
            continue
        cpus, available = read_quota(root), len(os.sched_getaffinity(0))
        if cpus is not None and cpus < available:
            yield name, str(cpus)


def _read_features(root: Path, data: Mapping[str, Any]) -> set[str]:
    """Read the features of the first processor only: reading all of them takes long on a large
    machine.
    """
    with (root / "proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        return read_cpuinfo("".join(itertools.takewhile(str.strip, lines)), data)[2]


# ---- the CPU quota of the cgroup, read like tfcore.cpus.cpu.read_cgroup_quota ----


def read_quota(root: Path = Path("/")) -> int | None:
    """Return the smallest CPU quota of this process's cgroup and of those above it, rounded up
    to whole CPUs, or None if there is none.
    """
    base, quotas = root / "sys/fs/cgroup", list[int]()
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        _, *fields = line.split(":", 2)
        if len(fields) != 2:  # noqa: PLR2004  (hierarchy, controllers, path)
            continue
        controllers, path = fields
        if not controllers:
            for mount in (base, base / "unified"):
                quotas += (
                    _convert_quota(_read_text(level / "cpu.max"))
                    for level in _list_levels(mount, path)
                )
        elif "cpu" in controllers.split(","):
            for mount in {base / controllers, base / "cpu"}:
                for level in _list_levels(mount, path):
                    pair = (
                        _read_text(level / f"cpu.cfs_{name}_us") for name in ("quota", "period")
                    )
                    quotas.append(_convert_quota(" ".join(pair)))
    return min(filter(None, quotas), default=None)


def _list_levels(mount: Path, path: str) -> Iterator[Path]:
    """Yield the folder of a cgroup and those above it. In a container only the mount may exist."""
    folder = mount / path.strip("/")
    return itertools.takewhile(lambda level: level != mount.parent, (folder, *folder.parents))


def _convert_quota(pair: str) -> int:
    """Convert quota and period in microseconds to whole CPUs, at least one; 0 for none."""
    numbers = [int(word) if word.isdecimal() else 0 for word in pair.split()]
    if len(numbers) != 2 or not all(numbers):  # noqa: PLR2004
        return 0
    return -(-numbers[0] // numbers[1])


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _print_line(level: int, text: str) -> None:
    """Print one line on stderr, unless TF_CPP_MIN_LOG_LEVEL silences this level."""
    if "0" + str(level) < "0" + os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")[:1]:
        return
    with contextlib.suppress(OSError):
        os.write(2, f"tensorwright: {text}\n".encode(errors="replace"))
