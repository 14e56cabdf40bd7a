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
from tfbench.experiments.cell import CellResult, Outcome
from tfbench.experiments.throughput import handler, results, text
from tfbench.experiments.throughput.results import (
    Throughput,
    ThroughputRow,
    choose_batch,
    is_distinct,
)
from tfbench.inside.workloads import PROGRAM, find_workload
from tfbench.reports.document import Table
from tfcore.comparisons.host import read_host
from tfcore.errors import UsageError
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


def throughput(*cell_results: CellResult, price: str = "") -> Throughput:
    book = catalog.find_book("2017-07-gce")
    return Throughput(
        made="2026-01-01T00:00:00+00:00",
        host=host(),
        device="CPU",
        vcpus=2,
        seed=1,
        steps=4,
        wheels=(),
        rows=results.build_rows(cell_results),
        price=book.find_price(price) if price else None,
    )


def row(batch: int, value: float, share: float = 0.01) -> ThroughputRow:
    (throughput_row,) = results.build_rows([result_of(batch, 1.0, 1.0)])
    fields = {name: getattr(throughput_row, name) for name in ThroughputRow.__dataclass_fields__}
    return ThroughputRow(**fields | {"speed": spread(value, share)})


FULL = CellResult(
    place={"arm": "stock", "workload": "resnet50", "batch": 4096, "augmented": False},
    outcome=Outcome.OUT_OF_MEMORY,
    reason="std::bad_alloc",
    answers=(),
)


def test_speed_is_examples_over_seconds() -> None:
    (throughput_row,) = results.build_rows([result_of(8, 0.5, 0.5)])
    assert throughput_row.speed is not None
    assert get_value(throughput_row.speed) == pytest.approx(16.0)
    assert throughput_row.printed is not None
    assert throughput_row.printed.mean == pytest.approx(16.0)
    assert (throughput_row.peak_mb, throughput_row.launches) == (900.0, 2)


def test_out_of_memory_is_a_row_and_not_a_crash() -> None:
    (throughput_row,) = results.build_rows([FULL])
    assert (throughput_row.speed, throughput_row.printed, throughput_row.outcome) == (
        None,
        None,
        Outcome.OUT_OF_MEMORY,
    )
    actual = throughput(result_of(8, 0.5, 0.5), FULL)
    shown = text.build_table(actual).format_text(colour=False)
    assert "resnet50, batch 4096, stock: out of memory" in shown


def test_the_smallest_batch_that_is_nearly_as_fast_is_enough() -> None:
    assert choose_batch([row(8, 90), row(16, 97), row(32, 100)]) == row(16, 97)
    assert choose_batch([row(8, 101), row(16, 97)]) == row(8, 101)
    assert choose_batch(results.build_rows([FULL])) is None


def test_intervals_that_overlap_are_not_told_apart() -> None:
    assert is_distinct(spread(100, 0.01), spread(90, 0.01))
    assert not is_distinct(spread(100, 0.1), spread(90, 0.1))
    assert not is_distinct(100.0, 1.0), "each was seen once"


def test_what_overlaps_is_said_to_be_unsure() -> None:
    noisy = throughput(result_of(8, 0.5, 0.9), result_of(16, 0.9, 1.0))
    assert "measure longer" in " ".join(text.list_lines(noisy))
    calm = throughput(result_of(8, 0.5, 0.5001), result_of(16, 2.0, 2.0001))
    assert "measure longer" not in " ".join(text.list_lines(calm))


def test_augmentation_is_compared_with_the_same_batch_without() -> None:
    actual = throughput(result_of(8, 0.5, 0.5001), result_of(8, 1.0, 1.0001, augmented=True))
    assert "reduces the speed by 50.0%" in " ".join(text.list_lines(actual))
    vague = throughput(result_of(8, 0.5, 1.0), result_of(8, 0.7, 1.1, augmented=True))
    assert "no measurable cost" in " ".join(text.list_lines(vague))


def test_speed_per_dollar_is_over_the_books_price() -> None:
    actual = throughput(result_of(8, 0.5, 0.5), price="cpu8")
    assert actual.price is not None
    (row,) = text.format_rows(actual)
    per_dollar = row[text.list_headings(actual).index("#per $/h")]
    assert float(per_dollar) == pytest.approx(16.0 / (0.06 * 1.0607), rel=0.01)
    assert "#per $/h" in text.list_headings(actual)
    assert "as of 2017-07" in text.build_table(actual).format_text(colour=False)


def test_the_page_has_the_tables_rows() -> None:
    actual = throughput(result_of(8, 0.5, 0.6), FULL)
    (table,) = [block for block in text.build_section(actual).blocks if isinstance(block, Table)]
    assert table.rows == tuple(text.format_rows(actual))
    drawn = list(text.draw_figures(actual))
    assert len(drawn) == 1
    assert "at 8" in drawn[0].description
    assert list(text.draw_figures(throughput(FULL))) == []
    assert "out of memory" in format_json(actual)


# --- options --------------------------------------------------------------------------------------


def read(**options: str) -> handler.ThroughputConfig:
    return handler.parse_options(ThroughputOptions(**options))


def test_cells_are_every_batch_with_and_without_augmentation() -> None:
    config = read(batches="4,8", image="64", augmentation="both", launches="3", steps="20")
    cells = config.list_cells(["stock"], read_host())
    assert len(cells) == 2 * 2 * 3
    assert len({cell.key for cell in cells}) == len(cells)
    names = {cell.request["workload"] for cell in cells}
    assert {find_workload(name).inputs for name in names} == {(4, 64, 64, 3), (8, 64, 64, 3)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workloads": "resnet"}, "Did you mean resnet50"),
        ({"batches": "0"}, "is not a list of batch sizes"),
        ({"batches": ""}, "is not a list of batch sizes"),
        ({"batches": "4,x"}, "not a list of whole numbers"),
        ({"image": "16"}, "takes images of at least 32 pixels"),
        ({"augmentation": "maybe"}, "Use off, on or both"),
        ({"workloads": "mnist_mlp", "augmentation": "on"}, "has no images to augment"),
        ({"prices": "2017-07-gce"}, "Add --machine, one of gpu"),
        ({"machine": "cpu8"}, "Add, for example, --prices"),
        ({"prices": "2017-07-gce", "machine": "cpu9"}, "has no prices for 'cpu9'"),
        ({"workloads": "iris_mlp", "batches": "500"}, "larger than the training set"),
        ({"steps": "0"}, "--steps"),
        ({"workload": "resnet50"}, "Use --workloads resnet50"),
        ({"workload": "nowhere/model.py"}, "file not found"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(**options)
    assert message in str(caught.value)


def test_a_dry_run_says_what_would_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORWRIGHT_CACHE", str(tmp_path))
    text = handler.describe_plan(ThroughputOptions(batches="4,8", launches="2"))
    assert "processes    4, 100 steps" in text
    assert not any(tmp_path.iterdir())


def test_a_workload_of_ones_own_has_its_own_batch(tmp_path: Path) -> None:
    own_path = tmp_path / "model.py"
    own_path.write_text("def build(): ...\n", "utf-8")
    (cell,) = read(workload=str(own_path), launches="1").list_cells(["stock"], read_host())
    assert cell.request["workload"] == "own:model.py"
    assert dict(cell.env) == {PROGRAM: str(own_path)}
    cell_result = result_of(0, 0.5, 0.5)
    answers = tuple({**answer, "batch": 7} for answer in cell_result.answers)
    (throughput_row,) = results.build_rows([dataclasses.replace(cell_result, answers=answers)])
    assert throughput_row.batch == 7
