"""What `invoke compare` and `invoke report` accept, before anything is installed or measured."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from tests.test_tuned import SOME, wheel

from tfbench.front import Wanted, compare_wheels, newest_runnable, report_again
from tfbuild import settings
from tfbuild.errors import HostError, RecordError, UsageError, WheelError
from tfbuild.settings import Places
from tfbuild.tuned import Tuned

# Every CPU that runs the tests has these; none has the other.
RUNS = dataclasses.replace(SOME, required_features=())
FOREIGN = dataclasses.replace(SOME, target="tomorrow", required_features=("avx99",))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    pool = tmp_path / "pool"
    pool.mkdir()
    return dataclasses.replace(settings.places(), cache=tmp_path / "cache", pool=pool)


def pooled(pool: Path, name: str, said: Tuned | None, age_s: int) -> Path:
    path = wheel(pool, None if said is None else said.to_bytes())
    renamed = path.rename(pool / path.name.replace("haswell", name))
    os.utime(renamed, (1_000_000 - age_s, 1_000_000 - age_s))
    return renamed


def test_the_newest_wheel_that_runs_here_is_the_candidate(places: Places) -> None:
    pooled(places.pool, "foreign", FOREIGN, age_s=0)
    newest = pooled(places.pool, "newest", RUNS, age_s=10)
    pooled(places.pool, "older", RUNS, age_s=20)
    assert newest_runnable(places) == newest


def test_an_empty_pool_says_how_to_fill_it(places: Places) -> None:
    with pytest.raises(WheelError) as caught:
        newest_runnable(places)
    assert "invoke build" in caught.value.hint


def test_a_pool_of_foreign_wheels_is_no_answer(places: Places) -> None:
    pooled(places.pool, "foreign", FOREIGN, age_s=0)
    with pytest.raises(HostError, match="none of the 1 wheels"):
        newest_runnable(places)


def test_a_wheel_that_this_cpu_cannot_run_is_refused_by_name_and_feature(tmp_path: Path) -> None:
    path = wheel(tmp_path, FOREIGN.to_bytes())
    with pytest.raises(HostError, match="tomorrow, and this CPU lacks avx99"):
        compare_wheels(Wanted(candidate=str(path)), dry_run=True)


def test_a_dry_run_says_what_would_be_compared(tmp_path: Path) -> None:
    path = wheel(tmp_path, RUNS.to_bytes())
    wanted = Wanted(candidate=str(path), workloads="mnist_mlp, lstm_text", vcpus="1", out="there")
    said = compare_wheels(wanted, dry_run=True)
    assert str(path) in said
    assert "mnist_mlp, lstm_text" in said
    assert not Path("there").exists()


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (Wanted(candidate="no-such.whl"), WheelError),
        (Wanted(vcpus="two"), UsageError),
        (Wanted(vcpus="-1"), UsageError),
        (Wanted(vcpus="4096"), UsageError),
        (Wanted(workloads="mnist_mlp,mnist_mpl"), UsageError),
        (Wanted(seed="x"), UsageError),
        (Wanted(baseline="no-such.whl"), WheelError),
    ],
)
def test_bad_options_are_refused_before_anything_is_done(
    wanted: Wanted, error: type[Exception], tmp_path: Path
) -> None:
    path = wheel(tmp_path, RUNS.to_bytes())
    candidate = wanted.candidate or str(path)
    with pytest.raises(error):
        compare_wheels(dataclasses.replace(wanted, candidate=candidate), dry_run=True)


def test_a_report_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        report_again(str(tmp_path / "comparison.json"), as_json=False)
    (tmp_path / "comparison.json").write_text('{"schema": 1, "cells"')
    with pytest.raises(RecordError):
        report_again(str(tmp_path), as_json=True)
