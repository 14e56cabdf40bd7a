"""What was found of imports, for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tfbench.reports import wording
from tfbench.sheet import ResultTable
from tfbench.startup.overhead import ImportOverhead, ImportTimes, ImportVerdict, Startup
from tfbuild.console import format_vcpus
from tfbuild.measured.interval import Interval


def sheet(startup: Startup) -> ResultTable:
    return ResultTable(
        title=title(startup),
        headings=("arm", "#import", f"#over {startup.arms[0].arm}", "#whole process", "#verdict"),
        rows=tuple(rows(startup)),
        lines=tuple(lines(startup)),
    )


def title(startup: Startup) -> str:
    where = format_vcpus(len(startup.host.affinity))
    return f"import tensorflow, {startup.rounds} rounds on {where}, warm caches"


def rows(startup: Startup) -> Iterator[tuple[str, ...]]:
    baseline, *others = startup.arms
    found = {each.arm: each for each in (startup.twin, *startup.overheads)}
    yield (baseline.arm, _seconds(baseline), "", "", "")
    for arm in others:
        each = found[arm.arm]
        verdict = "" if each is startup.twin else each.verdict.value
        yield (arm.arm, _seconds(arm), _longer(each.imported), _longer(each.process), verdict)


def lines(startup: Startup) -> Iterator[str]:
    if startup.dropped:
        reasons = ", ".join(f"{name} {times}" for name, times in startup.dropped)
        what = "do not count" if startup.fair else "are so many that all count, and nothing is said"
        yield f"Disturbed rounds {what}: {reasons}."
    yield from (_conclusion(each, startup) for each in startup.overheads)


def _conclusion(each: ImportOverhead, startup: Startup) -> str:
    limit = f"{startup.limit:.0%}"
    span = f"{_longer(each.imported)}, {1000 * each.added_s:+.0f} ms"
    match each.verdict:
        case ImportVerdict.WITHIN:
            return f"{each.arm} imports within {limit} of {startup.arms[0].arm} ({span})."
        case ImportVerdict.OVER:
            return (
                f"{each.arm} imports more than {limit} slower than {startup.arms[0].arm} ({span})."
            )
        case ImportVerdict.INCONCLUSIVE:
            return (
                f"Whether {each.arm} imports within {limit} of {startup.arms[0].arm} is not known "
                f"({span}). Take more rounds, or a quieter machine."
            )


def _seconds(arm: ImportTimes) -> str:
    return f"{arm.import_s:.3f} s"


def _longer(ratio: Interval) -> str:
    return wording.spread(ratio, lambda each: f"{each - 1:+.1%}")
