"""Builds one wheel with Bazel, reports progress, and repairs failures."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tfbuild.machine import memory
from tfbuild.machine.memory import Budget
from tfbuild.remote import caches, headers
from tfbuild.tools import bazel
from tfbuild.treebuild.site import Site
from tfbuild.watching import diagnosis, events
from tfbuild.watching.attempt import Attempt
from tfbuild.watching.diagnosis import Cause, Diagnosis
from tfbuild.watching.events import BuildOutcome
from tfbuild.watching.pace import Progress
from tfcore import console
from tfcore.errors import BuildError, CommandError
from tfcore.run import Completed, run

SCHEMA = 1
_PACK_S = 3600.0
# Bazel 7 crashes on a flipped bit in an action's result, and fails on a missing file (seen with
# 7.7.1; com.google.devtools.build.lib.util.ExitCode).
_BAD_ENTRY = frozenset({37, 39})


@dataclass(frozen=True, kw_only=True, slots=True)
class BazelCall:
    """The settings of Bazel's calls for one wheel.

    `name` is the name of its logs, `disk` the disk cache, `shared` states whether there is
    another cache. `secrets` are headers whose values must not remain in Bazel's files.
    """

    name: str
    startup: tuple[str, ...]
    options: tuple[str, ...]
    budget: Budget
    disk: Path
    shared: bool = False
    secrets: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    auto_fix: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledWheel:
    """A wheel as TensorFlow's tools built it, with the attempts that it took and their outcomes.

    `bazelrc` is the SHA-256 of those lines of the user's file that decide results; empty if
    there are none.
    """

    schema: int = SCHEMA
    wheel: Path
    attempts: tuple[Attempt, ...]
    outcomes: tuple[BuildOutcome | None, ...]
    bazelrc: str = ""


def compile_wheel(site: Site, call: BazelCall, first: Attempt) -> CompiledWheel:
    """Build until it succeeds, or fails in a way that `auto_fix` cannot repair.

    Raises BuildError with the diagnosed cause and its remedy.
    """
    attempts, outcomes = [first], []
    _remove_wheels(site)
    while True:
        completed, outcome = _run_attempt(site, call, attempts[-1])
        outcomes.append(outcome)
        if completed.returncode == 0:
            break
        failure = diagnosis.diagnose(outcome, completed.output)
        # With the caches off, the failure has another cause.
        used_caches = not attempts[-1].distrusting
        if call.shared and used_caches and completed.returncode in _BAD_ENTRY:
            failure = replace(failure, cause=Cause.CACHE)
        attempts.append(_choose_next_attempt(site, call, attempts[-1], failure))
    wheel = _copy_wheel(site, call)
    return CompiledWheel(wheel=wheel, attempts=tuple(attempts), outcomes=tuple(outcomes))


def _run_attempt(
    site: Site, call: BazelCall, attempt: Attempt
) -> tuple[Completed, BuildOutcome | None]:
    if attempt.distrusting:
        shutil.rmtree(call.disk, ignore_errors=True)
    events_file = headers.create_private_file(site.folder / f"{call.name}.events.json")
    budget = replace(call.budget, jobs=attempt.jobs)
    startup, bounds = memory.build_resource_options(site.bazel.version, budget)
    with (
        console.track_progress("actions", 0) as count,
        _remove_if_stopped(events_file, secret=bool(call.secrets)),
    ):

        def report_progress(progress: Progress) -> None:
            count.advance(progress.done, progress.total, progress.detail, progress.tempo)

        with events.follow_events(events_file, report_progress):
            completed = bazel.build(
                site.bazel,
                (site.recipe.target,),
                workspace=site.tree.folder,
                startup=(f"--bazelrc={site.rc}", *call.startup, *startup),
                options=(
                    *site.options,
                    *call.options,
                    *(caches.DISTRUSTING if attempt.distrusting else ()),
                    *bounds,
                    *(f"--define={define}" for define in attempt.defines),
                    *events.build_options(events_file),
                ),
                paths=site.paths,
                log=site.folder / f"{call.name}.log",
            )
    outcome = events.read_outcome(events_file)
    headers.redact(call.secrets, events_file)
    complaint = caches.find_cache_warning(completed.output) if call.shared else ""
    if complaint:
        console.warn(f"the shared cache failed for some actions: {complaint}")
    return completed, outcome


@contextlib.contextmanager
def _remove_if_stopped(events_file: Path, *, secret: bool) -> Iterator[None]:
    """Remove a file with secrets at once if the build is stopped, as nobody would redact it.

    Bazel's server continues to write for a while after its client was stopped; that output is
    lost with the file.
    """
    try:
        yield
    except BaseException:
        if secret:
            events_file.unlink(missing_ok=True)
        raise


def _choose_next_attempt(
    site: Site, call: BazelCall, attempt: Attempt, failure: Diagnosis
) -> Attempt:
    """Return the attempt that repairs the diagnosed failure. Raises BuildError if there is none,
    or if it needs the user's consent.
    """
    message, hint = diagnosis.explain(failure)
    following = diagnosis.plan_next_attempt(attempt, failure)
    # The user did not choose the contents of a cache: ignoring them needs no consent.
    allowed = call.auto_fix or failure.cause is Cause.CACHE
    if following is None or not allowed:
        log = site.folder / f"{call.name}.log"
        offer = ", or use --auto-fix to do this" if following else ""
        raise BuildError(f"{message} (whole output: {log})", hint=f"{hint}{offer}")
    console.warn(f"{message}. Trying again with {_describe_change(attempt, following)}")
    return following


def _describe_change(before: Attempt, after: Attempt) -> str:
    """Describe the difference between two attempts, as options where there are some."""
    added = [define for define in after.defines if define not in before.defines]
    new = [f"--define {','.join(added)}"] if added else []
    if after.distrusting:
        new.append("the caches ignored")
    if after.jobs != before.jobs:
        new.append(f"--jobs {after.jobs}")
    return " ".join(new) or "the same options"


def _remove_wheels(site: Site) -> None:
    """Remove the wheels of earlier plans for this tree. A cached one comes back.

    Bazel keeps an output that no rule has any more, and from 2.20 on a wheel's name contains
    the target.
    """
    if site.recipe.wheel_folder:
        for wheel in (site.tree.folder / site.recipe.wheel_folder).glob("*.whl"):
            wheel.unlink()


def _copy_wheel(site: Site, call: BazelCall) -> Path:
    """Return a copy of the wheel, since later builds write into Bazel's folder. Raises
    BuildError.
    """
    folder = site.folder / call.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if site.recipe.wheel_folder:
        for wheel in (site.tree.folder / site.recipe.wheel_folder).glob("*.whl"):
            shutil.copyfile(wheel, folder / wheel.name)
    else:
        _pack_wheel(site, folder)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        names = ", ".join(wheel.name for wheel in wheels) or "none"
        raise BuildError(f"Bazel finished, but did not build exactly one wheel: found {names}")
    return wheels[0]


def _pack_wheel(site: Site, folder: Path) -> None:
    """Run the program that the target builds. Raises BuildError."""
    program = site.tree.folder / site.recipe.program
    cpu = site.plan.package == "tensorflow-cpu" and "--cpu" in site.tree.wheel_options
    log = folder.with_suffix(".pack.log")
    env = bazel.build_environment(site.bazel.use) | {"PYTHON_BIN_PATH": str(site.python)}
    command: list[str | Path] = [program, folder]
    try:
        run([*command, *(["--cpu"] if cpu else [])], env=env, log=log, timeout_s=_PACK_S)
    except CommandError as error:
        failure = f"{program.name} failed (whole output: {log})"
        raise BuildError(f"{failure}: {error.last_line}") from error
