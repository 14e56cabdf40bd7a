"""One wheel out of Bazel: progress while it builds, and what is done about a failure."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tfbuild import console
from tfbuild.errors import BuildError, CommandError
from tfbuild.machine import memory
from tfbuild.machine.memory import Budget
from tfbuild.remote import caches, headers
from tfbuild.run import Completed, run
from tfbuild.tools import bazel
from tfbuild.treebuild.site import Site
from tfbuild.watching import diagnosis, events
from tfbuild.watching.attempt import Attempt
from tfbuild.watching.diagnosis import Cause, Diagnosis
from tfbuild.watching.events import BuildOutcome
from tfbuild.watching.pace import Progress

SCHEMA = 1
_PACK_S = 3600.0
# Bazel 7 crashes over one flipped bit in an action's result, and gives up over a missing file (seen
# with 7.7.1; com.google.devtools.build.lib.util.ExitCode).
_BAD_ENTRY = frozenset({37, 39})


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """How Bazel is called for one wheel.

    `name` is that of its logs, `disk` the disk cache, `shared` says whether there is another.
    `secrets` are headers, whose values must not stay in what Bazel leaves.
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
    """A wheel as TensorFlow's tools left it, the attempts that it took, and how each went.
    `bazelrc` is the SHA-256 of what the user's file says of results; empty when nothing."""

    schema: int = SCHEMA
    wheel: Path
    attempts: tuple[Attempt, ...]
    outcomes: tuple[BuildOutcome | None, ...]
    bazelrc: str = ""


def compile_wheel(site: Site, call: Call, first: Attempt) -> CompiledWheel:
    """Build until it succeeds, or fails in a way that `auto_fix` cannot mend.

    Raises BuildError with the cause that was found and its remedy.
    """
    attempts, outcomes = [first], []
    _forget_wheels(site)
    while True:
        done, outcome = _attempt(site, call, attempts[-1])
        outcomes.append(outcome)
        if done.returncode == 0:
            break
        found = diagnosis.diagnose(outcome, done.output)
        # Without the caches it is something else.
        trusting = not attempts[-1].distrusting
        if call.shared and trusting and done.returncode in _BAD_ENTRY:
            found = replace(found, cause=Cause.CACHE)
        attempts.append(_following(site, call, attempts[-1], found))
    wheel = _collected(site, call)
    return CompiledWheel(wheel=wheel, attempts=tuple(attempts), outcomes=tuple(outcomes))


def _attempt(site: Site, call: Call, attempt: Attempt) -> tuple[Completed, BuildOutcome | None]:
    if attempt.distrusting:
        shutil.rmtree(call.disk, ignore_errors=True)
    events_file = headers.create_private_file(site.folder / f"{call.name}.events.json")
    budget = replace(call.budget, jobs=attempt.jobs)
    startup, bounds = memory.build_resource_options(site.bazel.version, budget)
    with (
        console.track_progress("actions", 0) as count,
        _gone_if_stopped(events_file, secret=bool(call.secrets)),
    ):

        def tell(progress: Progress) -> None:
            count.advance(progress.done, progress.total, progress.detail, progress.tempo)

        with events.follow_events(events_file, tell):
            done = bazel.build(
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
    said = caches.find_cache_warning(done.output) if call.shared else ""
    if said:
        console.warn(f"the shared cache did not serve everything: {said}")
    return done, outcome


@contextlib.contextmanager
def _gone_if_stopped(events_file: Path, *, secret: bool) -> Iterator[None]:
    """Bazel's server writes on for a while after its client was stopped. A file with secrets that
    nobody will redact goes at once, and what is still written goes with it."""
    try:
        yield
    except BaseException:
        if secret:
            events_file.unlink(missing_ok=True)
        raise


def _following(site: Site, call: Call, attempt: Attempt, found: Diagnosis) -> Attempt:
    """The attempt that mends what was found. Raises BuildError when there is none, or none may be
    made without being asked."""
    message, hint = diagnosis.explain(found)
    following = diagnosis.plan_next_attempt(attempt, found)
    # What a cache holds is nothing that a person chose: it is passed over without being asked.
    may = call.auto_fix or found.cause is Cause.CACHE
    if following is None or not may:
        log = site.folder / f"{call.name}.log"
        offer = ", or let it be done with --auto-fix" if following else ""
        raise BuildError(f"{message} (whole output: {log})", hint=f"{hint}{offer}")
    console.warn(f"{message}. Trying again with {_change(attempt, following)}")
    return following


def _change(before: Attempt, after: Attempt) -> str:
    """The difference between two attempts, as options where there are some."""
    added = [each for each in after.defines if each not in before.defines]
    new = [f"--define {','.join(added)}"] if added else []
    if after.distrusting:
        new.append("nothing from the caches")
    if after.jobs != before.jobs:
        new.append(f"--jobs {after.jobs}")
    return " ".join(new) or "the same options"


def _forget_wheels(site: Site) -> None:
    """Remove the wheels of earlier plans for this tree: Bazel leaves an output that no rule has any
    more, and from 2.20 on a wheel's name has the target in it. A cached one comes back."""
    if site.recipe.wheel_folder:
        for wheel in (site.tree.folder / site.recipe.wheel_folder).glob("*.whl"):
            wheel.unlink()


def _collected(site: Site, call: Call) -> Path:
    """A copy of the wheel, since later builds write into Bazel's folder. Raises BuildError."""
    folder = site.folder / call.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if site.recipe.wheel_folder:
        for wheel in (site.tree.folder / site.recipe.wheel_folder).glob("*.whl"):
            shutil.copyfile(wheel, folder / wheel.name)
    else:
        _pack(site, folder)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        names = ", ".join(wheel.name for wheel in wheels) or "none"
        raise BuildError(f"Bazel has finished, and one wheel was expected: there is {names}")
    return wheels[0]


def _pack(site: Site, folder: Path) -> None:
    """Run the program that the target is. Raises BuildError."""
    program = site.tree.folder / site.recipe.program
    cpu = site.plan.package == "tensorflow-cpu" and "--cpu" in site.tree.wheel_options
    log = folder.with_suffix(".pack.log")
    env = bazel.build_environment(site.bazel.use) | {"PYTHON_BIN_PATH": str(site.python)}
    words: list[str | Path] = [program, folder]
    try:
        run([*words, *(["--cpu"] if cpu else [])], env=env, log=log, timeout_s=_PACK_S)
    except CommandError as error:
        what = f"{program.name} failed (whole output: {log})"
        raise BuildError(f"{what}: {error.last_line}") from error
