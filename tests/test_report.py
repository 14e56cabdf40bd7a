"""Printed reports: a gain, no gain, no answer, and a wheel that computes something else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from tfbench.host import Host
from tfbench.report import covered, headlines, markdown, table, warnings
from tfbench.results import (
    SCHEMA,
    Agreement,
    ArmFacts,
    ArmTimes,
    Cell,
    Comparison,
    Coverage,
    Effort,
    OpShare,
    Overall,
    Speedup,
)
from tfbench.statistics import Interval, verdict
from tfbuild.cpu import Cpu, Vcpus

TEMPLATES = Path(__file__).parents[1] / "templates"
GAIN = Interval(value=1.25, low=1.2, high=1.3)
LOSS = Interval(value=0.9, low=0.85, high=0.95)
NONE = Interval(value=1.001, low=0.99, high=1.01)
UNKNOWN = Interval(value=1.05, low=0.97, high=1.12)


def host() -> Host:
    return Host(
        cpu=Cpu(
            architecture="x86_64",
            vendor="GenuineIntel",
            name="Example CPU @ 2.00GHz",
            family=6,
            model=85,
            stepping=4,
            microcode="0x1",
            hypervisor=True,
            features=frozenset({"avx2"}),
        ),
        vcpus=Vcpus(machine=2, affinity=2, quota=None, usable=2),
        affinity=(0, 1),
        kernel="6.1.0",
        memory_bytes=8_000_000_000,
        hugepages="madvise",
    )


def arm(name: str, library: str | None = None) -> ArmFacts:
    return ArmFacts(
        name=name,
        label=f"the {name} wheel",
        wheel_sha256="",
        env=(),
        tensorflow="2.14.1",
        tensorflow_file=f"/arms/{name}/tensorflow/__init__.py",
        git_version="v2.14.1",
        compiler_version="clang 16",
        python="3.11.7",
        numpy="1.26.4",
        raised_kernels=20,
        kernel_library=library,
    )


def times(name: str, milliseconds: float | None) -> ArmTimes:
    interval = Interval(value=milliseconds, low=1, high=2) if milliseconds is not None else None
    return ArmTimes(
        arm=name,
        step_ms=interval,
        losses=(2.3, 2.2, 2.1, 2.0, 1.9),
        import_s=1.5,
        build_s=0.25,
        first_step_s=0.5,
        environment=(),
    )


def timed(workload: str, interval: Interval) -> Cell:
    return Cell(
        workload=workload,
        vcpus=2,
        batch=128,
        steps=40,
        launches=5,
        blocks=100,
        arms=(times("stock", 10.0), times("tuned", 10.0 / interval.value)),
        agreements=(Agreement(arm="tuned", difference=2e-7, tolerance=1e-3),),
        speedups=(Speedup(arm="tuned", interval=interval, verdict=verdict(interval)),),
    )


def disagreeing(workload: str, difference: float | None) -> Cell:
    return dataclasses.replace(
        timed(workload, NONE),
        steps=0,
        blocks=0,
        arms=(times("stock", None), times("tuned", None)),
        agreements=(Agreement(arm="tuned", difference=difference, tolerance=1e-3),),
        speedups=(),
    )


def comparison(*cells: Cell, mean: Interval | None, launches: int = 5) -> Comparison:
    found = Speedup(arm="tuned", interval=mean, verdict=verdict(mean)) if mean else None
    return Comparison(
        schema=SCHEMA,
        made="2026-01-02T03:04:05+00:00",
        seconds=75.0,
        seed=1,
        effort=Effort(launches=launches, blocks=20),
        margin=0.02,
        level=0.95,
        host=host(),
        arms=(arm("stock"), arm("tuned", "/t/core/kernels/tensorwright/skylake.so")),
        cells=cells,
        overall=(Overall(vcpus=2, workloads=len(cells), speedup=found),) if found else (),
    )


def test_the_table_as_a_pipe_gets_it() -> None:
    found = comparison(timed("mnist_mlp", GAIN), timed("lstm_text", NONE), mean=UNKNOWN)
    assert table(found, colour=False) == (
        "tuned against stock on Example CPU @ 2.00GHz\n"
        "workload  ┃ vCPUs ┃ arm   ┃ stock ms/step ┃ arm ms/step ┃ speedup ┃ 95% interval   ┃ verdict\n"  # noqa: E501
        "━━━━━━━━━━╇━━━━━━━╇━━━━━━━╇━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━\n"
        "mnist_mlp │     2 │ tuned │         10.00 │        8.00 │  1.250x │ 1.200 to 1.300 │ faster\n"  # noqa: E501
        "lstm_text │     2 │ tuned │         10.00 │        9.99 │  1.001x │ 0.990 to 1.010 │ within noise\n"  # noqa: E501
        "\n"
        "No gain shown: 1.050x (0.970 to 1.120; geometric mean of 2 workloads on 2 vCPUs). "
        "Measure longer for an answer.\n"
    )


def test_colour_is_for_terminals_only() -> None:
    found = comparison(timed("mnist_mlp", GAIN), mean=GAIN)
    assert "\x1b[" in table(found, colour=True)
    assert "\x1b" not in table(found, colour=False)


@pytest.mark.parametrize(
    ("mean", "said"),
    [
        (
            GAIN,
            (
                "tuned is faster than stock: 1.250x "
                "(1.200 to 1.300; geometric mean of 1 workload on 2 vCPUs)."
            ),
        ),
        (
            LOSS,
            (
                "tuned is slower than stock: 0.900x "
                "(0.850 to 0.950; geometric mean of 1 workload on 2 vCPUs). Do not use it here."
            ),
        ),
        (
            NONE,
            (
                "No gain: tuned takes as long as stock, within 2% "
                "(0.990 to 1.010; geometric mean of 1 workload on 2 vCPUs)."
            ),
        ),
        (
            UNKNOWN,
            (
                "No gain shown: 1.050x "
                "(0.970 to 1.120; geometric mean of 1 workload on 2 vCPUs). "
                "Measure longer for an answer."
            ),
        ),
    ],
)
def test_the_answer_in_one_sentence(mean: Interval, said: str) -> None:
    assert list(headlines(comparison(timed("mnist_mlp", mean), mean=mean))) == [said]


def test_a_thorough_run_of_tuned_kernels_has_no_warnings() -> None:
    assert list(warnings(comparison(timed("mnist_mlp", GAIN), mean=GAIN))) == []


def test_what_tuned_kernels_cover_is_said_for_arms_that_have_them() -> None:
    ops = (
        OpShare(op="Tanh", share=0.011, runs_per_step=40.0),
        OpShare(op="TanhGrad", share=0.0004, runs_per_step=40.0),
    )
    cell = timed("lstm_text", GAIN)
    seen = dataclasses.replace(cell.arms[1], coverage=Coverage(share=0.0114, ops=ops))
    found = comparison(dataclasses.replace(cell, arms=(cell.arms[0], seen)), mean=GAIN)
    line = "lstm_text on 2 vCPUs: tuned kernels cover 1.1% of the op time (Tanh 1.1%)."
    assert list(covered(found)) == [line]
    assert line in table(found, colour=False)
    assert f"- {line}" in markdown(found, TEMPLATES)
    assert list(covered(comparison(cell, mean=GAIN))) == []


@pytest.mark.parametrize(("share", "doubted"), [(0.0, True), (0.01, True), (0.9, False)])
def test_a_gain_that_the_kernels_cannot_give_is_doubted(share: float, doubted: bool) -> None:
    cell = timed("mnist_mlp", GAIN)
    seen = dataclasses.replace(cell.arms[1], coverage=Coverage(share=share, ops=()))
    found = comparison(dataclasses.replace(cell, arms=(cell.arms[0], seen)), mean=GAIN)
    said = list(warnings(found))
    assert any("cannot come from tuned kernels" in line for line in said) == doubted


def test_few_launches_and_stock_kernels_are_pointed_out() -> None:
    found = comparison(timed("mnist_mlp", GAIN), mean=GAIN, launches=1)
    stock_only = dataclasses.replace(found, arms=(arm("stock"), arm("tuned")))
    no_kernels, quick = warnings(stock_only)
    assert "stock kernels with stock kernels" in no_kernels
    assert quick.startswith("A quick look: 1 launch of a model")


@pytest.mark.parametrize("difference", [0.05, None])
def test_a_wheel_that_computes_something_else_is_never_a_win(difference: float | None) -> None:
    found = comparison(disagreeing("mnist_mlp", difference), mean=None)
    shown = table(found, colour=False)
    assert "not timed: losses differ" in shown
    assert "mnist_mlp: tuned does not compute what stock computes. Do not use it." in shown
    assert "faster" not in shown
    page = markdown(found, TEMPLATES)
    seen = "not a number" if difference is None else "5.0e-02"
    assert f"tuned: {seen} (allowed 1e-03)" in page
    assert "| mnist_mlp | 128 | 2 | tuned |  |  |  |  | not timed: losses differ |" in page


def test_the_page_begins_with_the_answer_and_the_table() -> None:
    found = comparison(timed("mnist_mlp", GAIN), timed("lstm_text", NONE), mean=GAIN)
    assert markdown(found, TEMPLATES).startswith(
        "# tuned against stock on Example CPU @ 2.00GHz\n"
        "\n"
        "**tuned is faster than stock: 1.250x "
        "(1.200 to 1.300; geometric mean of 2 workloads on 2 vCPUs).**\n"
        "\n"
        "| workload | batch | vCPUs | arm | stock ms/step | arm ms/step | speedup "
        "| 95 % interval | verdict |\n"
        "|---|---:|---:|---|---:|---:|---:|---|---|\n"
        "| mnist_mlp | 128 | 2 | tuned | 10.00 | 8.00 | 1.250x | 1.200 to 1.300 | faster |\n"
        "| lstm_text | 128 | 2 | tuned | 10.00 | 9.99 | 1.001x | 0.990 to 1.010 "
        "| within noise |\n"
    )


def test_the_page_says_what_was_compared_how_and_what_it_does_not_say() -> None:
    page = markdown(comparison(timed("mnist_mlp", GAIN), mean=GAIN), TEMPLATES)
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == [
        "## What was compared",
        "## How it was measured",
        "## What this does not say",
    ]
    assert "| tuned | the tuned wheel | 2.14.1 (v2.14.1) | tuned kernels from skylake.so |" in page
    assert "Machine: Example CPU @ 2.00GHz (x86_64), 2 usable vCPUs, 8.0 GB" in page
    assert "The comparison took 1 min 15 s." in page
    assert "| mnist_mlp | 2 | tuned | 1.50 | 0.25 | 0.50 |" in page


def test_an_arms_own_settings_are_shown() -> None:
    found = comparison(timed("mnist_mlp", GAIN), mean=GAIN)
    stock, tuned = found.arms
    changed = dataclasses.replace(tuned, env=(("A", "1"), ("B", "2")))
    page = markdown(dataclasses.replace(found, arms=(stock, changed)), TEMPLATES)
    assert "`stock` ran on Python 3.11.7 and NumPy 1.26.4, without settings of its own." in page
    assert "`tuned` ran on Python 3.11.7 and NumPy 1.26.4, with `A=1`, `B=2`." in page


def test_a_template_that_asks_for_an_unknown_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "report.md.j2").write_text("{{ nonsense }}", encoding="utf-8")
    with pytest.raises(UndefinedError, match="nonsense"):
        markdown(comparison(timed("mnist_mlp", GAIN), mean=GAIN), tmp_path)
