"""A comparison's file: it comes back as it went in, and no other is taken for one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.builders import report_comparisons
from tests.builders.comparisons import spread
from tests.builders.journals import (
    LOSSES,
    STOCK,
    TUNED,
    comparison,
    entries,
    fault,
    measured,
    paces,
    start,
)

from tfbench.inside.phases import TRAIN, VALIDATE
from tfcore.comparisons.comparison import SCHEMA, Agreement, load, save
from tfcore.comparisons.deciding import decide
from tfcore.errors import DiskError, RecordError

WHOLE = measured(entries(paces(), phases=(TRAIN, VALIDATE)))
FAILED = measured([*entries(paces(), workload="lstm_text"), fault(STOCK.name, 3)])
WRONG = measured([start(STOCK.name), start(TUNED.name, losses=(2.3, *(None,) * 4))])


def change_fields(path: Path, place: Sequence[str | int], change: Mapping[Any, object]) -> None:
    """Change fields of the record at that place of a comparison's file."""
    fields = inner = json.loads(path.read_text(encoding="utf-8"))
    for name in place:
        inner = inner[name]
    inner |= change
    path.write_text(json.dumps(fields), encoding="utf-8")


@pytest.mark.parametrize("cells", [(WHOLE,), (WHOLE, FAILED, WRONG), (FAILED,), (WRONG,), ()])
def test_a_comparison_loads_back_as_it_was_saved(cells: Any, tmp_path: Path) -> None:
    measured_comparison = comparison(*cells)
    save(tmp_path / "comparison.json", measured_comparison)
    assert load(tmp_path / "comparison.json") == measured_comparison
    merged = dataclasses.replace(measured_comparison, parts=("here", "there"), complete=False)
    save(tmp_path / "comparison.json", merged)
    assert load(tmp_path / "comparison.json") == merged


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("seed",), "one"),
        (("seconds",), True),
        (("complete",), None),
        (("baked",), "2026"),
        (("schema",), SCHEMA - 1),
        (("schema",), None),
        (("host",), 5),
        (("host", "cpu"), "Example CPU"),
        (("host", "affinity"), 2),
        (("cells", 0, "speedups", 0, "verdict"), "splendid"),
        (("cells", 0, "speedups", 0, "interval"), [1.0, 0.9, 1.1]),
        (("cells", 0, "noise"), "none"),
        (("effort", "blocks"), 2.5),
        (("effort", "blocks"), 1),
    ],
)
def test_a_foreign_comparison_is_refused(
    place: tuple[str | int, ...], value: object, tmp_path: Path
) -> None:
    path = tmp_path / "comparison.json"
    save(path, comparison(WHOLE))
    change_fields(path, place[:-1], {place[-1]: value})
    with pytest.raises(RecordError, match="comparison"):
        load(path)


@pytest.mark.parametrize("place", [("cells", 0, "decisions", 0), ("overall", 0, "decision")])
@pytest.mark.parametrize("change", [{"verdict": "slower"}, {"verdict": None}, {"arm": "other"}])
def test_a_decision_that_contradicts_its_speedup_is_refused(
    place: tuple[str | int, ...], change: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "comparison.json"
    decided = decide(report_comparisons.single(spread(1.25, 0.01)))
    save(path, decided)
    assert load(path) == decided
    change_fields(path, place, change)
    with pytest.raises(RecordError, match="two verdicts on"):
        load(path)


@pytest.mark.parametrize("place", [("cells", 0, "noise"), ("overall", 0, "noise")])
@pytest.mark.parametrize(
    "change", [{"low": 0.0}, {"low": -1.0}, {"low": 1.5}, {"high": 0.5}, {"high": 1e308}]
)
def test_an_interval_that_no_ratio_has_is_refused(
    place: tuple[str | int, ...], change: dict[str, float], tmp_path: Path
) -> None:
    """The gate takes its logarithms."""
    path = tmp_path / "comparison.json"
    save(path, report_comparisons.single(spread(1.25, 0.01)))
    change_fields(path, place, change)
    with pytest.raises(RecordError, match="no interval of a ratio"):
        load(path)


def test_two_speedups_of_one_arm_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "comparison.json"
    single = report_comparisons.single(spread(1.25, 0.01))
    (cell,) = single.cells
    twice = dataclasses.replace(cell, speedups=cell.speedups * 2)
    save(path, dataclasses.replace(single, cells=(twice,)))
    with pytest.raises(RecordError, match="two speedups"):
        load(path)


@pytest.mark.parametrize("field", ["arms", "margin", "effort", "cells"])
def test_a_comparison_that_lacks_something_is_refused(field: str, tmp_path: Path) -> None:
    path = tmp_path / "comparison.json"
    save(path, comparison(WHOLE))
    fields = json.loads(path.read_text(encoding="utf-8"))
    del fields[field]
    path.write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(RecordError, match=field):
        load(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"cells": 1}'])
def test_what_is_no_comparison_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "comparison.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecordError):
        load(path)
    with pytest.raises(RecordError, match="No such file"):
        load(tmp_path / "none.json")


def test_a_comparison_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(DiskError):
        save(tmp_path / "file" / "comparison.json", comparison(WHOLE))


@pytest.mark.parametrize(
    ("losses", "predictions", "agrees"),
    [
        (0.0, 1e-3, True),
        (1e-3, 0.0, True),
        (0.0, 2e-3, False),
        (2e-3, 0.0, False),
        (None, 0.0, False),
        (0.0, None, False),
    ],
)
def test_both_losses_and_predictions_must_agree(
    losses: float | None, predictions: float | None, agrees: bool
) -> None:
    agreement = Agreement(arm="tuned", losses=losses, predictions=predictions, tolerance=1e-3)
    assert agreement.agrees is agrees


def test_the_baseline_is_the_first_arm() -> None:
    measured_comparison = comparison(WHOLE)
    assert measured_comparison.baseline == STOCK.name
    assert measured_comparison.cells[0].arms[0].losses == LOSSES


def test_a_comparison_in_which_nothing_started_has_no_name_for_its_baseline() -> None:
    measured_comparison = comparison(measured([fault(STOCK.name)]))
    assert measured_comparison.arms == ()
    assert measured_comparison.baseline == "the baseline"
