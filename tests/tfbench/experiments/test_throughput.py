"""Throughput: rows from launches, which batch is enough, and what is said of marked cells."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.builders.comparisons import host, spread

from tfbench.commands import ThroughputOptions
from tfbench.costs import catalog
from tfbench.costs.cost import get_value
from tfbench.experiments import throughput
from tfbench.experiments.cell import CellResult, Outcome
from tfbench.experiments.throughput import (
    THROUGHPUT,
    Throughput,
    ThroughputConfig,
    ThroughputRow,
    build_rows,
    choose_batch,
    is_distinct,
    list_lines,
    parse_options,
)
from tfbench.inside.workloads import PROGRAM, find_workload
from tfbench.reports.document import Table
from tfcore.comparisons.host import read_host
from tfcore.records import format_json


def result_of(batch: int, *launches: float, augmented: bool = False, **fields: Any) -> CellResult:
    """`launches` are seconds per step."""
    place = {"arm": "stock", "workload": "resnet50", "batch": batch, "augmented": augmented}
    answers = tuple(
        {"step_s": [seconds] * 4, "batch": batch, "peak_mb": 900.0, "losses": [6.9]}
        for seconds in launches
    )
    whole: dict[str, Any] = {"outcome": Outcome.OK, "reason": "", "answers": answers}
    return CellResult(place=place, **whole | fields)


def measured(*cell_results: CellResult, price: str = "") -> Throughput:
    book = catalog.find_book("2017-07-gce")
    return Throughput(
        made="2026-01-01T00:00:00+00:00",
        host=host(),
        device="CPU",
        vcpus=2,
        seed=1,
        steps=4,
        wheels=(),
        rows=build_rows(cell_results),
        price=book.find_price(price) if price else None,
    )


def row(batch: int, value: float, share: float = 0.01) -> ThroughputRow:
    (throughput_row,) = build_rows([result_of(batch, 1.0, 1.0)])
    fields = {name: getattr(throughput_row, name) for name in ThroughputRow.__dataclass_fields__}
    return ThroughputRow(**fields | {"speed": spread(value, share)})


FULL = CellResult(
    place={"arm": "stock", "workload": "resnet50", "batch": 4096, "augmented": False},
    outcome=Outcome.OUT_OF_MEMORY,
    reason="std::bad_alloc",
    answers=(),
)


def test_speed_is_examples_over_seconds() -> None:
    (throughput_row,) = build_rows([result_of(8, 0.5, 0.5)])
    assert throughput_row.speed is not None
    assert get_value(throughput_row.speed) == pytest.approx(16.0)
    assert throughput_row.printed is not None
    assert throughput_row.printed.mean == pytest.approx(16.0)
    assert (throughput_row.peak_mb, throughput_row.launches) == (900.0, 2)


def test_out_of_memory_is_a_row_and_not_a_crash() -> None:
    (throughput_row,) = build_rows([FULL])
    assert (throughput_row.speed, throughput_row.printed, throughput_row.outcome) == (
        None,
        None,
        Outcome.OUT_OF_MEMORY,
    )
    actual = measured(result_of(8, 0.5, 0.5), FULL)
    shown = THROUGHPUT.text.build_table(actual).format_text(colour=False)
    assert "resnet50, batch 4096, stock: out of memory" in shown


def test_the_smallest_batch_that_is_nearly_as_fast_is_enough() -> None:
    assert choose_batch([row(8, 90), row(16, 97), row(32, 100)]) == row(16, 97)
    assert choose_batch([row(8, 101), row(16, 97)]) == row(8, 101)
    assert choose_batch(build_rows([FULL])) is None


def test_intervals_that_overlap_are_not_told_apart() -> None:
    assert is_distinct(spread(100, 0.01), spread(90, 0.01))
    assert not is_distinct(spread(100, 0.1), spread(90, 0.1))
    assert not is_distinct(100.0, 1.0), "each was seen once"


def test_what_overlaps_is_said_to_be_unsure() -> None:
    noisy = measured(result_of(8, 0.5, 0.9), result_of(16, 0.9, 1.0))
    assert "measure longer" in " ".join(list_lines(noisy))
    calm = measured(result_of(8, 0.5, 0.5001), result_of(16, 2.0, 2.0001))
    assert "measure longer" not in " ".join(list_lines(calm))


def test_augmentation_is_compared_with_the_same_batch_without() -> None:
    actual = measured(result_of(8, 0.5, 0.5001), result_of(8, 1.0, 1.0001, augmented=True))
    assert "reduces the speed by 50.0%" in " ".join(list_lines(actual))
    vague = measured(result_of(8, 0.5, 1.0), result_of(8, 0.7, 1.1, augmented=True))
    assert "no measurable cost" in " ".join(list_lines(vague))


def test_speed_per_dollar_is_over_the_books_price() -> None:
    actual = measured(result_of(8, 0.5, 0.5), price="cpu8")
    assert actual.price is not None
    table = THROUGHPUT.text.build_table(actual)
    per_dollar = table.rows[0][table.headings.index("#per $/h")]
    assert float(per_dollar) == pytest.approx(16.0 / (0.06 * 1.0607), rel=0.01)
    assert "as of 2017-07" in table.format_text(colour=False)


def test_the_page_has_the_tables_rows() -> None:
    actual = measured(result_of(8, 0.5, 0.6), FULL)
    (table,) = (
        block for block in THROUGHPUT.text.build_section(actual).blocks if isinstance(block, Table)
    )
    assert table.rows == THROUGHPUT.text.build_table(actual).rows
    drawn = list(throughput.draw_figures(actual))
    assert len(drawn) == 1
    assert "at 8" in drawn[0].description
    assert list(throughput.draw_figures(measured(FULL))) == []
    assert "out of memory" in format_json(actual)


# --- options --------------------------------------------------------------------------------------


def read(**options: str) -> ThroughputConfig:
    return parse_options(ThroughputOptions(**options))


def test_cells_are_every_batch_with_and_without_augmentation() -> None:
    config = read(batches="4,8", image="64", augmentation="both", launches="3", steps="20")
    cells = config.list_cells(["stock"], read_host(), Path())
    assert len(cells) == 2 * 2 * 3
    assert len({cell.key for cell in cells}) == len(cells)
    names = {cell.request["workload"] for cell in cells}
    assert {find_workload(name).inputs for name in names} == {(4, 64, 64, 3), (8, 64, 64, 3)}


def test_a_workload_of_ones_own_has_its_own_batch(tmp_path: Path) -> None:
    own_path = tmp_path / "model.py"
    own_path.write_text("def build(): ...\n", "utf-8")
    config = read(workload=str(own_path), launches="1")
    (cell,) = config.list_cells(["stock"], read_host(), Path())
    assert cell.request["workload"] == "own:model.py"
    assert dict(cell.env) == {PROGRAM: str(own_path)}
    cell_result = result_of(0, 0.5, 0.5)
    answers = tuple({**answer, "batch": 7} for answer in cell_result.answers)
    (throughput_row,) = build_rows([dataclasses.replace(cell_result, answers=answers)])
    assert throughput_row.batch == 7
