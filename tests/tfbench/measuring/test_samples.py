"""The journal of a measurement: what its entries are, there and back; see also test_journal."""

from __future__ import annotations

import dataclasses
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.examples import at_most
from tests.builders.journals import STOCK, TUNED, end, sample, start

from tfbench.engine.journal import open_journal, read_entries
from tfbench.inside.phases import FIT
from tfbench.measuring.samples import (
    KINDS,
    End,
    Entry,
    Fault,
    Sample,
    Start,
    estimate_waited_s,
    list_step_seconds,
)
from tfcore.errors import RecordError, SampleError
from tfcore.records import format_canonical

texts = st.text(max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
times = st.floats(1e-9, 1e9)
counts = st.integers(0, 10**6)
numbers = st.lists(st.none() | finite, max_size=5).map(tuple)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
facts = st.dictionaries(texts, json_values, max_size=4)
place = {"workload": texts, "vcpus": counts, "launch": counts}
starts = st.builds(Start, **place, arm=texts, facts=facts, losses=numbers, predictions=numbers)
timed = dict.fromkeys(("wall_s", "elapsed_s", "cpu_s", "canary_s"), times)
metered = dict.fromkeys(
    (
        *("at_s", "idle_s", "idle_cpu_s", "run_delay_s"),
        *("busy_s", "steal_s", "throttled_s"),
    ),
    finite,
)
counted = dict.fromkeys(("block", "position", "switches"), counts)
counted["steps"] = st.integers(1, 10**6)
samples = st.builds(Sample, **place, phase=texts, arm=texts, **timed, **metered, **counted)
ends = st.builds(
    End,
    **place,
    seconds=finite,
    warm_up=counts,
    steady=st.booleans(),
    peak_mb=st.dictionaries(texts, finite, max_size=3),
    profiles=st.dictionaries(texts, facts, max_size=2),
)
faults = st.builds(Fault, **place, arm=texts, reason=texts)
kinds = starts | samples | ends | faults
journals = st.lists(kinds, max_size=8)


def write(path: Path, entries: Sequence[Entry]) -> None:
    with open_journal(path, KINDS) as (_, keep):
        for entry in entries:
            keep(entry)


# --- there and back -------------------------------------------------------------------------------


@given(entries=journals, more=journals)
@at_most(60)
def test_entries_come_back_as_they_were_written(entries: list[Entry], more: list[Entry]) -> None:
    """Also those that a second run wrote behind the first one's."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deep" / "samples.jsonl"
        write(path, entries)
        write(path, more)
        once = {format_canonical(entry): entry for entry in (*entries, *more)}
        assert read_entries(path, KINDS) == tuple(once.values())
        assert path.read_bytes().count(b"\n") == len(entries) + len(more)


# --- what is no entry -----------------------------------------------------------------------------


def line(fields: dict[str, object]) -> str:
    return json.dumps(fields)


WHOLE = {"is": "end"} | {
    name: getattr(end(), name)
    for name in ("workload", "vcpus", "launch", "seconds", "warm_up", "steady", "peak_mb")
}


@pytest.mark.parametrize(
    "foreign",
    [
        "",
        "epoch,elapsed",
        "5",
        "null",
        "[1, 2]",
        '{"is": "end"}',
        '{"is": "end", "workload"',
        line({"is": "beginning"}),
        line({name: value for name, value in WHOLE.items() if name != "is"}),
        line({name: value for name, value in WHOLE.items() if name != "launch"}),
        line(WHOLE | {"colour": "blue"}),
        line(WHOLE | {"is": ["end"]}),
        line(WHOLE | {"is": "fault"}),
    ],
)
def test_a_foreign_line_is_an_error_with_its_number(foreign: str, tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    write(path, [start("stock"), sample()])
    with path.open("a", encoding="utf-8") as sink:
        sink.write(f"{foreign}\n{line(WHOLE)}\n")
    with pytest.raises(RecordError, match=r"samples\.jsonl, line 3"):
        read_entries(path, KINDS)


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "-Infinity", "0.0", "-0.25", '"0.25"'])
def test_a_sample_with_a_time_that_is_none_is_an_error(seconds: str, tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    write(path, [sample(), sample(position=1, wall_s=0.125)])
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"wall_s":0.125', f'"wall_s":{seconds}'), encoding="utf-8")
    with pytest.raises(RecordError, match="line 2 "):
        read_entries(path, KINDS)


@pytest.mark.parametrize("name", ["wall_s", "elapsed_s", "cpu_s", "canary_s"])
@pytest.mark.parametrize("seconds", [0.0, -0.25, math.nan, math.inf, -math.inf])
def test_a_time_that_is_no_positive_number_is_refused(name: str, seconds: float) -> None:
    with pytest.raises(SampleError, match=rf"tuned: .* {name} is "):
        sample("tuned", **{"wall_s": 0.25, "elapsed_s": 0.25, name: seconds})


@pytest.mark.parametrize("steps", [0, -1])
def test_a_sample_without_steps_is_refused(steps: int) -> None:
    with pytest.raises(SampleError, match=f"tuned: invalid sample: steps is {steps}"):
        sample("tuned", steps=steps)


# --- a sample's own time --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("meters", "own_s"),
    [
        ({"cpu_s": 0.25, "busy_s": 0.25}, 0.25),
        ({"cpu_s": 0.20, "busy_s": 0.25}, 0.20),  # another process had the CPU
        ({"cpu_s": 0.20, "busy_s": 0.20, "steal_s": 0.05}, 0.20),  # the hypervisor had it
        ({"cpu_s": 0.20, "busy_s": 0.20}, 0.25),  # nobody had it: the worker waited
        ({"cpu_s": 0.15, "busy_s": 0.20}, 0.20),  # both
        ({"cpu_s": 0.24, "busy_s": 0.24}, 0.24),  # a tick is too little to tell
        ({"cpu_s": 0.24, "busy_s": 0.27, "steal_s": 0.01}, 0.24),  # ticks too many
        ({"cpu_s": 0.26, "busy_s": 0.25}, 0.25),
    ],
)
def test_on_one_cpu_a_sample_takes_what_it_used_and_what_it_waited_for(
    meters: dict[str, float], own_s: float
) -> None:
    timed_sample = sample(STOCK.name, vcpus=1, wall_s=0.25, steps=10, **meters)
    assert list_step_seconds([timed_sample]) == pytest.approx([own_s / 10])


def test_an_epoch_of_fit_takes_what_the_wall_clock_says() -> None:
    """0.1 s of its wall time it waited for its data, and the CPU was busy as long between epochs:
    what it waited must not vanish."""
    epochs = {"vcpus": 1, "phase": FIT, "beside_s": 0.2}
    stock = sample(STOCK.name, wall_s=0.25, cpu_s=0.15, busy_s=0.25, **epochs)
    tuned = sample(TUNED.name, wall_s=0.175, cpu_s=0.075, busy_s=0.175, **epochs)
    assert list_step_seconds([stock]) == pytest.approx([0.25 / stock.steps])
    assert list_step_seconds([tuned]) == pytest.approx([0.175 / tuned.steps])


def test_slices_share_what_the_sample_waited_for() -> None:
    """0.05 s in 0.25: the CPU had nothing to do."""
    slices = ((0.6, 0.1, 0.08), (0.4, 0.15, 0.12))
    meters = {"wall_s": 0.25, "cpu_s": 0.2, "busy_s": 0.2, "slices": slices, "steps": 10}
    alone, several = (sample(STOCK.name, vcpus=count, **meters) for count in (1, 2))
    assert list_step_seconds([alone]) == pytest.approx([0.1 / 6, 0.14 / 4])
    assert list_step_seconds([several]) == pytest.approx([0.1 / 6, 0.15 / 4])
    used = dataclasses.replace(alone, busy_s=0.25)
    assert list_step_seconds([used]) == pytest.approx([0.08 / 6, 0.12 / 4])


def idle(*idle_ms: float) -> list[Sample]:
    """Samples of 10 steps and 0.2 s of CPU time, in which another process had 0.03 s."""
    return [
        sample(STOCK.name, vcpus=1, wall_s=0.23 + ms / 1000, cpu_s=0.2, busy_s=0.23, steps=10)
        for ms in idle_ms
    ]


@pytest.mark.parametrize(
    ("samples", "waited_s"),
    [
        (idle(*[15.0] * 4), 0.015),  # one sample would not show it
        (idle(*[15.0] * 1), 0.0),
        (idle(*[4.0] * 16), 0.0),  # a tick is too little to tell
        (idle(*[6.0] * 16), 0.006),
        (idle(12, 18, 22, 28), 0.02),  # what ticks make of it differs from sample to sample
        (idle(0, 0, 0, 40), 0.0),  # a pause that the hypervisor does not report
        (idle(), math.inf),
    ],
)
def test_the_more_samples_the_better_is_known_what_they_waited_for(
    samples: list[Sample], waited_s: float
) -> None:
    assert estimate_waited_s(samples) == pytest.approx(waited_s)
    expected = [pytest.approx((0.2 + waited_s) / 10)] * len(samples)
    assert list_step_seconds(samples) == expected


def test_a_sample_without_slices_is_one() -> None:
    timed_sample = sample(STOCK.name, wall_s=0.25, steps=10)
    assert list_step_seconds([timed_sample]) == [0.025]


@pytest.mark.parametrize("wrong", [(0.0, 0.1, 0.1), (0.5, -0.1, 0.1), (0.5, 0.1, math.nan)])
def test_a_slice_that_is_none_is_refused(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(SampleError, match="tuned: a slice of a sample"):
        sample("tuned", wall_s=0.25, slices=((0.5, 0.1, 0.1), wrong))


@given(
    cpu_s=st.floats(1e-3, 2), busy_s=st.floats(0, 2), steal_s=st.floats(0, 2), many=st.booleans()
)
def test_a_sample_took_no_longer_than_the_wall_clock_says(
    cpu_s: float, busy_s: float, steal_s: float, many: bool
) -> None:
    meters = {"wall_s": 0.25, "cpu_s": cpu_s, "busy_s": busy_s, "steal_s": steal_s}
    timed_sample = sample(STOCK.name, vcpus=2 if many else 1, steps=1, **meters)
    (own_s,) = list_step_seconds([timed_sample])
    assert (0.25 if many else min(0.25, cpu_s)) <= own_s <= 0.25
