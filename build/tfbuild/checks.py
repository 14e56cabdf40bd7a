"""The project's own checks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tfbuild import console, settings
from tfbuild.cpus.cpu import read_vcpus
from tfbuild.errors import FailedTests, ToolError
from tfbuild.settings import Paths
from tfbuild.tools import doctor
from tfbuild.upstream import releases

TESTED_RELEASE = "2.14.1"
SLOW = "slow"
"""The mark of the second tier's tests."""
_CODE = ("tasks.py", "build", "wheels", "benchmarks", "tests")
_MOST_WORKERS = 8
"""A few long modules decide how long all takes, and each process takes memory."""

Ended: TypeAlias = subprocess.CompletedProcess[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectCheck:
    """`words` are Python's arguments."""

    name: str
    words: tuple[str, ...]


_LINT = (
    ProjectCheck(name="ruff check", words=("-m", "ruff", "check", *_CODE)),
    ProjectCheck(name="ruff format", words=("-m", "ruff", "format", "--check", "--quiet", *_CODE)),
    ProjectCheck(name="mypy", words=("-m", "mypy", *_CODE)),
)

_COLLECT = ("-m", "pytest", "--quiet", "--collect-only")


def lint() -> None:
    """ruff and mypy. Raises FailedTests, ToolError, UsageError."""
    _need_developer("lint")
    for check in _LINT:
        _need_passed(check, _ran(check))


def test(*, every: bool) -> None:
    """ruff and mypy, while what the tests need is installed; then the first tier of the tests, or
    `every` one. One run at a time in a checkout. Raises BusyError, ToolError, FailedTests,
    UsageError."""
    _need_developer("test")
    with settings.exclusive(own_cache(settings.ROOT).parent, "tests"):
        first = not _compiled().exists()
        paths, version = own_paths(), releases.kernels_bazel()
        with ThreadPoolExecutor(2) as pool:
            # To install takes a network more than a CPU.
            linted = [pool.submit(_ran, check, quiet=True) for check in _LINT]
            if first:
                # pytest compiles what it collects: its processes would all do that themselves.
                pool.submit(_ran, ProjectCheck(name="pytest", words=_COLLECT), quiet=True)
            doctor.prepare(paths, version, tests=True, install=True)
        for check, each in zip(_LINT, linted, strict=True):
            _need_passed(check, each.result())
        workers = min(read_vcpus().usable, _MOST_WORKERS)
        spread = ("-n", str(workers), "--dist", "loadscope", "--no-loadscope-reorder")
        tier = () if every else ("-m", f"not {SLOW}")
        words = ("-m", "pytest", "-q", "--durations=10", *spread, *tier)
        check = ProjectCheck(name="pytest", words=words)
        _need_passed(check, _ran(check))


def _need_developer(task: str) -> None:
    """Raises UsageError outside a checkout, ToolError without what only developers install."""
    settings.need_checkout(task)
    if not all(map(importlib.util.find_spec, ("mypy", "pytest", "ruff"))):
        raise ToolError(
            f"{task} needs what requirements-dev.txt names, and this environment lacks it",
            hint=f"Run: ./inv {task}",
        )


def own_cache(root: Path) -> Path:
    """Where the tests of the checkout `root` build. It is kept, as it saves minutes of the next
    run, and is no user's cache, whose builds the tests would disturb."""
    return root / ".tensorwright" / "tests"


def own_paths() -> Paths:
    """The folders of the tests, with the user's downloads among them: those have a lock. Sets the
    environment, so that all that the tests start has them as well."""
    cache = own_cache(settings.ROOT)
    user = settings.paths()
    if user.cache != cache.resolve():
        cache.mkdir(parents=True, exist_ok=True)
        user.downloads.mkdir(parents=True, exist_ok=True)
        link = cache / "downloads"
        if link.resolve() != user.downloads:
            link.unlink(missing_ok=True)  # (of another user's cache, or of one that is gone)
            link.symlink_to(user.downloads)
        os.environ["TENSORWRIGHT_CACHE"] = str(cache)
    return settings.paths()


def _compiled() -> Path:
    return own_cache(settings.ROOT) / "pycache"


def _ran(check: ProjectCheck, *, quiet: bool = False) -> Ended:
    """Output goes straight to the terminal, as it is what the caller asked to see; that of a
    `quiet` one is kept."""
    if not quiet:
        console.say(f"→ {check.name}")
    env = os.environ | {"PYTHONPYCACHEPREFIX": str(_compiled())}
    # Containers often set it. The tests start Python some thousand times, which would compile anew.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [sys.executable, *check.words],
        cwd=settings.ROOT,
        env=env,
        check=False,
        text=True,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
    )


def _need_passed(check: ProjectCheck, ended: Ended) -> None:
    """Raises FailedTests."""
    if ended.stdout is not None:
        console.say(f"→ {check.name}")
        print(ended.stdout, end="", flush=True)
    if code := ended.returncode:
        raise FailedTests(f"{check.name} failed (exit code {code})", hint="Its output is above")
