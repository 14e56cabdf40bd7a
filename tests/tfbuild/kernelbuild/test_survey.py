from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest
from tests.builders.plans import planned

from tfbuild.kernelbuild import survey, survey_page
from tfbuild.kernelbuild.survey import BatchResult, Survey, build_rows, shorten_reason
from tfbuild.upstream.kernels import FOLDER, KernelUnit, SourceOutcome, parse_survey
from tfcore.errors import RecordError
from tfcore.settings import Paths


def unit(name: str, *sources: str) -> KernelUnit:
    return KernelUnit(name=name, sources=tuple(f"{FOLDER}/{source}" for source in sources))


ADD = unit("add", "add_1.cc", "add_2.cc", "common.cc")
TAKES = "it uses tensorflow::f() of the stock library"
FOUND = Survey(
    plan=planned(),
    table={
        "add_1.cc": ("Add",),
        "add_2.cc": ("Add", "AddV2"),
        "broken.cc": ("Broken", "Mixed"),
        "common.cc": (),
        "late.cc": ("Late",),
        "mixed.cc": ("Mixed",),
        "needy.cc": ("Needy",),
        "stays.cc": ("Stays",),
    },
    broken={"broken.cc": "x.h:1:2: error: a | b"},
    units={
        "add_1.cc": ADD,
        "add_2.cc": ADD,
        "late.cc": unit("late", "late.cc"),
        "stays.cc": unit("stays", "stays.cc"),
    },
    results={"add": BatchResult(registrations=12, cases=90), "stays": BatchResult(reason=TAKES)},
    finished=False,
)


def test_every_source_has_a_row_that_says_what_became_of_it() -> None:
    survey_rows = {row.source: row for row in build_rows(FOUND)}
    assert list(survey_rows) == sorted(FOUND.table)
    assert {source: row.outcome for source, row in survey_rows.items()} == {
        "add_1.cc": SourceOutcome.ADMITTED,
        "add_2.cc": SourceOutcome.ADMITTED,
        "broken.cc": SourceOutcome.BROKEN,
        "common.cc": SourceOutcome.HELPER,
        "late.cc": SourceOutcome.UNKNOWN,
        "mixed.cc": SourceOutcome.REFUSED,
        "needy.cc": SourceOutcome.REFUSED,
        "stays.cc": SourceOutcome.REFUSED,
    }
    assert survey_rows["add_2.cc"].sources == ("add_1.cc", "add_2.cc", "common.cc")
    assert (survey_rows["add_1.cc"].registrations, survey_rows["add_1.cc"].cases) == (12, 90)
    assert survey_rows["stays.cc"].reason == TAKES
    assert (
        survey_rows["mixed.cc"].reason == "broken.cc, which registers the same op, does not compile"
    )
    assert survey_rows["needy.cc"].reason == "a source that it needs does not compile"


def test_before_the_first_pass_has_ended_only_the_ops_are_known() -> None:
    early = dataclasses.replace(FOUND, broken={}, units={}, results={})
    assert {row.outcome for row in build_rows(early)} == {SourceOutcome.UNKNOWN}
    assert [row.ops for row in build_rows(early)] == [
        FOUND.table[name] for name in sorted(FOUND.table)
    ]


def test_the_table_and_the_page_are_written(tmp_path: Path) -> None:
    paths = Paths(root=tmp_path, cache=tmp_path / "cache", pool=tmp_path / "pool")
    (early,) = survey_page.write_survey(FOUND, paths)
    assert "**Not finished**" in early.read_text("utf-8")
    paper, table = sorted(
        survey_page.write_survey(dataclasses.replace(FOUND, finished=True), paths)
    )
    assert parse_survey(table.read_text("utf-8")) == build_rows(FOUND)
    text = paper.read_text("utf-8")
    for line in (
        "| does not compile | 1 |",
        "| uses kernel code of the stock library | 1 |",
        r"| broken.cc | x.h:1:2: error: a \| b |",
        f"| stays | {TAKES} |",
        "| add | 12 | 90 | Add AddV2 |",
    ):
        assert line in text
    assert "Not finished" not in survey_page.render_page(dataclasses.replace(FOUND, finished=True))


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (TAKES, "uses kernel code of the stock library"),
        ("it would share the state x with the stock library", "would share state"),
        ("it lacks a stock kernel: op: A", "registers other kernels"),
        ("no stock kernel has the definition: op: A", "registers other kernels"),
        ("A T=1: no test inputs were found", "has an op without test inputs"),
        (
            "Tanh T=1: Tanh float random: 99 ULPs from the stock kernel",
            "computes different results",
        ),
        ("Tanh T=1: TensorFlow did not run it", "has a kernel that TensorFlow did not run"),
        ("loading it alone ended with SIGABRT", "ends or blocks the process"),
        ("the probe ended before it tested this kernel group", "ends or blocks the process"),
        ("it does not link: undefined reference to f", "does not link"),
        ("ValueError: x", "another reason"),
    ],
)
def test_reasons_are_told_apart(reason: str, kind: str) -> None:
    assert survey_page.classify_reason(reason).startswith(kind)


def test_reasons_lose_the_paths_of_the_machine_and_further_lines() -> None:
    assert (
        shorten_reason("/home/me/x/a.so: undefined symbol: f\nmore") == "a.so: undefined symbol: f"
    )
    assert (
        shorten_reason("external/tf_source/a.cc:1:2: error: b")
        == "external/tf_source/a.cc:1:2: error: b"
    )
    assert shorten_reason("ab" * 200).endswith("…")


def test_what_was_seen_is_kept_and_a_torn_file_is_told(tmp_path: Path) -> None:
    notes = tmp_path / "survey.json"
    assert survey._load_results(notes) == {}
    survey._save_results(notes, FOUND.results)
    assert survey._load_results(notes) == FOUND.results
    for torn in (notes.read_text()[:-9], '{"schema": 1, "seen": {"a": {"cases": "x"}}}', "[]"):
        notes.write_text(torn)
        with pytest.raises(RecordError):
            survey._load_results(notes)


def test_no_batch_begins_once_the_time_is_up() -> None:
    units = [unit(f"u{n}", f"u{n}.cc") for n in range(50)]
    batches = list(survey._split_batches(units, time.monotonic() + 60, "units"))
    assert [kernel_unit for batch in batches for kernel_unit in batch] == units
    assert len(batches) > 1
    assert list(survey._split_batches(units, time.monotonic(), "units")) == []
