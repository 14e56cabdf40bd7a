"""A real program profiled, and its ops timed, in the stock TensorFlow's environment."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.builders.installed_wheel import Tried
from tests.builders.own_cpu import OwnCpu

from tfbench.arms.arm import Arm
from tfbench.inside.call_sites import CallSite, CallSiteInput
from tfbench.inside.timing import BY_ROWS
from tfbench.kernels.profiles import (
    Profile,
    ProfiledProgram,
    RankedCallSite,
    profile_program,
    rank_call_sites,
)
from tfbench.kernels.selecting import match_call_sites
from tfbench.kernels.timings import (
    Bench,
    TimingStage,
    group_series,
    read_known_lines,
    time_call_sites,
)
from tfbench.kernels.wheel_kernels import read_wheel_kernels
from tfbench.options import parse_subject
from tfcore.comparisons.host import read_host
from tfcore.errors import RecordError, UsageError
from tfcore.records import hash_record

pytestmark = pytest.mark.toolchain

FLOAT, INT32 = 1, 3
PROGRAM = """
import tensorflow as tf

def build():
    new = tf.keras.layers
    layers = [new.Dense(8), new.Reshape((2, 4)), new.Activation("tanh")]
    model = tf.keras.Sequential([tf.keras.Input((6,)), *layers])
    model.compile(optimizer="sgd", loss="mse")
    return model
"""


def arm(name: str, python: Path) -> Arm:
    return Arm(name=name, python=python, label=name)


@pytest.fixture(scope="module")
def program(stock_python: Path, tmp_path_factory: pytest.TempPathFactory) -> ProfiledProgram:
    folder = tmp_path_factory.mktemp("profile")
    file = folder / "small.py"
    file.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    stock = arm("stock", stock_python)
    return profile_program(
        stock, parse_subject(str(file)), read_host().affinity[:1], steps=3, logs=folder
    )


@pytest.fixture(scope="module")
def every(program: ProfiledProgram) -> tuple[RankedCallSite, ...]:
    return rank_call_sites(
        Profile(made="2026-01-01", cpu="here", release="2.14.1", vcpus=1, programs=(program,))
    )


@pytest.fixture
def bench(stock_python: Path, tmp_path: Path) -> Bench:
    """Stock against itself."""
    return Bench(
        stock=arm("stock", stock_python),
        tuned=arm("tuned", stock_python),
        cpus=read_host().affinity,
        out=tmp_path,
    )


def of(op: str, sites: tuple[RankedCallSite, ...]) -> RankedCallSite:
    return next(ranked for ranked in sites if ranked.place.op == op)


def stage(launches: int) -> TimingStage:
    return TimingStage(name="search", launches=launches, budget_s=None, seed=1)


def test_a_place_has_types_shapes_and_constants(every: tuple[RankedCallSite, ...]) -> None:
    tanh = of("Tanh", every).place
    assert tanh.types == {"T": (FLOAT,)}
    assert tanh.inputs == (CallSiteInput(dtype="float", shape=(32, 2, 4)),)
    reshaped = [ranked.place for ranked in every if ranked.place.op == "Reshape"]
    assert (32, 2, 4) in {call_site.inputs[1].values for call_site in reshaped}


def test_a_place_knows_what_a_variable_holds(every: tuple[RankedCallSite, ...]) -> None:
    read = {ranked.place.inputs[0] for ranked in every if ranked.place.op == "ReadVariableOp"}
    assert CallSiteInput(dtype="float", shape=(6, 8), variable=True) in read


@pytest.mark.slow
def test_ops_that_end_or_refuse_are_left_out_and_the_others_timed(
    every: tuple[RankedCallSite, ...], bench: Bench
) -> None:
    fatal = CallSite(op="Abort", attributes={"error_msg": 's: "over"'})
    refused = CallSite(op="Tanh", types={"T": (FLOAT,)}, inputs=(CallSiteInput(dtype="opaque"),))
    bad = [
        RankedCallSite(key=hash_record(p), place=p, share=0.1, most=0.1, call_s=1e-5)
        for p in (fatal, refused)
    ]
    good = [of("Tanh", every), of("ReadVariableOp", every)]
    lines = time_call_sites(bench, stage(2), {1: [*good, *bad]}, lambda *_: None)
    series, reasons = group_series(lines)
    assert {key for key, _ in series} == {ranked.key for ranked in good}
    assert "worker failed" in reasons[bad[0].key]
    assert "cannot be created" in reasons[bad[1].key]
    for times in series.values():
        assert len(times.stock) == len(times.again) == len(times.tuned) == 2
        assert 1e-8 < times.stock_s < 1e-2


def of_numbers(op: str, types: Sequence[str], *inputs: CallSiteInput) -> RankedCallSite:
    kinds = {"T": (FLOAT,), **dict.fromkeys(types, (INT32,))}
    site = CallSite(op=op, types=kinds, inputs=inputs)
    return RankedCallSite(key=hash_record(site), place=site, share=0.1, most=0.1, call_s=1e-5)


@pytest.mark.slow
def test_variables_are_updated_by_rows_and_as_a_whole(bench: Bench) -> None:
    table = CallSiteInput(dtype="float", shape=(40, 5), variable=True)
    rows = (CallSiteInput(dtype="int32", shape=(3,)), CallSiteInput(dtype="float", shape=(3, 5)))
    types = {"dtype": (FLOAT,), "Tindices": (INT32,)}
    paths = [
        CallSite(op="ResourceScatterAdd", types=types, inputs=(table, *rows)),
        CallSite(
            op="AssignSubVariableOp",
            types={"dtype": (FLOAT,)},
            attributes={BY_ROWS: "b: true"},
            inputs=(table, CallSiteInput(dtype="float", shape=(40, 5))),
        ),
    ]
    ranked_call_sites = [
        RankedCallSite(key=hash_record(p), place=p, share=0.1, most=0.1, call_s=1e-5) for p in paths
    ]
    series, reasons = group_series(
        time_call_sites(bench, stage(2), {1: ranked_call_sites}, lambda *_: None)
    )
    assert reasons == {}
    assert {key for key, _ in series} == {ranked.key for ranked in ranked_call_sites}


@pytest.mark.slow
def test_nothing_is_made_up_that_decides_how_much_is_computed(bench: Bench) -> None:
    """Fill with a shape of run time is left out; a constant keeps its own shape, Pad's two rows."""
    scalar, square = CallSiteInput(dtype="float"), CallSiteInput(dtype="float", shape=(4, 4))
    open_shape = CallSiteInput(dtype="int32", shape=(2,))
    rows = CallSiteInput(dtype="int32", shape=(2, 2), values=(0, 1, 1, 0))
    unknown = of_numbers("Fill", ["index_type"], open_shape, scalar)
    known = dataclasses.replace(open_shape, values=(3, 4))
    good = [
        of_numbers("Fill", ["index_type"], known, scalar),
        of_numbers("Pad", ["Tpaddings"], square, rows),
        of_numbers("FloorMod", ["T"], *[CallSiteInput(dtype="int32", shape=(7,))] * 2),
    ]
    series, reasons = group_series(
        time_call_sites(bench, stage(2), {1: [unknown, *good]}, lambda *_: None)
    )
    assert {key for key, _ in series} == {ranked.key for ranked in good}
    assert reasons == {unknown.key: "the values of input 0 (dims) are known only at run time"}


@pytest.mark.slow
def test_a_run_goes_on_where_it_was_killed(every: tuple[RankedCallSite, ...], bench: Bench) -> None:
    expected = {1: [of("Tanh", every), of("Reshape", every)]}
    time_call_sites(bench, stage(1), expected, lambda *_: None)
    first, second = read_known_lines(bench)
    content = bench.journal.read_bytes()
    bench.journal.write_bytes(content[: content.index(b"\n") + 20])
    time_call_sites(bench, stage(1), expected, lambda *_: None)
    line, again = read_known_lines(bench)
    assert line == first
    assert (again.key, again.launch) == (second.key, second.launch)
    assert again.stock != second.stock
    before = bench.journal.read_bytes()
    time_call_sites(bench, stage(1), expected, lambda *_: None)
    assert bench.journal.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def build():\n    return 3\n", "returns int, not a tf.keras model"),
        ("def build():\n    return (\n", "line 2: SyntaxError"),
        ("import nothing_of_the_kind\n", "line 1: ModuleNotFoundError"),
    ],
)
def test_a_file_that_cannot_be_trained_is_the_users_error(
    text: str, expected: str, stock_python: Path, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=expected) as caught:
        profile_program(
            arm("stock", stock_python), parse_subject(str(file)), (0,), steps=1, logs=tmp_path
        )
    assert caught.value.message.startswith(f"{file}: ")
    assert "\n" not in caught.value.message


def test_a_wheel_says_which_places_it_serves_and_from_which_unit(
    native: Tried, every: tuple[RankedCallSite, ...], own_cpu: OwnCpu
) -> None:
    wheel_kernels = read_wheel_kernels(native.built.wheel, own_cpu.cpu)
    (served,) = (
        site for site in match_call_sites(wheel_kernels, every) if site.site.place.op == "Tanh"
    )
    rare = tuple(dataclasses.replace(ranked, most=0.0) for ranked in every)
    assert match_call_sites(wheel_kernels, rare) == ()
    assert wheel_kernels.units[served.choice] == "cwise_op_tanh"
    assert wheel_kernels.recipes.keys() >= {"cwise_op_tanh"}


def test_a_wheel_without_its_manifest_offers_nothing(
    native: Tried, own_cpu: OwnCpu, tmp_path: Path
) -> None:
    moved = tmp_path / native.built.wheel.name
    moved.symlink_to(native.built.wheel)
    with pytest.raises(RecordError, match="cannot read"):
        read_wheel_kernels(moved, own_cpu.cpu)
