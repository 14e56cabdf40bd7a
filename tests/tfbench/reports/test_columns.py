from __future__ import annotations

import dataclasses

from tests.builders import report_comparisons
from tests.builders.comparisons import spread

from tfbench.reports.columns import CSV, REASONS, SPEEDUPS, TERMINAL, build_table, format_headings
from tfbench.reports.document import ColumnKind
from tfbench.reports.findings import list_rows

SOUND = report_comparisons.sound()


def test_headings_name_the_baseline_the_level_and_what_was_timed() -> None:
    assert format_headings(TERMINAL, SOUND)[3:7] == (
        *("#stock ms", "#arm ms", "#speedup", "#95% interval"),
    )
    cells = tuple(
        dataclasses.replace(cell, workload="mnist_mlp:batch=1:clients=1") for cell in SOUND.cells
    )
    asked = dataclasses.replace(SOUND, cells=cells, level=0.9)
    assert format_headings(SPEEDUPS, asked)[4:] == (
        *("#speedup (90% interval)", "#A/A", "#stock ms per request (99th percentile)"),
        "#arm ms per request (99th percentile)",
    )


def test_a_baseline_of_any_name_leaves_every_column() -> None:
    for name in ("arm", "{level}", "a" * 40):
        arms = (report_comparisons.arm(name), *SOUND.arms[1:])
        comparison = dataclasses.replace(SOUND, arms=arms)
        for columns in (TERMINAL, SPEEDUPS, REASONS):
            table = build_table("", columns, comparison)
            assert len(table.columns) == len(columns)
            kinds = [column.kind for column in table.columns]
            assert kinds.count(ColumnKind.VERDICT) == 1


def test_text_has_no_speedup_of_an_arm_that_computes_something_else_and_csv_has_all() -> None:
    (cell,) = report_comparisons.single(spread(1.25, 0.01)).cells
    wrong = tuple(dataclasses.replace(agreement, losses=1.0) for agreement in cell.agreements)
    comparison = report_comparisons.single(spread(1.25, 0.01))
    different = dataclasses.replace(
        comparison, cells=(dataclasses.replace(cell, agreements=wrong),)
    )
    (row,) = list_rows(different)
    assert SPEEDUPS["!verdict"](row) == "computes something else"
    assert [TERMINAL[name](row) for name in ("#speedup", "#{level} interval")] == ["", ""]
    assert [REASONS[name](row) for name in ("#confidence", "#medians of blocks")] == ["", ""]
    assert CSV["speedup"](row) == 1.25
    assert CSV["verdict"](row) == "faster"
