"""Imports timed against each other: what is made of launches, and launches of a small program."""

from __future__ import annotations

import dataclasses
import math
import sys
import textwrap
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.journals import HOST

from tfbench.arms.arm import Arm
from tfbench.commands import StartupOptions
from tfbench.engine.schedule import draw_block_order
from tfbench.experiments.import_launches import ImportLaunch, Launcher, Turn
from tfbench.experiments.startup import (
    LIMIT,
    SCHEMA,
    ImportOverhead,
    ImportSpec,
    ImportVerdict,
    Startup,
    build_startup,
    build_table,
    choose_import_verdict,
    compute_overhead,
    measure,
    measure_startup,
    select_blocks,
)
from tfcore import records
from tfcore.comparisons.host import read_host
from tfcore.comparisons.interval import Interval
from tfcore.errors import RecordError, SampleError, UsageError, WorkerError
from tfcore.run import run

STOCK, REPEAT, TUNED = "stock", "stock again", "tuned"
QUIET = ImportLaunch(
    arm=STOCK,
    block=0,
    position=0,
    import_s=1.0,
    process_s=1.2,
    cpu_s=1.2,
    busy_s=1.2,
    steal_s=0.0,
    throttled_s=0.0,
    switches=3,
    canary_s=0.001,
)


def launches(ratio: float, rounds: int = 8, noise: float = 0.002) -> list[ImportLaunch]:
    """What would be seen, if tuned took `ratio` times as long to import as stock."""
    chance = Random(1)  # noqa: S311  (no secret)
    actual = []
    for block in range(rounds):
        speed = math.exp(chance.gauss(0, 0.1))  # of the machine, while the block lasts
        for position, arm in enumerate(draw_block_order([STOCK, REPEAT, TUNED], chance)):
            factor = speed * math.exp(chance.gauss(0, noise))
            took = (ratio if arm == TUNED else 1.0) * factor
            actual.append(
                dataclasses.replace(
                    QUIET,
                    arm=arm,
                    block=block,
                    position=position,
                    import_s=took,
                    process_s=took + 0.2 * factor,
                )
            )
    return actual


def of_tuned(ratio: float, noise: float = 0.002) -> ImportOverhead:
    measured = select_blocks(launches(ratio, noise=noise))
    repeat = compute_overhead(measured, STOCK, REPEAT, floor=0.0)
    return compute_overhead(measured, STOCK, TUNED, floor=repeat.imported.reach)


# ---- what is made of launches ----


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (0.9, ImportVerdict.WITHIN),
        (1.0, ImportVerdict.WITHIN),
        (1.03, ImportVerdict.WITHIN),
        (1.077, ImportVerdict.OVER),
    ],
)
def test_a_known_overhead_is_found_and_judged(ratio: float, verdict: ImportVerdict) -> None:
    import_overhead = of_tuned(ratio)
    assert import_overhead.imported.low < ratio < import_overhead.imported.high
    assert import_overhead.imported.half_width < 0.01
    assert import_overhead.verdict is verdict
    assert math.copysign(1, import_overhead.added_s) == math.copysign(1, ratio - 1) or ratio == 1


def test_the_whole_process_takes_less_of_a_difference() -> None:
    tuned = of_tuned(1.1)
    assert 1.07 < tuned.process.low < tuned.process.high < 1.1 < tuned.imported.high


def test_what_lies_on_the_limit_is_not_known() -> None:
    assert of_tuned(1 + LIMIT).verdict is ImportVerdict.INCONCLUSIVE


def test_a_baseline_that_differs_from_itself_judges_nothing() -> None:
    assert of_tuned(1.0, noise=0.2).verdict is ImportVerdict.INCONCLUSIVE


@given(
    value=st.floats(0.5, 2),
    half=st.floats(0, 0.5),
    floor=st.floats(0, 0.2),
    limit=st.floats(0.01, 0.2),
)
def test_a_verdict_needs_the_whole_interval_on_one_side(
    value: float, half: float, floor: float, limit: float
) -> None:
    ratio = Interval(value=value, low=value * math.exp(-half), high=value * math.exp(half))
    verdict = choose_import_verdict(ratio, floor, limit)
    if verdict is ImportVerdict.WITHIN:
        assert ratio.high <= 1 + limit
    if verdict is ImportVerdict.OVER:
        assert ratio.low > 1 + limit
    assert (verdict is ImportVerdict.INCONCLUSIVE) == (
        math.exp(floor) - 1 > limit or ratio.low <= 1 + limit < ratio.high
    )


def disturbed(blocks: int, of: int = 8) -> list[ImportLaunch]:
    """A quota stopped the first blocks."""
    return [
        dataclasses.replace(launch, throttled_s=0.1) if launch.block < blocks else launch
        for launch in launches(1.0, rounds=of)
    ]


def test_a_disturbed_round_does_not_count() -> None:
    measured = select_blocks(disturbed(2))
    assert measured.fair
    assert measured.dropped == (("throttled",),) * 2
    assert {block[0].block for block in measured.blocks} == set(range(2, 8))


def test_where_most_rounds_are_disturbed_nothing_is_said() -> None:
    measured = select_blocks(disturbed(4))
    assert not measured.fair
    assert len(measured.blocks) == 8
    assert compute_overhead(measured, STOCK, TUNED, floor=0.0).verdict is ImportVerdict.INCONCLUSIVE


def test_one_round_gives_no_interval() -> None:
    with pytest.raises(SampleError, match="two launches"):
        compute_overhead(select_blocks(launches(1.0, rounds=1)), STOCK, TUNED, floor=0.0)


# ---- what is said ----


SPEC = ImportSpec(
    host=HOST,
    arms=tuple(Arm(name=name, python=Path("python"), label=name) for name in (STOCK, TUNED)),
    rounds=8,
    seed=1,
)


def startup(ratio: float, *, dropped: int = 0) -> Startup:
    return build_startup(SPEC, tuple(disturbed(dropped) if dropped else launches(ratio)))


def test_the_text_says_how_much() -> None:
    text = build_table(startup(1.02)).format_text(colour=False)
    assert "import tensorflow, 8 rounds on 4 vCPUs, warm caches" in text
    assert "within the limit" in text
    assert "5% of stock (+2." in text
    assert "Disturbed" not in text


@pytest.mark.parametrize(
    ("actual", "line"),
    [
        (startup(1.1), "more than 5% slower than stock (+"),
        (startup(1.05), "It is inconclusive whether"),
        (startup(1.0, dropped=1), "Disturbed rounds do not count: throttled 1."),
        (startup(1.0, dropped=5), "are too many to drop"),
    ],
)
def test_the_text_says_what_is_not_known(actual: Startup, line: str) -> None:
    assert line in build_table(actual).format_text(colour=False)


def test_the_record_is_read_back_whole(tmp_path: Path) -> None:
    written = startup(1.02)
    path = tmp_path / "startup.json"
    records.save(path, written)
    assert records.decode_record(Startup, records.load(path, schema=SCHEMA)) == written


def test_a_record_of_an_older_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "startup.json"
    records.save(path, records.convert_record(startup(1.02)) | {"schema": 1, "loadings": []})
    with pytest.raises(RecordError, match=r"startup\.json has schema 1, but this version reads 2"):
        records.load(path, schema=SCHEMA)


@pytest.mark.parametrize("rounds", ["1", "0", "-3", "many", "1.5"])
def test_too_few_rounds_are_refused(rounds: str) -> None:
    with pytest.raises(UsageError, match=f"--rounds {rounds}"):
        measure_startup(StartupOptions(rounds=rounds), as_json=False)


# ---- processes ----


def arm_with(folder: Path, name: str, program: str, *, tuned: bool = False) -> Arm:
    """An environment whose tensorflow is a small program."""
    run([sys.executable, "-m", "venv", "--without-pip", folder / name])
    (site,) = (folder / name).glob("lib/python*/site-packages")
    (site / "tensorflow").mkdir()
    (site / "tensorflow" / "__init__.py").write_text(textwrap.dedent(program), encoding="utf-8")
    return Arm(name=name, python=folder / name / "bin" / "python", label=name, tuned=tuned)


def turn(arm: Arm) -> Turn:
    return Turn(arm=arm, block=0, position=0, padding=0)


def waits(seconds: float) -> str:
    return f"import time\nprint('TensorFlow talks')\ntime.sleep({seconds})\n"


@pytest.fixture(name="launcher")
def launcher_of_this_test(tmp_path: Path) -> Launcher:
    home = tmp_path / "home"
    home.mkdir()
    return Launcher(home=home)


def test_a_slower_import_is_seen_in_real_processes(tmp_path: Path) -> None:
    arms = (
        arm_with(tmp_path, "stock", waits(0.02)),
        arm_with(tmp_path, "tuned", waits(0.2)),
    )
    spec = ImportSpec(host=read_host(), arms=arms, rounds=3, seed=1)
    actual = measure(spec, tmp_path)
    assert [arm.arm for arm in actual.arms] == [STOCK, REPEAT, TUNED]
    assert len(actual.launches) == 3 * 2 * 3
    orders = [
        [launch.arm for launch in actual.launches if launch.block == block] for block in range(3)
    ]
    assert all(order == order[::-1] for order in orders)
    assert all(0.02 <= launch.import_s < launch.process_s for launch in actual.launches)
    (overhead_of_tuned,) = actual.overheads
    assert overhead_of_tuned.imported.value > 2
    assert overhead_of_tuned.process.value > 1
    assert "tuned" in build_table(actual).format_text(colour=False)
    again = measure(spec, tmp_path)  # (as a run does that was stopped before it wrote its result)
    assert again.launches == actual.launches


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise ImportError('no such library')", r"(?s)arm tuned .*no such library"),
        ("import os\nos._exit(0)", "arm tuned did not report"),
        ("__file__ = '/elsewhere/tensorflow/__init__.py'", "/elsewhere"),
    ],
    ids=["it fails", "it says nothing", "another TensorFlow"],
)
def test_a_process_that_cannot_be_timed_is_an_error(
    tmp_path: Path, launcher: Launcher, program: str, message: str
) -> None:
    arm = arm_with(tmp_path, "tuned", program)
    with pytest.raises(WorkerError, match=message):
        launcher.measure_import(turn(arm))


def test_tuned_kernels_that_did_not_load_are_an_error(tmp_path: Path, launcher: Launcher) -> None:
    arm = arm_with(tmp_path, "tuned", "", tuned=True)
    with pytest.raises(WorkerError, match="stock kernels"):
        launcher.measure_import(turn(arm))


def test_a_tuned_arm_is_timed_once_its_kernels_loaded(tmp_path: Path, launcher: Launcher) -> None:
    program = """
        import mmap, pathlib
        library = pathlib.Path(__file__).parent / "core/kernels/tensorwright/a.so"
        library.parent.mkdir(parents=True, exist_ok=True)
        library.write_bytes(b"kernels")
        with library.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    """
    launcher.warm_caches(arm := arm_with(tmp_path, "tuned", program, tuned=True))
    import_launch = launcher.measure_import(turn(arm))
    assert (import_launch.arm, import_launch.block, import_launch.position) == ("tuned", 0, 0)
