"""The commands about this machine and this project."""

from __future__ import annotations

from invoke.exceptions import Exit

from tensorwright.command import command, say
from tfbuild.commands import JSON, ChecksOptions, DoctorOptions, Output
from tfbuild.option import part

GROUP = "project"


@command(
    GROUP,
    part(Output, "dry_run", helps={"dry_run": "say what would be installed, built and compared"}),
    common=True,
)
def quickstart(output: Output) -> None:
    """Set up, detect, build the hot kernels, compare two workloads, report."""
    from tfbench import handlers

    if output.dry_run:
        say(handlers.describe_quickstart())
        return
    handlers.quickstart()


@command(GROUP, DoctorOptions, JSON, common=True)
def doctor(options: DoctorOptions, output: Output) -> None:
    """Say what this machine lacks, and the commands that mend it."""
    from tfbuild import lacks, settings

    if options.wheel:
        from tfbuild.cpus.cpu import read_cpu
        from tfbuild.tools import installed

        found, text = lacks.kernels_of(options.wheel, as_json=output.json)
        say(text)
        installed.judge(found, read_cpu())
        return
    text, complete = lacks.needs(settings.paths(), tests=options.tests, as_json=output.json)
    say(text)
    if not complete:
        raise Exit(code=15)


@command(GROUP, ChecksOptions)
def test(options: ChecksOptions) -> None:
    """Run the project's own checks: lint, types, and the tests."""
    from tfbuild import checks

    checks.test(every=options.all)


@command(GROUP)
def lint() -> None:
    """Run ruff and mypy, warnings as errors."""
    from tfbuild import checks

    checks.lint()
