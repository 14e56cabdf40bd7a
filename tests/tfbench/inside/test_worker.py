"""What a worker answers without TensorFlow; the rest is in integration/test_worker.py."""

from __future__ import annotations

import gc
import io
import json
import math
import time

import pytest

from tfbench.inside.worker import (
    SLOWDOWN,
    Trainer,
    detect_threading,
    find_kernel_library,
    pause_garbage_collection,
    replace_nonfinite,
    serve,
)

FOLDER = "/arm/lib/python3.11/site-packages/tensorflow"
STOCK_MAPS = f"""\
55d0c0000000-55d0c0001000 r-xp 00000000 fe:00 131 /usr/bin/python3.11
7f0000000000-7f0000001000 r-xp 00000000 fe:00 132 {FOLDER}/libtensorflow_cc.so.2
7f0000002000-7f0000003000 rw-p 00000000 00:00 0
7f0000004000-7f0000005000 r-xp 00000000 fe:00 133 {FOLDER}/core/kernels/libtfkernel_sobol_op.so
"""
TUNED = f"{FOLDER}/core/kernels/tensorwright/libtensorwright skylake.so"
TUNED_MAPS = f"{STOCK_MAPS}7f0000006000-7f0000007000 r-xp 00000000 fe:00 134 {TUNED}\n"


def answers(*requests: dict[str, object]) -> list[dict[str, object]]:
    stream = io.StringIO()
    serve(io.StringIO("".join(json.dumps(request) + "\n" for request in requests)), stream)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_worker_says_how_much_memory_it_had_and_ends_when_asked() -> None:
    status, end = answers({"do": "status"}, {"do": "quit"}, {"do": "status"})
    assert isinstance(status["peak_mb"], float)
    assert status["peak_mb"] > 1
    assert end == {}


@pytest.mark.parametrize(
    "request_",
    [{"do": "sample", "phase": "train", "steps": 1}, {"do": "check", "steps": 5}, {"do": "dance"}],
)
def test_what_cannot_be_done_now_is_an_error(request_: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"'{request_['do']}'"):
        answers(request_)


def test_the_collector_is_off_in_the_block_only() -> None:
    with pause_garbage_collection():
        within = gc.isenabled()
    assert not within
    assert gc.isenabled()


def test_a_tuned_library_is_seen_in_the_map_of_memory() -> None:
    assert find_kernel_library(STOCK_MAPS) is None
    assert find_kernel_library(TUNED_MAPS) == TUNED


@pytest.mark.parametrize(
    ("library", "threads"),
    [
        ("libtensorflow_cc.so.2", "Eigen"),
        ("libiomp5.so", "OpenMP"),
        ("libgomp-1a2b.so.1.0.0", "OpenMP"),
    ],
)
def test_an_openmp_runtime_is_seen_in_the_map_of_memory(library: str, threads: str) -> None:
    maps = f"{STOCK_MAPS}7f0000008000-7f0000009000 r-xp 00000000 fe:00 135 /lib/{library}\n"
    assert detect_threading(maps) == threads


def test_what_is_no_number_has_a_place_in_json() -> None:
    nonfinite = replace_nonfinite([1.5, math.nan, math.inf, -math.inf])
    assert nonfinite == [1.5, None, None, None]
    assert json.loads(json.dumps(nonfinite, allow_nan=False)) == nonfinite


def test_a_slowed_arm_takes_its_share_of_steps_more(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def step() -> float:
        taken.append("step")
        return 0.5

    trainer = Trainer(
        phases={"train": step},
        restart=step,
        predict=list,
        cpus=frozenset({0}),
        resting=(time.perf_counter(), time.process_time()),
    )
    for share, steps in (("0", 40), ("0.05", 42), ("0.1", 44), ("0.01", 40)):
        monkeypatch.setenv(SLOWDOWN, share)
        taken.clear()
        record = trainer.sample("train", 40)
        assert len(taken) == steps
        assert sum(part for part, _, _ in record["slices"]) == pytest.approx(1)
