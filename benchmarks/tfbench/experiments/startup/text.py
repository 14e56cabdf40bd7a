"""The result of `invoke startup` as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tfbench.experiments.startup.overhead import ImportOverhead, ImportTimes, ImportVerdict, Startup
from tfbench.reports import wording
from tfbench.result_table import ResultTable
from tfcore.comparisons.interval import Interval
from tfcore.console import format_vcpus


def build_table(startup: Startup) -> ResultTable:
    return ResultTable(
        title=format_title(startup),
        headings=("arm", "#import", f"#over {startup.arms[0].arm}", "#whole process", "#verdict"),
        rows=tuple(list_rows(startup)),
        lines=tuple(list_lines(startup)),
    )


def format_title(startup: Startup) -> str:
    where = format_vcpus(len(startup.host.affinity))
    return f"import tensorflow, {startup.rounds} rounds on {where}, warm caches"


def list_rows(startup: Startup) -> Iterator[tuple[str, ...]]:
    baseline, *other_arms = startup.arms
    overheads = {overhead.arm: overhead for overhead in (startup.twin, *startup.overheads)}
    yield (baseline.arm, _format_seconds(baseline), "", "", "")
    for arm in other_arms:
        overhead = overheads[arm.arm]
        verdict = "" if overhead is startup.twin else overhead.verdict.value
        yield (
            arm.arm,
            _format_seconds(arm),
            _format_increase(overhead.imported),
            _format_increase(overhead.process),
            verdict,
        )


def list_lines(startup: Startup) -> Iterator[str]:
    if startup.dropped:
        reasons = ", ".join(f"{name} {times}" for name, times in startup.dropped)
        outcome = "do not count" if startup.fair else "are too many to drop, so there is no verdict"
        yield f"Disturbed rounds {outcome}: {reasons}."
    yield from (_describe_overhead(overhead, startup) for overhead in startup.overheads)


def _describe_overhead(overhead: ImportOverhead, startup: Startup) -> str:
    limit = f"{startup.limit:.0%}"
    span = f"{_format_increase(overhead.imported)}, {1000 * overhead.added_s:+.0f} ms"
    match overhead.verdict:
        case ImportVerdict.WITHIN:
            return f"{overhead.arm} imports within {limit} of {startup.arms[0].arm} ({span})."
        case ImportVerdict.OVER:
            return (
                f"{overhead.arm} imports more than {limit} slower than "
                f"{startup.arms[0].arm} ({span})."
            )
        case ImportVerdict.INCONCLUSIVE:
            return (
                f"It is inconclusive whether {overhead.arm} imports within {limit} of "
                f"{startup.arms[0].arm} ({span}). Use more rounds, or a quieter machine."
            )


def _format_seconds(arm: ImportTimes) -> str:
    return f"{arm.import_s:.3f} s"


def _format_increase(ratio: Interval) -> str:
    return wording.format_spread(ratio, lambda value: f"{value - 1:+.1%}")
