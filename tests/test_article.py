from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from tests.priced import price
from tests.printed import PRINTED

from tfbench.costs import article, catalog
from tfbench.costs.article import EpochTime, Total
from tfbench.costs.cost import cheapest, fastest, offer, point
from tfbench.costs.prices import bind
from tfbuild.errors import SampleError, UsageError

BOOK = catalog.shipped(article.PRICES)
TOTALS = article.read_totals()
TABLE = article.table(TOTALS, BOOK)

K80 = {
    "mnist_mlp": ("65.1", ".0135"),
    "mnist_cnn": ("172.7", ".0357"),
    "cifar10_cnn": ("763.2", ".1579"),
    "imdb_fasttext": ("331.5", ".0686"),
    "imdb_bidirectional_lstm": ("1229.4", ".2544"),
    "lstm_text_generation": ("957.4", ".1981"),
}
# The K80's log of imdb_bidirectional_lstm, as recorded.
LOG = """epoch,elapsed,loss,acc,val_loss,val_acc
0,323.45180678367615,0.412077910278,0.8096,0.335978578405,0.85056
1,283.5755808353424,0.225713067434,0.91216,0.366053854313,0.84756
2,293.2684507369995,0.131110467701,0.95212,0.469175741796,0.83712
3,329.1215341091156,0.0760753904489,0.97396,0.643607715828,0.83352
"""


def seconds_of(model: str, build: str, vcpus: int | None) -> float:
    found = [t.seconds for t in TOTALS if (t.model, t.build, t.vcpus) == (model, build, vcpus)]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("model", PRINTED)
def test_every_figure_of_the_article_comes_out_to_its_printed_digits(model: str) -> None:
    computed = [
        [
            row.vcpus,
            round(seconds_of(model, "pip", row.vcpus), 1),
            round(seconds_of(model, "compiled", row.vcpus), 1),
            round(row.speedup, 2),
            *(round(point(each.time), 2) for each in (row.pip, row.compiled)),
            *(round(point(each.usd), 2) for each in (row.pip, row.compiled)),
        ]
        for row in TABLE
        if row.model == model
    ]
    assert computed == PRINTED[model]


@pytest.mark.parametrize("model", K80)
def test_the_gpus_seconds_and_cost_come_out(model: str) -> None:
    run = offer("gpu", seconds_of(model, "gpu", None), BOOK.price("gpu"))
    seconds, usd = map(float, K80[model])
    assert round(point(run.seconds), 1) == seconds
    assert round(point(run.usd), 4) == usd


@pytest.mark.parametrize("model", PRINTED)
def test_8_vcpus_compiled_is_the_cheapest_for_every_model(model: str) -> None:
    offers = article.offers(TOTALS, BOOK, model)
    assert len(offers) == 9
    assert cheapest(offers).name == "compiled cpu8"


def test_only_the_bidirectional_lstm_is_faster_without_the_gpu() -> None:
    models = article.models(TOTALS)
    winners = {model: fastest(article.offers(TOTALS, BOOK, model)).name for model in models}
    assert tuple(winners) == tuple(PRINTED)
    assert {model for model, name in winners.items() if name != "gpu"} == {
        "imdb_bidirectional_lstm"
    }


def test_costs_agree_with_those_computed_beside_the_totals() -> None:
    with article.TOTALS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(TOTALS) == 54
    for row, total in zip(rows, TOTALS, strict=True):
        price = BOOK.price(total.platform)
        usd = point(offer(total.build, total.seconds, price).usd)
        assert math.isclose(price.usd_hour, float(row["rate_usd_h"]))
        assert math.isclose(usd, float(row["cost_usd"]), abs_tol=5.1e-7)


def write(folder: Path, text: str) -> Path:
    path = folder / "log.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recorded_log_adds_up_to_its_total(tmp_path: Path) -> None:
    epochs = article.read_epochs(write(tmp_path, LOG))
    model = "imdb_bidirectional_lstm"
    total = article.total_of(epochs, model=model, build="gpu", platform="gpu", vcpus=None)
    assert total.epochs == 4
    assert round(total.seconds, 3) == seconds_of(model, "gpu", None)


@pytest.mark.parametrize(
    ("name", "build", "platform", "vcpus"),
    [
        ("mnist_mlp/compiled/cpu8", "compiled", "cpu8", 8),
        (" mnist_mlp / pip / cpu64 ", "pip", "cpu64", 64),
        ("mnist_mlp/gpu", "gpu", "gpu", None),
    ],
)
def test_a_log_is_named_by_model_build_and_platform(
    tmp_path: Path, name: str, build: str, platform: str, vcpus: int | None
) -> None:
    total = article.read_log(f"{name}={write(tmp_path, LOG)}", BOOK)
    assert (total.model, total.build, total.platform) == ("mnist_mlp", build, platform)
    assert (total.vcpus, total.epochs) == (vcpus, 4)


@pytest.mark.parametrize(
    "text",
    [
        *("", "log.csv", "=log.csv", "mnist_mlp=log.csv", "a/b/cpu8", "a/b/cpu8=", "a//cpu8=x"),
        *("a/=x", "a/b/cpu8/c=x", "/gpu=x"),
    ],
)
def test_what_names_no_log_is_told(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        article.read_log(text, BOOK)
    assert "MODEL/BUILD/PLATFORM=PATH" in caught.value.hint


@pytest.mark.parametrize("place", ["a/pip/cpu96", "a/cpu96"])
def test_a_log_of_a_platform_without_a_price_is_told(tmp_path: Path, place: str) -> None:
    with pytest.raises(UsageError, match="'cpu96'"):
        article.read_log(f"{place}={write(tmp_path, LOG)}", BOOK)


def test_a_log_of_a_machine_without_a_number_of_vcpus_is_told(tmp_path: Path) -> None:
    odd = bind("odd", [price("none"), price("half", vcpus=0.5)])
    for platform in ("none", "half"):
        with pytest.raises(UsageError, match="vCPUs"):
            article.read_log(f"a/pip/{platform}={write(tmp_path, LOG)}", odd)


def test_logs_may_count_from_1_and_have_their_columns_in_any_order(tmp_path: Path) -> None:
    path = write(tmp_path, "loss,elapsed,epoch\n0.4,2.5,1\n0.3,2.0,2\n")
    assert article.read_epochs(path) == (
        EpochTime(number=1, seconds=2.5),
        EpochTime(number=2, seconds=2.0),
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("", "no epochs"),
        ("2,1.0\n", "line 2: epoch 2 "),
        ("0,1.0\n2,1.0\n", "line 3: epoch 2 "),
        ("0,1.0\n0,1.0\n", "line 3: epoch 0 "),
        ("1,1.0\n0,1.0\n", "line 3: epoch 0 "),
        ("0,nan\n", "line 2: 'nan'"),
        ("0,inf\n", "line 2: 'inf'"),
        ("0,0\n", "line 2: '0'"),
        ("0,-1\n", "line 2: '-1'"),
        ("0,\n", "line 2: ''"),
        ("0\n", "line 2: ''"),
        ("0,fast\n", "line 2: 'fast'"),
        ("0.5,1.0\n", "line 2: epoch is '0.5'"),
        (",1.0\n", "line 2: epoch is ''"),
        ('0,"1.0\n', "CSV"),
    ],
)
def test_a_log_with_a_gap_or_without_times_is_told(
    tmp_path: Path, rows: str, expected: str
) -> None:
    path = write(tmp_path, f"epoch,elapsed\n{rows}")
    with pytest.raises(SampleError) as caught:
        article.read_epochs(path)
    assert str(path) in caught.value.message
    assert expected in caught.value.message
    assert "\n" not in caught.value.message


def test_a_log_without_the_columns_is_told(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="epoch, elapsed"):
        article.read_epochs(write(tmp_path, "number,seconds\n0,1.0\n"))


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"epoch,elapsed\n0,\xff\n")
    with pytest.raises(SampleError, match="CSV"):
        article.read_epochs(path)


def test_a_missing_log_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"log\.csv"):
        article.read_epochs(tmp_path / "log.csv")


def shipped_lines() -> list[str]:
    return article.TOTALS.read_text(encoding="utf-8").splitlines(keepends=True)


def test_totals_with_a_row_twice_are_refused(tmp_path: Path) -> None:
    lines = shipped_lines()
    with pytest.raises(SampleError, match="pip cpu8 of mnist_mlp"):
        article.read_totals(write(tmp_path, "".join([*lines, lines[2]])))


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        ("mnist_mlp,gpu,", "mnist_mlp .* gpu"),
        ("mnist_cnn,pip,cpu16,", "mnist_cnn .* pip at 16"),
        ("mnist_cnn,compiled,cpu8,", "mnist_cnn .* compiled at 8"),
    ],
)
def test_a_missing_run_is_named(tmp_path: Path, gone: str, expected: str) -> None:
    kept = [line for line in shipped_lines() if not line.startswith(gone)]
    assert len(kept) == 54
    totals = article.read_totals(write(tmp_path, "".join(kept)))
    with pytest.raises(SampleError, match=expected):
        article.table(totals, BOOK)


def test_a_platform_without_a_price_is_named() -> None:
    strange = Total(
        model="mnist_mlp", build="pip", platform="cpu96", vcpus=96, epochs=1, seconds=1.0
    )
    with pytest.raises(UsageError, match="'cpu96'"):
        article.offers([strange], BOOK, "mnist_mlp")
