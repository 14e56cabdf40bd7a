from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from tfbuild.machine import memory
from tfbuild.machine.memory import Budget
from tfbuild.tools import bazel
from tfcore import settings
from tfcore.errors import CommandError, UsageError
from tfcore.run import Completed, run

FAMILIES = st.sampled_from(["clang", "gcc"])
BUDGET = Budget(
    jobs=3,
    memory_mb=6000,
    heap_mb=2000,
    peak_mb=7000,
    limited_by="the number of CPUs",
    basis="none",
)


def test_the_table_holds_what_it_says() -> None:
    table = memory._load_table()
    assert {"kernels", "runtime", "xla"} <= set(table["class"])
    for name, row in table["class"].items():
        assert 4 <= row["measured"] <= row["tried"] <= row["sources"], name
        assert 100 < row["median"] <= row["p95"] <= row["largest"], name
        assert row["largest"] <= table["heaviest"]["megabytes"]
    assert table["gcc"]["memory"] > 1


def test_the_build_that_was_seen_comes_out_as_it_was() -> None:
    """EasyBuild: 10 jobs of GCC in 36 GB are good, more are not."""
    assert memory.choose_budget(36_000, 16, family="gcc").jobs == 10
    assert memory.choose_budget(36_000, 64, family="clang").jobs > 10


def test_gcc_takes_more_than_clang() -> None:
    assert memory.build_model("gcc").estimate_peak_mb(8) > memory.build_model(
        "clang"
    ).estimate_peak_mb(8)


@given(FAMILIES, st.integers(1, 200))
def test_more_jobs_take_more_and_the_largest_always_fits_in(family: str, count: int) -> None:
    model = memory.build_model(family)
    assert model.estimate_peak_mb(count) <= model.estimate_peak_mb(count + 1)
    assert model.estimate_peak_mb(count) >= count * model.per_job
    assert model.estimate_peak_mb(count) >= model.largest


@given(st.integers(0, 2_000_000), st.integers(1, 512), FAMILIES)
def test_as_many_jobs_as_fit_and_not_one_more(mb: int, cores: int, family: str) -> None:
    budget = memory.choose_budget(mb, cores, family=family)
    assert 1 <= budget.jobs <= min(cores, 128)
    assert budget.fits or budget.jobs == 1
    more = memory.choose_budget(mb, cores, family=family, jobs_option=str(budget.jobs + 1))
    assert budget.jobs == min(cores, 128) or not more.fits


@given(st.integers(0, 200_000), st.integers(0, 50_000), st.integers(1, 64))
def test_more_memory_never_gives_fewer_jobs(mb: int, extra: int, cores: int) -> None:
    assert memory.choose_budget(mb, cores).jobs <= memory.choose_budget(mb + extra, cores).jobs


@pytest.mark.parametrize(
    ("mb", "cores", "limit"),
    [
        (1_000_000, 8, "CPUs"),
        (1_000_000, 512, "the maximum of 128 jobs for Bazel"),
        (16_000, 64, "needed for one more job"),
        (2_000, 64, "needed for one job"),
    ],
)
def test_what_limits_is_said(mb: int, cores: int, limit: str) -> None:
    assert limit in memory.choose_budget(mb, cores).limited_by


def test_the_user_has_the_last_word() -> None:
    budget = memory.choose_budget(4_000, 2, jobs_option="16")
    assert (budget.jobs, budget.limited_by, budget.fits) == (16, "--jobs", False)
    with pytest.raises(UsageError, match="--jobs 0"):
        memory.choose_budget(4_000, 2, jobs_option="0")


def test_what_was_not_measured_is_said() -> None:
    assert "MLIR and LLVM" in memory.choose_budget(4_000, 2).basis
    assert "link-time" not in memory.choose_budget(4_000, 2).basis
    assert "link-time" in memory.choose_budget(4_000, 2, lto=True).basis


@pytest.mark.parametrize(
    ("version", "option"),
    [
        ("4.2.3", "--local_ram_resources=6000"),
        ("6.5.0", "--local_ram_resources=6000"),
        ("7.7.1", "--local_ram_resources=6000"),
        ("8.0.0rc1", "--local_ram_resources=6000"),
        ("8.0.0", "--local_resources=memory=6000"),
    ],
)
def test_options_are_spelled_as_that_bazel_knows_them(version: str, option: str) -> None:
    startup, build = memory.build_resource_options(version, BUDGET)
    assert startup == ("--host_jvm_args=-Xmx2000m",)
    assert build == ("--jobs=3", option)


@pytest.mark.toolchain
def test_a_real_bazel_accepts_its_own_options_and_not_those_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USE_BAZEL_VERSION", str(bazel.DEBIAN_BAZEL))
    paths = settings.paths()
    bazel_tool = bazel.find_bazel(paths, "4.2.1")
    ours = dataclasses.replace(paths, cache=tmp_path)
    (tmp_path / "WORKSPACE").touch()

    def canonical(version: str) -> Completed:
        startup, build = memory.build_resource_options(version, BUDGET)
        command = (*bazel.build_startup_options(bazel_tool, ours), *startup, "canonicalize-flags")
        words: list[str | Path] = [
            bazel_tool.bazelisk,
            *command,
            "--for_command=build",
            "--",
            *build,
        ]
        return run(words, cwd=tmp_path, env=bazel.build_environment(bazel_tool.use), timeout_s=300)

    assert Version(bazel_tool.version) < Version("5")
    lines = canonical(bazel_tool.version).output.splitlines()
    assert {"--jobs=3", "--local_ram_resources=6000"} <= set(lines)
    with pytest.raises(CommandError, match="Unrecognized option: --local_resources"):
        canonical("8.0.0")
