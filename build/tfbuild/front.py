"""What the tasks call: options in, text out."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tfbuild import settings, talk
from tfbuild.auditing import audit
from tfbuild.auditing.audit import Audit
from tfbuild.cpus import cpu
from tfbuild.cpus.compilers import Compiler
from tfbuild.errors import CompilerError, UsageError, WheelError
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild.admission import Verdict
from tfbuild.kernelbuild.assemble import Built
from tfbuild.planning import jobs, render
from tfbuild.planning import plan as plans
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import Estimate, Plan, Scope
from tfbuild.planning.request import Request, fleet_for
from tfbuild.records import plain, pretty
from tfbuild.tools import doctor
from tfbuild.upstream import kernels, releases

__all__ = [
    "Request",
    "audit_wheel",
    "build_wheel",
    "describe_built",
    "describe_plan",
    "render_plan",
]


def describe_plan(request: Request, wanted_jobs: str, *, as_json: bool) -> str:
    """The whole plan, or those of a fleet, and what it will take here. Nothing is done."""
    fleet, _ = fleet_for(request)
    plan = fleet.first
    chosen = jobs_for(plan, wanted_jobs)
    guess = estimate(fleet, chosen.count)
    if as_json:
        answer = {"key": fleet.key, "version": fleet.version, "plans": fleet.plans}
        return pretty(answer | {"jobs": chosen, "estimate": guess})
    rows = [
        ("plan", fleet.key[:16]),
        ("wheel", f"{plan.package} {fleet.version} for Python {plan.python}"),
        ("scope", plan.scope.value),
        *(row for each in fleet.plans for row in _target_rows(each)),
        ("compiler", f"{plan.compiler} {plan.compiler_version}"),
        ("Bazel", f"{plan.bazel} by bazelisk"),
        ("sources", "\n".join(f"{pin.file.name}  ({pin.origin})" for pin in plan.sources)),
        *_scope_rows(plan),
        ("jobs", f"{chosen.count} at once, set by {chosen.limited_by}"),
        ("time", f"about {talk.duration(guess.seconds)} ({guess.basis})"),
        ("memory", f"about {talk.size(guess.memory_mb * 1e6)}"),
        ("disk", f"about {talk.size(guess.disk_mb * 1e6)}"),
        *_remarks(plan),
    ]
    return "".join(_row(name, text) for name, text in rows)


def estimate(fleet: Fleet, jobs: int) -> Estimate:
    """The first plan's, and for each target more its compiles again."""
    one = plans.estimate(fleet.first, jobs)
    return dataclasses.replace(one, seconds=one.seconds * len(fleet.plans))


def _target_rows(plan: Plan) -> list[tuple[str, str]]:
    target = plan.target
    return [
        ("target", f"{target.spec} ({target.family}, {target.vendor})"),
        ("flags", " ".join(plan.flags)),
    ]


def _row(name: str, text: str) -> str:
    first, *rest = text.splitlines() or [""]
    return f"{name:<9} {first}\n" + "".join(f"{'':<9} {line}\n" for line in rest)


def _scope_rows(plan: Plan) -> list[tuple[str, str]]:
    if plan.full_recipe is not None:
        recipe = plan.full_recipe
        variables = " ".join(f"{name}={value}" for name, value in recipe.configure_env)
        command = f"bazelisk build {' '.join(recipe.options)} {recipe.target}"
        return [("configure", variables), ("command", command)]
    units = " ".join(unit.name for unit in plan.kernels)
    stock = plan.stock.name if plan.stock else "none is published for this Python and machine"
    return [("stock", stock), ("kernels", units), ("command", "bazelisk build //:candidates")]


def _remarks(plan: Plan) -> list[tuple[str, str]]:
    release = releases.find_release(plan.release)
    rows = [("verified", release.verified)]
    if plan.scope is Scope.FULL:
        rows.append(("note", "a full build is planned and rendered here; it is not run yet"))
    return rows


def jobs_for(plan: Plan, wanted: str) -> Jobs:
    per_job = kernels.cost(plan.kernels).megabytes if plan.kernels else 2_000
    return jobs.choose(cpu.read_vcpus().usable, jobs.available_mb(), per_job, wanted)


def render_plan(request: Request, out: str, *, check: bool) -> str:
    """Write the files of a plan, or with `check` compare; those of a fleet in a folder for each
    target. Returns a line for each plan."""
    fleet, _ = fleet_for(request)
    places = settings.places()
    lines = []
    for plan in fleet.plans:
        folder = places.reports / "rendered" / plan.key[:16]
        if out:
            folder = Path(out) if len(fleet.plans) == 1 else Path(out) / plan.target.local
        files = render.render(plan, places.templates)
        if check:
            render.check(files, folder)
            lines.append(f"{folder} is what plan {plan.key[:16]} renders ({len(files)} files)")
        else:
            render.write(files, folder)
            lines.append(f"{len(files)} files of plan {plan.key[:16]} in {folder}")
    return "\n".join(lines)


def build_wheel(
    request: Request,
    *,
    jobs: str = "",
    source: str = "",
    stock_wheel: str = "",
    keep_going: bool = False,
    install: bool = False,
) -> Built:
    """Make the wheel of a request. One run at a time works in the cache.

    What was asked for is looked at first, so that a wrong request leaves no trace. With `install`
    the compiler and Bazel are installed where they are missing.
    """
    places = settings.places()
    if install:
        doctor.prepare(
            places, releases.pinned_bazel(releases.find_release(request.release)), install=True
        )
    fleet, compiler = fleet_for(request)
    plan = fleet.first
    chosen = jobs_for(plan, jobs)
    _check_possible(plan, compiler)
    with settings.exclusive(places.cache, "a build"):
        doctor.prepare(places, plan.bazel, clang=False)  # the plan has its compiler
        talk.say(f"plan {fleet.key[:16]}: {plan.package} {fleet.version}")
        return builder.build(
            fleet,
            compiler=compiler,
            jobs=chosen,
            places=places,
            given_source=_path(source),
            given_stock=_path(stock_wheel),
            keep_going=keep_going,
        )


def _path(text: str) -> Path | None:
    return Path(text).expanduser().resolve() if text else None


def _check_possible(plan: Plan, compiler: Compiler) -> None:
    """Raises for what can be planned but not built here."""
    if plan.scope is Scope.FULL:
        raise UsageError(
            "--scope full is planned and rendered, its build is not run by this version",
            hint="Run: invoke render --scope full, and the build.sh that it writes, in the sources",
        )
    plans.need_stock(plan)
    if compiler.path.name == str(compiler.path):
        raise CompilerError(
            f"{plan.compiler}@{plan.compiler_version} is declared, not installed",
            hint="Name a compiler that is here, such as --compiler clang-16",
        )


def audit_wheel(wheel: str, stock: str, *, as_json: bool) -> tuple[Audit, str]:
    """What a wheel contains, as a record and as text. Raises WheelError."""
    path = Path(wheel).expanduser()
    if not path.is_file():
        what = f"{path} is a folder" if path.is_dir() else f"there is no wheel {path}"
        raise WheelError(what, hint="Give the path of a .whl file")
    found = audit.audit(path, places=settings.places(), stock=_path(stock))
    return found, pretty(found) if as_json else audit.describe(found)


def describe_built(built: Built, *, as_json: bool) -> str:
    if as_json:
        return pretty(
            {"wheel": built.wheel, "manifest": built.manifest, "reused": built.reused}
            | {"parts": plain(built.parts)}
        )
    lines = [f"{built.wheel} ({talk.size(built.wheel.stat().st_size)})"]
    for part in built.parts:
        lines.append(f"{part.target}: a kernel library of {talk.size(part.size)}")
        lines += [f"  {_verdict_line(verdict)}" for verdict in part.verdicts]
    return "\n".join(lines) + "\n"


def _verdict_line(verdict: Verdict) -> str:
    if verdict.admitted:
        agree = f"{verdict.kernels} kernels agree with stock over {verdict.cases} cases"
        return f"{verdict.unit}: {agree}"
    return f"{verdict.unit}: stays stock, {verdict.reason.splitlines()[0]}"
