"""The handlers of the commands that build wheels: they take options and return text."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfbuild import full_build, plan_text
from tfbuild.auditing import audit
from tfbuild.auditing.audit import Audit
from tfbuild.commands import AuditOptions, BuildOptions, Request
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild import finished_wheels, proof, survey, survey_page
from tfbuild.kernelbuild import rebuild as rebuilding
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.kernelbuild.finished_wheels import FinishedWheel
from tfbuild.kernelbuild.pool import BuiltWheel, WheelPart
from tfbuild.kernelbuild.proof import Proof, RebuildResult
from tfbuild.packing import conformance, tuned
from tfbuild.packing.conformance import ConformanceTrial
from tfbuild.planning import containers, jobs, render
from tfbuild.planning import plan as plans
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import Estimate, FullPlan, KernelsPlan, Plan, Scope
from tfbuild.planning.proxy_targets import choose_proxy_plan, list_missing_features
from tfbuild.planning.request import (
    fill_compiler,
    require_release,
    resolve,
    resolve_fleet,
    resolve_fleets,
    resolve_release,
)
from tfbuild.tools import doctor, emulation, environment
from tfbuild.upstream import kernels, releases
from tfbuild.upstream.download import hash_file
from tfcore import console, durations, settings
from tfcore.cpus import cpu
from tfcore.cpus.compilers import Compiler
from tfcore.cpus.cpu import Cpu
from tfcore.errors import (
    CpuError,
    DownloadError,
    HostError,
    KernelError,
    RebuildError,
    UsageError,
    WheelError,
)
from tfcore.records import convert_record, format_json
from tfcore.settings import Paths

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
    """Return the plan of a wheel, or those of a fleet, and what the build will take here.

    Builds nothing. For several Pythons it describes the plan of the first: the others differ
    only in the stock wheel.
    """
    request = resolve_release(fill_compiler(request), settings.paths())
    (fleet, *other_fleets), compiler = resolve_fleets(request, plans.make_plan)
    plan = fleet.first
    chosen = choose_jobs(plan, wanted_jobs)
    guess = estimate(fleet, chosen.count)
    ran_as = _find_proxy_targets(fleet, compiler)
    if as_json:
        keys = {other_fleet.first.python: other_fleet.key for other_fleet in other_fleets}
        answer = {"key": fleet.key, "version": fleet.version, "plans": fleet.plans, "others": keys}
        return format_json(answer | {"admission": ran_as, "jobs": chosen, "estimate": guess})
    pythons = [other_fleet.first.python for other_fleet in other_fleets]
    return plan_text.format_fleet(fleet, chosen, guess, settings.paths().templates, ran_as, pythons)


def _find_proxy_targets(fleet: Fleet[Plan], compiler: Compiler) -> dict[str, str]:
    """Return, by target, the target or emulator that its kernels would run as here.

    Kernels of a target that this CPU cannot run are compiled for a proxy target; the value is
    empty if nothing here can run them. A full build has no kernels to run: the result is
    empty.
    """
    proxies: dict[str, str] = {}
    kernels_plans = [plan for plan in fleet.plans if isinstance(plan, KernelsPlan)]
    for plan in kernels_plans:
        family = plan.target.family
        proxies[plan.target.spec] = ""
        if emulation.can_emulate(family):
            # Only the emulator can name the target, and it may not be installed yet.
            proxies[plan.target.spec] = f"a target that qemu-{family} runs"
        with contextlib.suppress(KernelError, CpuError):
            runner = choose_proxy_plan(plan, kernels_plans, cpu.read_cpu(), compiler)
            proxies[plan.target.spec] = runner.target.spec
    return proxies


def describe_dry_run(request: Request, options: BuildOptions, *, as_json: bool) -> str:
    """Return the whole plan, after checking that the other options can be used."""
    if request.scope == Scope.FULL:
        full_build.check_request(request, options)
    else:
        _refuse_full_options(options)
        request = dataclasses.replace(request, source=options.source)
    return describe_plan(request, options.jobs, as_json=as_json)


def estimate(fleet: Fleet[Plan], jobs: int) -> Estimate:
    """Estimate the build of a fleet: that of the first plan, times the number of targets.

    A target that this CPU cannot run counts twice, as a proxy target may be compiled for it.
    """
    plan = fleet.first
    if isinstance(plan, FullPlan):
        return full_build.estimate(plan, full_build.choose_budget(plan, str(jobs)))
    single = plans.estimate(plan, jobs)
    foreign = sum(
        bool(list_missing_features(fleet_plan, cpu.read_cpu())) for fleet_plan in fleet.plans
    )
    return dataclasses.replace(single, seconds=single.seconds * (len(fleet.plans) + foreign))


def choose_jobs(plan: Plan, jobs_option: str) -> Jobs:
    if isinstance(plan, FullPlan):
        budget = full_build.choose_budget(plan, jobs_option)
        return Jobs(count=budget.jobs, limited_by=budget.limited_by)
    per_job = kernels.estimate_cost(plan.kernels, only_selected=plan.only_selected).megabytes
    return jobs.choose_jobs(cpu.read_vcpus().usable, jobs.read_available_mb(), per_job, jobs_option)


def render_plan(request: Request, out: str, *, check: bool) -> str:
    """Write the files of a plan, or with `check` compare them; return a line for each plan.

    A fleet gets a folder for each target.
    """
    paths = settings.paths()
    fleet, _ = resolve_fleet(resolve_release(fill_compiler(request), paths), plans.make_plan)
    lines = []
    for plan in fleet.plans:
        folder = paths.reports / "rendered" / plan.key[:16]
        if out:
            folder = Path(out) if len(fleet.plans) == 1 else Path(out) / plan.target.local
        files = render.render(plan, paths.templates)
        if check:
            render.check(files, folder)
            lines.append(f"{folder} matches plan {plan.key[:16]} ({len(files)} files)")
        else:
            render.write(files, folder)
            lines.append(f"{len(files)} files of plan {plan.key[:16]} in {folder}")
    return "\n".join(lines)


def write_containers(request: Request, vcpus: str, out: str) -> str:
    """Write the container files of a plan.

    Returns where they are, and whether a container engine is here.
    """
    if vcpus and not (vcpus.isdecimal() and int(vcpus)):
        raise UsageError(f"--vcpus {vcpus} is not a positive whole number")
    paths = settings.paths()
    fleet, _ = resolve_fleet(resolve_release(fill_compiler(request), paths), plans.make_plan)
    files = containers.render_containers(
        fleet,
        kernels=request.kernels,
        vcpus=int(vcpus) if vcpus else None,
        templates=paths.templates,
    )
    folder = Path(out) if out else paths.reports / "containers" / fleet.version
    render.write(files, folder)
    engine = next(filter(shutil.which, ("docker", "podman", "buildah")), None)
    usage = (
        f"the first lines of each show its {engine} command"
        if engine
        else "not run, because docker, podman and buildah are not installed"
    )
    return f"{len(files)} files in {folder}; {usage}"


def build_wheel(
    request: Request,
    options: BuildOptions = full_build.NOTHING,
    *,
    pool: Path | None = None,
) -> tuple[BuiltWheel, ...]:
    """Build the wheel of a request, for each of its Pythons, in `pool` or the user's own.

    Locks the cache. Checks the request first, so that a wrong request leaves no trace.
    """
    if request.scope == Scope.FULL:
        for option in ("stock_wheel", "keep_going"):
            if getattr(options, option):
                raise UsageError(f"--{option.replace('_', '-')} needs --scope kernels")
    else:
        _refuse_full_options(options)
    paths = settings.paths()
    if pool is not None:
        paths = dataclasses.replace(paths, pool=pool)
    request = resolve_release(dataclasses.replace(request, source=options.source), paths)
    if options.install:
        release = require_release(request)
        full = request.scope == Scope.FULL
        bazel = releases.choose_bazel(release) if full else releases.read_kernels_bazel()
        doctor.prepare(paths, bazel, install=True)
    if request.scope == Scope.FULL:
        resolve_fleets(request, plans.make_full_plan)
        return (full_build.build(request, options),)
    fleets, compiler = resolve_fleets(request, plans.make_kernels_plan)
    plan = fleets[0].first
    chosen = choose_jobs(plan, options.jobs)
    for fleet in fleets:
        plans.require_stock(fleet.first)
    compiler.require_installed()
    with settings.lock_folder(paths.cache, "a build"):
        doctor.prepare(paths, plan.bazel, clang=False)  # the plan names the compiler
        for fleet in fleets:
            python = fleet.first.python
            console.print_message(
                f"plan {fleet.key[:16]}: {plan.package} {fleet.version} for Python {python}"
            )
        return builder.build_wheels(
            fleets,
            compiler=compiler,
            jobs=chosen,
            paths=paths,
            given_source=full_build.parse_path(options.source),
            given_stock=full_build.parse_path(options.stock_wheel),
            keep_going=options.keep_going,
        )


def _refuse_full_options(options: BuildOptions) -> None:
    refused = full_build.list_full_only_options(options)
    if refused:
        raise UsageError(f"{refused[0]} needs --scope full")


def audit_wheel(options: AuditOptions, *, as_json: bool) -> tuple[Audit, str]:
    """Audit a wheel and return the findings, as a record and as text.

    Raises WheelError, DownloadError.
    """
    path, paths = _require_wheel(options.wheel), settings.paths()
    stock = full_build.parse_path(options.stock)
    if options.fetch and stock is None:
        _fetch_stock(path, paths)
    findings = audit.audit(path, paths=paths, stock=stock)
    return findings, format_json(findings) if as_json else audit.describe(findings)


def _fetch_stock(wheel: Path, paths: Paths) -> None:
    """Fetch the stock wheel that a wheel of kernels was made from into the cache.

    Raises DownloadError.
    """
    facts = tuned.read_tuned(wheel)
    stock = audit.find_stock(wheel, facts) if facts else None
    if stock is None:
        return
    try:
        environment.fetch_stock(stock, paths)
    except DownloadError as error:
        raise DownloadError(
            f"{wheel.name} cannot be compared with its stock wheel: {error.message}",
            hint=f"Give {stock.file} with --stock PATH, or audit without it: --no-fetch",
        ) from error


def refuse_rebuild_options(options: AuditOptions, *, dry_run: bool) -> None:
    """Raise UsageError for an option that applies to --rebuild only."""
    for option, value in (
        ("--source", options.source),
        ("--jobs", options.jobs),
        ("--sign", options.sign),
        ("--dry-run", dry_run),
    ):
        if value:
            raise UsageError(f"{option} needs --rebuild")


def rebuild_wheel(options: AuditOptions) -> RebuildResult:
    """Rebuild a wheel of kernels and compare it; if that is impossible, return why.

    Raises WheelError, and whatever a stage of a build raises.
    """
    path, paths = _require_wheel(options.wheel), settings.paths()
    given_source = full_build.parse_path(options.source)
    try:
        origin = rebuilding.read_origin(path, given_source)
        first = origin.fleet.first
        with settings.lock_folder(paths.cache, "rebuilding a wheel"):
            doctor.prepare(paths, first.bazel, clang=False)  # (the origin names the compiler)
            return rebuilding.rebuild(
                path,
                origin,
                choose_jobs(first, options.jobs),
                paths=paths,
                given_source=given_source,
                given_stock=full_build.parse_path(options.stock),
            )
    except RebuildError as error:
        return RebuildResult(wheel=path.name, proof=Proof.NONE, reasons=(str(error),))


def describe_rebuild(wheel_audit: Audit, result: RebuildResult, *, as_json: bool) -> str:
    """Return the result of a rebuild as text; as JSON together with the audit before it."""
    return (
        format_json(convert_record(wheel_audit) | {"rebuild": result})
        if as_json
        else proof.describe(result)
    )


def describe_rebuild_plan(options: AuditOptions, *, as_json: bool) -> str:
    """Return what would be rebuilt, and how long it takes.

    Raises RebuildError, WheelError.
    """
    origin = rebuilding.read_origin(
        _require_wheel(options.wheel), full_build.parse_path(options.source)
    )
    fleet, compiler = origin.fleet, origin.compiler
    chosen = choose_jobs(fleet.first, options.jobs)
    single = plans.estimate(fleet.first, chosen.count)
    guess = dataclasses.replace(single, seconds=single.seconds * len(fleet.plans))
    compiler_name = f"{compiler.family} {compiler.version}"
    if as_json:
        answer = {
            "key": fleet.key,
            "version": fleet.version,
            "plans": fleet.plans,
            "compiler": compiler_name,
        }
        return format_json(answer | {"unknown": origin.unknown, "jobs": chosen, "estimate": guess})
    units = console.format_count(
        len({unit for plan in fleet.plans for unit in plan.kernels}), "kernel group"
    )
    summary = f"{fleet.first.package} {fleet.version}, {units} for {', '.join(fleet.targets)}"
    lines = [
        f"plan {fleet.key[:16]}: {summary}, compiled with {compiler_name}",
        (
            f"about {console.format_duration(guess.seconds)} with an empty cache, "
            "seconds with a full one"
        ),
    ]
    if compiler_name != origin.facts.compiler:
        lines.append(f"built with {origin.facts.compiler}: another compiler cannot prove all bytes")
    if origin.unknown:
        lines.append(f"tuned.json records another plan for {', '.join(origin.unknown)}")
    return "\n".join([*lines, ""])


def _require_wheel(text: str) -> Path:
    """Return the path of a wheel.

    Raises WheelError if there is no such file.
    """
    path = settings.expand_home(text)
    if not path.is_file():
        problem = f"{path} is a folder" if path.is_dir() else f"{path} does not exist"
        raise WheelError(problem, hint="Give the path of a .whl file")
    if path.suffix != ".whl":
        problem = f"{path} is not a wheel: its name does not end in .whl"
        raise WheelError(problem, hint="Give the path of a .whl file")
    return path


def admit_wheel(
    wheel: str, *, as_json: bool, dry_run: bool
) -> tuple[Mapping[str, ConformanceTrial], str]:
    """Run the conformance test of a finished wheel's kernels that this CPU can run.

    Returns the trial of each target, and a text. Raises WheelError, HostError, RecordError.
    """
    path, host = _require_wheel(wheel), cpu.read_cpu()
    finished_wheel = finished_wheels.load_finished_wheel(path, host)
    if dry_run:
        return {}, _describe_trial_plan(finished_wheel, host, as_json=as_json)
    paths = settings.paths()
    with settings.lock_folder(paths.cache, "a conformance test"):
        record = finished_wheels.retest_kernels(finished_wheel, host, paths)
    record_path = conformance.get_record_path(path)
    if as_json:
        return record.targets, format_json({"record": record_path} | convert_record(record))
    standings = conformance.read_statuses(path, finished_wheel.facts, finished_wheel.sha256)
    lines = [f"{status.target}: {conformance.describe(status)}" for status in standings]
    units = [
        f"  {target}, {unit}: {outcome.reason or f'passed {outcome.cases} cases'}"
        for target, trial in record.targets.items()
        for unit, outcome in trial.units.items()
    ]
    return record.targets, "\n".join([*lines, *units, f"record: {record_path}", ""])


def _describe_trial_plan(finished_wheel: FinishedWheel, host: Cpu, *, as_json: bool) -> str:
    standings = conformance.read_statuses(
        finished_wheel.wheel, finished_wheel.facts, finished_wheel.sha256
    )
    lacks = {
        entry.target: tuned.list_missing_features(entry, host)
        for entry in finished_wheel.facts.libraries
    }
    if as_json:
        return format_json({"wheel": finished_wheel.wheel, "standings": standings, "lacks": lacks})
    lines = [
        f"{entry.target}: {conformance.describe(entry)}; "
        + (f"cannot run here, this CPU lacks {', '.join(missing)}" if missing else "would run here")
        for entry in standings
        for missing in [lacks[entry.target]]
    ]
    return "\n".join([*lines, f"record: {conformance.get_record_path(finished_wheel.wheel)}", ""])


def survey_kernels(request: Request, options: BuildOptions, budget: str) -> str:
    """Compile and test every kernel source of a release, and write the results.

    Raises UsageError if `budget` is not a duration, HostError on a CPU that cannot run the
    kernels.
    """
    paths = settings.paths()
    budget_s = durations.parse_duration(budget, "--budget")
    request = resolve_release(dataclasses.replace(request, source=options.source), paths)
    resolved = resolve(request)
    plan, compiler = plans.make_kernels_plan(resolved), resolved.compiler
    lacks = list_missing_features(plan, cpu.read_cpu())
    if lacks:
        raise HostError(
            f"a survey runs the kernels of {plan.target.spec}, but this CPU lacks "
            f"{', '.join(lacks)}",
            hint="Survey a target that this CPU can run, for example --arch native",
        )
    chosen = choose_jobs(plan, options.jobs)
    plans.require_stock(plan)
    compiler.require_installed()
    with settings.lock_folder(paths.cache, "a survey"):
        doctor.prepare(paths, plan.bazel, clang=False)
        results = survey.survey_sources(
            plan,
            compiler,
            chosen,
            paths=paths,
            budget_s=budget_s,
            given_source=full_build.parse_path(options.source),
            given_stock=full_build.parse_path(options.stock_wheel),
        )
    written = "\n".join(map(str, survey_page.write_survey(results, paths)))
    return (
        written
        if results.finished
        else f"{written}\nnot finished: run the same command again to continue"
    )


def describe_built(wheels: Sequence[BuiltWheel], *, as_json: bool) -> str:
    """Return a description of the wheels; as JSON a record for one, and a list for several."""
    if as_json:
        rows = [_convert_built(built) for built in wheels]
        return format_json(rows if len(rows) > 1 else rows[0])
    return "".join(_describe_wheel(built) for built in wheels)


def _convert_built(built: BuiltWheel) -> dict[str, object]:
    fields = {"wheel": built.wheel, "manifest": built.manifest, "reused": built.reused}
    return {**fields, "parts": convert_record(built.parts)}


def _describe_wheel(built: BuiltWheel) -> str:
    lines = [f"{built.wheel} ({console.format_size(built.wheel.stat().st_size)})"]
    for part in built.parts:
        kind = "a kernel library" if part.verdicts else "libraries"
        ran_as = f", tested as {part.ran_as}" if _has_proxy(part) else ""
        lines.append(f"{part.target}: {kind} of {console.format_size(part.size)}{ran_as}")
        lines += [f"  {_format_verdict(verdict)}" for verdict in part.verdicts]
    unproven = [part.target for part in built.parts if _has_proxy(part)]
    if unproven and (record := conformance.read_record(built.wheel, hash_file(built.wheel))):
        unproven = [target for target in unproven if target not in record.targets]
    if unproven:
        lines.append(
            f"Before you publish it, run invoke admit {built.wheel} "
            f"on a CPU that runs {' and '.join(unproven)}"
        )
    return "\n".join(lines) + "\n"


def _has_proxy(part: WheelPart) -> bool:
    """Return True if the kernels were tested as compiled for another target."""
    return bool(part.ran_as) and part.ran_as != part.target


def _format_verdict(verdict: UnitVerdict) -> str:
    if verdict.admitted:
        passed = console.format_count(len(verdict.registrations), "kernel")
        cases = console.format_count(verdict.cases, "case")
        refused = f"; {len(verdict.refused)} stay stock" if verdict.refused else ""
        return f"{verdict.unit}: {passed} passed {cases}{refused}"
    return f"{verdict.unit}: stays stock: {verdict.reason.splitlines()[0]}"
