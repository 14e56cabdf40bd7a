"""What is fused, in stock TensorFlow: updates leave the bits that its own kernels leave, loops and
products what lies as near to float64."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.builders.compiled_kernels import answered, compiled
from tests.builders.later import later
from tests.builders.own_cpu import OwnCpu

from tfbuild.commands import Request
from tfbuild.native.ops.products import cases as products
from tfbuild.tools.environment import Environment
from tfcore import settings
from tfcore.run import run
from tfcore.settings import Paths

pytestmark = pytest.mark.toolchain

UPDATES, LOOPS, TWO_CPUS, TOGETHER, PRODUCTS, GROUPED, CHAINS, UNNAMED, FOR_XLA = (
    Path(__file__).with_name(name)
    for name in (
        *("updates.py", "loops.py", "two_cpus.py", "together.py"),
        *("products.py", "grouped.py", "chains.py", "unnamed.py", "for_xla.py"),
    )
)
UNIT, LOOPS_UNIT, PRODUCTS_UNIT = "fused/updates", "fused/loops", "fused/products"
GROUPED_UNIT, CHAINS_UNIT = "fused/grouped", "fused/chains"
ROOTS = f"{settings.ROOT / 'build'}{os.pathsep}{settings.ROOT}"
AS_STOCK = {"channelless", "untouched", "compiled"}
"""The cases in which no product is the library's."""
FEW_LOOPS = (
    *("lstm hard", "by hand", "countdown", "one after the other"),
    *("refused", "unused", "in turn", "shared"),
    *("by index", "added to", "numbers", "views", "mismatched", "beyond", "joined", "shaped"),
    *("ranks", "summed slices", "typed", "merged", "extended", "kept", "constant"),
)
FEW = (
    *("adam float32", "scattered float32", "summed float32"),
    *("held", "in a loop", "one after the other"),
)
AT_ONCE = "0"
"""Without oneDNN memory that is not there is refused at once; with it, ten seconds later, each time
(tensorflow/tsl/framework/allocator_retry.cc)."""
ALONE = {"compiled", "legacy", "adagrad empty"}
"""The cases of which nothing may be fused: XLA compiles one, one has TensorFlow's own ops; and with
sparse gradients Adagrad touches no more than their rows."""


def ran(
    program: Path,
    arm: Environment,
    library: Path,
    out: Path,
    threads: int,
    *cases: str,
    onednn: str = "",
    **env: str,
) -> dict[str, dict[str, Any]]:
    env |= {"PYTHONPATH": ROOTS} | ({"TF_ENABLE_ONEDNN_OPTS": onednn} if onednn else {})
    return answered(arm, program, out, str(threads), library, *cases, timeout_s=1800, **env)


@pytest.fixture(scope="module")
def libraries(paths: Paths) -> Mapping[str, Path]:
    """By unit: those that admission would see."""
    units = (UNIT, LOOPS_UNIT, PRODUCTS_UNIT, GROUPED_UNIT, CHAINS_UNIT)
    return compiled(Request(kernels=",".join(units)), paths)


@pytest.fixture(scope="module")
def library(libraries: Mapping[str, Path]) -> Path:
    return libraries[UNIT]


@pytest.fixture(scope="module", params=[1, 2, 4])
def every(
    stock_arm: Environment,
    library: Path,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> dict[str, dict[str, Any]]:
    """All cases, with this many threads."""
    out = tmp_path_factory.mktemp("updates") / "all.json"
    return ran(UPDATES, stock_arm, library, out, int(request.param))


def test_a_few_programs_leave_the_same_bits(
    stock_arm: Environment, library: Path, tmp_path: Path
) -> None:
    actual = ran(UPDATES, stock_arm, library, tmp_path / "few.json", 2, *FEW)
    assert {name: row["unlike"] for name, row in actual.items()} == dict.fromkeys(FEW, "")
    assert all(row["events"]["update executions"] for row in actual.values())


def test_the_conformance_test_compares_with_stock_in_a_wheel_with_all_groups(
    stock_arm: Environment, libraries: Mapping[str, Path], tmp_path: Path
) -> None:
    """Chains may round otherwise, so they must be off where updates are compared with stock."""
    out = tmp_path / "together.json"
    actual = answered(stock_arm, TOGETHER, out, *libraries.values(), PYTHONPATH=ROOTS)
    assert set(actual["unlike"].values()) == {""}
    assert actual["runs"] > 0


@pytest.mark.slow
def test_every_optimizer_type_and_graph_leaves_the_same_bits(
    every: dict[str, dict[str, Any]],
) -> None:
    assert {name: row["unlike"] for name, row in every.items() if row["unlike"]} == {}
    assert {name: row["error"] for name, row in every.items() if row["error"]} == {}


@pytest.mark.slow
def test_all_are_fused_but_what_xla_compiles_and_what_tensorflow_has_fused(
    every: dict[str, dict[str, Any]],
) -> None:
    fused = {name for name, row in every.items() if row["events"].get("update executions")}
    assert {name for name in {*every} - fused if "adagrad sparse" not in name} == ALONE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "event"),
    [
        ("of other shapes", "stock: other shapes"),
        ("failing", "stock: out of range"),
        ("sessions", "stock: no variable"),
    ],
)
def test_what_cannot_be_fused_runs_as_before_and_is_counted(
    every: dict[str, dict[str, Any]], case: str, event: str
) -> None:
    assert every[case]["events"][event]


def test_a_few_loops_lie_as_near_to_float64(
    stock_arm: Environment, libraries: Mapping[str, Path], tmp_path: Path
) -> None:
    library, out = libraries[LOOPS_UNIT], tmp_path / "few.json"
    actual = ran(LOOPS, stock_arm, library, out, 2, *FEW_LOOPS, onednn=AT_ONCE)
    assert {name: row["unlike"] for name, row in actual.items()} == dict.fromkeys(FEW_LOOPS, "")
    assert all(row["events"]["loop executions"] for row in actual.values())
    assert actual["countdown"]["events"]["stock: loop"], "one that ends at once runs as it was"
    assert "stock: loop" not in actual["unused"]["events"]
    assert actual["constant"]["events"]["loop executions"] == 4, "none when TensorFlow folds"


@pytest.mark.parametrize(
    ("program", "unit", "case"),
    [(LOOPS, LOOPS_UNIT, "by index"), *later((UPDATES, UNIT, "held"))],
)
def test_graphs_that_tensorflow_may_store_have_no_op_of_ours(
    stock_arm: Environment,
    libraries: Mapping[str, Path],
    tmp_path: Path,
    program: Path,
    unit: str,
    case: str,
) -> None:
    out, words = tmp_path / "stored.json", ("2", libraries[unit], case)
    folder = str(tmp_path)
    actual = answered(stock_arm, program, out, *words, PYTHONPATH=ROOTS, TF_GRAPH_CACHING=folder)
    assert (actual[case]["unlike"], actual[case]["events"]) == ("", {})


def test_what_xla_compiles_is_counted_and_named_once(
    stock_arm: Environment, libraries: Mapping[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "events.json"
    words: list[str | Path] = [stock_arm.python, FOR_XLA, out, libraries[LOOPS_UNIT]]
    output = run(words, env={**os.environ, "PYTHONPATH": ROOTS}, timeout_s=600).output
    assert len(re.findall(r"XLA compiles \w*convolution\w*, so no tuned kernel runs", output)) == 1
    # Two convolutions, forward and backward.
    assert json.loads(out.read_text("utf-8"))["left: functions for XLA"] >= 4


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "onednn"), [(1, "1"), (2, AT_ONCE), (4, AT_ONCE)])
def test_all_loops_lie_as_near_to_float64(
    stock_arm: Environment,
    libraries: Mapping[str, Path],
    tmp_path: Path,
    threads: int,
    onednn: str,
) -> None:
    library, out = libraries[LOOPS_UNIT], tmp_path / "all.json"
    actual = ran(LOOPS, stock_arm, library, out, threads, onednn=onednn)
    assert {name: row["unlike"] for name, row in actual.items() if row["unlike"]} == {}
    fused = {name for name, row in actual.items() if row["events"].get("loop executions")}
    assert {*actual} - fused == {"compiled", "pruned", "dropped"}
    as_before = {name for name, row in actual.items() if row["events"].get("stock: loop")}
    assert as_before == {
        *("countdown", "one after the other", "refused"),
        *("by index", "numbers", "views", "mismatched", "beyond", "joined", "shaped"),
        *("dropped", "reduced", "empty", "ranks", "summed slices", "typed", "merged"),
    }
    assert actual["pruned"]["events"]["left: loop"]


@pytest.mark.slow
def test_loops_that_read_variables_of_several_devices_are_tensorflows_own(
    stock_arm: Environment, libraries: Mapping[str, Path], tmp_path: Path
) -> None:
    actual = ran(TWO_CPUS, stock_arm, libraries[LOOPS_UNIT], tmp_path / "two.json", 2)
    assert {name: row["unlike"] for name, row in actual.items()} == {"one": "", "both": ""}
    assert actual["one"]["events"]["loop executions"]
    assert actual["both"]["events"]["left: loop"]
    assert "loops" not in actual["both"]["events"]


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit(
    stock_arm: Environment, libraries: Mapping[str, Path], tmp_path: Path
) -> None:
    library, out = libraries[LOOPS_UNIT], tmp_path / "shared.json"
    actual = [ran(LOOPS, stock_arm, library, out, threads, "shared") for threads in (1, 2, 3, 9)]
    assert all(answer["shared"]["events"]["loop executions"] for answer in actual)
    assert len({answer["shared"]["bits"] for answer in actual}) == 1


@pytest.mark.parametrize(("onednn", "threads"), [("1", 3), *later(("0", 1))])
def test_products_lie_as_near_to_float64(
    stock_arm: Environment,
    libraries: Mapping[str, Path],
    tmp_path: Path,
    onednn: str,
    threads: int,
) -> None:
    library, out = libraries[PRODUCTS_UNIT], tmp_path / "products.json"
    run = functools.partial(ran, PRODUCTS, stock_arm, library, out, onednn=onednn)
    actual = run(threads, **products.SETTINGS)
    assert {name: row["unlike"] for name, row in actual.items() if row["unlike"]} == {}
    computed = {name for name, row in actual.items() if row["events"].get("product executions")}
    assert computed == {*actual} - AS_STOCK
    assert actual["untouched"]["events"]["left: product"]
    assert actual["compiled"]["events"].keys() <= {"left: compiled", "left: functions for XLA"}
    few = computed & {"layer, deep", "product", "valid", "many images", "attention", "batch"}
    other_value = run(threads + 1, *few, **products.SETTINGS)
    assert {
        name: other_value[name]["bits"] == actual[name]["bits"] for name in few
    } == dict.fromkeys(few, True), "threads change no bit"


def test_only_shapes_that_are_faster_are_computed(
    stock_arm: Environment, libraries: Mapping[str, Path], tmp_path: Path
) -> None:
    library, out = libraries[PRODUCTS_UNIT], tmp_path / "faster.json"
    actual = ran(PRODUCTS, stock_arm, library, out, 1, "small", "layer, deep", onednn="1")
    assert {name: row["unlike"] for name, row in actual.items()} == {"small": "", "layer, deep": ""}
    assert actual["small"]["events"]["stock: product"]
    assert actual["layer, deep"]["events"]["product executions"]


@pytest.mark.slow
def test_products_for_avx2_are_onednns_on_a_cpu_with_avx512(
    stock_arm: Environment, paths: Paths, own_cpu: OwnCpu, tmp_path: Path
) -> None:
    library = compiled(Request(arch="haswell", kernels=PRODUCTS_UNIT), paths)[PRODUCTS_UNIT]
    actual = ran(UNNAMED, stock_arm, library, tmp_path / "unnamed.json", 1, "product", onednn="1")
    counted = {name for name, count in actual["product"].items() if count}
    counted.remove("left: product")  # (those in float64)
    names = {"products", "product executions"}
    assert counted == ({"left: wider vectors"} if own_cpu.has_avx512 else names)


FEW_GROUPED = (
    *("narrow", "strided", "layer of lines", "in_a_loop", "refused"),
    *("depthwise", "depthwise, strided", "depthwise layer", "depthwise_refused"),
)


def test_a_few_grouped_and_depthwise_convolutions_lie_as_near_to_float64(
    stock_arm: Environment, libraries: Mapping[str, Path], tmp_path: Path
) -> None:
    library, out = libraries[GROUPED_UNIT], tmp_path / "few.json"
    actual = ran(GROUPED, stock_arm, library, out, 2, *FEW_GROUPED)
    assert {name: row["unlike"] for name, row in actual.items()} == dict.fromkeys(FEW_GROUPED, "")
    assert all(row["events"]["grouped executions"] for row in actual.values())
    assert actual["refused"]["events"]["stock: grouped"] == 2
    assert actual["depthwise_refused"]["events"]["stock: depthwise"]


@pytest.mark.slow
def test_all_grouped_and_depthwise_convolutions_lie_as_near_to_float64(
    stock_arm: Environment, libraries: Mapping[str, Path], tmp_path: Path
) -> None:
    run = functools.partial(ran, GROUPED, stock_arm, libraries[GROUPED_UNIT])
    actual = run(tmp_path / "all.json", 3)
    assert {name: row["unlike"] for name, row in actual.items() if row["unlike"]} == {}
    computed = {name for name, row in actual.items() if row["events"].get("grouped executions")}
    as_before = {name for name, row in actual.items() if row["events"].get("stock: grouped")}
    assert {*actual} - computed == {
        *("one_group", "far_apart", "compiled", "other_filters", "depthwise_untouched")
    }
    assert actual["other_filters"]["events"]["stock: depthwise"]
    assert actual["depthwise_untouched"]["events"]["left: depthwise"]
    assert as_before == {"one_group", "far_apart", "refused"}
    single = run(tmp_path / "single.json", 1)
    assert {name for name in computed if single[name]["bits"] != actual[name]["bits"]} <= {
        # (have ops of TensorFlow whose bits depend on the number of threads)
        *("fitted", "separable", "separable layer"),
    }


FEW_CHAINS = (
    *("GELU", "layer normalization", "attention", "values that stay", "powers"),
    *("refused", "original", "not_numbers", "through_a_queue"),
)


def test_a_few_chains_lie_as_near_to_float64(
    stock_arm: Environment, libraries: Mapping[str, Path], tmp_path: Path
) -> None:
    library, out = libraries[CHAINS_UNIT], tmp_path / "few.json"
    actual = ran(CHAINS, stock_arm, library, out, 2, *FEW_CHAINS)
    assert {name: row["unlike"] for name, row in actual.items()} == dict.fromkeys(FEW_CHAINS, "")
    computed = {name for name, row in actual.items() if row["events"].get("chain executions")}
    assert computed == {*FEW_CHAINS} - {"refused"}
    assert actual["refused"]["events"]["stock: chain"] == 6
    assert actual["original"]["events"]["stock: chain"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("onednn", ["0", "1"])
def test_all_chains_lie_as_near_to_float64(
    stock_arm: Environment, libraries: Mapping[str, Path], tmp_path: Path, onednn: str
) -> None:
    run = functools.partial(ran, CHAINS, stock_arm, libraries[CHAINS_UNIT], onednn=onednn)
    actual = run(tmp_path / "all.json", 3)
    assert {name: row["unlike"] for name, row in actual.items() if row["unlike"]} == {}
    computed = {name for name, row in actual.items() if row["events"].get("chain executions")}
    assert {*actual} - computed <= {
        *("refused", "other_types", "compiled"),
        *(name for name in actual if name.startswith("random")),
    }
    single = run(tmp_path / "single.json", 1)
    differing = {name for name in actual if single[name]["bits"] != actual[name]["bits"]}
    # (These have ops of TensorFlow whose bits depend on the number of threads.)
    as_before = {name for name, row in actual.items() if row["events"].get("stock: chain")}
    assert differing <= {"fitted", *as_before}
