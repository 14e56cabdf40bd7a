"""The project's checks: lint, type checks and tests."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tfbuild.planning.plan import NATIVE, read_native_files
from tfbuild.tools import doctor
from tfbuild.upstream import releases
from tfcore import console, settings
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import FailedTests, ToolError
from tfcore.settings import Paths

TESTED_RELEASE = "2.14.1"
SLOW = "slow"
"""The pytest marker of second-tier tests."""
_CODE = ("tasks.py", "build", "wheels", "benchmarks", "tests")
_MOST_WORKERS = 8
"""More workers save no time, because a few long modules decide it, and each takes memory."""

Ended: TypeAlias = subprocess.CompletedProcess[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectCheck:
    """A check of the project: `words` are the arguments that Python runs it with."""

    name: str
    words: tuple[str, ...]


_CLANG_FORMAT = (
    *("-c", "import clang_format; clang_format.clang_format()"),  # it cannot be run with -m
    *("--dry-run", "--Werror"),
)

_COLLECT = ("-m", "pytest", "--quiet", "--collect-only")


def lint() -> None:
    """Run ruff, mypy and clang-format.

    Raises FailedTests, ToolError, UsageError.
    """
    _require_dev_tools("lint")
    for check in _list_lint_checks():
        _require_passed(check, _run_check(check))


def _list_lint_checks() -> tuple[ProjectCheck, ...]:
    paths = (str(NATIVE / name) for name in read_native_files())
    return (
        ProjectCheck(name="ruff check", words=("-m", "ruff", "check", *_CODE)),
        ProjectCheck(name="ruff format", words=("-m", "ruff", "format", "--check", "-q", *_CODE)),
        ProjectCheck(name="mypy", words=("-m", "mypy", *_CODE)),
        ProjectCheck(name="clang-format", words=(*_CLANG_FORMAT, *paths)),
    )


def test(*, all_tiers: bool) -> None:
    """Run the checks of `lint` and the first tier of the tests, or `all_tiers`.

    The checks of `lint` run while the tools that the tests need are installed. One run at a time in
    a checkout. Raises BusyError, ToolError, FailedTests, UsageError.
    """
    _require_dev_tools("test")
    with settings.lock_folder(get_test_cache(settings.ROOT).parent, "tests"):
        first = not _get_bytecode_folder().exists()
        lint_checks = _list_lint_checks()
        paths, version = prepare_test_paths(), releases.read_kernels_bazel()
        with ThreadPoolExecutor(2) as pool:
            # Installation uses the network more than the CPU.
            linted = [pool.submit(_run_check, check, quiet=True) for check in lint_checks]
            if first:
                # This compiles the test modules once; otherwise each pytest worker compiles them.
                pool.submit(_run_check, ProjectCheck(name="pytest", words=_COLLECT), quiet=True)
            doctor.prepare(paths, version, tests=True, install=True)
        for check, future in zip(lint_checks, linted, strict=True):
            _require_passed(check, future.result())
        workers = min(read_vcpus().usable, _MOST_WORKERS)
        spread = ("-n", str(workers), "--dist", "loadscope", "--no-loadscope-reorder")
        tier = () if all_tiers else ("-m", f"not {SLOW}")
        words = ("-m", "pytest", "-q", "--durations=10", *spread, *tier)
        check = ProjectCheck(name="pytest", words=words)
        _require_passed(check, _run_check(check))


def _require_dev_tools(task: str) -> None:
    """Raise UsageError outside a checkout, ToolError without the development requirements."""
    settings.require_checkout(task)
    if not all(map(importlib.util.find_spec, ("clang_format", "mypy", "pytest", "ruff"))):
        raise ToolError(
            f"{task} needs packages of requirements-dev.txt that are not installed",
            hint=f"Run: ./inv {task}",
        )


def get_test_cache(root: Path) -> Path:
    """Return the folder in which the tests of the checkout `root` build.

    It stays, because it saves minutes in the next run. It is separate from the user's cache,
    so that tests do not disturb the user's builds.
    """
    return root / ".tensorwright" / "tests"


def prepare_test_paths() -> Paths:
    """Create the folders of the tests and return them.

    The test cache has a link to the user's downloads, which have a lock. Sets
    TENSORWRIGHT_CACHE, so that all programs that the tests start use the same folders.
    """
    cache = get_test_cache(settings.ROOT)
    user = settings.paths()
    if user.cache != cache.resolve():
        cache.mkdir(parents=True, exist_ok=True)
        user.downloads.mkdir(parents=True, exist_ok=True)
        link = cache / "downloads"
        if link.resolve() != user.downloads:
            link.unlink(missing_ok=True)  # (it points to another cache, or to a deleted one)
            link.symlink_to(user.downloads)
        os.environ["TENSORWRIGHT_CACHE"] = str(cache)
    return settings.paths()


def _get_bytecode_folder() -> Path:
    return get_test_cache(settings.ROOT) / "pycache"


def _run_check(check: ProjectCheck, *, quiet: bool = False) -> Ended:
    """Run a check and return its result.

    The output goes to the terminal, or is captured if `quiet`.
    """
    if not quiet:
        console.print_message(f"→ {check.name}")
    env = os.environ | {"PYTHONPYCACHEPREFIX": str(_get_bytecode_folder())}
    # Containers often set it. The tests start Python thousands of times and need the bytecode.
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


def _require_passed(check: ProjectCheck, ended: Ended) -> None:
    """Raise FailedTests if the check failed.

    Prints the output if it was captured.
    """
    if ended.stdout is not None:
        console.print_message(f"→ {check.name}")
        print(ended.stdout, end="", flush=True)
    if code := ended.returncode:
        raise FailedTests(f"{check.name} failed (exit code {code})", hint="Its output is above")
