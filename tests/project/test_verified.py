"""docs/verified.md is what the records of benchmarks/ give."""

from __future__ import annotations

import dataclasses

import pytest
from tests.tools import verified

RUNS = verified.load_runs()


def test_the_page_is_rendered_from_the_records() -> None:
    assert verified.main(["--check"]) == 0, (
        "run: PYTHONPATH=build:benchmarks python -m tests.tools.verified"
    )


def test_every_record_is_on_the_page() -> None:
    files = {path.stem for path in verified.RECORDS.glob("*.csv")}
    assert {run.file for run in RUNS} == files


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.file)
def test_reported_means_are_those_of_the_rows(run: verified.Run) -> None:
    for mean in run.means:
        assert mean.speedup == pytest.approx(run.compute_mean(mean.vcpus, mean.arm), abs=6e-4)
        assert mean.low <= mean.speedup <= mean.high


def test_a_changed_record_changes_the_page() -> None:
    (run, *remainder) = RUNS
    slower = tuple(row | {"speedup": "0.5"} if row["speedup"] else row for row in run.rows)
    changed = dataclasses.replace(run, rows=slower)
    assert verified.render_page([changed, *remainder]) != verified.render_page(RUNS)
