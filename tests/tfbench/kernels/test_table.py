"""What a selection looks like to people."""

from __future__ import annotations

import dataclasses

from tests.builders.kernel_call_sites import TANH, ranked, series, timed
from tests.builders.selections import SELECTION

from tfbench.kernels.keep_rules import RATE, Control, confirm_candidates, create_rows
from tfbench.kernels.selecting import SelectionResult, Untimed
from tfbench.kernels.table import HEADINGS, build_table, render_markdown
from tfcore.comparisons.kernels import TypedOp

FASTER, EVEN = (0.20, 0.21, 0.19, 0.20), (0.01, -0.01, 0.012, -0.012)
ADD, WHERE = TypedOp(op="AddV2", types="T=1|2"), TypedOp(op="Where", types="T=10")


def selected() -> SelectionResult:
    rows = create_rows(
        [timed(ranked("AddV2", 8, 4), *EVEN, choice=ADD), timed(ranked(share=0.3), *FASTER)]
    )
    judged, typed_ops = confirm_candidates(rows, {1: series(*FASTER)}, RATE, {})
    return SelectionResult(
        selection=dataclasses.replace(SELECTION, rate=RATE, kept=typed_ops, rows=judged),
        control=Control(cells=2, won=0, lost=1, reach=0.013),
        served=0.4,
        kept=0.3,
        gain=0.0544,
        recalled=0,
        untimed=(
            Untimed(
                choice=WHERE, shapes="bool[3]", attributes="", reason="input 0 cannot be created"
            ),
        ),
    )


def test_a_table_begins_with_what_takes_longest() -> None:
    text = build_table(selected()).format_text(colour=False)
    assert text.index("Tanh") < text.index("AddV2")
    assert "1 of 3 kernels" in text
    assert "AddV2 T=1|2 stays stock" in text
    assert "0 of 2 cells faster and 1 slower" in text
    assert "T=10 stays stock: not timed at bool[3]" in text


def test_markdown_has_a_cell_for_each_heading_whatever_the_types() -> None:
    lines = [line for line in render_markdown(selected()).splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert {line.replace("\\|", "").count("|") for line in lines} == {len(HEADINGS) + 1}


def test_a_selection_of_nothing_is_said_as_such() -> None:
    empty = dataclasses.replace(selected().selection, kept=())
    sheet = build_table(dataclasses.replace(selected(), selection=empty))
    assert any("0 of 3 kernels kept" in line for line in sheet.lines)
    assert TANH not in empty.kept
