from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.invented import arm, cell, comparison, host, sample

from tfbench.costs.cost import point
from tfbench.measuring.samples import Sample
from tfbench.reports import pyperf
from tfbench.reports.pyperf import SEQUENTIAL, Timing, contrast
from tfbuild.errors import HostError, SampleError, UsageError
from tfbuild.measured.interval import Interval

RECORDED = Path(__file__).parent / "data" / "pyperf"
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


def written(folder: Path, content: object, name: str = "file.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def bench(name: str = "a", *runs: list[float], **metadata: object) -> dict[str, Any]:
    return {
        "metadata": {"name": name, **metadata},
        "runs": [{"values": values} for values in runs or ([0.5],)],
    }


def suite(*benchmarks: dict[str, Any], **metadata: object) -> dict[str, Any]:
    return {"version": "1.0", "benchmarks": list(benchmarks), "metadata": metadata}


def timing(*runs: tuple[float, ...], name: str = "a", **metadata: object) -> Timing:
    return Timing(name=name, runs=runs, metadata=metadata)


# --- what pyperf wrote ----------------------------------------------------------------------------


def test_a_recorded_file_has_its_benchmarks_and_runs() -> None:
    found = pyperf.read(RECORDED / "slow.json")
    assert [each.name for each in found] == ["sum", "sort"]
    assert [[len(run) for run in each.runs] for each in found] == [[3] * 5, [3] * 5]
    assert found[0].metadata["cpu_model_name"] == "AMD EPYC"
    assert 1e-5 < found[0].runs[0][0] < 2e-5


def test_two_recorded_files_give_pyperfs_own_ratios() -> None:
    found = contrast(*(pyperf.read(RECORDED / name) for name in ("slow.json", "fast.json")))
    assert [each.name for each in found.ratios] == ["sum", "sort"]
    assert [round(point(each.speedup), 1) for each in found.ratios] == [1.4, 1.3]
    assert math.isclose(point(found.mean), 1.36, abs_tol=0.005)
    assert found.alone == ()
    assert found.note == SEQUENTIAL
    for each in found.ratios:
        assert isinstance(each.speedup, Interval)
        assert each.speedup.low < each.baseline_s / each.candidate_s < each.speedup.high
        assert math.isclose(each.speedup.value, each.baseline_s / each.candidate_s)


def test_a_file_may_be_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "slow.json.gz"
    path.write_bytes(gzip.compress((RECORDED / "slow.json").read_bytes()))
    assert pyperf.read(path) == pyperf.read(RECORDED / "slow.json")


def test_a_name_may_stand_at_any_level_and_calibration_counts_for_nothing(tmp_path: Path) -> None:
    runs = [{"metadata": {"name": "a"}, "warmups": [[1, 0.9]]}, {"values": [0.5, 0.25]}]
    for data in (
        suite({"runs": runs}),
        suite({"runs": runs[1:]}, name="a"),
        suite({"runs": runs[1:], "metadata": {"name": "a"}}),
    ):
        (found,) = pyperf.read(written(tmp_path, data))
        assert (found.name, found.runs) == ("a", ((0.5, 0.25),))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([], "version None"),
        ({"version": 5, "benchmarks": []}, "version 5"),
        ({"version": "1.0"}, "('benchmarks')"),
        ({"version": "1.0", "benchmarks": []}, "no benchmarks"),
        (suite({"runs": [{"values": [0.5]}]}), "('name')"),
        (suite({"metadata": {"name": "a"}, "runs": []}), "a has no values"),
        (suite({"metadata": {"name": "a"}, "runs": [{"warmups": []}]}), "a has no values"),
        (suite(bench("a", [0.5, 0.0])), "a took 0.0 seconds"),
        (suite(bench("a", [-0.5])), "a took -0.5 seconds"),
        (suite(bench("a", [math.nan])), "a took nan seconds"),
        (suite(bench("a", [math.inf])), "a took inf seconds"),
        (suite(bench("a", [True])), "a took True seconds"),
        (suite({"metadata": {"name": "a"}, "runs": [{"values": ["x"]}]}), "is not a file"),
        (suite({"metadata": {"name": "a"}, "runs": [{"values": 3}]}), "is not a file"),
        (suite({"metadata": {"name": "a"}, "runs": 3}), "is not a file of pyperf"),
        (suite(bench("a", [1024.0], unit="byte")), "byte"),
        (suite("a"), "is not a file of pyperf"),  # type: ignore[arg-type]
        ("{", "is not whole JSON"),
        ("[" * 100_000, "is not whole JSON"),
    ],
)
def test_what_pyperf_does_not_write_is_told(tmp_path: Path, data: object, expected: str) -> None:
    path = written(tmp_path, data)
    with pytest.raises(SampleError) as caught:
        pyperf.read(path)
    assert str(path) in caught.value.message
    assert expected in caught.value.message


def test_a_benchmark_that_is_there_twice_is_told(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="a twice"):
        pyperf.read(written(tmp_path, suite(bench(), bench())))


@pytest.mark.parametrize("content", [b"{}", gzip.compress(b"{}" * 1000, mtime=0)[:20]])
def test_a_torn_archive_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.json.gz"
    path.write_bytes(content)
    with pytest.raises(SampleError, match=r"file\.json\.gz"):
        pyperf.read(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"file\.json"):
        pyperf.read(tmp_path / "file.json")


# --- two files ------------------------------------------------------------------------------------


def test_a_ratio_is_between_the_means_of_runs() -> None:
    found = contrast(
        [timing((1.0, 3.0), (2.0, 2.0)), timing((1.0,), name="b")],
        [timing((1.0, 1.0), (1.0, 1.0)), timing((1.0,), name="c")],
    )
    (ratio,) = found.ratios
    assert ratio.name == "a"
    assert (ratio.baseline_s, ratio.candidate_s) == pytest.approx((2.0, 1.0))
    assert isinstance(ratio.speedup, Interval)
    ends = (ratio.speedup.low, ratio.speedup.value, ratio.speedup.high)
    assert ends == pytest.approx((2.0, 2.0, 2.0))
    assert found.alone == ("b", "c")


def test_one_run_says_nothing_about_its_spread() -> None:
    (ratio,) = contrast([timing((1.0, 1.2))], [timing((0.5,), (0.6,))]).ratios
    assert isinstance(ratio.speedup, float)


def test_a_ratios_interval_covers_as_often_as_it_says() -> None:
    """Runs of two files whose means differ by chance only, with unequal spreads."""
    draw = np.random.default_rng(5)
    trials, hits = 800, 0
    for _ in range(trials):
        ours, theirs = (
            [(float(each),) for each in np.exp(draw.normal(size=count) * spread)]
            for count, spread in ((5, 0.02), (8, 0.06))
        )
        speedup = contrast([timing(*ours)], [timing(*theirs)]).ratios[0].speedup
        assert isinstance(speedup, Interval)
        hits += speedup.low <= 1 <= speedup.high
    assert 0.93 <= hits / trials <= 0.97


def test_files_without_a_common_benchmark_are_told() -> None:
    with pytest.raises(SampleError, match=": a and b, c"):
        contrast([timing((1.0,))], [timing((1.0,), name="b"), timing((1.0,), name="c")])


def test_files_of_two_machines_are_refused_and_both_are_named() -> None:
    ours = timing((1.0,), cpu_model_name="Xeon", cpu_count=2, load_avg_1min=0.1)
    theirs = timing((1.0,), cpu_model_name="EPYC", cpu_count=2, load_avg_1min=0.9)
    with pytest.raises(HostError, match=r"cpu_model_name .*Xeon and EPYC"):
        contrast([ours], [theirs])
    assert contrast([ours], [timing((1.0,), cpu_count=2)]).ratios


# --- what pyperf is to read -----------------------------------------------------------------------


def test_every_arm_has_a_file_with_a_benchmark_per_cell_and_a_run_per_launch(
    tmp_path: Path,
) -> None:
    texts = pyperf.suites(COMPARISON, taken())
    assert list(texts) == ["stock", "stock again", "tuned"]
    found = pyperf.read(written(tmp_path, texts["tuned"]))
    assert [each.name for each in found] == ["mnist_mlp@1", "mnist_mlp@2"]
    assert found[1].runs == tuple(((0.15 + 0.001 * n) / 40,) * 2 for n in range(3))


def test_metadata_are_such_that_pyperf_takes_them() -> None:
    facts = (arm("stock", label="two\nlines", env=(("A", "1"),)), arm("tuned", git_version=""))
    made = comparison(cell(), arms=facts, host=host(2, hugepages=""))
    data = json.loads(pyperf.suites(made, taken())["stock"])
    metadata = data["metadata"]
    assert data["version"] == "1.0"
    assert metadata["unit"] == "second"
    assert metadata["cpu_model_name"] == "Example CPU @ 2.00GHz"
    assert (metadata["cpu_count"], metadata["cpu_affinity"]) == (2, "0,1")
    assert (metadata["label"], metadata["env"]) == ("two lines", "A=1")
    assert (metadata["kernel"], metadata["microcode"]) == ("6.1.0", "0x1")
    assert "hugepages" not in metadata
    for text in pyperf.suites(made, taken()).values():
        for value in json.loads(text)["metadata"].values():
            assert isinstance(value, int) or (value and value == value.strip())
            assert "\n" not in str(value)
    run = data["benchmarks"][0]["runs"][0]
    assert run == {"metadata": {"loops": 40}, "values": [0.3 / 40, 0.3 / 40]}


def test_only_what_arms_are_judged_by_is_exported() -> None:
    mixed = [*taken(1), sample("stock", 9.0, phase="validate")]
    assert pyperf.suites(COMPARISON, mixed) == pyperf.suites(COMPARISON, taken(1))
    with pytest.raises(SampleError, match="no samples"):
        pyperf.suites(COMPARISON, mixed[-1:])


@given(
    walls=st.lists(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=4), min_size=1, max_size=4),
    steps=st.integers(1, 1000),
)
def test_what_is_written_reads_back_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, walls: list[list[float]], steps: int
) -> None:
    samples = [
        sample("stock", wall, launch=launch, block=block, steps=steps)
        for launch, blocks in enumerate(walls)
        for block, wall in enumerate(blocks)
    ]
    text = pyperf.suites(COMPARISON, samples)["stock"]
    (found,) = pyperf.read(written(tmp_path_factory.mktemp("pyperf"), text))
    assert found.runs == tuple(tuple(wall / steps for wall in blocks) for blocks in walls)
