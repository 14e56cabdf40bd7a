"""Samples as pyperf's files: pyperf itself reads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyperf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.comparisons import arm, cell, comparison, host, sample

from tfbench.measuring.samples import Sample
from tfbench.reports.pyperf import export_suites
from tfcore.errors import SampleError

COMPARISON = comparison(cell(vcpus=1), cell(vcpus=2))


def taken(launches: int = 3) -> list[Sample]:
    """Of stock, its repeat and a tuned arm that is twice as fast, on 1 and 2 vCPUs."""
    return [
        sample(name, wall_s + 0.001 * launch, launch=launch, block=block, vcpus=vcpus)
        for vcpus in (1, 2)
        for launch in range(launches)
        for block in range(2)
        for name, wall_s in (("stock", 0.3), ("stock again", 0.3), ("tuned", 0.15))
    ]


def test_every_arm_has_a_file_with_a_benchmark_per_cell_and_a_run_per_launch(
    tmp_path: Path,
) -> None:
    texts = export_suites(COMPARISON, taken())
    assert list(texts) == ["stock", "stock again", "tuned"]
    path = tmp_path / "tuned.json"
    path.write_text(texts["tuned"], encoding="utf-8")
    actual = pyperf.BenchmarkSuite.load(str(path))
    assert actual.get_benchmark_names() == ["mnist_mlp@1", "mnist_mlp@2"]
    for bench in actual.get_benchmarks():
        runs = [((0.15 + 0.001 * launch) / 40,) * 2 for launch in range(3)]
        assert [run.values for run in bench.get_runs()] == runs
        assert bench.get_unit() == "second"
        assert bench.get_total_loops() == 40


def test_metadata_are_such_that_pyperf_takes_them() -> None:
    facts = (arm("stock", label="two\nlines", env=(("A", "1"),)), arm("tuned", git_version=""))
    measured_comparison = comparison(cell(), arms=facts, host=host(2, hugepages=""))
    texts = export_suites(measured_comparison, taken())
    stock, again, tuned = (
        pyperf.BenchmarkSuite.loads(text).get_metadata() for text in texts.values()
    )
    assert stock["cpu_model_name"] == "Example CPU @ 2.00GHz"
    assert (stock["cpu_count"], stock["cpu_affinity"]) == (2, "0,1")
    assert (stock["label"], stock["env"]) == ("two lines", "A=1")
    assert (stock["kernel"], stock["microcode"]) == ("6.1.0", "0x1")
    assert "hugepages" not in stock
    assert "git_version" not in tuned
    assert again["arm"] == "stock again"
    assert "label" not in again


def test_pyperf_compares_two_of_them(tmp_path: Path) -> None:
    texts = export_suites(COMPARISON, taken())
    for name in ("stock", "tuned"):
        (tmp_path / f"{name}.json").write_text(texts[name], encoding="utf-8")
    command = [sys.executable, "-m", "pyperf", "compare_to", "stock.json", "tuned.json"]
    output = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert "mnist_mlp@1: " in output
    assert "1.99x faster" in output


def test_only_what_arms_are_judged_by_is_exported() -> None:
    mixed = [*taken(1), sample("stock", 9.0, phase="validate")]
    assert export_suites(COMPARISON, mixed) == export_suites(COMPARISON, taken(1))
    with pytest.raises(SampleError, match="no samples"):
        export_suites(COMPARISON, mixed[-1:])


@given(
    walls=st.lists(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=4), min_size=1, max_size=4),
    steps=st.integers(1, 1000),
)
def test_what_is_written_is_read_to_the_last_bit(walls: list[list[float]], steps: int) -> None:
    samples = [
        sample("stock", wall, launch=launch, block=block, steps=steps)
        for launch, blocks in enumerate(walls)
        for block, wall in enumerate(blocks)
    ]
    (actual,) = pyperf.BenchmarkSuite.loads(
        export_suites(COMPARISON, samples)["stock"]
    ).get_benchmarks()
    expected = [tuple(wall / steps for wall in blocks) for blocks in walls]
    assert [run.values for run in actual.get_runs()] == expected
