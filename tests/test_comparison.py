"""From made-up launches to the records, the file and back; what cannot be compared is refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tfbench.arms import Arm, check_arms, environment
from tfbench.comparison import Comparison, Effort, check_agreement, load, questions
from tfbench.host import Host, hugepages
from tfbench.measurement import Launch, Measured, Question, Start
from tfbench.results import SCHEMA, save
from tfbench.samples import Sample, journal, read_samples
from tfbench.statistics import LEVEL, MARGIN, Verdict
from tfbench.summary import agreements, arm_facts, cell, difference, overall
from tfbuild.cpu import Cpu, Vcpus
from tfbuild.errors import AgreementError, DiskError, RecordError, SampleError, UsageError

LOSSES = (2.30, 2.25, 2.21, 2.15, 2.10)
STOCK = Arm(name="stock", python=Path("/arms/stock/bin/python"), label="tensorflow-cpu 2.14.1")
TUNED = Arm(
    name="tuned",
    python=Path("/arms/tuned/bin/python"),
    label="tensorflow-cpu 2.14.1+skylake.1",
    env=(("TF_ENABLE_ONEDNN_OPTS", "1"),),
    wheel_sha256="ab" * 32,
)
HOST = Host(
    cpu=Cpu(
        architecture="x86_64",
        vendor="GenuineIntel",
        name="Example CPU",
        family=6,
        model=85,
        stepping=4,
        microcode="0x1",
        hypervisor=True,
        features=frozenset({"avx2", "fma"}),
    ),
    vcpus=Vcpus(machine=4, affinity=4, quota=2.0, usable=2),
    affinity=(0, 1, 2, 3),
    kernel="6.1.0",
    memory_bytes=8_000_000_000,
    hugepages="madvise",
)


def question(workload: str = "mnist_mlp", vcpus: int = 2) -> Question:
    return Question(workload=workload, vcpus=tuple(range(vcpus)), arms=(STOCK, TUNED), seed=1)


def start(arm: str, losses: Sequence[float] = LOSSES, **changed: object) -> Start:
    facts: dict[str, object] = {
        "inputs_sha256": "same",
        "import_s": 1.5,
        "build_s": 0.2,
        "first_step_s": 0.4,
        "tensorflow": "2.14.1",
        "tensorflow_file": f"/arms/{arm}/lib/tensorflow/__init__.py",
        "git_version": "v2.14.1",
        "compiler_version": "clang 16",
        "python": "3.11.7",
        "numpy": "1.26.4",
        "raised_kernels": {"OptionsDataset": 1},
        "kernel_library": None,
        "environment": {"TF_NUM_INTRAOP_THREADS": "2"},
    }
    return Start(arm=arm, facts=facts | changed, losses=tuple(losses))


def samples(number: int, seconds: Mapping[str, float], blocks: int = 10) -> tuple[Sample, ...]:
    """Blocks of a machine that gets slower all the time, ABBA and BAAB in turn."""
    chance = np.random.default_rng(number)
    orders = (("stock", "tuned", "tuned", "stock"), ("tuned", "stock", "stock", "tuned"))
    return tuple(
        Sample(
            workload="mnist_mlp",
            vcpus=2,
            launch=number,
            block=block,
            position=position,
            arm=arm,
            steps=10,
            wall_s=seconds[arm] * (1 + 0.01 * (4 * block + position)) * chance.lognormal(0, 0.002),
            cpu_s=0.1,
            run_delay_s=0.0,
        )
        for block in range(blocks)
        for position, arm in enumerate(orders[block % 2])
    )


def measured(
    workload: str = "mnist_mlp",
    *,
    tuned_s: float = 0.2,
    launches: int = 3,
    losses: Sequence[float] = LOSSES,
) -> Measured:
    agree = tuple(losses) == LOSSES
    return Measured(
        question=question(workload),
        launches=tuple(
            Launch(
                starts=(start("stock"), start("tuned", losses, kernel_library="/k/skylake.so")),
                samples=samples(number, {"stock": 0.3, "tuned": tuned_s}) if agree else (),
            )
            for number in range(launches)
        ),
    )


def comparison(*found: Measured) -> Comparison:
    generator = np.random.default_rng(0)
    return Comparison(
        schema=SCHEMA,
        made="2026-01-02T03:04:05+00:00",
        seconds=75.0,
        seed=1,
        effort=Effort(launches=3, blocks=10),
        margin=MARGIN,
        level=LEVEL,
        host=HOST,
        arms=arm_facts((STOCK, TUNED), found[0].launches[0].starts),
        cells=tuple(cell(each, generator) for each in found),
        overall=overall(found, generator),
    )


def test_a_candidate_that_needs_two_thirds_of_the_time_is_faster() -> None:
    found = cell(measured(), np.random.default_rng(0))
    (speedup,) = found.speedups
    assert speedup.verdict is Verdict.FASTER
    assert math.isclose(speedup.interval.value, 1.5, rel_tol=0.01)
    assert speedup.interval.low < 1.5 < speedup.interval.high
    assert (found.steps, found.launches, found.blocks, found.batch) == (10, 3, 30, 128)


def test_times_per_step_are_in_milliseconds_and_their_ratio_is_the_speedup() -> None:
    found = cell(measured(), np.random.default_rng(0))
    stock, tuned = (arm.step_ms for arm in found.arms)
    assert stock is not None
    assert tuned is not None
    assert 30 < stock.value < 42, "0.3 s for 10 steps, up to 40 % slower in the end"
    assert math.isclose(stock.value / tuned.value, found.speedups[0].interval.value, rel_tol=0.01)


def test_arms_that_take_the_same_time_are_within_noise() -> None:
    found = cell(measured(tuned_s=0.3), np.random.default_rng(0))
    assert found.speedups[0].verdict is not Verdict.FASTER
    assert math.isclose(found.speedups[0].interval.value, 1.0, abs_tol=0.01)


def test_a_slow_candidate_is_called_slower() -> None:
    found = comparison(measured(tuned_s=0.4), measured("lstm_text", tuned_s=0.33))
    assert [each.speedups[0].verdict for each in found.cells] == [Verdict.SLOWER] * 2
    (mean,) = found.overall
    assert mean.speedup.verdict is Verdict.SLOWER
    assert math.isclose(mean.speedup.interval.value, math.sqrt(0.75 / 1.1), rel_tol=0.01)


def test_overall_has_one_figure_for_each_number_of_vcpus() -> None:
    one = dataclasses.replace(measured(tuned_s=0.3), question=question(vcpus=1))
    found = overall((measured(), one), np.random.default_rng(0))
    assert [(each.vcpus, each.workloads) for each in found] == [(2, 1), (1, 1)]
    two, one_vcpu = (each.speedup.interval.value for each in found)
    assert (round(two, 1), round(one_vcpu, 1)) == (1.5, 1.0)


def test_a_launch_without_samples_is_no_answer() -> None:
    broken = measured()
    launches = (*broken.launches[:2], dataclasses.replace(broken.launches[2], samples=()))
    with pytest.raises(SampleError, match="launch"):
        cell(dataclasses.replace(broken, launches=launches), np.random.default_rng(0))


def test_a_block_that_lacks_a_sample_is_refused() -> None:
    broken = measured(launches=1)
    torn = dataclasses.replace(broken.launches[0], samples=broken.launches[0].samples[:-1])
    with pytest.raises(SampleError, match="2 samples of one arm and 1 of the other"):
        cell(dataclasses.replace(broken, launches=(torn,)), np.random.default_rng(0))


def test_samples_with_other_step_counts_are_refused() -> None:
    broken = measured(launches=1)
    first, *rest = broken.launches[0].samples
    mixed = (dataclasses.replace(first, steps=11), *rest)
    launch = dataclasses.replace(broken.launches[0], samples=mixed)
    with pytest.raises(SampleError, match="different numbers of steps"):
        cell(dataclasses.replace(broken, launches=(launch,)), np.random.default_rng(0))


# --- agreement ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (LOSSES, 0.0),
        ((2.30, 2.25, 2.21, 2.15, 2.205), 0.105 / 2.205),
        ((2.30, 2.25, 2.21, 2.15, math.nan), None),
        ((2.30, math.inf, 2.21, 2.15, 2.10), None),
    ],
)
def test_the_worst_loss_decides(others: Sequence[float], expected: float | None) -> None:
    found = difference(LOSSES, others)
    assert found == (None if expected is None else pytest.approx(expected))


def test_losses_that_are_not_numbers_in_both_arms_do_not_agree() -> None:
    wrong = (math.nan,) * 5
    (agreement,) = agreements([(start("stock", wrong), start("tuned", wrong))])
    assert not agreement.agrees


def test_every_launch_must_agree() -> None:
    off = tuple(loss * 1.002 for loss in LOSSES)
    found = agreements(
        [(start("stock"), start("tuned")), (start("stock"), start("tuned", off))],
    )
    assert [each.agrees for each in found] == [False]
    assert found[0].difference == pytest.approx(0.002, rel=0.01)


def test_rounding_is_allowed() -> None:
    off = tuple(loss * (1 + 5e-4) for loss in LOSSES)
    (agreement,) = agreements([(start("stock"), start("tuned", off))])
    assert agreement.agrees


def test_arms_that_did_not_start_equal_are_refused() -> None:
    with pytest.raises(AgreementError, match="did not start from equal data"):
        agreements([(start("stock"), start("tuned", inputs_sha256="other"))])


def test_losses_that_differ_are_kept_and_then_an_error_that_lists_both() -> None:
    off = (2.30, 2.25, 2.21, 2.15, 2.20)
    found = comparison(measured(losses=off), measured("lstm_text"))
    wrong, right = found.cells
    assert not wrong.agrees
    assert (wrong.speedups, wrong.steps, wrong.blocks) == ((), 0, 0)
    assert wrong.arms[1].losses == off
    assert right.agrees
    assert [each.workloads for each in found.overall] == [1], "the other cell still counts"
    with pytest.raises(AgreementError, match=r"mnist_mlp.* 2\.1, of tuned .* 2\.2,"):
        check_agreement(found)


def test_arms_that_agree_pass() -> None:
    check_agreement(comparison(measured()))


def test_without_any_agreement_there_is_no_overall_figure() -> None:
    assert comparison(measured(losses=(1.0, 1.0, 1.0, 1.0, 1.0))).overall == ()


# --- files --------------------------------------------------------------------------------------


def test_a_comparison_loads_back_as_it_was_saved(tmp_path: Path) -> None:
    made = comparison(measured(), measured("lstm_text", losses=(1.0, 1.0, 1.0, 1.0, 1.0)))
    save(tmp_path / "comparison.json", made)
    assert load(tmp_path / "comparison.json") == made


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"seed": 1', '"seed": "one"'),
        ('"verdict": "faster"', '"verdict": "splendid"'),
        ('"made"', '"baked"'),
        ('"schema": 1', '"schema": 2'),
        ('"seconds": 75.0', '"seconds": true'),
    ],
)
def test_a_foreign_comparison_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "comparison.json"
    save(path, comparison(measured()))
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(RecordError):
        load(path)


def test_samples_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "samples.jsonl"
    given = samples(0, {"stock": 0.3, "tuned": 0.2}, blocks=2)
    with journal(path) as keep:
        for sample in given:
            keep(sample)
            assert path.read_bytes().endswith(b"}\n"), "on disk before the next is taken"
    assert read_samples(path) == given


def test_a_torn_last_line_is_dropped_and_a_torn_middle_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    given = samples(0, {"stock": 0.3, "tuned": 0.2}, blocks=1)
    with journal(path) as keep:
        for sample in given:
            keep(sample)
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[:-20], encoding="utf-8")
    assert read_samples(path) == given[:-1]
    path.write_text(whole[20:], encoding="utf-8")
    with pytest.raises(RecordError, match="line 1"):
        read_samples(path)


def test_a_missing_samples_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        read_samples(tmp_path / "samples.jsonl")


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(DiskError), journal(tmp_path / "file" / "samples.jsonl"):
        pass


def test_a_full_disk_is_an_error() -> None:
    sample = samples(0, {"stock": 0.3, "tuned": 0.2}, blocks=1)[0]
    with journal(Path("/dev/full")) as keep, pytest.raises(DiskError, match="No space left"):
        keep(sample)


# --- what is asked ------------------------------------------------------------------------------


def test_every_workload_is_asked_at_every_number_of_vcpus() -> None:
    asked = questions((STOCK, TUNED), ("mnist_mlp", "lstm_text"), (1, 2, 2), HOST, 7)
    assert [(each.workload, each.vcpus) for each in asked] == [
        ("mnist_mlp", (0,)),
        ("lstm_text", (0,)),
        ("mnist_mlp", (0, 1)),
        ("lstm_text", (0, 1)),
    ]


@pytest.mark.parametrize(
    ("workloads", "vcpus", "words"),
    [
        (("mnist_mlp",), (3,), "3 vCPUs cannot be measured here, 2 are usable"),
        (("mnist_mlp",), (0,), "0 vCPUs"),
        (("mnist_mlp",), (), "nothing to compare"),
        ((), (1,), "nothing to compare"),
        (("mnist",), (1,), "unknown workload mnist"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    workloads: tuple[str, ...], vcpus: tuple[int, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        questions((STOCK, TUNED), workloads, vcpus, HOST, 1)


@pytest.mark.parametrize("arms", [(), (STOCK,), (STOCK, STOCK)])
def test_a_comparison_needs_two_different_arms(arms: tuple[Arm, ...]) -> None:
    with pytest.raises(UsageError):
        check_arms(arms)


def test_a_worker_gets_a_small_environment_and_the_arms_own_values_win() -> None:
    arm = dataclasses.replace(TUNED, env=(("OMP_NUM_THREADS", "7"), ("ONEDNN_MAX_CPU_ISA", "AVX")))
    env = environment(
        arm,
        vcpus=2,
        home=Path("/nowhere"),
        padding=100,
        inherited={"PATH": "/bin", "LD_PRELOAD": "spy.so", "TF_ENABLE_ONEDNN_OPTS": "0"},
    )
    assert env["PATH"] == "/bin"
    assert env["TF_NUM_INTRAOP_THREADS"] == env["TF_NUM_INTEROP_THREADS"] == "2"
    assert env["OMP_NUM_THREADS"] == "7"
    assert env["ONEDNN_MAX_CPU_ISA"] == "AVX"
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert len(env["TENSORWRIGHT_PADDING"]) == 100
    assert {"LD_PRELOAD", "TF_ENABLE_ONEDNN_OPTS"}.isdisjoint(env)


def test_the_arms_prefix_is_its_environment_even_where_python_is_a_link(tmp_path: Path) -> None:
    python = tmp_path / "arm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/usr/bin/env")
    assert dataclasses.replace(STOCK, python=python).prefix == tmp_path / "arm"


def test_the_mode_of_huge_pages_is_the_one_in_brackets(tmp_path: Path) -> None:
    path = tmp_path / "enabled"
    path.write_text("always [madvise] never\n", encoding="ascii")
    assert hugepages(path) == "madvise"
    assert hugepages(tmp_path / "none") == ""
