"""The commands that measure wheels and search for faster ones."""

from __future__ import annotations

from tensorwright.command import command, print_text
from tfbench.commands import (
    CompareOptions,
    FleetOptions,
    KitOptions,
    ProfileOptions,
    ReportOptions,
    SelectOptions,
    SelfcheckOptions,
    StartupOptions,
    TuneOptions,
)
from tfbuild.commands import JSON, Output

GROUP = "measure"


@command(GROUP, CompareOptions, Output, common=True)
def compare(options: CompareOptions, output: Output) -> None:
    """Run the same Keras models with each wheel and test statistically which wheel is faster."""
    from tfbench import handlers
    from tfbench.measuring.comparing import check_comparison

    if output.dry_run:
        print_text(handlers.describe_comparison(options))
        return
    comparison, text = handlers.compare_wheels(options, as_json=output.json)
    print_text(text)
    check_comparison(comparison, gate=options.gate)


@command(GROUP, FleetOptions, Output)
def fleet(options: FleetOptions, output: Output) -> None:
    """Compare wheels with stock on many hosts, by ssh or a scheduler, and write one report."""
    from tfbench.hosts import handler as hosts

    if output.dry_run or options.prepare:
        print_text(hosts.describe(options) if output.dry_run else hosts.prepare(options))
        return
    result, text = hosts.measure_fleet(options, as_json=output.json)
    print_text(text)
    hosts.require_complete(result)


@command(GROUP, TuneOptions, Output, common=True)
def tune(options: TuneOptions, output: Output) -> str:
    """Find the fastest wheel and run-time settings for one model, and confirm the gain."""
    from tfbench.tuning import handler as tuning

    if output.dry_run:
        return tuning.describe(options)
    return tuning.tune(options, as_json=output.json)[1]


@command(GROUP, ReportOptions, JSON, common=True)
def report(options: ReportOptions, output: Output) -> str:
    """Write the report of a comparison again, with --prices also with costs."""
    from tfbench.reports import reporting

    return reporting.report_results(options, as_json=output.json)


@command(GROUP, ProfileOptions, Output)
def profile(options: ProfileOptions, output: Output) -> str:
    """Show which ops, at which shapes, take the time of a step with the stock wheel."""
    from tfbench.kernels import handlers

    if output.dry_run:
        return handlers.describe_profiling(options)
    return handlers.profile(options, as_json=output.json)[1]


@command(GROUP, SelectOptions, Output)
def select(options: SelectOptions, output: Output) -> str:
    """Time a wheel's kernels against stock and select the faster ones."""
    from tfbench.kernels import handlers

    if output.dry_run:
        return handlers.describe_selecting(options)
    return handlers.select(options, as_json=output.json)[1]


@command(GROUP, StartupOptions, JSON)
def startup(options: StartupOptions, output: Output) -> str:
    """Measure the time that the tuned wheel adds to `import tensorflow`."""
    from tfbench.experiments import startup as starting

    return starting.measure_startup(options, as_json=output.json)[1]


@command(GROUP, SelfcheckOptions, JSON)
def selfcheck(options: SelfcheckOptions, output: Output) -> None:
    """Check that compare is right: stock against itself and against known slowdowns (2 hours)."""
    from tfbench import handlers

    if options.results:
        from tfbench import result_check
        from tfbuild.kernelbuild import random_trials

        result, text = result_check.check_results(options, as_json=output.json)
        print_text(text)
        random_trials.require_right(result)
        return
    check, text = handlers.check_harness(options, as_json=output.json)
    print_text(text)
    handlers.require_passed(check)


@command(GROUP, KitOptions, JSON)
def kit(options: KitOptions, output: Output) -> str:
    """Write one program that times the workloads on any machine with Keras, or show its results."""
    from tfbench.kit import handler as kits

    if options.read:
        return kits.read_kit(options.read, as_json=output.json)
    return kits.write_kit(options.out)
