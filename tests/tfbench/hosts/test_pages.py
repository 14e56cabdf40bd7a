"""The report of a fleet: kinds, costs, hosts, what to do next, and CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
from typing import Any

import pytest
from tests.builders.fleet_results import fleet_host, row
from tests.builders.prices import price

from tfbench.costs.prices import create_book
from tfbench.hosts.bundle import FleetWheel
from tfbench.hosts.pages import build_document, build_table, format_csv, list_lines
from tfbench.hosts.results import HostResult
from tfbench.hosts.summary import FleetResult, group_hosts
from tfbench.reports import page
from tfbench.reports.document import Table
from tfcore.comparisons.interval import Verdict
from tfcore.settings import TEMPLATES


def fleet(*hosts: HostResult, **fields: Any) -> FleetResult:
    book = create_book("a book", [price("m8")])
    missing = fields.pop("missing", ())
    return FleetResult(
        made="2026-11-29T12:00:00Z",
        wheels=(
            FleetWheel(
                name="tuned",
                file="tensorflow_cpu-2.21.0+a-cp311-cp311-linux_x86_64.whl",
                sha256="f" * 64,
            ),
        ),
        compare=("--phase", "train"),
        hosts=hosts,
        missing=missing,
        kinds=group_hosts(hosts, book),
        complete=not missing,
        book="a book, 2020-02-29",
    )


@pytest.fixture
def measured() -> FleetResult:
    refused = fleet_host("old", target="sandybridge")
    outcome = dataclasses.replace(refused.outcome, refused=(("tuned", "lacks avx2"),))
    return fleet(
        fleet_host("a", row("tuned", 1.2), row("tuned", 1.5, vcpus=2), machine="m8", count=4),
        fleet_host("b", row("tuned", 0.9, Verdict.SLOWER), target="zen4"),
        dataclasses.replace(refused, outcome=outcome),
        missing=(("c", "ssh: connect to host c port 22: Connection refused"),),
    )


def test_the_table_has_a_row_for_each_kind_count_and_wheel(measured: FleetResult) -> None:
    assert build_table(measured).rows == (
        *(
            ("CPU of haswell", "haswell", "4", vcpus, "tuned (best)", speedup, span, "faster")
            for vcpus, speedup, span in (
                ("1", "1.200x", "1.176 to 1.224"),
                ("2", "1.500x", "1.470 to 1.530"),
            )
        ),
        (
            "CPU of sandybridge",
            "sandybridge",
            "1",
            "",
            "stock",
            "",
            "",
            "no wheel could be measured",
        ),
        ("CPU of zen4", "zen4", "1", "1", "tuned", "0.900x", "0.882 to 0.918", "slower"),
    )


def test_the_lines_say_what_to_do(measured: FleetResult) -> None:
    assert list(list_lines(measured)) == [
        (
            "CPU of haswell (haswell): on 1 vCPU tuned is 1.200x (1.176 to 1.224) as fast as "
            "stock; on 2 vCPUs tuned is 1.500x (1.470 to 1.530) as fast as stock"
        ),
        "CPU of sandybridge (sandybridge): no wheel could be measured, keep stock",
        "CPU of zen4 (zen4): on 1 vCPU keep stock: no wheel is faster on every host",
        "one wheel for all of them: invoke build --release 2.21.0 --arch haswell,sandybridge,zen4",
        "c has no result: ssh: connect to host c port 22: Connection refused",
        "Call invoke fleet again to continue: hosts with a result are not measured again",
    ]


def test_the_page_has_costs_and_hosts(measured: FleetResult) -> None:
    document = build_document(measured)
    tables = [
        block for part in document.sections for block in part.blocks if isinstance(block, Table)
    ]
    kinds, costs, hosts = (table.rows for table in tables)
    assert len(kinds) == 4
    assert costs == (
        ("CPU of haswell", "m8 (cloud, on_demand)", "1,460.00", "tuned", "973.33", "33.3%", "", ""),
    )
    assert ("old", "CPU of sandybridge", "sandybridge", "", "tuned", "", "", "lacks avx2") in hosts
    html = page.render_html(document, {}, TEMPLATES)
    assert "Connection refused" in html


def test_the_csv_file_has_every_host(measured: FleetResult) -> None:
    rows = list(csv.DictReader(io.StringIO(format_csv(measured))))
    assert [(line["host"], line["status"], line["vcpus"], line["speedup"]) for line in rows] == [
        ("a", "done", "1", "1.2"),
        ("a", "done", "2", "1.5"),
        ("b", "done", "1", "0.9"),
        ("old", "refused", "", ""),
        ("c", "missing", "", ""),
    ]
