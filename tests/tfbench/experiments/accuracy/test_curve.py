"""Curves that others measured: read, refused, and what they say of a target."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.prices import price

from tfbench.experiments.accuracy import imported
from tfbench.experiments.accuracy.curve import CurvePoint, Reached, find_best, find_target
from tfbench.experiments.accuracy.curve_file import Curve, parse_curve, read_curve
from tfbench.experiments.accuracy.imported import import_curve
from tfbench.experiments.accuracy.text import KEY
from tfcore.errors import SampleError, TensorwrightError, UsageError

# The first lines of stanford-futuredata/dawn-bench-entries,
# ImageNet/train/google_resnet50_tpu_tensorflow17.tsv, and those around the first 75.7 % of top-1.
DAWNBENCH = (
    "epoch\thours\ttop1Accuracy\ttop5Accuracy\r\n"
    "1\t0.15638888888888888\t5.37\t15.36\r\n"
    "2\t0.31\t14.31\t33.13\r\n"
    "65\t10.3325\t75.56\t92.77\r\n"
    "66\t10.492777777777778\t75.74\t92.80\r\n"
    "67\t10.653333333333334\t75.64\t92.91\r\n"
)
PLAIN = "epoch,seconds,accuracy\n1,10,0.5\n2,20,0.9\n3,30,0.8\n"


def points(text: str, column: str = "") -> tuple[CurvePoint, ...]:
    return parse_curve(text, "curve", column)[1]


# ---- what is read ----


def test_an_entry_of_dawnbench_is_read_in_seconds_and_shares() -> None:
    curve_points = points(DAWNBENCH)
    assert curve_points[0] == CurvePoint(
        epoch=1, seconds=0.15638888888888888 * 3600, accuracy=0.0537
    )
    assert [point.accuracy for point in curve_points[2:]] == [0.7556, 0.7574, 0.7564]
    assert points(DAWNBENCH, "top5Accuracy")[3].accuracy == 0.928


def test_a_plain_curve_may_be_in_shares_or_in_per_cent() -> None:
    percent = PLAIN.replace("0.5", "50").replace("0.9", "90").replace("0.8", "80")
    assert points(PLAIN) == points(percent)
    assert [point.accuracy for point in points(PLAIN)] == [0.5, 0.9, 0.8]


def test_columns_stand_in_any_order_beside_others_and_behind_a_byte_order_mark(
    tmp_path: Path,
) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(
        "\ufeffaccuracy, loss,epoch ,seconds\r\n0.5,2.1,1,10\r\n\r\n0.9,,2,20\r\n", encoding="utf-8"
    )
    assert read_curve(path).points == points(PLAIN)[:2]


def test_a_score_is_named_by_its_column() -> None:
    text = "epoch\thours\tf1Score\n1.0\t1.2\t0.5294420718999999\n2.0\t2.4\t0.66\n"
    assert points(text, "f1Score")[1].accuracy == 0.66
    with pytest.raises(SampleError, match="lacks accuracy") as raised:
        points(text)
    assert "--column" in str(raised.value)
    with pytest.raises(UsageError, match="Did you mean f1Score"):
        points(text, "f1score")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("\n \n", "empty"),
        ("epoch,seconds,accuracy\n", "no epochs"),
        ("epoch,accuracy\n1,0.5\n", "hours or seconds"),
        ("epoch,hours,seconds,accuracy\n1,1,3600,0.5\n", "two time columns"),
        ("seconds,accuracy\n1,0.5\n", "lacks epoch"),
        ("epoch,seconds,accuracy,accuracy\n1,1,0.5,0.6\n", "duplicate columns"),
        ("epoch,seconds,accuracy\n1,1\n", "line 2 .* 2 cells"),
        ("epoch,seconds,accuracy\n1,1,0.5,0.6\n", "line 2 .* 4 cells"),
        ("epoch,seconds,accuracy\none,1,0.5\n", "epoch is 'one'"),
        ("epoch,seconds,accuracy\n1,,0.5\n", "seconds is ''"),
        ("epoch,seconds,accuracy\n1,1,nan\n", "accuracy is 'nan'"),
        ("epoch,seconds,accuracy\n1,1e999,0.5\n", "seconds is 1e999"),
        ("epoch,seconds,accuracy\n1,inf,0.5\n", "seconds is 'inf'"),
        ("epoch,seconds,accuracy\n1,1_0,0.5\n", "seconds is '1_0'"),
        ("epoch,seconds,accuracy\n1,-1,0.5\n", "seconds is -1"),
        ("epoch,seconds,accuracy\n1,2,0.5\n2,1,0.6\n", "line 3: .* 2 to 1"),
        ("epoch,seconds,accuracy\n1,2,0.5\n1,3,0.6\n", "line 3: epoch 1 "),
        ("epoch,seconds,accuracy\n2,2,0.5\n1,3,0.6\n", "epoch 1 .* 2"),
        ("epoch,seconds,accuracy\n1,2,0.5\n2,3,60\n", "above 1 "),
        ("epoch,seconds,accuracy\n1,2,50\n2,3,101\n", "line 3: .* 101 "),
        ("epoch,hours,top1Accuracy\n1,2,0.5\n2,3,0.6\n", "DAWNBench"),
        ('epoch,seconds,accuracy\n1,2,"0.5\n', "line 2: unexpected end of data"),
    ],
)
def test_what_is_no_curve_is_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(SampleError, match=message) as raised:
        parse_curve(text, "curve.csv")
    assert "\n" not in str(raised.value)
    assert "curve.csv" in raised.value.message


def test_a_file_that_is_not_there_or_not_text_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_curve(tmp_path / "none.csv")
    path = tmp_path / "curve.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SampleError, match=r"curve\.csv"):
        read_curve(path)


@given(
    text=st.text(st.sampled_from('epoch,seconds,accuracy\t\n\r" .0123456789-e\x00'), max_size=80)
)
def test_any_text_is_a_curve_or_a_clear_line(text: str) -> None:
    for whole in (text, f"epoch,seconds,accuracy\n{text}"):
        try:
            column, curve_points = parse_curve(whole, "curve")
        except TensorwrightError as error:
            assert error.message  # noqa: PT017  (either of the two ends is right)
        else:
            assert column in whole
            assert all(0 <= point.accuracy <= 1 for point in curve_points)
            assert list(curve_points) == sorted(
                curve_points, key=lambda point: (point.epoch, point.seconds)
            )


SHARES = st.integers(0, 10_000).map(lambda number: number / 10_000)
EPOCHS = st.sets(st.integers(0, 60), min_size=1, max_size=20).map(sorted)


@given(epochs=EPOCHS, data=st.data(), chance=st.randoms(use_true_random=False))
def test_what_is_written_is_read_again_in_any_order_of_columns(
    epochs: list[int], data: st.DataObject, chance: random.Random
) -> None:
    count = len(epochs)
    times = sorted(data.draw(st.lists(st.integers(0, 10**6), min_size=count, max_size=count)))
    shares = data.draw(st.lists(SHARES, min_size=count, max_size=count))
    names = ["epoch", "seconds", "accuracy", "loss"]
    chance.shuffle(names)
    lines = [",".join(names)]
    for epoch, time, share in zip(epochs, times, shares, strict=True):
        cells = {"epoch": epoch, "seconds": time, "accuracy": share, "loss": "?"}
        lines.append(",".join(f"{cells[name]}" for name in names))
    expected = tuple(
        CurvePoint(epoch=epoch, seconds=time, accuracy=share)
        for epoch, time, share in zip(epochs, times, shares, strict=True)
    )
    assert points("\n".join(lines)) == expected


# ---- what it says ----


def curve(*accuracies: float, first: int = 1) -> tuple[CurvePoint, ...]:
    return tuple(
        CurvePoint(epoch=number, seconds=10.0 * number, accuracy=accuracy)
        for number, accuracy in enumerate(accuracies, start=first)
    )


def test_the_first_point_that_is_high_enough_counts() -> None:
    assert find_target(points(PLAIN), 0.8) == Reached(epoch=2, seconds=20, accuracy=0.9)
    assert find_target(points(PLAIN), 0.9) == Reached(epoch=2, seconds=20, accuracy=0.9)
    assert find_target(points(PLAIN), 0.91) is None
    assert find_best(points(PLAIN)).epoch == 2


def test_seventy_five_point_seven_per_cent_is_that_in_every_spelling() -> None:
    text = "epoch\thours\ttop1Accuracy\n1\t1\t75.7\n"
    reached = find_target(points(text), 0.757)
    assert reached is not None
    assert reached.accuracy == 0.757


@pytest.mark.parametrize(
    ("epochs", "message"),
    [
        ((1, 2, 3), "reached at epoch 3"),
        ((0, 1, 2), "reached at epoch 2"),
        ((1.00096, 2.00192, 3.00288), "reached at epoch 3.00288"),
        ((64,), "reached at epoch 64 or before: epochs 1 to 63 are not in the curve"),
        ((1, 2, 4), "reached at epoch 4 or before: epoch 3 is not in the curve"),
        ((2, 3), "reached at epoch 3 or before: epoch 1 is not in the curve"),
        ((0, 2.9, 5), "reached at epoch 5 or before: epochs 1 and 3 to 4 are not in the curve"),
        (
            (2, 4, 6, 8, 10),
            "reached at epoch 10 or before: epochs 1, 3, 5, 7 and others are not in the curve",
        ),
    ],
)
def test_epochs_that_the_curve_lacks_before_the_target_are_said(
    epochs: Sequence[float], message: str
) -> None:
    low = [CurvePoint(epoch=epoch, seconds=epoch, accuracy=0.1) for epoch in epochs[:-1]]
    high = CurvePoint(epoch=epochs[-1], seconds=epochs[-1], accuracy=0.9)
    assert str(find_target([*low, high], 0.5)) == message


@given(epochs=EPOCHS, at=st.integers(0, 19))
def test_missing_epochs_and_those_before_the_target_are_all_there_are(
    epochs: list[int], at: int
) -> None:
    at = min(at, len(epochs) - 1)
    reached = find_target(
        [
            CurvePoint(epoch=epoch, seconds=epoch, accuracy=0.9 if place == at else 0.1)
            for place, epoch in enumerate(epochs)
        ],
        0.5,
    )
    assert reached is not None
    missing = [number for low, high in reached.missing for number in range(low, high + 1)]
    expected = {*range(1, epochs[at] + 1)} - {*epochs[: at + 1]}
    assert missing == sorted(expected)


# ---- what it costs ----


def entry(folder: Path, **facts: object) -> Path:
    path = folder / "entry.tsv"
    path.write_text(DAWNBENCH, encoding="utf-8")
    (folder / "entry.json").write_text(json.dumps(facts), encoding="utf-8")
    return path


def test_the_json_beside_a_curve_has_its_price(tmp_path: Path) -> None:
    path = entry(tmp_path, costPerHour=6.595, timestamp="2018-03-25", hardware="Cloud TPU")
    result = import_curve(read_curve(path), 0.757, None)
    assert result.usd == pytest.approx(10.492777777777778 * 6.595)
    lines = list(imported.list_lines(result))
    for phrase in ("epoch 66", "3 to 64", "10 h 29 min", "69.2 USD"):
        assert phrase in lines[0]
    for phrase in ("Cloud TPU", "6.595 USD", "2018-03-25"):
        assert phrase in lines[1]


def test_a_price_book_counts_before_the_json(tmp_path: Path) -> None:
    path = entry(tmp_path, costPerHour=6.595, timestamp="2018-03-25")
    result = import_curve(read_curve(path), 0.757, price(usd_hour=1.0))
    assert result.usd == pytest.approx(10.492777777777778)


def test_without_a_price_there_is_no_cost(tmp_path: Path) -> None:
    result = import_curve(read_curve(entry(tmp_path, model="ResNet50")), 0.757, None)
    assert result.usd is None
    assert "no price" in list(imported.list_lines(result))[1]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"costPerHour": "6", "timestamp": "2018-03-25"}, "costPerHour is '6'"),
        ({"costPerHour": True, "timestamp": "2018-03-25"}, "costPerHour is True"),
        ({"costPerHour": -1, "timestamp": "2018-03-25"}, "invalid price"),
        ({"costPerHour": 6.5}, "the day"),
        ({"costPerHour": 6.5, "timestamp": "in spring"}, "date"),
    ],
)
def test_a_json_without_a_right_price_is_one_clear_line(
    tmp_path: Path, facts: dict[str, object], message: str
) -> None:
    with pytest.raises(SampleError, match=message):
        read_curve(entry(tmp_path, **facts))


def test_a_torn_json_is_one_clear_line(tmp_path: Path) -> None:
    path = entry(tmp_path)
    (tmp_path / "entry.json").write_text('{"costPerHour": 6.5', encoding="utf-8")
    with pytest.raises(SampleError, match=r"entry\.json"):
        read_curve(path)


def test_a_target_that_no_epoch_reaches_is_said_with_the_best() -> None:
    result = import_curve(
        Curve(name="c", column="accuracy", points=curve(0.2, 0.6, 0.5)), 0.7, None
    )
    (line,) = imported.list_lines(result)
    assert "60% at epoch 2" in line
    assert "not reached" in imported.build_table(result).format_text(colour=False)


def test_a_curve_has_a_figure_and_a_page() -> None:
    result = import_curve(
        Curve(name="mine", column="accuracy", points=curve(0.2, 0.6)), 0.5, price(usd_hour=3600.0)
    )
    (drawn,) = imported.draw_curve(result)
    assert "from 20% to 60%" in drawn.description
    page = imported.build_document(result)
    assert page.answers[0].figure == "20.0 s"
    assert page.sections[0].key == KEY
    unpriced = dataclasses.replace(result, usd=None)
    assert page.sections != imported.build_document(unpriced).sections
