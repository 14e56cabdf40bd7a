from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.prices import price
from tests.builders.printed_table import PRINTED

from tfbench.costs import article, catalog
from tfbench.costs.bill import BillRow, compute_bill_from_totals
from tfbench.costs.cost import get_value
from tfbench.costs.prices import create_book
from tfcore.errors import SampleError, UsageError

BOOK = catalog.find_book(article.PRICES)
BILL = compute_bill_from_totals(article.read_totals(BOOK), BOOK)

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


def row(model: str, build: str, vcpus: int | None) -> BillRow:
    (bill_row,) = [
        found_row
        for found_row in BILL.rows
        if (found_row.workload, found_row.arm, found_row.vcpus) == (model, build, vcpus)
    ]
    return bill_row


@pytest.mark.parametrize("model", PRINTED)
def test_every_figure_of_the_article_comes_out_to_its_printed_digits(model: str) -> None:
    computed = []
    for vcpus in (8, 16, 32, 64):
        both = [row(model, build, vcpus) for build in ("pip", "compiled")]
        pip_s, compiled_s = (get_value(bill_row.run_s) for bill_row in both)
        computed.append(
            [
                *(vcpus, round(pip_s, 1), round(compiled_s, 1), round(pip_s / compiled_s, 2)),
                *(round(get_value(bill_row.relative_time), 2) for bill_row in both),
                *(round(get_value(bill_row.relative_cost), 2) for bill_row in both),
            ]
        )
    assert computed == PRINTED[model]


@pytest.mark.parametrize("model", K80)
def test_the_gpus_seconds_and_cost_come_out(model: str) -> None:
    gpu = row(model, "gpu", None)
    seconds, usd = map(float, K80[model])
    assert round(get_value(gpu.run_s), 1) == seconds
    assert round(get_value(gpu.usd), 4) == usd


def write(folder: Path, text: str) -> Path:
    path = folder / "log.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recorded_log_adds_up_to_its_total(tmp_path: Path) -> None:
    path = write(tmp_path, LOG)
    assert len(article.read_epochs(path)) == 4
    model = "imdb_bidirectional_lstm"
    run = article.read_log(f"{model}/gpu={path}", BOOK)
    assert round(get_value(run.seconds), 3) == row(model, "gpu", None).run_s


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
    run = article.read_log(f"{name}={write(tmp_path, LOG)}", BOOK)
    assert (run.workload, run.arm, run.price.name) == ("mnist_mlp", build, platform)
    assert run.vcpus == vcpus


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
    assert "MODEL/BUILD/MACHINE=PATH" in caught.value.hint


@pytest.mark.parametrize("place", ["a/pip/cpu96", "a/cpu96"])
def test_a_log_of_a_platform_without_a_price_is_told(tmp_path: Path, place: str) -> None:
    with pytest.raises(UsageError, match="'cpu96'"):
        article.read_log(f"{place}={write(tmp_path, LOG)}", BOOK)


def test_a_log_of_a_machine_without_a_number_of_vcpus_is_told(tmp_path: Path) -> None:
    odd = create_book("odd", [price("none"), price("half", vcpus=0.5)])
    for platform in ("none", "half"):
        with pytest.raises(UsageError, match="vCPUs"):
            article.read_log(f"a/pip/{platform}={write(tmp_path, LOG)}", odd)


def test_logs_may_count_from_1_and_have_their_columns_in_any_order(tmp_path: Path) -> None:
    path = write(tmp_path, "loss,elapsed,epoch\n0.4,2.5,1\n0.3,2.0,2\n")
    assert article.read_epochs(path) == (2.5, 2.0)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("", "no epochs"),
        ("2,1.0\n", "line 2: epoch is 2,"),
        ("0,1.0\n2,1.0\n", "line 3: epoch is 2,"),
        ("0,1.0\n0,1.0\n", "line 3: epoch is 0,"),
        ("1,1.0\n0,1.0\n", "line 3: epoch is 0,"),
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


@pytest.mark.parametrize("gone", ["mnist_mlp,gpu,", "mnist_cnn,pip,cpu16,", "mnist_cnn,pip,cpu8,"])
def test_a_missing_run_has_no_figures_and_the_others_have(tmp_path: Path, gone: str) -> None:
    lines = article.TOTALS.read_text(encoding="utf-8").splitlines(keepends=True)
    kept_lines = [line for line in lines if not line.startswith(gone)]
    bill = compute_bill_from_totals(
        article.read_totals(BOOK, write(tmp_path, "".join(kept_lines))), BOOK
    )
    lost = 9 if "gpu" in gone else 1
    assert len(bill.rows) == len(BILL.rows) - lost
    assert len(bill.skipped) == (1 if "gpu" in gone else 0)


@pytest.mark.parametrize(
    ("cell", "wrong", "expected"),
    [
        (",20,65.097,", ",20,0,", "line 2: '0' is not a time"),
        (",20,65.097,", ",some,65.097,", "line 2: epochs is 'some'"),
        (",8,20,138.457,", ",eight,20,138.457,", "line 3: vcpus is 'eight'"),
    ],
)
def test_totals_that_are_no_numbers_are_told(
    tmp_path: Path, cell: str, wrong: str, expected: str
) -> None:
    text = article.TOTALS.read_text(encoding="utf-8")
    assert text.count(cell) == 1
    with pytest.raises(SampleError, match=expected):
        article.read_totals(BOOK, write(tmp_path, text.replace(cell, wrong)))


def test_a_platform_without_a_price_is_named(tmp_path: Path) -> None:
    text = article.TOTALS.read_text(encoding="utf-8").replace(",gpu,,", ",tpu,,")
    with pytest.raises(UsageError, match="'tpu'"):
        article.read_totals(BOOK, write(tmp_path, text))
