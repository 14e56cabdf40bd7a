"""Strategies on several devices: what is asked, what is computed from answers, and how it reads.
No TensorFlow runs here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.journals import HOST

from tfbench.arms.arm import TOLERANCE
from tfbench.commands import StrategiesOptions
from tfbench.experiments.articles import QUICK
from tfbench.experiments.cell import CellResult, Outcome
from tfbench.experiments.experiment import Wheel
from tfbench.experiments.strategies import published, text
from tfbench.experiments.strategies.matrix import (
    NETS,
    Matrix,
    is_comparable,
    list_cells,
    parse_options,
)
from tfbench.experiments.strategies.results import (
    Advice,
    Figures,
    Parity,
    StrategiesResult,
    apply_rule,
    build_advice,
    build_rows,
    compare_steps,
)
from tfbench.experiments.strategies.strategy import NAMES, StrategyFamily, compute_traffic
from tfbench.inside import replicas
from tfbench.inside.groups import (
    CENTRAL,
    CPU,
    GPU,
    HIERARCHICAL,
    INDEPENDENT,
    NCCL,
    ONE_DEVICE,
    REFERENCE,
    RING,
    SERVER,
    STRATEGIES,
)
from tfbench.inside.replicas import (
    assign_copies,
    assign_shards,
    choose_step_count,
    find_device_count_problem,
    find_gradient_problem,
    find_hardware_problem,
)
from tfbench.reports import page, report
from tfbench.reports.document import BulletList
from tfcore.comparisons.interval import Interval
from tfcore.errors import RecordError, SampleError
from tfcore.records import convert_record
from tfcore.settings import ROOT

NET = "alexnet:image=64:batch=16"
BATCH = 16
LOSSES = [6.9, 6.8, 6.7]


def matrix(**changed: Any) -> Matrix:
    whole: dict[str, Any] = {
        "strategies": NAMES,
        "workloads": (NET,),
        "devices": (2,),
        "kind": replicas.AUTO,
        "launches": 3,
        "seconds": 1.0,
        "seed": 1,
    }
    return Matrix(**whole | changed)


def cell(
    strategy: str,
    devices: int,
    step_s: tuple[float, ...] = (0.5, 0.5),
    outcome: Outcome = Outcome.OK,
    **changed: Any,
) -> CellResult:
    """Each launch with steps of that many seconds, two of them."""
    answer: dict[str, Any] = {
        "device": CPU,
        "batch": BATCH,
        "parameters": 1_000_000,
        "trainable_bytes": 4_000_000,
        "variables_on": ["CPU:0"],
        "sums": [devices * (devices + 1) / 2],
        "losses": LOSSES,
        "moved": 0.25,
        "peak_mb": 512.0,
    }
    answers = [{**answer, "step_s": [value, value]} | changed for value in step_s]
    ok = outcome is Outcome.OK
    return CellResult(
        place={"arm": "stock", "workload": NET, "strategy": strategy, "devices": devices},
        outcome=outcome,
        reason="" if ok else "because",
        answers=tuple(answers) if ok else (),
    )


def result(*cell_results: CellResult, **changed: Any) -> StrategiesResult:
    whole: dict[str, Any] = {
        "made": "2026-01-02T03:04:05+00:00",
        "host": HOST,
        "vcpus": (0, 1),
        "arms": (Wheel(arm="stock", label="tensorflow-cpu 2.14.1", wheel_sha256="0" * 64),),
        "matrix": matrix(),
        "tolerance": TOLERANCE,
        "rows": build_rows(cell_results),
    }
    return StrategiesResult(**whole | changed)


# ---- what is asked ----


def test_the_defaults_are_all_strategies_on_one_device_and_two() -> None:
    options = parse_options(StrategiesOptions())
    assert options.strategies == STRATEGIES
    assert options.devices == (1, 2)
    assert options.workloads == NETS


def test_one_device_alone_is_always_measured() -> None:
    options = parse_options(QUICK["strategies"])
    assert options.places[0] == (INDEPENDENT, 1)
    assert {number for _, number in options.places[1:]} == {2}
    assert matrix(devices=(1,), strategies=(INDEPENDENT,)).places == ((INDEPENDENT, 1),)


def test_references_are_there_for_what_has_one() -> None:
    assert matrix(devices=(1, 2, 4), strategies=(RING,)).references == (1, 2, 4)
    assert matrix(devices=(2,), strategies=(SERVER, INDEPENDENT)).references == (1,)
    assert is_comparable(SERVER, 1)
    assert not is_comparable(SERVER, 2)
    assert not is_comparable(INDEPENDENT, 2)


def test_every_launch_is_a_cell_of_its_own_and_the_first_is_checked() -> None:
    cells = list_cells(matrix(), ["stock", "tuned"], (0, 1))
    assert len({cell.key for cell in cells}) == len(cells)
    # Per arm: one device alone and seven strategies in three launches, references for 1 and 2.
    assert len(cells) == 2 * (8 * 3 + 2)
    assert all(cell.request["checked"] == (cell.launch == 0) for cell in cells)
    assert all(cell.launch == 0 for cell in cells if cell.request["strategy"] == REFERENCE)


def test_only_cells_on_cpus_hide_the_gpus() -> None:
    assert all(cell.env == () for cell in list_cells(matrix(kind="cpu"), ["stock"], (0,)))
    assert all(
        cell.env == (("CUDA_VISIBLE_DEVICES", "2,3"),)
        for cell in list_cells(matrix(kind="gpu"), ["stock"], (0,), "2,3")
    )


# ---- what a worker refuses, and how it deals out batches ----


@given(st.sampled_from(STRATEGIES), st.integers(1, 64))
def test_only_hierarchical_on_an_odd_number_is_refused(strategy: str, devices: int) -> None:
    odd = strategy == HIERARCHICAL and devices % 2 == 1 and devices > 1
    assert bool(find_device_count_problem(strategy, devices)) == odd


@pytest.mark.parametrize(
    ("strategy", "kind", "devices", "gpus", "message"),
    [
        (NCCL, CPU, 2, 0, "needs GPUs; on CPUs use ring"),
        (NCCL, GPU, 2, 2, ""),
        (RING, GPU, 4, 2, "4 GPUs requested, but TensorFlow detects 2"),
        (RING, CPU, 4, 0, ""),
        (SERVER, GPU, 1, 1, "cannot use a GPU each"),
        (SERVER, CPU, 4, 0, ""),
    ],
)
def test_what_a_machine_lacks(
    strategy: str, kind: str, devices: int, gpus: int, message: str
) -> None:
    hardware_problem = find_hardware_problem(strategy, kind, devices, gpus)
    assert message in hardware_problem if message else hardware_problem == ""


def test_a_lost_gradient_is_noticed() -> None:
    assert find_gradient_problem([6.0], [6.0]) == ""
    assert "is 3, not 6" in find_gradient_problem([3.0], [6.0])
    assert find_gradient_problem([5.0, 6.0], [6.0])  # only one replica has it all
    assert find_gradient_problem([6.0], [1.0, 2.0, 3.0])  # independent ones that are not


def test_replicas_get_different_batches_as_long_as_there_are_some() -> None:
    assert assign_shards(2, 32) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert assign_shards(3, 4) == [[0, 1, 2]]
    assert assign_shards(4, 1) == [[0, 0, 0, 0]]
    assert assign_copies(3, 2) == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize(("seconds", "step_s", "steps"), [(1, 0.1, 10), (1, 9, 5), (1, 1e-4, 100)])
def test_steps_fit_into_the_time(seconds: float, step_s: float, steps: int) -> None:
    assert choose_step_count(seconds, step_s) == steps


# ---- bytes moved ----


@given(st.integers(1, 64), st.integers(1, 10**9))
def test_a_ring_loads_every_device_alike(devices: int, size: int) -> None:
    traffic = compute_traffic(RING, devices, size, apart=False)
    assert traffic.busiest * devices == pytest.approx(2 * traffic.total)
    assert traffic == compute_traffic(NCCL, devices, size, apart=False)


@pytest.mark.parametrize(
    ("strategy", "apart", "total", "busiest"),
    [
        (RING, False, 6, 3),
        (ONE_DEVICE, False, 6, 6),
        (ONE_DEVICE, True, 8, 8),
        (HIERARCHICAL, False, 6, 4),
        (CENTRAL, False, 6, 6),
        (CENTRAL, True, 8, 8),
        (SERVER, False, 8, 8),
        (INDEPENDENT, False, 0, 0),
    ],
)
def test_bytes_on_four_devices(strategy: str, apart: bool, total: float, busiest: float) -> None:
    traffic = compute_traffic(strategy, 4, 1000, apart=apart)
    assert (traffic.total, traffic.busiest) == (1000 * total, 1000 * busiest)


def test_one_device_exchanges_with_nobody_but_a_server() -> None:
    moved = {name: compute_traffic(name, 1, 1000, apart=False).total for name in STRATEGIES}
    assert moved == dict.fromkeys(STRATEGIES, 0.0) | {SERVER: 2000.0}
    with pytest.raises(ValueError, match="rign"):
        compute_traffic("rign", 2, 1000, apart=False)


# ---- what is made of answers ----


def figures(*cell_results: CellResult) -> list[Figures]:
    return [row.figures for row in result(*cell_results).rows if row.figures]


def value(interval: Interval | None) -> float:
    assert interval
    return interval.value


def test_rates_shares_and_efficiency() -> None:
    alone, bound, ring = figures(
        cell(INDEPENDENT, 1, (0.25, 0.25, 0.25)),
        cell(INDEPENDENT, 2, (0.4, 0.4, 0.4)),
        cell(RING, 2, (0.5, 0.5, 0.5)),
    )
    assert alone.rate.value == pytest.approx(BATCH / 0.25)
    assert ring.rates == pytest.approx([2 * BATCH / 0.5] * 3)
    assert value(ring.share) == pytest.approx(0.4 / 0.5)
    assert value(ring.efficiency) == pytest.approx(0.25 / 0.5)
    assert (ring.own, bound.own) == (False, True)
    assert ring.traffic.total == 2 * 4_000_000


def test_efficiency_is_of_the_own_strategy_where_it_was_measured_alone() -> None:
    *_, ring = figures(
        cell(INDEPENDENT, 1, (0.25, 0.25)), cell(RING, 1, (0.3, 0.3)), cell(RING, 2, (0.5, 0.5))
    )
    assert ring.own
    assert value(ring.efficiency) == pytest.approx(0.3 / 0.5)
    assert ring.share is None


def test_a_machine_that_is_slow_for_a_while_does_not_widen_a_ratio() -> None:
    """Launches of one number are near each other in time."""
    _, ring = figures(cell(INDEPENDENT, 2, (0.4, 0.8, 0.4)), cell(RING, 2, (0.5, 1.0, 0.5)))
    assert ring.share
    assert ring.share.half_width < 1e-9 < ring.rate.half_width


def test_a_marked_cell_has_a_reason_and_takes_no_part() -> None:
    strategies_result = result(
        cell(INDEPENDENT, 2, outcome=Outcome.FAILED),
        cell(RING, 2),
        cell(NCCL, 2, (), Outcome.NOT_HERE),
    )
    failed, ring, nccl = strategies_result.rows
    assert failed.figures is None
    assert nccl.reason == "because"
    assert ring.figures
    assert ring.figures.share is None


def test_times_that_are_none_are_refused() -> None:
    with pytest.raises(SampleError):
        build_rows([cell(RING, 2, (0.5, -0.5))])


# ---- parity ----


def parity(strategy: str, devices: int, *cells: CellResult, **changed: Any) -> tuple[Parity, Any]:
    *_, last = figures(*cells, cell(strategy, devices, **changed))
    return last.parity, last.apart


def test_first_steps_are_held_to_one_device_with_the_whole_batch() -> None:
    reference = cell(REFERENCE, 2)
    assert parity(RING, 2, reference) == (Parity.SAME, 0.0)
    near = parity(RING, 2, reference, moved=0.25 * (1 + TOLERANCE / 2))
    assert near[0] is Parity.SAME
    assert near[1] == pytest.approx(TOLERANCE / 2)
    assert parity(RING, 2, reference, moved=0.25 * 2 / 3)[0] is Parity.DIFFERENT
    assert parity(RING, 2, reference, losses=[6.9, None, 6.7]) == (Parity.DIFFERENT, None)
    assert parity(RING, 2, reference, losses=[6.9, 6.8, 6.6])[0] is Parity.DIFFERENT


def test_what_has_no_reference_says_why() -> None:
    reference = cell(REFERENCE, 2)
    assert parity(SERVER, 2, reference) == (Parity.ASYNCHRONOUS, None)
    assert parity(INDEPENDENT, 2, reference) == (Parity.APART, None)
    assert parity(RING, 2) == (Parity.UNKNOWN, None)
    failed = cell(REFERENCE, 2, outcome=Outcome.FAILED)
    assert parity(RING, 2, failed) == (Parity.UNKNOWN, None)
    assert parity(SERVER, 1, cell(REFERENCE, 1)) == (Parity.SAME, 0.0)


def test_zero_against_zero_is_the_same() -> None:
    assert compare_steps([0.0], [0.0]) == (Parity.SAME, 0.0)
    assert compare_steps([1e-9], [0.0])[0] is Parity.DIFFERENT


# ---- published figures ----


def test_published_efficiency() -> None:
    reference = published.read_published()
    inception = reference.find_model("inception_v3:image=128:batch=8")
    assert inception
    assert inception.compute_efficiency(8) == pytest.approx(1131 / (8 * 142))
    assert round(inception.compute_efficiency(8), 3) == 0.996
    efficiency = {model.name: round(model.compute_efficiency(8), 3) for model in reference.models}
    assert efficiency == {
        "InceptionV3": 0.996,
        "ResNet-50": 0.990,
        "ResNet-152": 0.975,
        "AlexNet": 0.746,
        "VGG16": 0.877,
    }
    assert reference.find_model("iris_mlp") is None


def test_published_nets_change_over_where_parameters_outweigh_computing() -> None:
    """The rule of the articles, in their own figures: no net stands on the wrong side."""
    reference = published.read_published()
    low, high = reference.split
    assert low < high
    for model in reference.models:
        assert apply_rule(model.intensity, reference.split) is model.family
    assert apply_rule(math.sqrt(low * high), reference.split) is None


@pytest.mark.parametrize("content", ["", "devices = [1]", "devices = 1 2", "model = 3"])
def test_a_broken_table_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "table.toml"
    path.write_text(content)
    with pytest.raises(RecordError, match=r"table\.toml"):
        published.read_published(path)
    with pytest.raises(RecordError, match=r"none\.toml"):
        published.read_published(tmp_path / "none.toml")


# ---- advice ----

QUIET = (0.25, 0.2501, 0.2499)


def scaled(factor: float) -> tuple[float, ...]:
    return tuple(value * factor for value in QUIET)


def advice(times: Mapping[str, tuple[float, ...]], **changed: Any) -> tuple[Advice, ...]:
    """On two devices, with one device alone and a reference."""
    strategies_result = result(
        cell(REFERENCE, 2),
        cell(INDEPENDENT, 1, QUIET, **changed),
        *(cell(name, 2, time, **changed) for name, time in times.items()),
    )
    return build_advice(strategies_result, published.read_published())


def test_the_fastest_synchronous_strategy_is_best() -> None:
    (advice_row,) = advice({RING: scaled(1.0), CENTRAL: scaled(1.2), INDEPENDENT: scaled(0.5)})
    assert advice_row.best == RING
    assert advice_row.sure
    assert advice_row.lead
    assert advice_row.lead.value == pytest.approx(1.2)
    assert advice_row.intensity == pytest.approx(4_000_000 / 0.25, rel=1e-3)
    assert advice_row.rule is StrategyFamily.PARAMETER_SERVER
    assert advice_row.agrees is False


def test_what_is_not_told_apart_is_said() -> None:
    (advice_row,) = advice({RING: (0.2, 0.3, 0.25), CENTRAL: (0.3, 0.2, 0.25)})
    assert not advice_row.sure
    assert len(advice_row.tied) == 1
    assert advice_row.agrees is None


def test_many_parameters_ask_for_an_all_reduce() -> None:
    (advice_row,) = advice({RING: scaled(1.0), CENTRAL: scaled(1.2)}, trainable_bytes=4_000_000_000)
    assert advice_row.rule is StrategyFamily.ALL_REDUCE
    assert advice_row.agrees is True


def test_an_asynchronous_strategy_is_named_but_not_best() -> None:
    (advice_row,) = advice({RING: scaled(1.0), SERVER: scaled(0.5)})
    assert (advice_row.best, advice_row.faster) == (RING, SERVER)
    assert advice_row.lead is None


def test_no_advice_rests_on_wrong_updates() -> None:
    wrong = cell(CENTRAL, 2, scaled(0.5), moved=0.1)
    right = cell(RING, 2, scaled(1.0))
    strategies_result = result(cell(REFERENCE, 2), wrong, right)
    (only,) = build_advice(strategies_result, published.read_published())
    assert only.best == RING
    assert only.intensity is None
    assert any("advice does not use" in line for line in text.list_warnings(strategies_result))
    assert build_advice(result(cell(REFERENCE, 2), wrong), published.read_published()) == ()


# ---- how it reads ----


def whole() -> StrategiesResult:
    return result(
        cell(REFERENCE, 2),
        cell(INDEPENDENT, 1, QUIET),
        cell(CENTRAL, 2, scaled(1.2)),
        cell(RING, 2, scaled(1.0)),
        cell(NCCL, 2, (), Outcome.NOT_HERE),
        cell(INDEPENDENT, 2, scaled(0.9)),
    )


def test_the_terminal_shows_figures_marks_and_the_answer() -> None:
    shown = text.build_table(whole()).format_text(colour=False)
    assert "logical" in shown
    assert "nccl on 2 devices, alexnet:image=64:batch=16: not here" in shown
    assert "ring is the fastest, 1.200x" in shown
    assert "AlexNet on 2 P100 (all-reduce): efficiency 0.947" in shown


def test_on_gpus_nothing_is_said_of_logical_devices() -> None:
    strategies_result = result(
        cell(RING, 2, QUIET, device="NVIDIA H100"), matrix=matrix(kind="gpu")
    )
    assert "logical" not in text.build_table(strategies_result).format_text(colour=False)


def test_several_arms_have_a_column() -> None:
    strategies_result = whole()
    tuned = Wheel(arm="tuned", label="tuned", wheel_sha256="")
    two = dataclasses.replace(strategies_result, arms=(*strategies_result.arms, tuned))
    heads = [
        text.build_table(measured_strategies).format_text(colour=False).splitlines()[1].split()[0]
        for measured_strategies in (strategies_result, two)
    ]
    assert heads == ["workload", "arm"]


def test_the_report_has_the_published_table_and_the_figures(tmp_path: Path) -> None:
    strategies_result = whole()
    document = text.build_document(strategies_result)
    shown = report.render_markdown(document, ROOT / "templates")
    assert "| InceptionV3 | parameter server | 142 | 284 | 569 | 1131 |" in shown
    assert "0.996" in shown
    drawn = tuple(text.draw_figures(strategies_result))
    assert len({figure.key for figure in drawn}) == len(drawn) == 2
    html = page.render_html(document, {text.KEY: drawn}, ROOT / "templates")
    assert html.count("<svg") == 2
    assert "not here" in html


def test_among_other_experiments_the_answers_are_in_the_section() -> None:
    section = text.build_section(whole())
    (first, *_) = section.blocks
    assert isinstance(first, BulletList)
    assert any("ring is the fastest" in item for item in first.items)
    assert section.key == text.KEY


def test_the_record_is_plain() -> None:
    fields = convert_record(whole())
    assert fields["schema"] == 1
    assert fields["rows"][1]["figures"]["parity"] == "same"
    assert fields["matrix"]["strategies"] == list(NAMES)
