"""Medians with exact intervals, the article computed again, what is asked and how it reads; no
worker starts here."""

from __future__ import annotations

import dataclasses
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.builders.comparisons import host
from tests.builders.prices import price

from tfbench.arms.arm import Arm
from tfbench.commands import AccuracyOptions
from tfbench.costs.prices import Price
from tfbench.experiments.accuracy import (
    datasets,
    handler,
    imported,
    results,
    text,
)
from tfbench.experiments.accuracy.curve import find_target
from tfbench.experiments.accuracy.datasets import CIFAR10, DIGITS, MNIST, SETS
from tfbench.experiments.accuracy.median import FEWEST, Median, compute_coverage, compute_median
from tfbench.experiments.accuracy.results import (
    Accuracy,
    Epoch,
    Goal,
    StartUp,
    TrainingResult,
    build_points,
    summarise_arm,
)
from tfbench.experiments.cell import Cell, LaunchResult, Outcome
from tfbench.experiments.experiment import Wheel
from tfbench.inside import convergence
from tfbench.inside.convergence import shuffle_batches, split_batches
from tfbench.inside.inputs import InputError
from tfbench.inside.workloads import find_workload
from tfbench.measuring.statistics import LEVEL
from tfbuild.upstream.download import hash_file
from tfcore import settings
from tfcore.errors import ChecksumError, DownloadError, SampleError, UsageError
from tfcore.records import convert_record, decode_record
from tfcore.settings import Paths

# ---- medians ----


@pytest.mark.parametrize(
    ("count", "inwards", "level"),
    [(1, 0, 0.0), (2, 0, 0.5), (3, 0, 0.75), (5, 0, 0.9375), (6, 0, 0.96875), (9, 1, 0.9609375)],
)
def test_the_level_is_what_so_many_values_can_give(count: int, inwards: int, level: float) -> None:
    median = compute_median([float(number) for number in range(1, count + 1)])
    assert (median.low, median.high) == (1 + inwards, count - inwards)
    assert median.level == level
    assert (median.level >= LEVEL) == (count >= FEWEST)


@pytest.mark.parametrize("count", [2, 5, 8, 17, 40])
@pytest.mark.parametrize("inwards", [0, 1, 3])
def test_the_coverage_is_that_of_the_binomial_distribution(count: int, inwards: int) -> None:
    expected = max(0.0, 1 - 2 * float(stats.binom.cdf(inwards, count, 0.5)))
    assert compute_coverage(count, inwards) == pytest.approx(expected, abs=1e-12)


def test_the_interval_is_the_narrowest_of_95_percent() -> None:
    for count in range(FEWEST, 60):
        median = compute_median([float(number) for number in range(count)])
        assert median.low is not None
        assert compute_coverage(count, int(median.low)) >= LEVEL
        assert compute_coverage(count, int(median.low) + 1) < LEVEL


def test_the_interval_holds_the_true_median_as_often_as_it_says() -> None:
    draw, hits, times = np.random.default_rng(1), 0, 4000
    for _ in range(times):
        median = compute_median(draw.exponential(size=9).tolist())
        assert median.low is not None
        assert median.high is not None
        hits += median.low <= np.log(2) <= median.high
    # Four standard errors of a share around 0.96 in so many tries.
    assert abs(hits / times - compute_coverage(9, 1)) < 4 * np.sqrt(0.04 * 0.96 / times)


@given(st.lists(st.none() | st.floats(0.1, 100), min_size=1, max_size=30))
def test_what_is_not_known_is_larger_than_all_that_is(values: list[float | None]) -> None:
    median, known = compute_median(values), [value for value in values if value is not None]
    ranks = [
        np.inf if value is None else value for value in (median.low, median.value, median.high)
    ]
    assert ranks == sorted(ranks)
    if 2 * len(known) <= len(values) - 1:
        assert median.value is None
    if len(known) == len(values):
        assert median.value == pytest.approx(np.median(known))
        assert median.low is not None
        assert median.high is not None


def test_a_median_of_nothing_is_an_error() -> None:
    with pytest.raises(SampleError):
        compute_median([])


# ---- the article ----


@pytest.mark.parametrize(
    ("place", "hours", "usd", "printed"),
    [(0, 8.15, 54.6, 55), (1, 10.95, 73.3, 73), (2, 10.53, 128.9, None), (3, 10.53, 87.8, None)],
)
def test_the_articles_hours_and_dollars_come_out(
    place: int, hours: float, usd: float, printed: float | None
) -> None:
    run = imported.read_article("2018").runs[place]
    assert round(run.seconds / 3600, 2) == hours
    assert round(run.usd, 1) == usd
    assert run.printed_usd == printed
    assert printed is None or round(run.usd) == printed


def test_the_articles_table_has_the_figures_and_their_source() -> None:
    shown = imported.build_article_table(imported.read_article("2018")).format_text(colour=False)
    for figure in (
        "8.15",
        "54.6",
        "10.95",
        "73.3",
        "128.9",
        "87.8",
        "1281167",
        "medium.com/riseml",
    ):
        assert figure in shown


def test_an_unknown_article_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--article 2019"):
        imported.read_article("2019")


# ---- what the worker does with arrays ----


@given(count=st.integers(1, 70), batch=st.integers(1, 20), epochs=st.integers(1, 3))
def test_every_epoch_mixes_all_examples_anew(count: int, batch: int, epochs: int) -> None:
    orders = shuffle_batches(count, batch, epochs, seed=3)
    assert orders.shape == (epochs, count // batch, batch)
    for order in orders.reshape(epochs, -1):
        assert len({*order.tolist()}) == len(order) == count // batch * batch
        assert not order.size or 0 <= order.min() <= order.max() < count


def test_the_seed_decides_the_order() -> None:
    first, again, other_array = (shuffle_batches(100, 10, 2, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other_array)
    assert not np.array_equal(first[0], first[1])


@given(count=st.integers(1, 50), batch=st.integers(1, 20))
def test_a_test_counts_every_example_once(count: int, batch: int) -> None:
    rows = np.arange(count, dtype=np.float32)
    inputs, targets, counts = split_batches((rows[:, None], rows), batch)
    assert inputs.shape == (*targets.shape, 1) == (*counts.shape, 1)
    assert targets[counts == 1].tolist() == rows.tolist()
    assert counts.sum() == count


def test_examples_that_changed_are_refused(tmp_path: Path) -> None:
    examples = datasets.load_digits_set()
    path, request = datasets.write_examples(examples, tmp_path), {"white": 16}
    workload = find_workload("digits_cnn")
    training, testing = convergence.load_examples(path, examples.sha256, workload, request)
    assert training[0].shape == (1347, 8, 8, 1)
    assert testing[1].shape == (450, 10)
    assert training[0].max() == 1.0
    assert (testing[1].argmax(axis=1) == examples.arrays[3]).all()
    with pytest.raises(InputError, match="has changed since the run began"):
        convergence.load_examples(path, "0" * 64, workload, request)


def test_the_digits_are_all_there_once_and_mixed() -> None:
    examples = datasets.load_digits_set()
    assert (examples.training, examples.testing) == (1347, 450)
    assert examples.sha256 == datasets.load_digits_set().sha256
    counts = np.bincount(np.concatenate([examples.arrays[1], examples.arrays[3]]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.bincount(examples.arrays[3], minlength=10).min() > 30


# ---- files of examples ----


def images(count: int, *shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(count).integers(0, 256, (count, *shape), dtype=np.uint8)


def made(**changed: Any) -> dict[str, Any]:
    whole = {
        "x_train": images(200, 28, 28),
        "y_train": np.arange(200, dtype=np.uint8) % 10,
        "x_test": images(50, 28, 28),
        "y_test": np.arange(50, dtype=np.uint8) % 10,
    }
    return {name: value for name, value in (whole | changed).items() if value is not None}


def npz(folder: Path, **changed: Any) -> Path:
    path = folder / "mnist.npz"
    np.savez(path, **made(**changed))
    return path


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return dataclasses.replace(settings.paths(), cache=tmp_path / "cache", mirror="")


def test_a_file_as_kerass_is_read(tmp_path: Path, paths: Paths) -> None:
    examples = datasets.load_examples(SETS[MNIST], npz(tmp_path), paths, tmp_path)
    assert examples.arrays[0].shape == (200, 28, 28, 1)
    assert (examples.training, examples.testing) == (200, 50)
    assert examples.arrays[1].tolist() == made()["y_train"].tolist()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y_test": None}, "y_test"),
        ({"x_train": images(200, 32, 32, 3)}, "x_train is uint8 .200, 32, 32, 3., mnist_cnn"),
        ({"x_train": images(200, 28, 28) / 255}, "x_train is float64"),
        ({"y_train": np.zeros(3, np.uint8)}, "200 .* x_train, 3 "),
        ({"y_train": np.full(200, 10)}, "y_train .*0 to 9"),
        ({"y_train": np.full(200, 0.5)}, "y_train"),
        ({"x_test": images(0, 28, 28), "y_test": np.zeros(0, np.uint8)}, "0 images in x_test"),
        ({"y_test": np.array([{}] * 50, object)}, "plain arrays"),
    ],
)
def test_a_file_of_something_else_is_one_clear_line(
    tmp_path: Path, paths: Paths, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        datasets.load_examples(SETS[MNIST], npz(tmp_path, **changed), paths, tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.npz", None, "No such file"),
        ("torn.npz", b"PK\x03\x04", "torn.npz"),
        ("text.npz", b"hello", "text.npz"),
        ("images.zip", b"", "images.zip"),
    ],
)
def test_what_is_no_file_of_examples_is_one_clear_line(
    tmp_path: Path, paths: Paths, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        datasets.load_examples(SETS[MNIST], path, paths, tmp_path)


def test_kerass_own_copy_is_taken_if_its_bytes_are_the_pinned_ones(
    tmp_path: Path, paths: Paths
) -> None:
    kept_path = tmp_path / ".keras" / "datasets"
    kept_path.mkdir(parents=True)
    path = npz(kept_path)
    data = SETS[MNIST]
    assert data.pin is not None
    pinned = dataclasses.replace(data, pin=dataclasses.replace(data.pin, sha256=hash_file(path)))
    assert datasets.load_examples(pinned, None, paths, tmp_path).training == 200
    assert datasets.describe_source(pinned, None, paths, tmp_path) == str(path)
    assert "https://storage" in datasets.describe_source(data, None, paths, tmp_path)


def test_a_download_that_fails_says_what_to_do(tmp_path: Path, paths: Paths) -> None:
    nowhere = dataclasses.replace(SETS[MNIST], url=(tmp_path / "none.npz").as_uri())
    mirrored = dataclasses.replace(paths, mirror=str(tmp_path / "mirror"))
    with pytest.raises(DownloadError, match="mnist") as raised:
        datasets.load_examples(nowhere, None, mirrored, tmp_path)
    assert "--data-file mnist.npz" in raised.value.hint
    assert "--data digits" in raised.value.hint


def archive(folder: Path) -> Path:
    """CIFAR-10's form, with 4 images a file."""
    import pickle  # noqa: PLC0415

    path = folder / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as sink:
        for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
            rows = np.full((4, 3072), number, np.uint8)
            rows[:, 1024] = 99  # the first pixel's green
            held = pickle.dumps({b"data": rows, b"labels": [number] * 4})
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(held)
            sink.addfile(member, io.BytesIO(held))
    return path


def test_cifar_10_is_read_from_its_archive_only_with_the_pinned_bytes(
    tmp_path: Path, paths: Paths
) -> None:
    path, data = archive(tmp_path), SETS[CIFAR10]
    assert data.pin is not None
    with pytest.raises(ChecksumError):
        datasets.load_examples(data, path, paths, tmp_path)
    pin = dataclasses.replace(data.pin, sha256=hash_file(path))
    examples = datasets.load_examples(dataclasses.replace(data, pin=pin), path, paths, tmp_path)
    assert (examples.training, examples.testing) == (20, 4)
    assert examples.arrays[1].tolist() == [n for n in range(5) for _ in range(4)]
    assert examples.arrays[0][7, 0, 0].tolist() == [1, 99, 1]
    assert examples.arrays[3].tolist() == [5] * 4


# ---- what is asked ----


def asking(**options: str) -> handler.AccuracyConfig:
    return handler.parse_options(AccuracyOptions(**options))


def test_defaults_are_five_seeds_of_the_stock_wheel_on_digits() -> None:
    config = asking()
    assert (config.data.name, config.workload, config.batch) == (DIGITS, "digits_cnn", 32)
    assert config.seeds == (1, 2, 3, 4, 5)
    assert (config.target, config.epochs) == (0.97, 30)
    assert config.price is None


@pytest.mark.parametrize(
    ("typed", "target"), [("0.97", 0.97), ("97%", 0.97), (" 75.7 % ", 0.757), ("1e-1%", 0.001)]
)
def test_a_target_is_a_share_or_in_per_cent(typed: str, target: float) -> None:
    assert handler._parse_target(typed, chance=0.0) == target


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "digit"}, "'digit'.*Did you mean digits"),
        ({"data": "imagenet"}, "digits, mnist, cifar10"),
        ({"reach": "1"}, "is too high"),
        ({"reach": "97"}, "is too high"),
        ({"reach": "100%"}, "is too high"),
        ({"reach": "0.1"}, "above 0.1"),
        ({"reach": "high"}, "not an accuracy"),
        ({"reach": "nan"}, "not an accuracy"),
        ({"batch": "1348"}, "1348 .* 1347"),
        ({"data": "mnist", "batch": "60001"}, "60000"),
        ({"batch": "0"}, "--batch 0"),
        ({"seeds": "0"}, "--seeds 0"),
        ({"epochs": "many"}, "--epochs many"),
        ({"vcpus": "1,2"}, "--vcpus 1,2|2 vCPUs"),
        ({"data_file": "x.npz"}, "--data-file.* --data digits"),
        ({"data": "mnist", "data_file": "none.npz"}, "none.npz"),
        ({"machine": "cpu8"}, "need --prices"),
        ({"prices": "2017-07-gce"}, "--prices .*cpu8"),
        ({"prices": "2017-07-gce", "machine": "cpu9"}, "'cpu9'"),
        ({"prices": "2016", "machine": "cpu8"}, "no price book 2016"),
        ({"prices": "2018-04-riseml", "machine": "p3.8xlarge"}, "2 prices for 'p3.8xlarge'"),
        (
            {"prices": "2018-04-riseml", "machine": "tpuv2", "mode": "gold"},
            "--mode gold",
        ),
        ({"import_": "x.csv"}, "--import needs"),
        ({"import_": "x.csv", "reach": "0"}, "above 0"),
        ({"import_": "x.csv", "seeds": "3"}, "--import .* --seeds"),
        ({"import_": "x.csv", "data_file": "3"}, "--data-file"),
        ({"import_": "x.csv", "article": "2018"}, "exclude each other"),
        ({"article": "2018", "reach": "0.5"}, "--article .* --reach"),
        ({"column": "accuracy"}, "--column"),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        handler.measure_accuracy(AccuracyOptions(**options))
    assert "\n" not in str(raised.value)


def test_a_machine_with_fewer_vcpus_is_refused() -> None:
    with pytest.raises(UsageError, match=r"gpu .* 1 vCPU.* 2"):
        handler._find_price(AccuracyOptions(prices="2017-07-gce", machine="gpu"), 2)
    actual = handler._find_price(
        AccuracyOptions(prices="2018-04-riseml", machine="p3.8xlarge", mode="reserved_1y"), 2
    )
    assert actual is not None
    assert actual.usd_hour == 8.34


def test_a_dry_run_says_what_would_be_done() -> None:
    shown = handler.describe_plan(AccuracyOptions(reach="95%", seeds="3"))
    for words in (
        "digits_cnn, batches of 32",
        "accuracy 0.95 on the test",
        "3 training runs",
        "tensorflow-cpu==",
    ):
        assert words in shown
    assert "train      nothing" in handler.describe_plan(AccuracyOptions(article="2018"))
    assert "curve.csv" in handler.describe_plan(AccuracyOptions(import_="curve.csv", reach="0.5"))


def test_a_file_with_less_than_a_batch_is_refused(tmp_path: Path, paths: Paths) -> None:
    path = npz(tmp_path)
    config = asking(data=MNIST, data_file=str(path), batch="201")
    examples = datasets.load_examples(SETS[MNIST], path, paths, tmp_path)
    arm = Arm(name="stock", python=Path("/none"), label="stock")
    with pytest.raises(UsageError, match=r"201 .* 200"):
        handler.train(config, {arm.name: arm}, examples, str(tmp_path / "out"), paths)
    assert not (tmp_path / "out").exists()


# ---- what is said ----

SETTING = Goal(
    data=DIGITS,
    source=SETS[DIGITS].source,
    workload="digits_cnn",
    batch=32,
    training=1347,
    testing=450,
    examples_sha256="ab" * 32,
    target=0.9,
    epochs=3,
    seeds=(1, 2, 3, 4, 5),
    cpus=(0, 1),
)
START_UP = StartUp(import_s=3.0, read_s=0.1, build_s=0.4, trace_s=0.5)


def run(seed: int, *accuracies: float, arm: str = "stock", pace: float = 1.0) -> TrainingResult:
    epochs = tuple(
        Epoch(epoch=number, train_s=pace, test_s=0.1, accuracy=accuracy, loss=1 / number)
        for number, accuracy in enumerate(accuracies, start=1)
    )
    return TrainingResult(
        arm=arm,
        seed=seed,
        outcome=Outcome.OK,
        reason="",
        images=1344,
        start_up=START_UP,
        epochs=epochs,
        reached=find_target(build_points(epochs), SETTING.target),
    )


def failed(seed: int, arm: str = "stock") -> TrainingResult:
    return TrainingResult(
        arm=arm,
        seed=seed,
        outcome=Outcome.OUT_OF_MEMORY,
        reason="bad_alloc",
        images=0,
        start_up=None,
        epochs=(),
        reached=None,
    )


def result(*runs: TrainingResult, paid: Price | None = None) -> Accuracy:
    arms = tuple(dict.fromkeys(training_result.arm for training_result in runs))
    return Accuracy(
        schema=results.SCHEMA,
        made="2026-01-01T00:00:00+00:00",
        host=host(2),
        asked=SETTING,
        price=paid,
        arms=tuple(Wheel(arm=arm, label=arm, wheel_sha256="") for arm in arms),
        runs=runs,
        summaries=tuple(
            summarise_arm(
                arm,
                [training_result for training_result in runs if training_result.arm == arm],
                paid,
            )
            for arm in arms
        ),
    )


ALL = tuple(run(seed, 0.5, 0.95, pace=seed) for seed in (1, 2, 3, 4, 5))
SOME = (*ALL[:3], run(4, 0.5, 0.6, 0.7), failed(5))


def said(accuracy: Accuracy) -> str:
    return text.build_table(accuracy).format_text(colour=False)


def ends(median: Median | None) -> tuple[float | None, ...]:
    assert median is not None
    return median.value, median.low, median.high


def test_the_median_time_is_of_training_alone() -> None:
    (arm_summary,) = result(*ALL).summaries
    assert ends(arm_summary.seconds) == (6, 2, 10)
    assert ends(arm_summary.test_s)[0] == pytest.approx(0.2)
    assert ends(arm_summary.start_up_s)[0] == pytest.approx(4.0)
    assert ends(arm_summary.images_s)[0] == pytest.approx(1344 / 3)


def test_dollars_are_the_machines_for_that_time() -> None:
    (arm_summary,) = result(*ALL, paid=price(usd_hour=3600.0)).summaries
    assert ends(arm_summary.usd) == (6, 2, 10)


def test_billing_in_whole_minutes_rounds_the_interval_too() -> None:
    paid = price(usd_hour=60.0, billing_increment_s=60.0)
    (arm_summary,) = result(*ALL, paid=paid).summaries
    assert ends(arm_summary.usd) == (1, 1, 1)


def test_seeds_that_did_not_reach_the_target_count_as_longer_than_all() -> None:
    (summary,) = result(*ALL[:3], run(4, 0.5, 0.6, 0.7), run(5, 0.8, 0.8, 0.8)).summaries
    assert (summary.seeds, summary.trained, summary.reached, summary.failed) == (5, 5, 3, 0)
    assert ends(summary.seconds) == (6, 2, None)


def test_most_seeds_without_the_target_give_no_median() -> None:
    none = result(run(1, 0.5, 0.95), *(run(seed, 0.5, 0.6, 0.7) for seed in (2, 3)))
    assert ends(none.summaries[0].seconds)[0] is None
    shown = said(none)
    assert "1 of 3 seeds reached 90%" in shown
    assert "unknown" in shown
    assert "70% at epoch 3" in shown


def test_a_seed_that_failed_is_said_and_not_counted_as_slow() -> None:
    accuracy = result(*SOME)
    assert (accuracy.summaries[0].trained, accuracy.summaries[0].failed) == (4, 1)
    assert "stock, seed 5: out of memory: bad_alloc." in said(accuracy)
    assert "3 of 5 seeds reached" in said(accuracy)


def test_where_all_failed_nothing_else_is_said() -> None:
    accuracy = result(failed(1), failed(2))
    assert accuracy.summaries[0].seconds is None
    assert "no training was completed" in said(accuracy)
    assert list(text.draw_figures(accuracy)) == []


def test_the_answer_names_the_interval_and_its_level() -> None:
    shown = said(result(*ALL, paid=price(usd_hour=3600.0)))
    assert "5 of 5 seeds" in shown
    assert "6.00 (2.00 to 10.00) s" in shown
    assert "6.00 (2.00 to 10.0) USD" in shown
    assert "at most a 93.75% interval; 95% needs 6" in shown
    assert "no interval" in said(result(ALL[0]))
    assert "needs 6" not in said(result(*ALL, run(6, 0.95)))


def test_the_page_has_every_seed_and_a_line_for_each() -> None:
    both = result(
        *SOME, *(dataclasses.replace(training_result, arm="tuned") for training_result in ALL)
    )
    page = text.build_document(both)
    seeds = next(
        block
        for block in page.sections[0].blocks
        if not isinstance(block, str) and getattr(block, "caption", "") == "Every seed"
    )
    assert [row[2] for row in getattr(seeds, "rows", ())] == [
        *(*["reached"] * 3, "not reached", "out of memory"),
        *["reached"] * 5,
    ]
    assert [answer.label for answer in page.answers] == ["stock", "tuned"]
    assert len(page.warnings) == 2
    assert "`invoke compare`" in said(both)
    assert "`invoke compare`" not in said(result(*SOME))
    (drawn,) = text.draw_figures(both)
    assert drawn.description.count("seed") == 9
    assert drawn.description.count("not reached") == 1
    assert all(f">{arm}</text>" in drawn.svg for arm in ("stock", "tuned"))
    (filled,) = text.draw_figures(result(*ALL))
    assert "var(--card)" in drawn.svg, "a mark of a seed that did not reach the target is open"
    assert "var(--card)" not in filled.svg


def test_the_result_is_read_again_as_it_was_written() -> None:
    accuracy = result(*SOME, paid=price())
    assert decode_record(Accuracy, convert_record(accuracy)) == accuracy


# ---- from processes ----


CELL = Cell(arm="tuned", place=(), launch=0, module="m", request={"seed": 7}, vcpus=(0,))


def test_epochs_of_a_process_are_a_course_of_training() -> None:
    answer = {
        "epochs": [{"epoch": 1, "train_s": 2.0, "test_s": 0.5, "accuracy": 0.95, "loss": None}],
        "images": 1344,
        **convert_record(START_UP),
    }
    launch = LaunchResult(key="k", outcome=Outcome.OK, seconds=9.0, answer=answer)
    training_result = results.build_result(CELL, launch, 0.9)
    assert (training_result.arm, training_result.seed, training_result.images) == ("tuned", 7, 1344)
    assert training_result.reached is not None
    assert training_result.start_up == START_UP


def test_what_no_process_answered_is_a_mark() -> None:
    late = LaunchResult(key="k", outcome=Outcome.LATE, reason="did not answer")
    training_result = results.build_result(CELL, late, 0.9)
    assert (training_result.outcome, training_result.epochs, training_result.reached) == (
        Outcome.LATE,
        (),
        None,
    )
