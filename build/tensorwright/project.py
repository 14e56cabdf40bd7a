"""The commands for this machine and this project."""

from __future__ import annotations

from invoke.exceptions import Exit

from tensorwright.command import command, print_text
from tfbuild.commands import JSON, ChecksOptions, DoctorOptions, Output
from tfcore.option import select_options

GROUP = "project"


@command(
    GROUP,
    select_options(
        Output,
        "dry_run",
        helps={"dry_run": "print what would be installed, built and compared; do nothing"},
    ),
    common=True,
)
def quickstart(output: Output) -> None:
    """Install what is missing, build a wheel for this CPU, compare it with stock on two models."""
    from tfbench import handlers

    if output.dry_run:
        print_text(handlers.describe_quickstart())
        return
    handlers.quickstart()


@command(GROUP, DoctorOptions, JSON, common=True)
def doctor(options: DoctorOptions, output: Output) -> None:
    """List the programs that a build needs, and how to install those that are missing."""
    from tfbuild import missing_tools
    from tfcore import settings

    if options.wheel:
        from tfbuild.tools import installed
        from tfcore.cpus.cpu import read_cpu

        installation, text = missing_tools.report_kernels(options.wheel, as_json=output.json)
        print_text(text)
        installed.require_own_kernels(installation, read_cpu())
        return
    text, complete = missing_tools.report_needs(
        settings.paths(), tests=options.tests, as_json=output.json
    )
    print_text(text)
    if not complete:
        raise Exit(code=15)


@command(GROUP, ChecksOptions)
def test(options: ChecksOptions) -> None:
    """Run lint, type checks and tests."""
    from tfbuild import checks

    checks.test(all_tiers=options.all)


@command(GROUP)
def lint() -> None:
    """Run ruff, mypy and clang-format; treat warnings as errors."""
    from tfbuild import checks

    checks.lint()
