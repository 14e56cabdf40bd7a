"""Results of a search for flags as a table. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tfbench.kernels.flagsets import FlagSet
from tfbench.measuring.statistics import estimate_mean
from tfbench.result_table import ResultTable
from tfbuild.console import format_count

HEADINGS = ("compiler and flags", "#op time saved", "#95% interval")


def build_table(
    tried: Sequence[FlagSet], chosen: Mapping[str, FlagSet], path: Path, compiler: str
) -> ResultTable:
    """Build a table of what each set of flags saved over all kernel groups.

    Below it are the flags of each kernel group and how to use the selection in `path`.
    """
    rows = tuple(
        (format_flag_set(flag_set.compiler, flag_set.flags), *_format_saving(flag_set))
        for flag_set in tried
    )
    lines = tuple(_list_lines(chosen, path, compiler))
    return ResultTable(headings=HEADINGS, rows=rows, lines=lines, width=150)


def format_flag_set(compiler: str, words: Sequence[str]) -> str:
    text = " ".join(words) or "the target's flags alone"
    return f"{compiler}, {text}" if compiler else text


def _format_saving(found: FlagSet) -> tuple[str, str]:
    """Format the share of op time that all timed kernel groups save together, with its interval."""
    launches = [math.fsum(shares) for shares in zip(*found.saved.values(), strict=False)]
    interval = estimate_mean(launches)
    return f"{interval.value:.2%}", f"{interval.low:.2%} to {interval.high:.2%}"


def _list_lines(chosen: Mapping[str, FlagSet], path: Path, compiler: str) -> Iterator[str]:
    flagged = {unit: best.flags for unit, best in sorted(chosen.items()) if best.flags}
    yield from (f"{unit:<28}  {' '.join(words)}" for unit, words in flagged.items())
    rest = len(chosen) - len(flagged)
    if not flagged:
        yield (
            f"No tried flags are faster than the target's flags alone, for "
            f"{format_count(rest, 'kernel group')}."
        )
        return
    yield (
        f"{rest} of {format_count(len(chosen), 'kernel group')}: no tried flags are faster than "
        f"the target's flags alone."
    )
    named = f" --compiler {compiler}" if compiler else ""
    yield f"Build it: invoke build{named} --selection {path}"
    yield "Then run invoke select, which keeps the faster kernels."
