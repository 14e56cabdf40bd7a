"""The reports of `invoke doctor`: missing programs, and the kernels that a wheel runs."""

from __future__ import annotations

from tfbuild.terminal_tables import format_grid
from tfbuild.tools import doctor, installed
from tfbuild.tools.installed import InstalledWheel
from tfcore.records import format_json
from tfcore.settings import Paths, expand_home


def report_needs(paths: Paths, *, tests: bool, as_json: bool) -> tuple[str, bool]:
    """Return what this machine has and lacks as text, and whether nothing is missing."""
    needed = doctor.list_dependencies(paths, tests=tests)
    missing_needs = [need for need in needed if not need.present]
    lines = doctor.list_install_commands(missing_needs)
    if as_json:
        return format_json({"needs": needed, "commands": lines}), not missing_needs
    rows = [(need.name, need.present or "missing", need.purpose) for need in needed]
    text = format_grid(("program", "found", "purpose"), rows)
    if lines:
        text += "\nTo install the missing ones, run:\n" + "".join(f"  {line}\n" for line in lines)
    elif missing_needs:
        text += "\nInstall the missing ones with this system's package manager.\n"
    return text, not missing_needs


def report_kernels(place: str, *, as_json: bool) -> tuple[InstalledWheel, str]:
    """Report which kernels run where a tuned wheel is installed.

    Raises UsageError, HostError.
    """
    installation = installed.inspect_install(expand_home(place))
    if not as_json:
        return installation, installed.describe(installation)
    targets = installation.facts.targets if installation.facts else ()
    rows = {name: getattr(installation, name) for name in ("file", "version", "loaded", "reason")}
    return installation, format_json({**rows, "targets": targets})
