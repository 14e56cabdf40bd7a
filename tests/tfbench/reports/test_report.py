"""Printed reports: a gain, no gain, no answer, and a wheel that computes something else."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from tests.builders import report_comparisons
from tests.builders.comparisons import spread
from tests.builders.printed_table import PRINTED
from tests.builders.report_comparisons import (
    ARTICLE,
    BILL,
    SOUND,
    TROUBLED,
    article_markdown,
    markdown,
)
from tests.builders.selections import ROW

from tfbench.reports import cost_section as costs
from tfbench.reports import wording
from tfbench.reports.chapters import build_document
from tfbench.reports.document import Document, Section, Table
from tfbench.reports.findings import list_headlines
from tfbench.reports.report import escape_markdown, format_bill, format_line, format_table
from tfcore.comparisons.comparison import Comparison, Latency, PhaseTime
from tfcore.comparisons.interval import Interval
from tfcore.comparisons.kernels import KernelTable
from tfcore.settings import TEMPLATES


def tables(page: Document) -> dict[str, Table]:
    blocks = [block for section in page.sections for block in section.blocks]
    return {block.caption: block for block in blocks if isinstance(block, Table)}


def section(page: Document, key: str) -> Section:
    return next(report_section for report_section in page.sections if report_section.key == key)


# --- the terminal -------------------------------------------------------------------------------


def test_the_table_as_a_pipe_gets_it() -> None:
    comparison = report_comparisons.single(Interval(value=1.25, low=1.2, high=1.3))
    assert format_table(comparison, colour=False).splitlines()[:6] == [
        "tuned against stock on Example CPU @ 2.00GHz",
        "workload  ┃ vCPUs ┃ arm   ┃ stock ms ┃ arm ms ┃ speedup ┃   95% interval ┃            A/A ┃ verdict",  # noqa: E501
        "━━━━━━━━━━╇━━━━━━━╇━━━━━━━╇━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━╇━━━━━━━━",
        "mnist_mlp │     2 │ tuned │     5.10 │   5.10 │  1.250x │ 1.200 to 1.300 │ 0.994 to 1.006 │ faster",  # noqa: E501
        "",
        (
            "tuned is faster than stock: 1.250x (1.202 to 1.300; geometric mean of 1 workload on 2 "
            "vCPUs; A/A 0.994 to 1.006)."
        ),
    ]


def test_long_names_of_arms_leave_the_rows_readable() -> None:
    comparison = report_comparisons.single(Interval(value=1.25, low=1.2, high=1.3))
    named = ("stock-onednn-off-isa-AVX512_CORE", "tuned-isa-AVX512_CORE")
    arms = [
        dataclasses.replace(arm, name=name)
        for arm, name in zip(comparison.arms, named, strict=True)
    ]
    (cell,) = comparison.cells
    speedups = tuple(dataclasses.replace(speedup, arm=named[1]) for speedup in cell.speedups)
    times = [dataclasses.replace(arm, arm=n) for arm, n in zip(cell.arms, named, strict=False)]
    shown = dataclasses.replace(cell, speedups=speedups, arms=(*times, *cell.arms[2:]))
    text = format_table(
        dataclasses.replace(comparison, arms=tuple(arms), cells=(shown,)), colour=False
    )
    row = next(line for line in text.splitlines() if line.startswith("mnist_mlp"))
    assert "baseline ms" in text
    assert "1.200 to 1.300" in row
    assert "…" not in text


def test_the_answer_is_the_last_line_of_the_table() -> None:
    comparison = report_comparisons.single(Interval(value=1.25, low=1.2, high=1.3))
    assert (
        format_table(comparison, colour=False).splitlines()[-1]
        == list(list_headlines(comparison))[-1]
    )


def test_colour_is_for_terminals_only() -> None:
    assert "\x1b[" in format_table(SOUND, colour=True)
    assert "\x1b" not in format_table(SOUND, colour=False)


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    arms = (
        report_comparisons.arm("stock"),
        report_comparisons.arm("[red]x", library=report_comparisons.LIBRARY),
    )
    comparison = report_comparisons.comparison(
        report_comparisons.cell("mnist_mlp", 2, {"[red]x": 1.1}), arms=arms
    )
    assert "[red]x" in format_table(comparison, colour=False)
    assert "[red]x against" in format_table(comparison, colour=False)


def requests_only() -> Comparison:
    """Of 32 examples from two clients; the 99th percentile is four times the mean."""
    cell = report_comparisons.cell("mnist_mlp", 2, {"tuned": 1.2})
    arms = tuple(
        dataclasses.replace(
            arm,
            phases=(PhaseTime(phase="infer", step_ms=spread(2.0, 0.01)),),
            run_s=None,
            losses=(),
            latency=Latency(
                median_ms=spread(3.9, 0.02),
                p99_ms=spread(8.0, 0.05),
            ),
        )
        for arm in cell.arms
    )
    compared_cell = dataclasses.replace(cell, workload="mnist_mlp:batch=32:clients=2", arms=arms)
    return report_comparisons.comparison(
        compared_cell, arms=(report_comparisons.arm("stock"), report_comparisons.arm("tuned"))
    )


def test_requests_are_named_and_show_their_99th_percentile() -> None:
    text = format_table(requests_only(), colour=False)
    assert "(p99)" in text
    assert "mnist_mlp 32x2 │     2 │ tuned │ 2.00 (8.00) │ 2.00 (8.00) │" in text
    assert "(p99)" not in format_table(SOUND, colour=False)


def test_a_report_of_requests_speaks_of_requests() -> None:
    page = build_document(requests_only(), TEMPLATES)
    assert section(page, "speedups").heading == "Speedup of a request"
    assert tables(page)["Latency of requests"].rows[0][-2:] == (
        "3.90 (3.82 to 3.98)",
        "8.00 (7.62 to 8.40)",
    )
    text = markdown(requests_only(), TEMPLATES)
    assert "Requests are timed" in text
    assert "Only training was timed" not in text
    assert "Phases" not in text


def test_failures_are_marked_rows_with_their_reason_below() -> None:
    shown = format_table(TROUBLED, colour=False)
    assert re.search(r"mnist_mlp │ +1 │ mkl +│ +8.20 │ +│ +│ +│ 0.994 to 1.006 │ failed\n", shown)
    assert "mkl failed: the worker of arm mkl was killed (signal 9): no memory?" in shown
    assert re.search(r"lstm_text │ +1 │ stock +│[ │]+failed\n", shown)
    assert "stock failed: the worker of arm stock hangs: 600 s" in shown
    assert "lstm_text on 1 vCPU: control, tuned and mkl not timed: " in shown


def test_of_what_a_worker_wrote_the_table_has_its_last_message() -> None:
    output = '  File "mha.py", line 674\n\nMatMul execution failed\n\t [[{{node MatMul}}]]\n'
    cell = report_comparisons.failed(
        report_comparisons.cell("mnist_mlp", 2, {"tuned": 1.1}),
        "tuned",
        f"the worker failed:\n{output}",
    )
    shown = format_table(report_comparisons.comparison(cell), colour=False)
    assert "failed: the worker failed: MatMul execution failed [[{{node MatMul}}]]\n" in shown
    assert "mha.py" not in shown


def test_everything_in_one_line() -> None:
    assert format_line(report_comparisons.single(Interval(value=1.25, low=1.2, high=1.3))) == (
        "against stock: 2 vCPUs: tuned faster, 1.250x (1.202 to 1.300) (verdicts: 1 faster)"
    )
    text = format_line(TROUBLED)
    assert "\n" not in text
    assert text.endswith(
        "(verdicts: 1 computes something else, 3 equivalent, 2 failed, 2 faster, 3 inconclusive, "
        "3 not timed, 5 slower, incomplete)"
    )
    assert "tuned computes something else, 1.031x (1.023 to 1.039)" in text


def test_a_comparison_without_any_answer_says_so_in_one_line() -> None:
    cell = report_comparisons.baseline_failed(
        report_comparisons.cell("mnist_mlp", 2, {"tuned": 1.1})
    )
    arms = (report_comparisons.arm("stock"), report_comparisons.arm("tuned"))
    comparison = report_comparisons.comparison(cell, arms=arms)
    assert format_line(comparison) == "against stock: no result (verdicts: 1 failed, 1 not timed)"
    (headline,) = list_headlines(comparison)
    assert "tuned" in headline


def test_the_bill_on_a_terminal() -> None:
    shown = format_bill(ARTICLE, colour=False)
    assert re.search(
        r"mnist_mlp +│ +8 │ compiled │ cpu8 +│ +87\.8 │ 0\.00155 │ 1\.35 │ 0\.12 │ cost\n", shown
    )
    assert "cheapest for all 6 models: compiled on 8 vCPUs" in shown
    assert "compiled over pip on 32 vCPUs: 0.975x" in shown
    assert "pays off after" in format_bill(BILL, colour=False)


# --- the page -----------------------------------------------------------------------------------


def test_the_page_begins_with_the_answer_and_the_table() -> None:
    comparison = report_comparisons.single(spread(1.25, 0.04))
    assert markdown(comparison, TEMPLATES).startswith(
        "# tuned against stock on Example CPU @ 2.00GHz\n"
        "\n"
        "1 model on 2 vCPUs of Example CPU @ 2.00GHz, measured 2026-01-02 03:04 UTC in "
        "26 min 15 s\n"
        "\n"
        "**tuned is faster than stock: 1.250x (1.203 to 1.299; geometric mean of 1 workload on 2 "
        "vCPUs; A/A 0.994 to 1.006).**\n"
        "\n"
        "## Speedup of a training step\n"
    )


def test_every_table_of_the_page_is_whole() -> None:
    """Every line of a table has as many cells as its head, so that Markdown shows it as one."""
    for text in (
        markdown(SOUND, TEMPLATES, BILL),
        markdown(TROUBLED, TEMPLATES),
        article_markdown(ARTICLE, TEMPLATES, shipped=True),
    ):
        parts = [part for part in re.split(r"\n\n+", text) if part.startswith("|")]
        assert len(parts) > 2
        for part in parts:
            counts = {len(re.findall(r"(?<!\\)\|", row)) for row in part.splitlines()}
            assert len(counts) == 1, part


def test_figures_in_the_page_are_those_of_the_records() -> None:
    shown = tables(build_document(SOUND, TEMPLATES, BILL))
    rows = {row[:3]: row for row in shown["Every arm in every cell"].rows}
    reasons = {row[:3]: row for row in shown["Verdicts and their reasons"].rows}
    phases = {row[:3]: row for row in shown["Phases per batch and runs"].rows}
    for cell in SOUND.cells:
        for speedup in cell.speedups:
            key = (cell.workload, str(cell.vcpus), speedup.arm)
            assert f"{speedup.interval.value:.3f}x" in rows[key][4]
            assert f"({speedup.interval.low:.3f} to {speedup.interval.high:.3f})" in rows[key][4]
            assert reasons[key][5] == wording.format_level(speedup.confidence)
            assert speedup.medians is not None
            assert f"({speedup.medians.low:.3f} to {speedup.medians.high:.3f})" in reasons[key][6]
        for times in cell.arms:
            key = (cell.workload, str(cell.vcpus), times.arm)
            assert phases[key][3].startswith(f"{times.phases[0].step_ms.value:.2f} (")
            assert phases[key][4].startswith(f"{times.phases[1].step_ms.value:.2f} (")
    runs = {row[:3]: row for row in shown["Training runs"].rows}
    for bill_row in BILL.rows:
        row = runs[bill_row.workload, str(bill_row.vcpus), bill_row.arm]
        assert isinstance(bill_row.run_s, Interval)
        assert row[4].startswith(f"{bill_row.run_s.value:.1f} (")
    paid = shown["When a build pays off"].rows
    assert [row[4] for row in paid] == [str(r.amortisation) for r in BILL.rows if r.amortisation]


def test_the_page_records_what_must_be_known() -> None:
    shown = tables(build_document(TROUBLED, TEMPLATES))
    machine = {row[0]: row[1] for row in shown["The machine"].rows}
    assert machine["microcode"] == "0x1"
    assert machine["frequency governor"] == "unknown"
    assert machine["clock source"] == "kvm-clock"
    assert machine["CPU features"] == "avx2 avx512f fma"
    arms = {row[0]: row for row in shown["Arms"].rows}
    assert "OpenMP" in arms["mkl"]
    assert "KMP_BLOCKTIME=0" in arms["mkl"]
    assert any("skylake.so, 20" in name for name in arms["tuned"])
    assert report_comparisons.arm("stock").wheel_sha256 in arms["stock"]
    rows = shown["Environment variables of the workers"].rows
    assert ("tuned", "2", "OMP_NUM_THREADS=2, TF_NUM_INTRAOP_THREADS=2") in rows
    assert len(rows) == len({row[:2] for row in rows})


def test_kernels_that_were_chosen_by_measurement_are_shown_with_what_lost() -> None:
    lost = dataclasses.replace(ROW, op="Sqrt", share=0.01, ratio=0.9, confirmed=None, kept=False)
    chosen_by = KernelTable(library="skylake.so", measured_on="a CPU", rows=(lost, ROW))
    arms = (
        report_comparisons.arm("stock"),
        dataclasses.replace(
            report_comparisons.arm("tuned", library=report_comparisons.LIBRARY),
            kernel_table=chosen_by,
        ),
    )
    page = build_document(dataclasses.replace(SOUND, arms=arms), TEMPLATES)
    sentence, rows = section(page, "kernels").blocks[0], tables(page)
    assert "1 of 2 kernels" in str(sentence)
    chosen = rows["Kernels of tuned against stock kernels"].rows
    assert chosen[0] == (
        *("Tanh", "float[128,512]", "1", "2.00%", "20.0", "10.0", "2.000", "1.900 to 2.100"),
        *("2.000 (1.900 to 2.100)", "yes"),
    )
    assert (chosen[1][0], chosen[1][-2:]) == ("Sqrt", ("", "no"))


def test_without_such_kernels_there_is_no_table_of_them() -> None:
    assert "kernels" not in {
        report_section.key for report_section in build_document(SOUND, TEMPLATES).sections
    }


def test_only_looks_that_could_decide_are_listed_beside_the_last() -> None:
    shown = tables(build_document(SOUND, TEMPLATES))
    rows = shown["Half-width of the widest interval, at interim analyses and at the end"].rows
    assert [row[2] for row in rows[:3]] == ["6", "10", "6"]


def test_the_parts_of_a_merged_comparison_are_named() -> None:
    merged = dataclasses.replace(SOUND, parts=("small", "large"))
    rows = tables(build_document(merged, TEMPLATES))["The machine"].rows
    assert ("merged from", "small, large") in rows


def test_the_method_is_told_with_the_comparisons_own_numbers() -> None:
    changed = dataclasses.replace(SOUND, threshold=0.037, margin=0.05, level=0.9, seed=77)
    text = markdown(changed, TEMPLATES)
    assert "threshold of 3.7%" in text
    assert "within 5% of 1" in text
    assert "Student's t at 90%" in text
    assert "6, 10 and 20 launches" in text
    assert "4 blocks" in text
    assert "1.5% to either side" in text
    assert "5 min 00 s" in text
    assert "seed 77" in text
    endless = dataclasses.replace(SOUND.effort, budget_s=None)
    text = markdown(dataclasses.replace(SOUND, effort=endless), TEMPLATES)
    assert "5 min 00 s" not in text


def test_a_ladder_has_a_table_of_rungs_and_wheels() -> None:
    page = build_document(report_comparisons.climbed(), TEMPLATES)
    shown = tables(page)["Geometric means by rung and wheel"]
    assert [column.name for column in shown.columns] == ["rung", "vCPUs", "stock", "tuned"]
    assert [row[0] for row in shown.rows] == ["compiled", "gemm", "onednn"]
    assert shown.rows[0][2] == "1, the baseline"
    assert not [
        report_section
        for report_section in build_document(SOUND, TEMPLATES).sections
        if report_section.key == "ladder"
    ]


def test_a_template_that_asks_for_an_unknown_name_is_an_error(tmp_path: Path) -> None:
    for name, text in (("report.md.j2", "{{ nonsense }}"), ("method.txt.j2", "text")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UndefinedError, match="nonsense"):
        markdown(SOUND, tmp_path)


@given(st.text())
def test_no_text_breaks_out_of_a_markdown_cell(text: str) -> None:
    shown = escape_markdown(text)
    assert "\n" not in shown
    assert not re.search(r"(?<!\\)(?:\\\\)*[|<>]", shown)


def test_hostile_names_stay_names_in_markdown() -> None:
    hostile = "<script>|*x*"
    arms = (
        report_comparisons.arm("stock"),
        report_comparisons.arm(hostile, library=report_comparisons.LIBRARY),
    )
    comparison = report_comparisons.comparison(
        report_comparisons.cell("mnist_mlp", 2, {hostile: 1.1}), arms=arms
    )
    text = markdown(comparison, TEMPLATES)
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "\\<script\\>\\|\\*x\\*" in text


# --- the 2017 article ---------------------------------------------------------------------------


def test_the_articles_geometric_means_are_its_answers() -> None:
    page = costs.build_totals_document(ARTICLE, shipped=True)
    actual = [(answer.label, answer.figure) for answer in page.answers]
    assert actual == [
        ("compiled over pip, 8 vCPUs", "1.430x"),
        ("compiled over pip, 16 vCPUs", "1.282x"),
        ("compiled over pip, 32 vCPUs", "0.975x"),
        ("compiled over pip, 64 vCPUs", "1.041x"),
    ]
    (note,) = page.notes
    assert "compiled on 8 vCPUs" in note
    assert "**compiled over pip on 8 vCPUs: 1.430x" in article_markdown(
        ARTICLE, TEMPLATES, shipped=True
    )


def test_every_cell_of_the_article_comes_out() -> None:
    shown = tables(costs.build_totals_document(ARTICLE, shipped=True))["Both builds by model"]
    printed: dict[tuple[str, ...], list[float]] = {
        (model, f"{vcpus:.0f}"): figures
        for model, lines in PRINTED.items()
        for vcpus, *figures in lines
    }
    rows = {row[:2]: [float(cell.rstrip("x")) for cell in row[2:]] for row in shown.rows}
    assert rows.keys() == printed.keys()
    for key, (pip, compiled, speedup, *relative) in rows.items():
        assert [pip, compiled, *relative] == [*printed[key][:2], *printed[key][3:]]
        assert speedup == pytest.approx(printed[key][2], abs=0.0051)


def test_the_article_claims_no_interval() -> None:
    page = costs.build_totals_document(ARTICLE, shipped=True)
    (warning,) = page.warnings
    assert "no interval, no verdict" in warning
    assert " to " not in "".join(answer.sentence for answer in page.answers)


def test_other_totals_are_not_called_the_articles() -> None:
    text = article_markdown(ARTICLE, TEMPLATES)
    assert text.startswith("# Training runs of gpu, pip and compiled\n")
    assert "Woolf" not in text
    assert "PyPI" not in text
    assert "compiled over pip on 8 vCPUs: 1.430x" in text


def test_what_could_not_be_priced_is_said() -> None:
    missing = dataclasses.replace(BILL, skipped=("lstm_text tuned@2: nothing was timed",))
    assert "lstm_text tuned@2: nothing was timed" in markdown(SOUND, TEMPLATES, missing)


def test_sections_appear_once_and_in_one_order() -> None:
    keys = [
        report_section.key for report_section in build_document(SOUND, TEMPLATES, BILL).sections
    ]
    assert keys == [
        *("speedups", "scaling", "throughput", "cost", "coverage", "verdicts", "samples"),
        "agreement",
        *("phases", "starting", "arms", "machine", "method", "limits"),
    ]
