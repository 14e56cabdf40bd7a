"""Resolve a pip requirement without a shipped lock once, and lock its wheels by hash."""

from __future__ import annotations

import json
import platform
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tfbuild.upstream.releases import format_python_tag
from tfcore import console
from tfcore.errors import ChecksumError, CommandError, DownloadError, RecordError, UsageError
from tfcore.records import write_atomic
from tfcore.run import run
from tfcore.settings import Paths

FOLDER = "locks"
"""Folder in the cache for the locks of resolved requirements."""
_RESOLVE_S = 1800.0
_REPORT = "1"  # format version of pip's report
# Older TensorFlow needs NumPy 1 but does not declare it (tensorflow#62132).
_FIRST_TO_LIMIT_NUMPY = Version("2.14.1")
_LINE = re.compile(r"(?P<name>\S+)==(?P<version>\S+) --hash=sha256:(?P<sha256>[0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExactRequirement:
    """One version of one package; the name is normalized."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedRequirement:
    """An exact requirement and the SHA-256 (hex) of its only permitted wheel."""

    exact: ExactRequirement
    sha256: str

    @property
    def line(self) -> str:
        """Return the line of a requirements file."""
        return f"{self.exact} --hash=sha256:{self.sha256}\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageLock:
    """The locked wheels of a package and of all its dependencies."""

    own: LockedRequirement
    needs: tuple[LockedRequirement, ...]

    @property
    def requirements(self) -> str:
        """Return the lines of the dependencies, without the package itself."""
        return "".join(locked.line for locked in self.needs)


def parse_exact(text: str) -> ExactRequirement:
    """Parse NAME==VERSION. Raises UsageError for a range, an address, extras and markers."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise _build_inexact_error(text) from None
    pins = [pin.version for pin in requirement.specifier if pin.operator == "=="]
    if (
        len(requirement.specifier) != 1
        or not pins
        or requirement.url
        or requirement.extras
        or requirement.marker
    ):
        raise _build_inexact_error(text)
    if pins[0].endswith(".*"):
        raise _build_inexact_error(text)
    try:
        return ExactRequirement(
            name=canonicalize_name(requirement.name), version=str(Version(pins[0]))
        )
    except ValueError:  # (more digits than Python accepts)
        raise _build_inexact_error(text) from None


def _build_inexact_error(text: str) -> UsageError:
    return UsageError(
        f"{text!r} does not name one version of one package",
        hint="Write it as tensorflow-cpu==2.13.1",
    )


def resolve_lock(
    exact: ExactRequirement, *, python: str, interpreter: Path, pinned: str | None, paths: Paths
) -> PackageLock:
    """Return the lock of an earlier run, or lock pip's current result (trust on first use).

    `interpreter` is the one of that Python, `pinned` the SHA-256 that the package's wheel must
    have, if it is known. Raises DownloadError, ChecksumError, RecordError.
    """
    path = _locate_lock(exact, python, paths)
    first = not path.is_file()
    lock = _resolve(exact, interpreter) if first else _read_lock(path, exact)
    if pinned is not None and lock.own.sha256 != pinned:
        raise ChecksumError(
            f"{exact} has SHA-256 {lock.own.sha256}, but {pinned} is pinned",
            hint="Check pip's index settings: the index does not serve the published file",
        )
    if first:
        console.print_message(
            f"no lock is shipped for {exact}: trusting pip's current result, locked in {path}"
        )
        write_atomic(path, _render_lock(exact, python, lock))
    return lock


def _locate_lock(exact: ExactRequirement, python: str, paths: Paths) -> Path:
    tag = f"{format_python_tag(python)}-{platform.machine()}"
    return paths.cache / FOLDER / f"{exact.name}-{exact.version}-{tag}.txt"


def _render_lock(exact: ExactRequirement, python: str, lock: PackageLock) -> str:
    head = (
        f"# {exact} and its dependencies on CPython {python}, {platform.machine()}, as pip\n"
        "# resolved them on first use. Delete this file to resolve them again.\n"
    )
    return head + lock.own.line + lock.requirements


def _read_lock(path: Path, exact: ExactRequirement) -> PackageLock:
    text = path.read_text(encoding="utf-8", errors="replace")
    matches = [_LINE.fullmatch(line) for line in text.splitlines() if not line.startswith("#")]
    rows = [
        LockedRequirement(
            exact=ExactRequirement(name=row["name"], version=row["version"]), sha256=row["sha256"]
        )
        for row in matches
        if row is not None
    ]
    if len(rows) < len(matches) or not rows or rows[0].exact.name != exact.name:
        raise RecordError(
            f"{path} is not a lock of {exact}", hint="Delete it; the next run creates it again"
        )
    return PackageLock(own=rows[0], needs=tuple(rows[1:]))


def _resolve(exact: ExactRequirement, interpreter: Path) -> PackageLock:
    """Resolve what pip, with the user's own index settings, would install for this interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        report, limits = Path(folder) / "report.json", Path(folder) / "constraints.txt"
        write_atomic(limits, list_constraints(exact))
        words: list[str | Path] = [
            *(sys.executable, "-m", "pip", "--python", interpreter, "install", "--quiet"),
            *("--dry-run", "--ignore-installed", "--only-binary=:all:", "--report", report),
            *("--disable-pip-version-check", "--constraint", limits, str(exact)),
        ]
        try:
            run(words, timeout_s=_RESOLVE_S)
        except CommandError as error:
            raise DownloadError(
                f"pip finds no wheels for {exact} and its dependencies ({error.last_line})",
                hint="Check the name, the version, the network and pip's index settings",
            ) from error
        return parse_report(report.read_text(encoding="utf-8"), exact)


def list_constraints(exact: ExactRequirement) -> str:
    """Return pip constraints that the package needs beyond those it declares."""
    needs_limit = "tensorflow" in exact.name and Version(exact.version) < _FIRST_TO_LIMIT_NUMPY
    return "numpy<2\n" if needs_limit else ""


def parse_report(text: str, exact: ExactRequirement) -> PackageLock:
    """Parse pip's installation report.

    Raises RecordError for another version of its format, and DownloadError for a file without
    a hash.

    Source: "Installation Report" in pip's reference.
    """
    report = json.loads(text)
    if report["version"] != _REPORT:
        message = f"pip's report has version {report['version']}, Tensorwright reads {_REPORT}"
        raise RecordError(message, hint=f"Use a pip that writes version {_REPORT}")
    rows = sorted(map(_parse_row, report["install"]), key=lambda row: row.exact.name)
    own_rows = [row for row in rows if row.exact.name == exact.name]
    needs = tuple(row for row in rows if row.exact.name != exact.name)
    return PackageLock(own=own_rows[0], needs=needs)


def _parse_row(item: dict[str, Any]) -> LockedRequirement:
    name, version = canonicalize_name(item["metadata"]["name"]), item["metadata"]["version"]
    sha256 = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    if sha256 is None:
        raise DownloadError(
            f"the index has no SHA-256 of {name} {version}",
            hint="Use an index that has it",
        )
    return LockedRequirement(exact=ExactRequirement(name=name, version=version), sha256=sha256)
