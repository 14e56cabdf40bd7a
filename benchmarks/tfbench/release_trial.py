"""Handler of `invoke releases --add`: add a release, build a wheel of it, compare it with stock."""

from __future__ import annotations

from tfbench import handlers
from tfbench.commands import CompareOptions
from tfbuild import handlers as builds
from tfbuild import release_add
from tfbuild.commands import BuildOptions, ReleasesOptions, Request
from tfbuild.kernelbuild.pool import BuiltWheel
from tfbuild.upstream import releases
from tfbuild.upstream.release_rows import record_verification
from tfcore import console, durations, settings
from tfcore.comparisons.comparison import Comparison
from tfcore.records import read_text, write_atomic


def add_release(options: ReleasesOptions, *, as_json: bool) -> str:
    """Add the release, try it on this machine, and record what was verified.

    The files of the release stay if the trial fails. Raises UsageError and what building and
    comparing raise.
    """
    if options.budget:
        durations.parse_duration(options.budget, "--budget")
    paths = settings.paths()
    added = release_add.add_release(options.add, options.source_sha256, paths)
    text = release_add.describe_added(added, as_json=as_json)
    if options.facts_only:
        return text
    if not as_json:
        console.print_message(text.rstrip())
    request = Request(release=added.version, kernels=options.kernels)
    (built,) = builds.build_wheel(request, BuildOptions(source=options.source))
    compare_options = CompareOptions(candidate=str(built.wheel), budget=options.budget)
    comparison, report = handlers.compare_wheels(compare_options, as_json=False)
    verified = describe_verified(built, comparison)
    table = record_verification(read_text(releases.TABLE), added.version, verified)
    write_atomic(releases.TABLE, table)
    return text if as_json else f"{report}recorded for {added.version}: {verified}\n"


def describe_verified(built: BuiltWheel, comparison: Comparison) -> str:
    """Describe what was built and compared, for the table of releases."""
    units = {verdict.unit for part in built.parts for verdict in part.verdicts if verdict.admitted}
    fused = sum(unit.startswith("fused/") for unit in units)
    python = ".".join(comparison.arms[0].python.split(".")[:2])
    models = len({cell.workload for cell in comparison.cells})
    return (
        f"{console.format_count(len(units), 'kernel group')}, {fused} of them fused ops, built, "
        f"tested and installed on Linux {comparison.host.cpu.architecture} with CPython "
        f"{python}; {console.format_count(models, 'model')} "
        f"compared with stock on {comparison.host.cpu.name}"
    )
