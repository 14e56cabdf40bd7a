"""The project's own checks."""

from __future__ import annotations

import os
import subprocess
import sys

from tfbuild import settings, talk
from tfbuild.errors import FailedTests
from tfbuild.tools import doctor
from tfbuild.upstream import releases

TESTED_RELEASE = "2.14.1"
_CODE = ("tasks.py", "build", "wheels", "benchmarks", "tests")


def lint() -> None:
    """ruff and mypy. Raises FailedTests."""
    _check("ruff check", "-m", "ruff", "check", *_CODE)
    _check("ruff format", "-m", "ruff", "format", "--check", "--quiet", *_CODE)
    _check("mypy", "-m", "mypy", *_CODE)


def test(*, install: bool) -> None:
    """Every test; what they need is installed first. Raises ToolError, FailedTests."""
    places = settings.places()
    version = releases.pinned_bazel(releases.find_release(TESTED_RELEASE))
    doctor.prepare(places, version, tests=True, install=install, fetch=install)
    _check("pytest", "-m", "pytest", "-q", "--durations=10")


def _check(name: str, *words: str) -> None:
    """Output goes straight to the terminal: it is what the caller asked to see."""
    talk.say(f"→ {name}")
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    code = subprocess.run(
        [sys.executable, *words], cwd=settings.ROOT, env=env, check=False
    ).returncode
    if code:
        raise FailedTests(f"{name} failed (exit code {code})", hint="Its output is above")
