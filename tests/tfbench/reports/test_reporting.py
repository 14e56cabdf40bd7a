"""What `invoke report` accepts and writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders.comparisons import spread
from tests.builders.report_comparisons import single, sound

from tfbench.commands import ReportOptions
from tfbench.inside.kit import SCHEMA
from tfbench.inside.workloads import find_workload
from tfbench.reports.reporting import report_results
from tfcore.comparisons.comparison import load, save
from tfcore.comparisons.interval import Verdict
from tfcore.errors import RecordError, TensorwrightError, UsageError


def report(*, line: bool = False, as_json: bool = False, **options: Any) -> str:
    return report_results(ReportOptions(**options, line=line), as_json=as_json)


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    save(tmp_path / "one" / "comparison.json", sound())
    return tmp_path / "one"


def test_a_report_of_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        report(comparison=str(tmp_path / "comparison.json"))
    (tmp_path / "comparison.json").write_text('{"schema": 2, "cells"', encoding="utf-8")
    with pytest.raises(RecordError):
        report(comparison=str(tmp_path), as_json=True)


def test_every_form_is_written_beside_the_comparison(measured: Path) -> None:
    text = report(comparison=str(measured))
    assert {path.name for path in measured.iterdir()} == {
        *("comparison.json", "report.md", "report.html", "report.csv"),
        *("speedups-1.svg", "speedups-2.svg"),
    }
    assert str(measured / "report.html") in text


def test_a_comparison_of_an_earlier_version_loads_with_its_verdict(tmp_path: Path) -> None:
    path, comparison = tmp_path / "comparison.json", single(spread(1.001, 0.004))
    save(path, comparison)
    text = path.read_text(encoding="utf-8")
    assert '"equivalent"' in text
    path.write_text(text.replace('"equivalent"', '"within noise"'), encoding="utf-8")
    assert load(path) == comparison
    with pytest.raises(ValueError, match="no verdict"):
        Verdict("no verdict")


def test_one_line_writes_nothing(measured: Path) -> None:
    assert report(comparison=str(measured), line=True).count("\n") == 1
    assert [path.name for path in measured.iterdir()] == ["comparison.json"]


def test_prices_bring_costs_into_every_form(measured: Path) -> None:
    text = report(comparison=str(measured), prices="2017-07-gce", machines="1=cpu8,2=cpu16")
    assert "2017-07-gce" in text
    assert "cpu16" in (measured / "report.md").read_text(encoding="utf-8")
    both = json.loads(
        report(
            comparison=str(measured), prices="2017-07-gce", machines="1=cpu8,2=cpu16", as_json=True
        )
    )
    assert both["bill"]["book"] == "2017-07-gce"
    with pytest.raises(UsageError):
        report(comparison=str(measured), prices="2017-07-gce", machines="9=cpu8")


CATALOGUE = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region
small,,,1,2,0.05,eu
large,,,2,4,0.1,eu
gpu,T4,1,4,16,0.5,eu
broken,,,x,4,y,eu
"""


def brought(folder: Path) -> Path:
    """What the kit measured of a whole run on a GPU, in two launches."""
    common = {"schema": SCHEMA, "arm": "T4", "host": {"cpu": "Example", "cpus": 4}, "reason": ""}
    common |= {"workload": "mnist_mlp", "outcome": "ok", "device": "T4", "backend": "tensorflow"}
    lines = [
        common | {"phase": phase, "launch": launch, "step_s": [0.001 + 0.0001 * launch]}
        for launch in range(2)
        for phase in find_workload("mnist_mlp").schedule.phases
    ]
    path = folder / "samples.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


@pytest.mark.parametrize("machines", ["", "1=small,2=large"])
def test_a_run_of_the_kit_stands_beside_the_comparison(
    measured: Path, tmp_path: Path, machines: str
) -> None:
    book = tmp_path / "clouds.csv"
    book.write_text(CATALOGUE if machines else CATALOGUE.replace("broken,,,x,4,y,eu\n", ""))
    options: dict[str, Any] = {"comparison": str(measured), "prices": str(book)}
    options["as_of"] = "2026-01-01"
    kit = f"{brought(tmp_path)}=gpu"
    report(**options, machines=machines, kit=kit, relative_to="T4")
    assert "relative to T4" in (measured / "report.md").read_text("utf-8")
    with pytest.raises(UsageError, match="names no machine"):
        report(**options, machines=machines, kit=kit.removesuffix("=gpu"))
    with pytest.raises(UsageError, match="'tpu'"):
        report(**options, machines=machines, kit=kit.replace("=gpu", "=tpu"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kit": "samples.jsonl=gpu"}, "Add, for example, --prices"),
        ({"build_usd": "3"}, "--build-usd"),
        ({"totals": "2017", "kit": "samples.jsonl=gpu"}, "without a comparison"),
    ],
)
def test_an_option_that_nothing_would_read_is_refused(
    measured: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        report(**(options if len(options) > 1 else options | {"comparison": str(measured)}))
    assert message in str(caught.value)


def test_the_article_is_computed_again(tmp_path: Path) -> None:
    text = report(totals="2017", out=str(tmp_path))
    for factor in ("1.430x", "1.282x", "0.975x", "1.041x"):
        assert factor in text
    assert "cheapest for all 6 models: compiled on 8 vCPUs" in text
    assert {path.name for path in tmp_path.iterdir()} == {"report.md", "report.html"}


def test_logs_of_epochs_become_runs(tmp_path: Path) -> None:
    for name, seconds in (("pip", 30), ("compiled", 20), ("gpu", 10)):
        rows = "".join(f"{epoch},{seconds}\n" for epoch in range(3))
        (tmp_path / f"{name}.csv").write_text("epoch,elapsed\n" + rows, encoding="utf-8")
    logs = (
        f"mlp/pip/cpu8={tmp_path}/pip.csv,mlp/compiled/cpu8={tmp_path}/compiled.csv,"
        f"mlp/gpu={tmp_path}/gpu.csv"
    )
    document = json.loads(report(logs=logs, out=str(tmp_path / "out"), as_json=True))
    assert {row["arm"]: row["run_s"] for row in document["rows"]} == {
        "pip": 90.0,
        "compiled": 60.0,
        "gpu": 30.0,
    }
    assert document["speedups"] == [[8, "compiled", 1.5]]


@pytest.mark.parametrize(
    "options",
    [
        {"totals": "2017", "logs": "a/b/c=d"},
        {"prices": "no-such-book"},
        {"prices": ","},
        {"prices": "2017-07-gce", "mode": "sometimes"},
        {"prices": "2017-07-gce,2018-04-riseml"},
        {"prices": "2017-07-gce", "machines": "1=cpu8,2=cpu16", "runs_per_day": "3"},
        {"prices": "2017-07-gce", "machines": "1=cpu8,2=cpu16", "build_usd": "cheap"},
        {"totals": "none.csv"},
    ],
)
def test_bad_options_are_one_line(measured: Path, options: dict[str, Any]) -> None:
    if "prices" in options:
        options = {**options, "comparison": str(measured)}
    with pytest.raises(TensorwrightError) as caught:
        report(**options)
    assert "\n" not in str(caught.value)


def test_one_comparison_twice_cannot_be_merged(measured: Path) -> None:
    with pytest.raises(UsageError):
        report(comparison=f"{measured},{measured}")
