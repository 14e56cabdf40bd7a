"""The project's own checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tfbuild import console, settings
from tfbuild.cpus.cpu import read_vcpus
from tfbuild.errors import FailedTests
from tfbuild.settings import Paths
from tfbuild.tools import doctor
from tfbuild.upstream import releases

TESTED_RELEASE = "2.14.1"
SLOW = "slow"
"""The mark of the second tier's tests."""
_CODE = ("tasks.py", "build", "wheels", "benchmarks", "tests")
_MOST_WORKERS = 8
"""A few long modules decide how long all takes, and each process takes memory."""


def lint() -> None:
    """ruff and mypy. Raises FailedTests, UsageError."""
    settings.need_checkout("lint")
    _check("ruff check", "-m", "ruff", "check", *_CODE)
    _check("ruff format", "-m", "ruff", "format", "--check", "--quiet", *_CODE)
    _check("mypy", "-m", "mypy", *_CODE)


def test(*, every: bool) -> None:
    """The first tier of the tests, or `every` one; what they need is installed first. One run at a
    time in a checkout. Raises BusyError, ToolError, FailedTests, UsageError."""
    settings.need_checkout("test")
    with settings.exclusive(own_cache(settings.ROOT).parent, "tests"):
        version = releases.kernels_bazel()
        doctor.prepare(own_paths(), version, tests=True, install=True)
        workers = min(read_vcpus().usable, _MOST_WORKERS)
        spread = ("-n", str(workers), "--dist", "loadscope", "--no-loadscope-reorder")
        tier = () if every else ("-m", f"not {SLOW}")
        _check("pytest", "-m", "pytest", "-q", "--durations=10", *spread, *tier)


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


def _check(name: str, *words: str) -> None:
    """Output goes straight to the terminal: it is what the caller asked to see."""
    console.say(f"→ {name}")
    env = os.environ | {"PYTHONPYCACHEPREFIX": str(own_cache(settings.ROOT) / "pycache")}
    # Containers often set it. The tests start Python some thousand times, which would compile anew.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    code = subprocess.run(
        [sys.executable, *words], cwd=settings.ROOT, env=env, check=False
    ).returncode
    if code:
        raise FailedTests(f"{name} failed (exit code {code})", hint="Its output is above")
