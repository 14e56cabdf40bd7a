"""The commands that build and inspect wheels."""

from __future__ import annotations

import dataclasses

from tensorwright.command import command, print_text
from tfbuild.commands import (
    ANY_SOURCE,
    JSON,
    ONE_PYTHON,
    ONE_WHEEL,
    RELEASE,
    SOURCE,
    TREE,
    WHEEL,
    AdmitOptions,
    AuditOptions,
    BuildOptions,
    ContainersOptions,
    Output,
    PlanOptions,
    ReleasesOptions,
    RenderOptions,
    Request,
    SurveyOptions,
    TargetsOptions,
    VendorOptions,
)
from tfcore.option import select_options

GROUP = "build"


def resolve_request_pgo(request: Request) -> Request:
    """Return the request with --pgo resolved to the path of a program.

    `workloads` becomes the program that trains our six workloads; any other text is a path.
    """
    return dataclasses.replace(request, pgo=resolve_pgo(request.pgo))


def resolve_pgo(pgo: str) -> str:
    if pgo != "workloads":
        return pgo
    from tfbench.engine.workers import PACKAGE
    from tfcore import settings

    return str(settings.prepare_import_root(PACKAGE) / "tfbench" / "inside" / "training.py")


@command(GROUP, JSON, common=True)
def detect(output: Output) -> str:
    """Show this CPU, its best target, and the features that stock code is not compiled for."""
    from tfbuild import host_cpu

    return host_cpu.describe_cpu(as_json=output.json)


@command(GROUP, TargetsOptions, JSON)
def targets(options: TargetsOptions, output: Output) -> str:
    """List the targets that --arch accepts, and whether this CPU can run each."""
    from tfbuild import terminal_tables

    return terminal_tables.format_targets(options.family or None, as_json=output.json)


@command(GROUP, ReleasesOptions, JSON)
def releases(options: ReleasesOptions, output: Output) -> None:
    """List the values of --release, and what was built and tested for each release."""
    from tfbuild import release_check, terminal_tables

    release_check.check_options(options)
    if options.add:
        from tfbench import release_trial

        print_text(release_trial.add_release(options, as_json=output.json))
        return
    if not options.check:
        print_text(terminal_tables.format_releases(as_json=output.json))
        return
    facts = release_check.check_release(options.check)
    print_text(release_check.format_check(facts, as_json=output.json))
    release_check.require_complete(facts, options.check)


@command(GROUP, Request, PlanOptions, JSON, common=True)
def plan(request: Request, options: PlanOptions, output: Output) -> str:
    """Show flags, compiler, sources, kernels, time, memory and disk of a build; build nothing."""
    from tfbuild import handlers

    return handlers.describe_plan(resolve_request_pgo(request), options.jobs, as_json=output.json)


@command(GROUP, Request, RenderOptions)
def render(request: Request, options: RenderOptions) -> str:
    """Write the Bazel workspace of a kernel build, or the Bazel configuration of a full build."""
    from tfbuild import handlers

    return handlers.render_plan(resolve_request_pgo(request), options.out, check=options.verify)


@command(
    GROUP,
    select_options(
        Request, *WHEEL, "scope", "kernels", "lto", defaults={"python": "3.11"}, helps=ONE_PYTHON
    ),
    ContainersOptions,
)
def containers(request: Request, options: ContainersOptions) -> str:
    """Write Dockerfiles: one builds the wheel, one compares it with stock."""
    from tfbuild import handlers

    return handlers.write_containers(request, options.vcpus, options.out)


@command(GROUP, Request, BuildOptions, Output, common=True)
def build(request: Request, options: BuildOptions, output: Output) -> str:
    """Build a tuned wheel, test it, and put it in wheels/ with its manifest (JSON)."""
    from tfbuild import handlers

    request = resolve_request_pgo(request)
    if options.workload:
        from tfbench.kernels import handlers as programs

        if output.dry_run:
            return programs.describe_program_kernels(options.workload, request)
        request = programs.select_program_kernels(options.workload, request)
        options = dataclasses.replace(options, keep_going=True)  # the user named no kernels
    if output.dry_run:
        return handlers.describe_dry_run(request, options, as_json=output.json)
    return handlers.describe_built(handlers.build_wheel(request, options), as_json=output.json)


@command(
    GROUP,
    select_options(
        Request,
        *WHEEL,
        defaults={"scope": "full"},
        helps=ONE_WHEEL | {"release": f"{RELEASE}; default: the newest"},
    ),
    select_options(BuildOptions, "source", "tree", helps={"source": SOURCE, "tree": TREE}),
    VendorOptions,
    select_options(
        Output,
        "dry_run",
        "json",
        helps={
            "dry_run": "list the archives that TensorFlow's sources declare; download no archive"
        },
    ),
)
def vendor(request: Request, sources: BuildOptions, options: VendorOptions, output: Output) -> str:
    """Download everything that build --scope full needs to run without a network."""
    from tfbuild import full_build

    if output.dry_run:
        return full_build.list_archives(request, sources, as_json=output.json)
    return full_build.vendor(request, sources, options.out, as_json=output.json)


@command(
    GROUP,
    select_options(
        Request,
        *WHEEL,
        defaults={"kernels": "all"},
        helps=ONE_WHEEL
        | {"release": f"{RELEASE}; default: the newest whose sources are available"},
    ),
    select_options(BuildOptions, "jobs", "source", "stock_wheel", helps={"source": ANY_SOURCE}),
    SurveyOptions,
)
def survey(request: Request, ground: BuildOptions, options: SurveyOptions) -> str:
    """Compile and test every kernel source of a release, and write a table of the results."""
    from tfbuild import handlers

    return handlers.survey_kernels(request, ground, options.budget)


@command(
    GROUP,
    AuditOptions,
    select_options(
        Output,
        "dry_run",
        "json",
        helps={"dry_run": "with --rebuild: print the plan and the estimated time; build nothing"},
    ),
    common=True,
)
def audit(options: AuditOptions, output: Output) -> None:
    """Disassemble a wheel and check that it contains what it claims."""
    from tfbuild import handlers
    from tfbuild.auditing import audit as auditing
    from tfbuild.kernelbuild import proof
    from tfcore.console import print_note
    from tfcore.settings import expand_home
    from tfwheels import rebuild_statement
    from tfwheels.keys import read_signing_key

    if not options.rebuild:
        handlers.refuse_rebuild_options(options, dry_run=output.dry_run)
    if output.dry_run:
        print_text(handlers.describe_rebuild_plan(options, as_json=output.json))
        return
    key = read_signing_key(expand_home(options.sign, "--sign")) if options.sign else None
    findings, text = handlers.audit_wheel(options, as_json=output.json)
    if not (output.json and options.rebuild):
        print_text(text)
    rebuilt = handlers.rebuild_wheel(options) if options.rebuild else None
    if rebuilt:
        print_text(handlers.describe_rebuild(findings, rebuilt, as_json=output.json))
    auditing.check_audit(findings)
    if rebuilt:
        proof.require_proof(rebuilt)
    if rebuilt and key:
        path = rebuild_statement.write_statement(expand_home(options.wheel), rebuilt, key)
        print_note(f"signed by key {key.public.id}: {path}")


@command(GROUP, AdmitOptions, Output)
def admit(options: AdmitOptions, output: Output) -> None:
    """Test the kernels of a finished wheel against stock on this CPU and record the results."""
    from tfbuild import handlers
    from tfbuild.packing import conformance

    trials, text = handlers.admit_wheel(options.wheel, as_json=output.json, dry_run=output.dry_run)
    print_text(text)
    conformance.check_trials(options.wheel, trials)
