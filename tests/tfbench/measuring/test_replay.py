"""Recorded runs, computed again: made-up ones, and two of a noisy machine."""

from __future__ import annotations

import dataclasses
import functools
import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.builders.journals import REPEAT, fault, measured
from tests.builders.recordings import CELLS, EVERY, RECORDINGS, SETTING, run

from tfbench.engine.journal import PACKED
from tfbench.measuring.comparing import KIND, summarise_run
from tfbench.measuring.replay import OLDER, recompute_comparison
from tfbench.measuring.samples import Entry, Sample
from tfcore import records
from tfcore.comparisons.comparison import SCHEMA, Comparison
from tfcore.comparisons.deciding import decide
from tfcore.comparisons.interval import Verdict
from tfcore.errors import RecordError

SIX, QUICKSTART = "zen3-six-models", "zen3-quickstart"
ELEVEN = "sapphire-rapids-eleven-models"


def packed(folder: Path) -> Path:
    plain = folder / KIND.journal
    (folder / f"{KIND.journal}{PACKED}").write_bytes(lzma.compress(plain.read_bytes()))
    plain.unlink()
    return folder


def undated(comparison: Comparison) -> Comparison:
    return dataclasses.replace(comparison, made="")


def expected(*cells: Sequence[Entry]) -> Comparison:
    return summarise_run(SETTING, [measured(cell) for cell in cells], timestamp="")


# --- made-up runs ---------------------------------------------------------------------------------


def test_a_recorded_run_gives_the_comparison_of_its_samples(tmp_path: Path) -> None:
    comparison, samples = recompute_comparison(run(tmp_path))
    assert undated(comparison) == expected(*CELLS)
    assert samples == tuple(entry for entry in EVERY if isinstance(entry, Sample))
    assert comparison.complete
    assert [cell.speedups[0].verdict for cell in comparison.cells] == [Verdict.FASTER] * 2


def test_a_recorded_run_is_as_old_as_it_says_and_not_as_its_files(tmp_path: Path) -> None:
    folder = run(tmp_path)
    assert recompute_comparison(folder)[0].made == ""
    (folder / KIND.result).write_text('{"schema": 2, "made": "2026-01-02T03:04:05+00:00"}')
    assert recompute_comparison(folder)[0].made == "2026-01-02T03:04:05+00:00"


def test_a_packed_run_gives_the_same(tmp_path: Path) -> None:
    plain = recompute_comparison(run(tmp_path))
    assert recompute_comparison(packed(tmp_path)) == plain


@pytest.mark.parametrize("schema", [OLDER, SCHEMA])
def test_runs_of_older_schemas_are_read(schema: int, tmp_path: Path) -> None:
    comparison, _ = recompute_comparison(run(tmp_path, schema=schema))
    assert undated(comparison) == expected(*CELLS)
    assert comparison.schema == SCHEMA


def test_a_cell_that_was_not_begun_is_left_out(tmp_path: Path) -> None:
    comparison, _ = recompute_comparison(run(tmp_path, CELLS[0]))
    assert undated(comparison) == expected(CELLS[0])
    assert not comparison.complete


def test_a_cell_of_which_nothing_started_is_told_as_failed(tmp_path: Path) -> None:
    failed = [fault(REPEAT, workload=CELLS[1][0].workload, vcpus=CELLS[1][0].vcpus)]
    comparison, _ = recompute_comparison(run(tmp_path, [*CELLS[0], *failed]))
    assert undated(comparison) == expected(CELLS[0], failed)
    assert comparison.complete
    assert [failure.arm for failure in comparison.cells[1].failures] == [REPEAT]


def test_half_a_line_at_the_end_is_what_a_killed_run_leaves(tmp_path: Path) -> None:
    whole = recompute_comparison(run(tmp_path))
    with (tmp_path / KIND.journal).open("a", encoding="utf-8") as sink:
        sink.write('{"is": "sample", "wall')
    assert recompute_comparison(tmp_path) == whole


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (KIND.spec, None),
        (KIND.spec, b""),
        (KIND.spec, b'{"schema": 3, "host": {'),
        (KIND.spec, b"[]"),
        (KIND.spec, b'{"schema": 3}'),
        (KIND.spec, b'{"schema": 3, "colour": "blue"}'),
        (KIND.spec, json.dumps(records.convert_record(SETTING) | {"schema": 1}).encode()),
        (KIND.spec, json.dumps(records.convert_record(SETTING) | {"schema": SCHEMA + 1}).encode()),
        (KIND.journal, None),
        (KIND.journal, b"epoch,loss\n"),
        (KIND.journal, b'{"is": "end"}\n'),
        (KIND.journal, b"\xff\xfe\n"),
        (f"{KIND.journal}{PACKED}", b""),
        (f"{KIND.journal}{PACKED}", b"not packed"),
        (f"{KIND.journal}{PACKED}", lzma.compress(b'{"is": "end"}\n' * 99)[:-20]),
        (f"{KIND.journal}{PACKED}", lzma.compress(b"\xff\xfe\n")),
    ],
)
def test_a_folder_that_holds_no_run_is_an_error(
    name: str, content: bytes | None, tmp_path: Path
) -> None:
    run(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RecordError, match=name):
        recompute_comparison(tmp_path)


def test_samples_that_make_no_comparison_are_an_error(tmp_path: Path) -> None:
    steps = [
        dataclasses.replace(entry, steps=1 + entry.position) if isinstance(entry, Sample) else entry
        for entry in EVERY
    ]
    with pytest.raises(RecordError, match=r"not a valid comparison .*steps"):
        recompute_comparison(run(tmp_path, steps))


# --- real ones ------------------------------------------------------------------------------------


@functools.cache
def real(name: str) -> Comparison:
    return recompute_comparison(RECORDINGS / name)[0]


def test_on_a_noisy_machine_most_gains_of_six_models_are_found() -> None:
    comparison = real(SIX)
    tuned = [
        speedup
        for cell in comparison.cells
        for speedup in cell.speedups
        if speedup.arm == "tunedon"
    ]
    assert len(tuned) == 12
    assert sum(speedup.verdict is Verdict.FASTER for speedup in tuned) >= 8
    means = [overall.speedup for overall in comparison.overall if overall.speedup.arm == "tunedon"]
    assert [mean.verdict for mean in means] == [Verdict.FASTER] * 2


@pytest.mark.parametrize("name", [SIX, QUICKSTART, ELEVEN])
def test_stored_decisions_are_those_that_the_rest_of_the_record_gives(name: str) -> None:
    comparison = real(name)
    assert all(len(cell.decisions) == len(comparison.candidates) for cell in comparison.cells)
    older = dataclasses.replace(
        comparison,
        cells=tuple(dataclasses.replace(cell, decisions=()) for cell in comparison.cells),
        overall=tuple(dataclasses.replace(mean, decision=None) for mean in comparison.overall),
    )
    assert decide(older) == comparison


def test_on_a_noisy_machine_stock_is_nowhere_called_different_from_stock() -> None:
    cells = [cell for name in (SIX, QUICKSTART) for cell in real(name).cells]
    assert len(cells) == 14
    for cell in cells:
        assert cell.noise is not None
        assert cell.noise.low <= 1 <= cell.noise.high, f"{cell.workload} on {cell.vcpus}"
