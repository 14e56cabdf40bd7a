"""Compare the TensorFlow that is installed in an environment with an index: was it withdrawn?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from tfbuild.upstream.releases import CPU_PACKAGES
from tfcore.cpus.targets import Target
from tfcore.errors import PublishError, UsageError, WheelError, WithdrawnError
from tfcore.records import parse_json
from tfcore.run import resolve_program, run
from tfcore.settings import expand_home
from tfwheels.entry import Entry
from tfwheels.layout import build_folder_key
from tfwheels.wheel_choice import choose

_PROGRAM = """\
import hashlib, json
from importlib.metadata import distributions
found = []
for installed in distributions():
    try:
        if not installed.metadata["Name"].lower().startswith("tensorflow"):
            continue
    except (AttributeError, UnicodeDecodeError):
        continue
    wheel = installed.read_text("WHEEL") or ""
    tags = [line[5:].strip() for line in wheel.splitlines() if line.startswith("Tag: ")]
    files = [file for file in installed.files or () if str(file).endswith(".dist-info/METADATA")]
    digest = hashlib.sha256(files[0].locate().read_bytes()).hexdigest() if files else ""
    name = installed.metadata["Name"]
    found.append({"name": name, "version": installed.version, "tags": tags, "metadata": digest})
print(json.dumps(found))
"""
_PATIENCE_S = 60.0
_NO_TENSORFLOW = "Pass the folder of the environment that has TensorFlow: --environment FOLDER"


class InstalledState(StrEnum):
    LISTED = "listed"
    WITHDRAWN = "withdrawn"
    CHANGED = "changed"
    """The index has a wheel of this name and version with another METADATA file."""
    UNKNOWN = "unknown"
    """The index has no such wheel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledPackage:
    """A package in an environment; `metadata_sha256` is the hash of its METADATA file."""

    name: str
    version: str
    tags: frozenset[str]
    metadata_sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedWheel:
    """An installed wheel and its state in the index.

    `reason` says why it was withdrawn; `remedy` is a shell line that replaces it, empty if the
    index has no other wheel of this version for the target.
    """

    name: str
    version: str
    state: InstalledState
    reason: str = ""
    remedy: str = ""


def read_installed(python: Path | str) -> tuple[InstalledPackage, ...]:
    """Return the TensorFlow packages in the environment of an interpreter.

    They are not imported. Raises WheelError if there are none, ToolError, CommandError.
    """
    done = run([python, "-I", "-c", _PROGRAM], timeout_s=_PATIENCE_S)
    try:
        packages = tuple(_parse_packages(parse_json(done.output.splitlines()[-1])))
    except (ValueError, LookupError, TypeError) as error:
        raise WheelError(f"cannot list the packages of {python} ({error!r})") from error
    if not packages:
        raise WheelError(f"there is no TensorFlow in {python}", hint=_NO_TENSORFLOW)
    return packages


def _parse_packages(found: Sequence[Mapping[str, object]]) -> Iterator[InstalledPackage]:
    for package in found:
        name, tags = canonicalize_name(str(package["name"])), package["tags"]
        if name not in CPU_PACKAGES:
            continue
        if not isinstance(tags, list):
            raise TypeError(f"{name} has no tags")
        yield InstalledPackage(
            name=name,
            version=str(Version(str(package["version"]))),
            tags=frozenset(map(str, tags)),
            metadata_sha256=str(package["metadata"]),
        )


def check_wheel(
    installed: InstalledPackage, entries: Sequence[Entry], target: Target, base: str, python: str
) -> CheckedWheel:
    """Return the state of a wheel that is installed for the interpreter `python`.

    `base` is the address of the index. If several wheels have the same METADATA, one that was
    withdrawn decides.
    """
    same = [
        entry
        for entry in entries
        if (entry.name, entry.version) == (installed.name, installed.version)
        and installed.tags.intersection(entry.tags)
    ]
    known = [entry for entry in same if entry.metadata_sha256 == installed.metadata_sha256]
    if not known:
        state = InstalledState.CHANGED if same else InstalledState.UNKNOWN
        return CheckedWheel(name=installed.name, version=installed.version, state=state)
    bad = next((entry for entry in known if entry.withdrawal), known[0])
    withdrawal = bad.withdrawal
    if withdrawal is None:
        state = InstalledState.LISTED
        return CheckedWheel(name=installed.name, version=installed.version, state=state)
    return CheckedWheel(
        name=installed.name,
        version=installed.version,
        state=InstalledState.WITHDRAWN,
        reason=f"{withdrawal.words} (since {withdrawal.since})",
        remedy=_format_remedy(bad, entries, target, base, python),
    )


def _format_remedy(
    old: Entry, entries: Sequence[Entry], target: Target, base: str, python: str
) -> str:
    """Return the shell line that installs what the target's page lists of the same version.

    pip takes 2.20.0+zen4 for 2.20.0, so it must be told to install again.
    """
    rivals = [
        entry
        for entry in entries
        if (entry.name, entry.public) == (old.name, old.public)
        and set(entry.tags).intersection(old.tags)
    ]
    for choice in choose(rivals, target):
        page = f"{base}/{build_folder_key(target.name)}"
        requirement = f"{old.name}=={choice.entry.version}"
        pip = f"PIP_CONFIG_FILE=/dev/null pip --isolated --python {shlex.quote(python)} install"
        where = f"--index-url {shlex.quote(page)} {shlex.quote(requirement)}"
        return f"{pip} --force-reinstall --no-deps {where}"
    return ""


def find_python(environment: str) -> str:
    """Return the path of the interpreter in an environment's folder, or of python3.

    Raises UsageError, and ToolError if there is no python3.
    """
    if not environment:
        return resolve_program("python3")
    python = expand_home(environment, "--environment") / "bin" / "python"
    if not python.is_file():
        raise UsageError(
            f"--environment {environment} is not an environment: it has no bin/python",
            hint="Pass the folder that python -m venv or uv venv created",
        )
    return str(python)


def require_listed(checked: Sequence[CheckedWheel], where: str) -> None:
    """Raise an error for the first wheel that is not listed.

    Raises WithdrawnError for a withdrawn wheel, PublishError for a changed one, WheelError for an
    unknown one.
    """
    by_state = {wheel.state: wheel for wheel in reversed(checked)}
    if wheel := by_state.get(InstalledState.WITHDRAWN):
        raise WithdrawnError(
            f"{wheel.name} {wheel.version} was withdrawn from {where}",
            hint="Replace it as shown above" if wheel.remedy else "Install another version",
        )
    if wheel := by_state.get(InstalledState.CHANGED):
        raise PublishError(
            f"{wheel.name} {wheel.version} is not the wheel of this name in {where}",
            hint="Find out where it comes from, and install the one of the index",
        )
    if wheel := by_state.get(InstalledState.UNKNOWN):
        raise WheelError(f"{where} has no wheel of {wheel.name} {wheel.version} like this one")


def describe(checked: Sequence[CheckedWheel]) -> str:
    """Format the result for users."""
    return "".join(f"{line}\n" for wheel in checked for line in _describe_wheel(wheel))


def _describe_wheel(wheel: CheckedWheel) -> Iterator[str]:
    yield f"{wheel.name} {wheel.version}: {wheel.reason or wheel.state}"
    if wheel.state is InstalledState.WITHDRAWN:
        yield wheel.remedy or "no other wheel of this version is in the index"
