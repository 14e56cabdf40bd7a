"""What a search for flags found, for people. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tfbench.kernels.flagsets import FlagSet
from tfbench.measuring.statistics import mean
from tfbench.sheet import ResultTable
from tfbuild.console import format_count

HEADINGS = ("compiler and flags", "#saves of op time", "#95% interval")


def sheet(
    tried: Sequence[FlagSet], chosen: Mapping[str, FlagSet], path: Path, compiler: str
) -> ResultTable:
    """What each set saved over all units, the flags of each unit, and what to do with them: the
    selection in `path`."""
    rows = tuple((called(each.compiler, each.flags), *_saved(each)) for each in tried)
    lines = tuple(_lines(chosen, path, compiler))
    return ResultTable(headings=HEADINGS, rows=rows, lines=lines, width=150)


def called(compiler: str, words: Sequence[str]) -> str:
    said = " ".join(words) or "the target's flags alone"
    return f"{compiler}, {said}" if compiler else said


def _saved(found: FlagSet) -> tuple[str, str]:
    """Of the units that were timed, together."""
    launches = [math.fsum(each) for each in zip(*found.saved.values(), strict=False)]
    seen = mean(launches)
    return f"{seen.value:.2%}", f"{seen.low:.2%} to {seen.high:.2%}"


def _lines(chosen: Mapping[str, FlagSet], path: Path, compiler: str) -> Iterator[str]:
    flagged = {unit: best.flags for unit, best in sorted(chosen.items()) if best.flags}
    yield from (f"{unit:<28}  {' '.join(words)}" for unit, words in flagged.items())
    rest = len(chosen) - len(flagged)
    if not flagged:
        yield f"The target's flags alone are as fast as any tried, for {format_count(rest, 'unit')}."
        return
    yield f"{rest} of {format_count(len(chosen), 'unit')}: the target's flags alone are as fast."
    named = f" --compiler {compiler}" if compiler else ""
    yield f"Build it: invoke build{named} --selection {path}"
    yield "Then invoke select keeps what wins."
