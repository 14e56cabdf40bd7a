"""Handler of `invoke releases --add`: add a release, build a wheel of it, compare it with stock."""

from __future__ import annotations

from tfbench import handlers
from tfbench.commands import CompareOptions
from tfbuild import handlers as builds
from tfbuild import release_add
from tfbuild.commands import BuildOptions, ReleasesOptions, Request
from tfbuild.packing import tuned
from tfbuild.packing.tuned import Tuned
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
    facts = tuned.read_tuned(built.wheel)
    assert facts is not None  # noqa: S101  (it was just built)
    verified = describe_verified(facts, comparison)
    table = record_verification(read_text(releases.TABLE), added.version, verified)
    write_atomic(releases.TABLE, table)
    return text if as_json else f"{report}recorded for {added.version}: {verified}\n"


def describe_verified(facts: Tuned, comparison: Comparison) -> str:
    """Describe what was built, of which sources, and compared, for the table of releases."""
    fused = sum(unit.startswith("fused/") for unit in facts.kernels)
    python = ".".join(comparison.arms[0].python.split(".")[:2])
    models = len({cell.workload for cell in comparison.cells})
    groups = console.format_count(len(facts.kernels), "kernel group")
    host = comparison.host.cpu
    sources = f"{facts.nearness.summary}; " if facts.nearness else ""
    return (
        f"{sources}{groups}, {fused} of them fused ops, built, tested and installed on Linux "
        f"{host.architecture} with CPython {python}; {console.format_count(models, 'model')} "
        f"compared with stock on {host.name}"
    )
