from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.builders.later import later
from tests.builders.op_definitions import Arg, Attr, Op

from tfbuild.kernelbuild.admission import build_probe_env
from tfbuild.probe.calls import Outcome
from tfbuild.probe.proposals import FLOAT, Case
from tfbuild.probe.trials import (
    EMPTY,
    KEPT,
    REFUSED,
    ReferenceCase,
    explore_cases,
    get_tolerance_name,
)
from tfbuild.tools.environment import Environment
from tfcore.run import run

NEGATE = Op("Neg", [Arg("x", type_attr="T")], [Attr("T", "type")])
MATMUL = Op("MatMul", [Arg("a", type_attr="T"), Arg("b", type_attr="T")], [Attr("T", "type")])


def explored(op: Op, kernel: Callable[[Case], Outcome | None]) -> list[ReferenceCase]:
    """What explore keeps when `kernel` answers."""
    trial = explore_cases(op, {"T": FLOAT}, range(320))
    case = next(trial)
    while True:
        try:
            case = trial.send(kernel(case))
        except StopIteration as end:
            return list(end.value)


def negated(case: Case) -> Outcome:
    return (-case.inputs[0].array,)


def multiplied(case: Case) -> Outcome:
    a, b = (op_input.array for op_input in case.inputs)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        return "InvalidArgumentError"
    with np.errstate(all="ignore"):
        return (a @ b,)


def test_a_kernel_that_accepts_all_gets_several_ranks_and_awkward_numbers() -> None:
    reference_cases = explored(NEGATE, negated)
    plain = [
        known.case for known in reference_cases if not known.case.sliced and not known.case.gradient
    ]
    shapes = {case.inputs[0].array.shape for case in plain}
    assert len(shapes) == KEPT + EMPTY
    assert len({len(shape) for shape in shapes}) >= 4
    assert any(np.isnan(case.inputs[0].array).any() for case in plain)
    assert any(known.case.sliced for known in reference_cases)
    assert any(get_tolerance_name(known.case) == "gradient of Neg" for known in reference_cases)


def test_a_kernel_that_demands_matching_sizes_is_fed_and_refuses_too() -> None:
    reference_cases = explored(MATMUL, multiplied)
    accepted = [known for known in reference_cases if not isinstance(known.outcome, str)]
    refused = [known for known in reference_cases if isinstance(known.outcome, str)]
    assert len(accepted) >= KEPT
    assert len(refused) == REFUSED
    sums = [known for known in accepted if not known.case.gradient]
    assert any(known.scale is not None for known in sums)


def test_a_kernel_that_accepts_nothing_has_no_cases() -> None:
    assert explored(MATMUL, lambda _: "InvalidArgumentError") == []
    assert explored(MATMUL, lambda _: None) == []


def test_a_kernel_that_does_not_repeat_itself_has_no_cases() -> None:
    rng = np.random.default_rng(1)

    def noise(case: Case) -> Outcome:
        return (np.asarray(rng.normal(size=case.inputs[0].array.shape)),)

    assert explored(NEGATE, noise) == []


PROGRAM = """
import gc, json, sys, tempfile
from pathlib import Path
from tfbuild.probe import registry, trials, uncollected
tf = uncollected.import_tensorflow()
assert gc.isenabled() and gc.get_freeze_count() > 100_000
wanted = json.loads(sys.argv[1])
kernels = sorted(
    (
        k
        for k in registry.list_registrations()
        if [k.op, registry.format_types(k)] in wanted and k.device == "CPU"
    ),
    key=lambda kernel: (kernel.op, kernel.rule),
)
with tempfile.TemporaryDirectory() as scratch:
    found = trials.find_cases(kernels, Path(scratch) / "journals")
print(json.dumps({
    k.op: [[str(known.case), isinstance(known.outcome, str)] for known in rows]
    for k, rows in zip(kernels, found, strict=True)
}))
"""


@pytest.mark.toolchain
@pytest.mark.parametrize("times", [1, *later(2)])
def test_the_stock_kernels_say_what_they_accept(
    times: int, stock_arm: Environment, tmp_path: Path
) -> None:
    """LSTMBlockCell aborts the process for most sizes: the other ops come through."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    expected = [
        ["LSTMBlockCell", "T=1"],
        ["Conv2D", "T=1"],
        ["ScatterAdd", "T=1,Tindices=3"],
        ["Sum", "T=1,Tidx=3"],
    ]
    words: list[str | Path] = [stock_arm.python, program, json.dumps(expected)]
    document = [
        json.loads(
            run(words, cwd=tmp_path, env=build_probe_env(), timeout_s=300).output.splitlines()[-1]
        )
        for _ in range(times)
    ]
    once = document[0]
    assert all(again == once for again in document)
    for op in ("Conv2D", "ScatterAdd", "Sum"):
        assert sum(not refused for _, refused in once[op]) >= 4
        assert any(refused for _, refused in once[op])


@pytest.mark.toolchain
def test_the_battery_passes_on_the_stock_wheel(stock_arm: Environment, tmp_path: Path) -> None:
    answer = tmp_path / "battery.json"
    words: list[str | Path] = [stock_arm.python, "-m", "tfbuild.probe.battery", answer]
    run(words, cwd=tmp_path, env=build_probe_env(), timeout_s=300)
    document = json.loads(answer.read_text())
    assert document["failed"] == {}
    assert len(document["passed"]) >= 15
