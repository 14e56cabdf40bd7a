"""What is timed and what is known; whole selections are made in tests/integration."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.builders.index_wheels import tuned_for
from tests.builders.journals import STOCK, TUNED
from tests.builders.kernel_call_sites import TANH, ranked, series

from tfbench.engine import folder as folders
from tfbench.engine.journal import open_journal
from tfbench.kernels.selecting import (
    KIND,
    SelectionResult,
    SelectionSetting,
    ServedCallSite,
    select,
)
from tfbench.kernels.timing_cache import TimingCache
from tfbench.kernels.timings import KINDS, Bench, TimingLine
from tfbench.kernels.wheel_kernels import WheelKernels
from tfcore.errors import SampleError, UsageError, WorkerError

SETTING = SelectionSetting(
    cpu="a CPU",
    arms=(STOCK, TUNED),
    spots=("a", "b"),
    threads=(1, 2),
    launches=6,
    rate=0.05,
    seed=1,
    budget_s=None,
)


def test_a_folder_of_another_selection_is_refused(tmp_path: Path) -> None:
    memory(tmp_path).save_series("recipe", SITE.place, 1, series(*EVEN))
    selected(tmp_path)
    with pytest.raises(UsageError, match=r"launches \(4, now 3\)"):
        selected(tmp_path, launches=3)


def test_a_folder_of_a_finished_selection_is_refused(tmp_path: Path) -> None:
    memory(tmp_path).save_series("recipe", SITE.place, 1, series(*EVEN))
    selected(tmp_path)
    with pytest.raises(UsageError, match="contains a finished selection"):
        selected(tmp_path)


# --- what is timed, and what is known: no worker starts here ------------------------------------

EVEN = (0.01, -0.01, 0.012, -0.012)
SITE = ranked("Tanh", 4)
OTHER = ranked("Tanh", 5)


def selected(
    folder: Path, *, launches: int = 4, served: tuple[ServedCallSite, ...] = ()
) -> SelectionResult:
    """A selection with arms that cannot be started."""
    served = served or (ServedCallSite(site=SITE, choice=TANH),)
    setting = dataclasses.replace(SETTING, threads=(1,), launches=launches)
    wheel_kernels = WheelKernels(
        wheel=Path("tuned.whl"),
        release="2.14.1",
        library=tuned_for(("haswell",)).libraries[0],
        units={TANH: "cwise_op_tanh"},
        recipes={"cwise_op_tanh": "recipe"},
        sources={"cwise_op_tanh": ()},
    )
    bench = Bench(stock=STOCK, tuned=TUNED, cpus=(0,), out=folder / "out")
    return select(setting, served, wheel_kernels, memory(folder), bench)


def memory(folder: Path) -> TimingCache:
    return TimingCache(folder=folder / "timings", cpu="a CPU")


def journal(folder: Path, *lines: TimingLine) -> None:
    (folder / "out").mkdir(exist_ok=True)
    with open_journal(folder / "out" / KIND.journal, KINDS) as (_, keep):
        for timing_line in lines:
            keep(timing_line)


def line(launch: int, key: str = SITE.key, *, reason: str = "") -> TimingLine:
    times = () if reason else (1e-5 * (1 + launch / 100), 1e-5) * 4
    return TimingLine(
        stage="search",
        threads=1,
        launch=launch,
        key=key,
        stock=times,
        again=times[::-1],
        tuned=times[::-1],
        reason=reason,
    )


def test_what_is_known_is_not_timed_again(tmp_path: Path) -> None:
    memory(tmp_path).save_series("recipe", SITE.place, 1, series(*EVEN))
    selection_result = selected(tmp_path)
    assert (
        selection_result.recalled,
        selection_result.selection.kept,
        selection_result.untimed,
    ) == (1, (), ())
    assert (tmp_path / "out" / KIND.result).is_file()


def test_what_is_known_from_fewer_launches_is_timed_again(tmp_path: Path) -> None:
    memory(tmp_path).save_series("recipe", SITE.place, 1, series(*EVEN))
    with pytest.raises(WorkerError, match="did not start"):
        selected(tmp_path, launches=5)


def test_what_a_stopped_run_timed_is_its_own_and_not_the_caches(tmp_path: Path) -> None:
    folders.begin(KIND, dataclasses.replace(SETTING, threads=(1,), launches=4), tmp_path / "out")
    journal(tmp_path, *map(line, range(4)))
    assert selected(tmp_path).recalled == 0
    (tmp_path / "out" / KIND.result).unlink()
    memory(tmp_path).save_series("recipe", SITE.place, 1, series(*EVEN))
    assert selected(tmp_path).recalled == 0


def test_a_place_that_could_not_be_timed_is_told_with_its_reason(tmp_path: Path) -> None:
    memory(tmp_path).save_series("recipe", SITE.place, 1, series(0.2, 0.21, 0.19, 0.2))
    folders.begin(KIND, dataclasses.replace(SETTING, threads=(1,), launches=4), tmp_path / "out")
    journal(tmp_path, line(0, OTHER.key, reason="it aborts"))
    selection_result = selected(
        tmp_path, served=tuple(ServedCallSite(site=s, choice=TANH) for s in (SITE, OTHER))
    )
    assert [(untimed.place, untimed.reason) for untimed in selection_result.untimed] == [
        ("float[5]", "it aborts")
    ]
    assert selection_result.selection.kept == ()
    assert [row.reason for row in selection_result.selection.rows] == ["not timed at float[5]"]


def test_where_nothing_can_be_timed_it_is_said_why(tmp_path: Path) -> None:
    folders.begin(KIND, dataclasses.replace(SETTING, threads=(1,), launches=4), tmp_path / "out")
    journal(tmp_path, line(0, reason="it aborts"))
    with pytest.raises(SampleError) as caught:
        selected(tmp_path)
    assert "it aborts" in caught.value.hint
