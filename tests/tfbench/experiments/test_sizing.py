"""Sizes: inputs read, what bounds a cell, the knee, and the cheapest machine that holds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.comparisons import host
from tests.builders.prices import price

from tfbench.commands import SizingOptions
from tfbench.costs.cost import get_value
from tfbench.costs.prices import PriceBook, create_book
from tfbench.experiments import sizing
from tfbench.experiments.cell import CellResult, Outcome
from tfbench.experiments.sizing import (
    TEXT,
    Bound,
    Sizing,
    SizingConfig,
    SizingRow,
    build_rows,
    compute_growth_mb,
    find_bottleneck,
    find_cheapest_machine,
    find_knees,
    list_lines,
    parse_options,
    parse_source,
)
from tfbench.inside.phases import PREPROCESS
from tfbench.reports.document import Table
from tfcore.comparisons.host import read_host
from tfcore.errors import UsageError


def answer(step_s: float, vcpus: int, **fields: Any) -> dict[str, Any]:
    whole = {
        "step_s": [step_s] * 8,
        "batch": 10,
        "rss_mb": [400.0] * 8,
        "peak_mb": 500.0,
        "cpu_s": 8 * step_s * vcpus,
        "vcpus": list(range(vcpus)),
        "meters": {"read_s": 0.0, "read_bytes": 0},
        "cached_bytes": 0,
    }
    return whole | fields


def cell(
    step_s: float,
    *,
    vcpus: int = 1,
    memory: float = 0.0,
    outcome: Outcome = Outcome.OK,
    source: str = "memory",
    **fields: Any,
) -> CellResult:
    ok = outcome is Outcome.OK
    return CellResult(
        place={
            "workload": "alexnet",
            "phase": "train",
            "input": source,
            "vcpus": vcpus,
            "memory": memory,
        },
        outcome=outcome,
        reason="" if ok else "Linux killed the process",
        answers=(answer(step_s, vcpus, **fields),) * 2 if ok else (),
    )


def rows(*cell_results: CellResult) -> tuple[SizingRow, ...]:
    return build_rows(cell_results)


# --- inputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "mb_s", "iops", "cold"),
    [
        ("cached", 0, 0, False),
        ("cold", 0, 0, True),
        ("40MB/s", 40, 0, False),
        ("2.5MB/s@500IOPS", 2.5, 500, False),
        ("7mb/s@9iops", 7, 9, False),
    ],
)
def test_an_input_is_a_kind_or_a_speed(words: str, mb_s: float, iops: float, cold: bool) -> None:
    source = parse_source(words)
    assert (source.mb_s, source.iops, source.cold) == (mb_s, iops, cold)
    request = source.build_request("/data", "/sink", generate=9)
    assert (request["kind"], request["generate"], request["mb_s"]) == ("files", 9, mb_s)


def test_memory_reads_no_files() -> None:
    assert parse_source("memory").build_request("/data", "/sink", generate=9) == {"kind": "memory"}


@pytest.mark.parametrize("words", ["", "disk", "chached", "0MB/s", "4MB", "-1MB/s", "4MB/s@0IOPS"])
def test_what_is_no_input_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match="MB/s"):
        parse_source(words)


# --- cells ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "busy", "reading", "actual"),
    [
        (Outcome.OK, 0.95, 0.1, Bound.COMPUTE),
        (Outcome.OK, 0.95, 0.9, Bound.INPUT),
        (Outcome.OK, 0.10, 0.9, Bound.INPUT),
        (Outcome.OK, 0.95, 0.6, Bound.COMPUTE),
        (Outcome.OK, 0.30, 0.6, Bound.INPUT),
        (Outcome.OK, 0.50, 0.1, Bound.SERIAL),
        (Outcome.OUT_OF_MEMORY, None, None, Bound.MEMORY),
        (Outcome.FAILED, None, None, None),
    ],
)
def test_what_bounds_a_cell(
    outcome: Outcome, busy: float | None, reading: float | None, actual: Bound | None
) -> None:
    assert find_bottleneck(outcome, busy, reading) is actual


def test_a_row_has_the_shares_of_its_launches() -> None:
    reads: dict[str, Any] = {"meters": {"read_s": 6.4, "read_bytes": 40_000_000}, "cpu_s": 4.0}
    (row,) = rows(cell(1.0, vcpus=2, source="cold", cached_bytes=4096, **reads))
    assert row.speed is not None
    assert get_value(row.speed) == pytest.approx(10.0)
    assert (row.busy, row.reading, row.read_mb_s) == pytest.approx((0.25, 0.8, 5.0))
    assert row.bound is Bound.INPUT
    assert row.cached == 4096


@given(st.lists(st.floats(0, 1e5), max_size=40))
def test_memory_that_only_rises_has_grown(megabytes: list[float]) -> None:
    assert compute_growth_mb(sorted(megabytes)) >= 0
    assert compute_growth_mb(sorted(megabytes, reverse=True)) <= 0


def test_growth_is_between_the_first_and_the_last_quarter() -> None:
    assert compute_growth_mb([100, 100, 150, 180, 190, 190, 200, 200]) == 100
    assert compute_growth_mb([100, 500, 900]) == 0, "too few to say"


# --- knees ----------------------------------------------------------------------------------------


def test_the_knee_is_the_smallest_size_near_the_plateau() -> None:
    sizing_rows = rows(cell(1.0, vcpus=1), cell(0.51, vcpus=2), cell(0.5, vcpus=4))
    (knee,) = find_knees(sizing_rows, 0.05, None)
    assert knee.vcpus == 2
    assert get_value(knee.speed) == pytest.approx(10 / 0.51)
    assert knee.plateau == pytest.approx(20.0)
    (strict,) = find_knees(sizing_rows, 0.001, None)
    assert strict.vcpus == 4


def test_with_as_many_cpus_the_least_memory_is_enough() -> None:
    sizing_rows = rows(
        cell(0.5, vcpus=2),
        cell(0.5, vcpus=2, memory=2000.0),
        cell(0.5, vcpus=2, memory=1000.0),
        cell(0.0, vcpus=2, memory=500.0, outcome=Outcome.OUT_OF_MEMORY),
    )
    (knee,) = find_knees(sizing_rows, 0.05, None)
    assert (knee.vcpus, knee.memory_mb) == (2, 1000.0)


def test_where_nothing_ran_there_is_no_knee() -> None:
    sizing_rows = rows(cell(0.0, memory=500.0, outcome=Outcome.OUT_OF_MEMORY))
    assert find_knees(sizing_rows, 0.05, None) == ()


BOOK: PriceBook = create_book(
    "book",
    [
        price("small", 0.1, vcpus=2, memory_gib=0.5),
        price("fits", 0.2, vcpus=2, memory_gib=4),
        price("larger", 0.3, vcpus=8, memory_gib=32),
        price("unknown", 0.01, vcpus=2),
        price("gpu", 0.05, vcpus=8, memory_gib=64, accelerator="V100"),
    ],
)


def cheapest(vcpus: int, peak_mb: float) -> str | None:
    machine = find_cheapest_machine(BOOK, vcpus, peak_mb)
    return machine.name if machine else None


def test_the_cheapest_machine_that_holds() -> None:
    """Small lacks memory, of unknown it is not known, gpu has a GPU."""
    assert cheapest(2, 1000.0) == "fits"
    assert cheapest(4, 1000.0) == "larger"
    assert cheapest(16, 1000.0) is None


def test_memory_has_a_margin_for_the_system() -> None:
    assert cheapest(2, 4 * 2**30 / 1e6) == "larger"


# --- for people -----------------------------------------------------------------------------------


def measured(*cell_results: CellResult, means: str = "", book: PriceBook | None = None) -> Sizing:
    sizing_rows = rows(*cell_results)
    return Sizing(
        made="2026-01-01T00:00:00+00:00",
        host=host(),
        seed=1,
        within=0.05,
        means=means,
        wheels=(),
        rows=sizing_rows,
        knees=find_knees(sizing_rows, 0.05, book),
        book=book.name if book else "",
    )


def test_every_mark_and_every_knee_is_told() -> None:
    actual = measured(
        cell(1.0, vcpus=1),
        cell(0.5, vcpus=2),
        cell(0.0, vcpus=2, memory=500.0, outcome=Outcome.OUT_OF_MEMORY),
        means="cgroup",
        book=BOOK,
    )
    shown = TEXT.build_table(actual).format_text(colour=False)
    assert "2 vCPUs are enough, 20.0 examples/s" in shown
    assert "Cheapest such machine: fits" in shown
    assert "2 vCPUs, 500 MB: out of memory" in shown
    assert "by cgroup" in shown
    (table,) = [block for block in TEXT.build_section(actual).blocks if isinstance(block, Table)]
    assert table.rows == TEXT.build_table(actual).rows
    assert len(list(sizing.draw_figures(actual))) == 1


def test_files_that_stayed_in_memory_are_told() -> None:
    assert "file system" in " ".join(
        list_lines(measured(cell(1.0, source="cold", cached_bytes=9e6)))
    )
    assert "file system" not in " ".join(list_lines(measured(cell(1.0, source="cold"))))


# --- options --------------------------------------------------------------------------------------


def read(**options: str) -> SizingConfig:
    return parse_options(SizingOptions(**options))


def test_preprocessing_has_no_input_in_memory(tmp_path: Any) -> None:
    config = read(inputs="memory,cached", vcpus="1", launches="1", workloads="ptb_lstm_small")
    places = [dict(cell.place) for cell in config.list_cells(["stock"], read_host(), tmp_path)]
    assert len(places) == 2 * 2 + 1
    assert [p["input"] for p in places if p["phase"] == PREPROCESS] == ["cached"]
