"""What this machine lacks, and why an installed wheel does not run its kernels, for a person."""

from __future__ import annotations

from pathlib import Path

from tfbuild.records import pretty
from tfbuild.settings import Paths
from tfbuild.terminal_tables import grid
from tfbuild.tools import doctor, installed
from tfbuild.tools.installed import Installed


def needs(paths: Paths, *, tests: bool, as_json: bool) -> tuple[str, bool]:
    """The text, and whether nothing is missing."""
    found = doctor.needs(paths, tests=tests)
    missing_needs = [need for need in found if not need.present]
    lines = doctor.commands(missing_needs)
    if as_json:
        return pretty({"needs": found, "commands": lines}), not missing_needs
    rows = [(need.name, need.present or "missing", need.purpose) for need in found]
    text = grid(("need", "found", "what for"), rows)
    if lines:
        text += "\nTo mend it, run:\n" + "".join(f"  {line}\n" for line in lines)
    elif missing_needs:
        text += "\nInstall what is missing with this system's own package manager.\n"
    return text, not missing_needs


def kernels_of(place: str, *, as_json: bool) -> tuple[Installed, str]:
    """Which kernels run where a tuned wheel is installed. Raises UsageError, HostError."""
    found = installed.look(Path(place).expanduser())
    if not as_json:
        return found, installed.describe(found)
    targets = found.facts.targets if found.facts else ()
    rows = {name: getattr(found, name) for name in ("file", "version", "loaded", "reason")}
    return found, pretty({**rows, "targets": targets})
