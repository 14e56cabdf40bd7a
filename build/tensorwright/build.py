"""The commands that make wheels, and look into them."""

from __future__ import annotations

import dataclasses

from tensorwright.command import command, say
from tfbuild.commands import (
    JSON,
    ONE_PYTHON,
    ONE_WHEEL,
    SOURCE,
    WHEEL,
    AdmitOptions,
    AuditOptions,
    BuildOptions,
    ContainersOptions,
    Output,
    PlanOptions,
    RenderOptions,
    Request,
    SurveyOptions,
    TargetsOptions,
    VendorOptions,
)
from tfbuild.option import part

GROUP = "build"


def trained(request: Request) -> Request:
    """The same with the path of the program that --pgo names: our six workloads', or the user's."""
    return dataclasses.replace(request, pgo=trained_by(request.pgo))


def trained_by(pgo: str) -> str:
    if pgo != "workloads":
        return pgo
    from tfbench.engine.workers import PACKAGE
    from tfbuild import settings

    return str(settings.import_root(PACKAGE) / "tfbench" / "inside" / "training.py")


@command(GROUP, JSON, common=True)
def detect(output: Output) -> str:
    """Say what this CPU is, what to build for it, and what the stock wheel leaves unused."""
    from tfbuild import own_cpu

    return own_cpu.detected(as_json=output.json)


@command(GROUP, TargetsOptions, JSON)
def targets(options: TargetsOptions, output: Output) -> str:
    """List what --arch accepts."""
    from tfbuild import terminal_tables

    return terminal_tables.targets(options.family or None, as_json=output.json)


@command(GROUP, JSON)
def releases(output: Output) -> str:
    """List what --release accepts, and what was verified of each."""
    from tfbuild import terminal_tables

    return terminal_tables.releases(as_json=output.json)


@command(GROUP, Request, PlanOptions, JSON, common=True)
def plan(request: Request, options: PlanOptions, output: Output) -> str:
    """Resolve everything, do nothing: flags, compiler, sources, kernels, commands, estimates."""
    from tfbuild import handlers

    return handlers.describe_plan(trained(request), options.jobs, as_json=output.json)


@command(GROUP, Request, RenderOptions)
def render(request: Request, options: RenderOptions) -> str:
    """Write the Bazel workspace (kernels) or configuration (full) of a plan."""
    from tfbuild import handlers

    return handlers.render_plan(trained(request), options.out, check=options.check)


@command(
    GROUP,
    part(Request, *WHEEL, "scope", "kernels", "lto", given={"python": "3.11"}, helps=ONE_PYTHON),
    ContainersOptions,
)
def containers(request: Request, options: ContainersOptions) -> str:
    """Write container files that build a plan's wheel, and that compare it."""
    from tfbuild import handlers

    return handlers.write_containers(request, options.vcpus, options.out)


@command(GROUP, Request, BuildOptions, Output, common=True)
def build(request: Request, options: BuildOptions, output: Output) -> str:
    """Make a tuned wheel in wheels/, from sources to the try in a real TensorFlow."""
    from tfbuild import handlers

    request = trained(request)
    if options.workload:
        from tfbench.kernels import handlers as programs

        if output.dry_run:
            return programs.describe_for_program(options.workload, request)
        request = programs.for_program(options.workload, request)
        options = dataclasses.replace(options, keep_going=True)  # nobody named the kernels
    if output.dry_run:
        return handlers.dry_run(request, options, as_json=output.json)
    return handlers.describe_built(handlers.build_wheel(request, options), as_json=output.json)


@command(
    GROUP,
    part(Request, *WHEEL, given={"scope": "full"}, helps=ONE_WHEEL),
    part(BuildOptions, "source", "tree", helps={"source": SOURCE}),
    VendorOptions,
    part(Output, "dry_run", "json", helps={"dry_run": "list the archives that the tree declares"}),
)
def vendor(request: Request, sources: BuildOptions, options: VendorOptions, output: Output) -> str:
    """Fetch all that a full build needs into one folder, for a build without a network."""
    from tfbuild import full_build

    if output.dry_run:
        return full_build.declared(request, sources, as_json=output.json)
    return full_build.vendor(request, sources, options.out, as_json=output.json)


@command(
    GROUP,
    part(Request, *WHEEL, given={"kernels": "all"}, helps=ONE_WHEEL),
    part(BuildOptions, "jobs", "source", "stock_wheel"),
    SurveyOptions,
)
def survey(request: Request, ground: BuildOptions, options: SurveyOptions) -> str:
    """Compile and try every kernel source of a release, and write the table of them."""
    from tfbuild import handlers

    return handlers.survey_kernels(request, ground, options.budget)


@command(
    GROUP,
    AuditOptions,
    part(
        Output,
        "dry_run",
        "json",
        helps={
            "dry_run": "for --rebuild: say what would be made and how long it takes, and do nothing"
        },
    ),
    common=True,
)
def audit(options: AuditOptions, output: Output) -> None:
    """Say what a wheel really contains, and fail if that is not what it claims."""
    from tfbuild import handlers
    from tfbuild.auditing import audit as auditing
    from tfbuild.kernelbuild import proof

    if not options.rebuild:
        handlers.need_no_rebuild(options, dry_run=output.dry_run)
    if output.dry_run:
        say(handlers.would_rebuild(options, as_json=output.json))
        return
    found, text = handlers.audit_wheel(options, as_json=output.json)
    if not (output.json and options.rebuild):
        say(text)
    made = handlers.rebuild_wheel(options) if options.rebuild else None
    if made:
        say(handlers.describe_rebuilt(found, made, as_json=output.json))
    auditing.judge(found)
    if made:
        proof.judge(made)


@command(GROUP, AdmitOptions, Output)
def admit(options: AdmitOptions, output: Output) -> None:
    """Run a finished wheel's kernels on this CPU against the stock ones, and record what came."""
    from tfbuild import handlers
    from tfbuild.packing import admitted

    found, text = handlers.admit_wheel(options.wheel, as_json=output.json, dry_run=output.dry_run)
    say(text)
    admitted.judge(options.wheel, found)
