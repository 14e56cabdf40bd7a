"""Selections and profiles as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from tfbench.inside.step_parts import StepParts
from tfbench.kernels.profiles import Profile, ProfiledProgram, rank_call_sites
from tfbench.kernels.selecting import SelectionResult
from tfbench.result_table import ResultTable
from tfcore.comparisons.kernels import KernelRow
from tfcore.console import format_count

HEADINGS = (
    *("op", "types", "inputs", "#threads", "#share", "#stock us", "#tuned us", "#ratio"),
    *("#95% interval", "#confirmed", "kept"),
)
SHOWN = 20


def build_table(selected: SelectionResult) -> ResultTable:
    rows = map(format_row, sort_rows(selected.selection.rows))
    text = tuple(list_lines(selected))
    return ResultTable(headings=HEADINGS, rows=tuple(rows), lines=text, width=150)


def render_markdown(selected: SelectionResult) -> str:
    chosen = selected.selection
    head = [f"# Kernels selected for {chosen.target}, TensorFlow {chosen.release}", ""]
    table = build_table(selected)
    bullets = [f"- {line}" for line in table.lines]
    return (
        "\n".join([*head, f"CPU: {chosen.cpu}", "", *bullets, "", *table.format_markdown()]) + "\n"
    )


def sort_rows(rows: Iterable[KernelRow]) -> list[KernelRow]:
    """Sort rows, those that take longest first."""
    return sorted(rows, key=lambda row: (-row.share, row.op, row.shapes, row.threads))


def format_row(row: KernelRow) -> tuple[str, ...]:
    confirmed = "" if row.confirmed is None else "{:.3f} ({:.3f} to {:.3f})".format(*row.confirmed)
    inputs = f"{row.shapes} {row.attributes}".strip()
    return (
        row.op,
        row.types,
        inputs,
        str(row.threads),
        f"{row.share:.2%}",
        f"{row.stock_s * 1e6:.1f}",
        f"{row.tuned_s * 1e6:.1f}",
        f"{row.ratio:.3f}",
        f"{row.low:.3f} to {row.high:.3f}",
        confirmed,
        "yes" if row.kept else "no",
    )


def list_lines(selected: SelectionResult) -> Iterator[str]:
    """Yield the results in sentences."""
    rows, choices = selected.selection.rows, selected.selection.kept
    tried = len({row.choice for row in rows} | {call_site.choice for call_site in selected.untimed})
    yield (
        f"{len(choices)} of {format_count(tried, 'kernel')} kept, timed in "
        f"{format_count(len(rows), 'cell')} "
        f"(call sites times numbers of threads), {selected.recalled} of them from the cache; "
        f"false discovery rate {selected.selection.rate:g}."
    )
    yield (
        f"The wheel's kernels serve {selected.served:.1%} of the op time, the kept ones "
        f"{selected.kept:.1%}. By these timings, the kept ones save {selected.gain:.2%} of it."
    )
    control = selected.control
    yield (
        f"Control (stock against stock, same rules): {control.won} of "
        f"{format_count(control.cells, 'cell')} faster and {control.lost} slower; 19 of 20 "
        f"intervals stay within {control.reach:.1%}."
    )
    lacking = {call_site.choice for call_site in selected.untimed}
    stay = {row.choice: row.reason for row in rows if not row.kept and row.choice not in lacking}
    for choice, reason in sorted(stay.items()):
        yield f"{choice.op} {choice.types} stays stock: {reason}."
    for call_site in selected.untimed:
        yield (
            f"{call_site.choice.op} {call_site.choice.types} stays stock: not timed at "
            f"{call_site.place} ({call_site.reason})."
        )


def describe_profile(profile: Profile) -> str:
    """Describe the parts of a step, and the call sites that take most of the op time."""
    call_sites = rank_call_sites(profile)
    named = ", ".join(program.name for program in profile.programs)
    counted = format_count(len(call_sites), "call site")
    text = [
        f"{counted} of {named}, {profile.vcpus} vCPU, {profile.release}",
        *(_describe_step(program, program.parts) for program in profile.programs if program.parts),
        "",
    ]
    for site in call_sites[:SHOWN]:
        row = f"{site.place.op} {site.place.shapes} {site.place.details}".strip()
        text.append(f"{site.share:7.2%} {site.call_s * 1e6:10.1f} us  {row}")
    return "\n".join(text) + "\n"


def _describe_step(program: ProfiledProgram, parts: StepParts) -> str:
    shares = ", ".join(
        f"{name} {seconds / program.step_s:.0%}" for name, seconds in asdict(parts).items()
    )
    return f"{program.name}: {1e3 * program.step_s:.2f} ms per step; {shares}"
