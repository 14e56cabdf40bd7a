"""`invoke releases --add VERSION`: the facts of a new release, from the package index.

Writes the release's row, its lock file and the listing of its stock wheel. What only its sources
would show is taken over from the release before it.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from uv import find_uv_bin

from tfbuild.release_check import LISTINGS
from tfbuild.tools import pip
from tfbuild.tools.environment import fetch_wheel
from tfbuild.upstream import lock_files, releases, stock_listing
from tfbuild.upstream.download import Pin
from tfbuild.upstream.release_rows import (
    MACHINES,
    PublishedWheel,
    add_row,
    order_wheels,
    require_new,
    simplify_lock,
)
from tfbuild.upstream.releases import CPU_PACKAGES
from tfcore import console, settings
from tfcore.errors import CommandError, DownloadError, ReleaseError, UsageError
from tfcore.records import format_json, read_text, write_atomic
from tfcore.run import run
from tfcore.settings import Paths

PYTHONS = tuple(f"3.{minor}" for minor in range(9, 17))
"""Pythons whose wheels are looked for."""
_GLIBC = range(17, 45)
"""Minor versions of glibc 2 in the tags of wheels that are looked for (PEP 600)."""
_ABSENT = "No matching distribution found"
_AT_ONCE = 4
_LIMIT_S = 600.0
_HEAD = """\
# Dependencies of tensorflow-cpu {version} on Linux and CPython {first} to {last}, without
# tensorflow-cpu itself; the same as those of `tensorflow`, the aarch64 wheel.
# setuptools stays below 81: TensorBoard imports pkg_resources, which later versions lack.
# Written by: invoke releases --add {version}
"""
_PROJECT = """\
[project]
name = "lock"
version = "0"
requires-python = ">={first},<{after}"
dependencies = [{needs}, "setuptools<81"]
[tool.uv]
environments = ["sys_platform == 'linux' and python_full_version < '{after}'"]
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedRelease:
    """What was found of a release, and the files that were written."""

    version: str
    pythons: tuple[str, ...]
    wheels: tuple[PublishedWheel, ...]
    files: tuple[str, ...]


def check_request(version: str, source_sha256: str) -> None:
    """Raise UsageError for a wrong version or hash, or outside a checkout."""
    settings.require_checkout("invoke releases --add")
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise UsageError(f"--add {version} is not a version", hint="Use, for example, --add 2.22.0")
    if not re.fullmatch(r"[0-9a-f]{64}", source_sha256):
        raise UsageError(
            "--source-sha256 must be the SHA-256 of the release's source archive (64 hex digits)",
            hint="Packagers pin it: for example Spack's py_tensorflow/package.py",
        )


def add_release(version: str, source_sha256: str, paths: Paths) -> AddedRelease:
    """Find the facts, and write all files or none.

    Raises UsageError, ReleaseError, DownloadError, ChecksumError.
    """
    check_request(version, source_sha256)
    require_new(read_text(releases.TABLE), version)
    with console.report_step(f"wheels of TensorFlow {version}"):
        wheels = find_wheels(version)
    table = add_row(read_text(releases.TABLE), version, wheels, source_sha256)
    pythons = tuple(dict.fromkeys(wheel.python for wheel in wheels))
    with console.report_step("lock of its dependencies"):
        lock = lock_dependencies(version, pythons, wheels)
    with console.report_step("listing of its stock wheel"):
        listing = stock_listing.format_listing(_fetch_listed(version, wheels, paths))
    content = {
        lock_files.LOCKS / f"{version}.txt": lock,
        LISTINGS / f"{version}.json": listing,
        releases.TABLE: table,
    }
    for path, text in content.items():
        write_atomic(path, text)
    releases.forget_table()
    return AddedRelease(
        version=version,
        pythons=pythons,
        wheels=wheels,
        files=tuple(str(path.relative_to(paths.root)) for path in content),
    )


def find_wheels(version: str) -> tuple[PublishedWheel, ...]:
    """Find the release's wheels in the user's index. Raises ReleaseError if there are none."""
    searches = [
        (package, python, machine)
        for package in CPU_PACKAGES
        for python in PYTHONS
        for machine in MACHINES
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda search: _find_wheel(version, *search), searches))
    wheels = order_wheels(filter(None, found))
    if not any(wheel.machine == MACHINES[0] for wheel in wheels):
        raise ReleaseError(
            f"the index has no wheels of TensorFlow {version}",
            hint="Check the version and pip's index settings",
        )
    return tuple(wheels)


def _find_wheel(version: str, package: str, python: str, machine: str) -> PublishedWheel | None:
    tag = releases.format_python_tag(python)
    platforms = (f"manylinux_2_{minor}_{machine}" for minor in _GLIBC)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words = [
            *("--only-binary=:all:", "--python-version", python, "--abi", tag),
            *("--implementation", "cp"),
            *(word for name in platforms for word in ("--platform", name)),
        ]
        try:
            pip.resolve(f"{package}=={version}", report, *words, target=Path(folder) / "none")
        except CommandError as error:
            if _ABSENT in str(error):
                return None
            raise DownloadError(
                f"pip cannot look for {package} {version} ({error.last_line})",
                hint="Check the network and pip's index settings",
            ) from error
        (row,) = json.loads(read_text(report))["install"]
    info = row["download_info"]
    sha256 = info.get("archive_info", {}).get("hashes", {}).get("sha256", "")
    if not sha256:
        raise DownloadError(f"the index has no SHA-256 of {package} {version}")
    file = unquote(Path(urlsplit(info["url"]).path).name)
    return PublishedWheel(package=package, python=python, machine=machine, file=file, sha256=sha256)


def lock_dependencies(
    version: str, pythons: tuple[str, ...], wheels: tuple[PublishedWheel, ...]
) -> str:
    """Resolve the dependencies for all Pythons and machines. Raises DownloadError."""
    after = f"3.{int(pythons[-1].partition('.')[2]) + 1}"
    own = dict.fromkeys(wheel.package for wheel in wheels)
    machines = {wheel.machine: wheel.package for wheel in reversed(wheels)}
    needs = ", ".join(
        f"\"{package}=={version} ; platform_machine == '{machine}'\""
        for machine, package in machines.items()
    )
    with tempfile.TemporaryDirectory() as folder:
        project, out = Path(folder) / "pyproject.toml", Path(folder) / "lock.txt"
        write_atomic(project, _PROJECT.format(first=pythons[0], after=after, needs=needs))
        words: list[str | Path] = [
            *(find_uv_bin(), "pip", "compile", "--quiet", "--universal", "--generate-hashes"),
            *("--no-annotate", "--no-header", "--no-emit-index-url", "--only-binary", ":all:"),
            *("--python-version", pythons[0], "--color", "never"),
            *(word for name in own for word in ("--no-emit-package", name)),
            *(project, "-o", out),
        ]
        try:
            run(words, cwd=Path(folder), timeout_s=_LIMIT_S)
        except CommandError as error:
            raise DownloadError(
                f"uv cannot resolve the dependencies of TensorFlow {version} ({error.last_line})",
                hint="Check the network and uv's index settings",
            ) from error
        lock = simplify_lock(read_text(out), pythons)
    return _HEAD.format(version=version, first=pythons[0], last=pythons[-1]) + lock


def _fetch_listed(version: str, wheels: tuple[PublishedWheel, ...], paths: Paths) -> Path:
    """Fetch the wheel whose listing is recorded: of the first package, for Python 3.11 or newer."""
    wheel = next((each for each in wheels if each.python == "3.11"), wheels[0])
    pin = Pin(name=wheel.file, sha256=wheel.sha256)
    return fetch_wheel(f"{wheel.package}=={version}", pin, paths)


def describe_added(added: AddedRelease, *, as_json: bool) -> str:
    if as_json:
        return format_json(added)
    return "".join(_list_lines(added))


def _list_lines(added: AddedRelease) -> Iterator[str]:
    counts = console.format_count(len(added.wheels), "wheel")
    yield f"TensorFlow {added.version}: {counts}, Python {', '.join(added.pythons)}\n"
    yield from (f"  {file}\n" for file in added.files)
    yield "Compare the lines of the row that are marked `not checked` with the release's sources.\n"
