"""Handlers of the commands: options in, text out."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfbuild import console, durations, full_build, plan_text, settings
from tfbuild.auditing import audit
from tfbuild.auditing.audit import Audit
from tfbuild.commands import AuditOptions, BuildOptions, Request
from tfbuild.cpus import cpu
from tfbuild.cpus.compilers import Compiler
from tfbuild.cpus.cpu import Cpu
from tfbuild.errors import (
    CpuError,
    DownloadError,
    HostError,
    KernelError,
    RebuildError,
    UsageError,
    WheelError,
)
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild import finished, proof, survey, survey_page
from tfbuild.kernelbuild import rebuild as rebuilding
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.kernelbuild.finished import Finished
from tfbuild.kernelbuild.pool import Built, Part
from tfbuild.kernelbuild.proof import Proof, Rebuilt
from tfbuild.packing import admitted, tuned
from tfbuild.packing.admitted import AdmissionTrial
from tfbuild.planning import containers, jobs, render
from tfbuild.planning import plan as plans
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import Estimate, Plan, Scope
from tfbuild.planning.request import fleet_for, fleets_for, plan_for, plannable, settled
from tfbuild.planning.stand_in import absent, stand_in
from tfbuild.records import plain, pretty
from tfbuild.settings import Paths
from tfbuild.tools import doctor, emulation, environment, pgo
from tfbuild.upstream import kernels, releases
from tfbuild.upstream.download import sha256_of

__all__ = [
    "admit_wheel",
    "audit_wheel",
    "build_wheel",
    "describe_built",
    "describe_plan",
    "render_plan",
    "write_containers",
]


def describe_plan(request: Request, wanted_jobs: str, *, as_json: bool) -> str:
    """The whole plan, or those of a fleet, and what it will take here. Nothing is done.

    Of several Pythons it is the first one's: the others differ in the stock wheel only.
    """
    request = settled(plannable(request), settings.paths())
    (fleet, *others), compiler = fleets_for(request)
    plan = fleet.first
    chosen = jobs_for(plan, wanted_jobs)
    guess = estimate(fleet, chosen.count)
    ran_as = _admissions(fleet, compiler)
    if as_json:
        keys = {each.first.python: each.key for each in others}
        answer = {"key": fleet.key, "version": fleet.version, "plans": fleet.plans, "others": keys}
        return pretty(answer | {"admission": ran_as, "jobs": chosen, "estimate": guess})
    pythons = [each.first.python for each in others]
    return plan_text.fleet_text(fleet, chosen, guess, settings.paths().templates, ran_as, pythons)


def _admissions(fleet: Fleet, compiler: Compiler) -> dict[str, str]:
    """As compiled for which target the kernels of each would be run here, or under which emulator;
    empty for one that runs nowhere here. Nothing of a full build, which has none to run."""
    found: dict[str, str] = {}
    for plan in fleet.plans if fleet.first.scope is Scope.KERNELS else ():
        family = plan.target.family
        found[plan.target.spec] = ""
        if emulation.is_at_hand(family):
            # Which that is, the emulator itself says: it may have to be fetched first.
            found[plan.target.spec] = f"a target that qemu-{family} runs"
        with contextlib.suppress(KernelError, CpuError):
            runner = stand_in(plan, fleet.plans, cpu.read_cpu(), compiler)
            found[plan.target.spec] = runner.target.spec
    return found


def dry_run(request: Request, options: BuildOptions, *, as_json: bool) -> str:
    """The whole plan, once the options beside it are seen to be usable."""
    if request.scope == Scope.FULL:
        full_build.check(request, options)
    else:
        _need_nothing_of_the_tree(options)
        request = dataclasses.replace(request, source=options.source)
    return describe_plan(request, options.jobs, as_json=as_json)


def estimate(fleet: Fleet, jobs: int) -> Estimate:
    """The first plan's, and for each target more its compiles again; one that this CPU does not run
    may take those of another, too."""
    plan = fleet.first
    if plan.scope is Scope.FULL:
        return full_build.estimate(plan, full_build.budget_for(plan, str(jobs)))
    one = plans.estimate(plan, jobs)
    foreign = sum(bool(absent(each, cpu.read_cpu())) for each in fleet.plans)
    return dataclasses.replace(one, seconds=one.seconds * (len(fleet.plans) + foreign))


def jobs_for(plan: Plan, wanted: str) -> Jobs:
    if plan.scope is Scope.FULL:
        budget = full_build.budget_for(plan, wanted)
        return Jobs(count=budget.jobs, limited_by=budget.limited_by)
    per_job = kernels.cost(plan.kernels, only_selected=plan.only_selected).megabytes
    return jobs.choose(cpu.read_vcpus().usable, jobs.available_mb(), per_job, wanted)


def render_plan(request: Request, out: str, *, check: bool) -> str:
    """Write the files of a plan, or with `check` compare; those of a fleet in a folder for each
    target. Returns a line for each plan."""
    paths = settings.paths()
    fleet, _ = fleet_for(settled(plannable(request), paths))
    lines = []
    for plan in fleet.plans:
        folder = paths.reports / "rendered" / plan.key[:16]
        if out:
            folder = Path(out) if len(fleet.plans) == 1 else Path(out) / plan.target.local
        files = render.render(plan, paths.templates)
        if check:
            render.check(files, folder)
            lines.append(f"{folder} is what plan {plan.key[:16]} renders ({len(files)} files)")
        else:
            render.write(files, folder)
            lines.append(f"{len(files)} files of plan {plan.key[:16]} in {folder}")
    return "\n".join(lines)


def write_containers(request: Request, vcpus: str, out: str) -> str:
    """Write the container files of a plan. Says where they are, and whether an engine is here."""
    if vcpus and not (vcpus.isdecimal() and int(vcpus)):
        raise UsageError(f"--vcpus {vcpus} is no number of vCPUs")
    paths = settings.paths()
    fleet, _ = fleet_for(settled(plannable(request), paths))
    files = containers.containers(
        fleet,
        kernels=request.kernels,
        vcpus=int(vcpus) if vcpus else None,
        templates=paths.templates,
    )
    folder = Path(out) if out else paths.reports / "containers" / fleet.version
    render.write(files, folder)
    engine = next(filter(shutil.which, ("docker", "podman", "buildah")), None)
    how = (
        f"their heads have the commands for {engine}"
        if engine
        else "no docker, podman or buildah is here: they were not run"
    )
    return f"{len(files)} files in {folder}; {how}"


def build_wheel(
    request: Request,
    options: BuildOptions = full_build.NOTHING,
    *,
    pool: Path | None = None,
) -> tuple[Built, ...]:
    """Make the wheel of a request, for each of its Pythons, in `pool` or the user's own. One run at
    a time works in the cache.

    What was asked for is looked at first, so that a wrong request leaves no trace.
    """
    if request.scope == Scope.FULL:
        for option in ("stock_wheel", "keep_going"):
            if getattr(options, option):
                raise UsageError(f"--{option.replace('_', '-')} is for --scope kernels")
    else:
        _need_nothing_of_the_tree(options)
    paths = settings.paths()
    if pool is not None:
        paths = dataclasses.replace(paths, pool=pool)
    request = settled(dataclasses.replace(request, source=options.source), paths)
    if options.install:
        release = releases.find_release(request.release)
        full = request.scope == Scope.FULL
        bazel = releases.pinned_bazel(release) if full else releases.kernels_bazel()
        doctor.prepare(paths, bazel, install=True)
    if request.scope == Scope.FULL:
        fleets_for(request)
        return (full_build.build(request, options),)
    fleets, compiler = fleets_for(request)
    plan = fleets[0].first
    chosen = jobs_for(plan, options.jobs)
    for fleet in fleets:
        plans.need_stock(fleet.first)
    compiler.need_here()
    with settings.exclusive(paths.cache, "a build"):
        doctor.prepare(paths, plan.bazel, clang=False)  # the plan has its compiler
        for fleet in fleets:
            python = fleet.first.python
            console.say(
                f"plan {fleet.key[:16]}: {plan.package} {fleet.version} for Python {python}"
            )
        _bring_profiles(request, fleets[0], paths)
        return builder.build_all(
            fleets,
            compiler=compiler,
            jobs=chosen,
            paths=paths,
            given_source=full_build.path_of(options.source),
            given_stock=full_build.path_of(options.stock_wheel),
            keep_going=options.keep_going,
        )


def _bring_profiles(request: Request, fleet: Fleet, paths: Paths) -> None:
    """Raises BuildError, ChecksumError."""
    folders = [Path(path.strip()).parent for path in request.selection.split(",") if path.strip()]
    pgo.bring({name for plan in fleet.plans for name in render.profiles(plan)}, folders, paths)


def _need_nothing_of_the_tree(options: BuildOptions) -> None:
    given = full_build.unused(options)
    if given:
        raise UsageError(f"{given[0]} is for --scope full")


def audit_wheel(options: AuditOptions, *, as_json: bool) -> tuple[Audit, str]:
    """What a wheel contains, as a record and as text. Raises WheelError, DownloadError."""
    path, paths = _wheel_at(options.wheel), settings.paths()
    given = full_build.path_of(options.stock)
    if options.fetch and given is None:
        _bring_stock(path, paths)
    found = audit.audit(path, paths=paths, stock=given)
    return found, pretty(found) if as_json else audit.describe(found)


def _bring_stock(wheel: Path, paths: Paths) -> None:
    """The stock wheel that a wheel of kernels was made from, into the cache."""
    facts = tuned.read_tuned(wheel)
    known = audit.stock_of(wheel, facts) if facts else None
    if known is None:
        return
    try:
        environment.fetch_stock(known, paths)
    except DownloadError as error:
        raise DownloadError(
            f"{wheel.name} cannot be compared with its stock wheel: {error.message}",
            hint=f"Give {known.file}: --stock PATH; or look without it: --no-fetch",
        ) from error


def need_no_rebuild(options: AuditOptions, *, dry_run: bool) -> None:
    """Raises UsageError for an option that an audit without --rebuild has no use for."""
    for option, value in (
        ("--source", options.source),
        ("--jobs", options.jobs),
        ("--dry-run", dry_run),
    ):
        if value:
            raise UsageError(f"{option} is for --rebuild")


def rebuild_wheel(options: AuditOptions) -> Rebuilt:
    """A wheel of kernels made again and compared; where that cannot be, why. Raises WheelError, and
    whatever a stage of a build raises."""
    path, paths = _wheel_at(options.wheel), settings.paths()
    given_source = full_build.path_of(options.source)
    try:
        origin = rebuilding.origin_for(path, given_source)
        first = origin.fleet.first
        with settings.exclusive(paths.cache, "making a wheel again"):
            doctor.prepare(paths, first.bazel, clang=False)  # (the origin has its compiler)
            return rebuilding.rebuild(
                path,
                origin,
                jobs_for(first, options.jobs),
                paths=paths,
                given_source=given_source,
                given_stock=full_build.path_of(options.stock),
            )
    except RebuildError as error:
        return Rebuilt(wheel=path.name, proof=Proof.NONE, reasons=(str(error),))


def describe_rebuilt(found: Audit, made: Rebuilt, *, as_json: bool) -> str:
    """What came of it; as JSON with the audit that went before."""
    return pretty(plain(found) | {"rebuild": made}) if as_json else proof.describe(made)


def would_rebuild(options: AuditOptions, *, as_json: bool) -> str:
    """What would be made again, and how long it takes. Raises RebuildError, WheelError."""
    origin = rebuilding.origin_for(_wheel_at(options.wheel), full_build.path_of(options.source))
    fleet, compiler = origin.fleet, origin.compiler
    chosen = jobs_for(fleet.first, options.jobs)
    one = plans.estimate(fleet.first, chosen.count)
    guess = dataclasses.replace(one, seconds=one.seconds * len(fleet.plans))
    by = f"{compiler.family} {compiler.version}"
    if as_json:
        answer = {"key": fleet.key, "version": fleet.version, "plans": fleet.plans, "compiler": by}
        return pretty(answer | {"unknown": origin.unknown, "jobs": chosen, "estimate": guess})
    units = console.count(
        len({unit for plan in fleet.plans for unit in plan.kernels}), "kernel unit"
    )
    what = f"{fleet.first.package} {fleet.version}, {units} for {', '.join(fleet.targets)}"
    lines = [
        f"plan {fleet.key[:16]}: {what}, by {by}",
        (
            f"about {console.duration(guess.seconds)} from empty caches, "
            "seconds from those that have it"
        ),
    ]
    if by != origin.facts.compiler:
        lines.append(f"it was made by {origin.facts.compiler}: not all can be proven")
    if origin.unknown:
        lines.append(f"tuned.json has another plan for {', '.join(origin.unknown)}")
    return "\n".join([*lines, ""])


def _wheel_at(text: str) -> Path:
    """Raises WheelError where there is none."""
    path = Path(text).expanduser()
    if not path.is_file():
        what = f"{path} is a folder" if path.is_dir() else f"there is no wheel {path}"
        raise WheelError(what, hint="Give the path of a .whl file")
    return path


def admit_wheel(
    wheel: str, *, as_json: bool, dry_run: bool
) -> tuple[Mapping[str, AdmissionTrial], str]:
    """Run the kernels of a finished wheel that this CPU can run; what came of each of its targets,
    and the text of it. Raises WheelError, HostError, RecordError."""
    path, here = _wheel_at(wheel), cpu.read_cpu()
    found = finished.finished(path, here)
    if dry_run:
        return {}, _would_admit(found, here, as_json=as_json)
    paths = settings.paths()
    with settings.exclusive(paths.cache, "an admission"):
        record = finished.admit(found, here, paths)
    kept = admitted.record_of(path)
    if as_json:
        return record.targets, pretty({"record": kept} | plain(record))
    every = admitted.standings_in(path, found.facts, found.sha256)
    lines = [f"{each.target}: {admitted.describe(each)}" for each in every]
    units = [
        f"  {target}, {unit}: {each.reason or f'agrees with stock over {each.cases} cases'}"
        for target, trial in record.targets.items()
        for unit, each in trial.units.items()
    ]
    return record.targets, "\n".join([*lines, *units, f"record: {kept}", ""])


def _would_admit(found: Finished, here: Cpu, *, as_json: bool) -> str:
    every = admitted.standings_in(found.wheel, found.facts, found.sha256)
    lacks = {each.target: tuned.absent(each, here) for each in found.facts.libraries}
    if as_json:
        return pretty({"wheel": found.wheel, "standings": every, "lacks": lacks})
    lines = [
        f"{each.target}: {admitted.describe(each)}; "
        + (f"not here, this CPU lacks {', '.join(less)}" if less else "would be run here")
        for each in every
        for less in [lacks[each.target]]
    ]
    return "\n".join([*lines, f"record: {admitted.record_of(found.wheel)}", ""])


def survey_kernels(request: Request, options: BuildOptions, budget: str) -> str:
    """Look at every kernel source of a release, and write what became of each.

    Raises UsageError for a `budget` that is no duration, HostError on a CPU that cannot run them.
    """
    paths = settings.paths()
    budget_s = durations.seconds(budget, "--budget")
    request = settled(dataclasses.replace(request, source=options.source), paths)
    plan, compiler = plan_for(request)
    lacks = absent(plan, cpu.read_cpu())
    if lacks:
        raise HostError(
            f"a survey runs the kernels of {plan.target.spec}, and this CPU lacks "
            f"{', '.join(lacks)}",
            hint="Survey a target that it has, such as --arch native",
        )
    chosen = jobs_for(plan, options.jobs)
    plans.need_stock(plan)
    compiler.need_here()
    with settings.exclusive(paths.cache, "a survey"):
        doctor.prepare(paths, plan.bazel, clang=False)
        found = survey.survey(
            plan,
            compiler,
            chosen,
            paths=paths,
            budget_s=budget_s,
            given_source=full_build.path_of(options.source),
            given_stock=full_build.path_of(options.stock_wheel),
        )
    written = "\n".join(map(str, survey_page.write(found, paths)))
    return written if found.finished else f"{written}\nnot finished: run the same again"


def describe_built(every: Sequence[Built], *, as_json: bool) -> str:
    """The wheels; as JSON a record for one, and a list of them for several."""
    if as_json:
        rows = [_fields(built) for built in every]
        return pretty(rows if len(rows) > 1 else rows[0])
    return "".join(_described(built) for built in every)


def _fields(built: Built) -> dict[str, object]:
    made = {"wheel": built.wheel, "manifest": built.manifest, "reused": built.reused}
    return {**made, "parts": plain(built.parts)}


def _described(built: Built) -> str:
    lines = [f"{built.wheel} ({console.size(built.wheel.stat().st_size)})"]
    for part in built.parts:
        what = "a kernel library" if part.verdicts else "libraries"
        ran_as = f", admitted as {part.ran_as}" if _foreign(part) else ""
        lines.append(f"{part.target}: {what} of {console.size(part.size)}{ran_as}")
        lines += [f"  {_verdict_line(verdict)}" for verdict in part.verdicts]
    unproven = [part.target for part in built.parts if _foreign(part)]
    if unproven and (record := admitted.read_record(built.wheel, sha256_of(built.wheel))):
        unproven = [target for target in unproven if target not in record.targets]
    if unproven:
        lines.append(
            f"Before it is published, on a CPU that runs {' and '.join(unproven)}: "
            f"invoke admit {built.wheel}"
        )
    return "\n".join(lines) + "\n"


def _foreign(part: Part) -> bool:
    """Whether its kernels were run as compiled for another target."""
    return bool(part.ran_as) and part.ran_as != part.target


def _verdict_line(verdict: UnitVerdict) -> str:
    if verdict.admitted:
        number = len(verdict.registrations)
        agrees = f"{console.count(number, 'kernel')} {'agrees' if number == 1 else 'agree'}"
        over = f"with stock over {console.count(verdict.cases, 'case')}"
        rest = f"; {len(verdict.refused)} stay stock" if verdict.refused else ""
        return f"{verdict.unit}: {agrees} {over}{rest}"
    return f"{verdict.unit}: stays stock, {verdict.reason.splitlines()[0]}"
