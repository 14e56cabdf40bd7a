"""Report a bill, as a section of a comparison's report or on its own. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tfbench.costs import article
from tfbench.costs.bill import Bill, BillRow
from tfbench.costs.cost import Amount, apply_monotone, compute_ratio
from tfbench.reports import wording
from tfbench.reports.document import (
    COST,
    SCALING,
    Answer,
    Block,
    Document,
    Section,
    Table,
    build_list,
    build_table_section,
    tabulate,
)
from tfcore import console

MARKS = (
    "“Break-even price” is the price per hour, relative to the baseline's, at which a run on the "
    "machine costs as much as the baseline's. “Pareto front” marks the other runs that no run "
    "beats in both time and cost."
)
SPEEDUP = f"Speedup over {article.PIP}"
ONCE = "Each cell was run once, so its noise is unknown: no interval, no verdict."


def build_costs(bill: Bill) -> Section:
    """Build the section of time and cost of every run, in money and relative to the bill's
    baseline.
    """
    return Section(
        key=COST,
        heading="Time and cost of training runs",
        blocks=(
            (
                f"{bill.composed} Prices are those of {bill.book} as of {bill.as_of}. Times and "
                f"costs are also given relative to {bill.baseline}: below 1 is better."
            ),
            _build_run_table(bill),
            *build_list((*_list_best(bill), MARKS)),
            *_build_amortisation(bill),
            _build_machine_table(bill),
            *build_list(_list_unpriced(bill)),
        ),
    )


def list_lines(bill: Bill) -> Iterator[str]:
    """Yield the lines that a terminal shows below the table of runs."""
    yield bill.composed
    yield from _list_best(bill)
    for row in bill.rows:
        if row.amortisation is not None:
            yield f"{row.workload}, {_format_run(row)}: its build pays off {row.amortisation}."
    yield from _list_unpriced(bill)
    for vcpus, arm, amount in bill.speedups:
        speedup = wording.format_factor_span(amount)
        where = console.format_vcpus(vcpus)
        yield f"{arm} over {article.PIP} on {where}: {speedup} (geometric mean of the models)."


def _list_unpriced(bill: Bill) -> Iterator[str]:
    yield from (f"Not priced: {skipped}." for skipped in bill.skipped)


def _build_run_table(bill: Bill) -> Table:
    """Build the table of runs: time, cost, both relative to the baseline, and whether a run is
    the best.
    """
    return tabulate(
        "Training runs",
        (
            *("workload", "#vCPUs", "arm", "machine", "#run s", "#USD"),
            *("#relative time", "#relative cost", "#break-even price", "best in"),
        ),
        (
            (
                *(row.workload, format_vcpus(row), row.arm, row.machine),
                *(wording.format_seconds(row.run_s), wording.format_usd(row.usd)),
                *map(wording.format_relative, (row.relative_time, row.relative_cost)),
                *(_format_break_even(row), format_marks(row)),
            )
            for row in bill.rows
        ),
    )


def format_vcpus(row: BillRow) -> str:
    return "" if row.vcpus is None else str(row.vcpus)


def _format_break_even(row: BillRow) -> str:
    """Format the break-even price per hour relative to the baseline's."""
    price_ratio = row.break_even_price_ratio
    return "" if price_ratio is None else wording.format_relative(price_ratio)


def format_marks(row: BillRow) -> str:
    """Format what a run is best in: cost, time, or neither but on the Pareto front of both."""
    marks = [name for name, hit in (("cost", row.cheapest), ("time", row.fastest)) if hit]
    if row.on_front and not marks:
        return "Pareto front"
    return ", ".join(marks)


def _list_best(bill: Bill) -> Iterator[str]:
    for name, rows in (
        ("cheapest", [row for row in bill.rows if row.cheapest]),
        ("fastest", [row for row in bill.rows if row.fastest]),
    ):
        setups = {(row.arm, row.vcpus) for row in rows}
        if len(setups) == 1:
            models = f"all {len(rows)} models" if len(rows) > 1 else "the model"
            yield f"The {name} for {models}: {_format_run(rows[0])}."
        else:
            winners = "; ".join(f"{row.workload} {_format_run(row)}" for row in rows)
            yield f"The {name}: {winners}."


def _format_run(row: BillRow) -> str:
    return row.arm if row.vcpus is None else f"{row.arm} on {console.format_vcpus(row.vcpus)}"


def _build_amortisation(bill: Bill) -> tuple[Block, ...]:
    # (a saving per run is tiny)
    rows = [
        (
            *(row.workload, format_vcpus(row), row.arm),
            *(
                wording.format_usd(apply_monotone(paid.saving_usd, lambda usd: 1000 * usd)),
                str(paid),
            ),
        )
        for row in bill.rows
        if (paid := row.amortisation) is not None
    ]
    if not rows:
        return ()
    builds = {wording.format_usd(r.amortisation.build_usd) for r in bill.rows if r.amortisation}
    return (
        (
            f"A build costs {wording.join_words(sorted(builds))} USD. It pays off when the runs "
            "have saved as much:"
        ),
        tabulate(
            "When a build pays off",
            ("workload", "#vCPUs", "arm", "#saved per 1000 runs, USD", "pays off"),
            rows,
        ),
    )


def _build_machine_table(bill: Bill) -> Table:
    return tabulate(
        "Machines and their prices",
        ("machine", "provider", "mode", "#USD per hour", "as of", "source"),
        (
            (
                *(price.name, price.provider, str(price.mode).replace("_", " ")),
                *(wording.format_usd(price.usd_hour), price.as_of, price.source),
            )
            for price in bill.machines
        ),
    )


# --- runs without a comparison ------------------------------------------------------------------

ARTICLE = "Benchmarking TensorFlow on Cloud CPUs"
BUILT = (
    "TensorFlow 1.2 compiled from source with SSE4, AVX, AVX2 and FMA, compared with the wheel "
    "from PyPI, which has none of these."
)
SOURCE = Section(
    key="source",
    heading="Source of the data",
    blocks=(
        (
            f"Max Woolf, “{ARTICLE}”, July 2017; its raw logs are in "
            "minimaxir/deep-learning-cpu-gpu-benchmark. An epoch's seconds include its validation "
            "pass and, for CIFAR-10, the augmentation, but not import, data preparation and "
            "compiling the model."
        ),
        (
            "Costs are prorated: seconds times the price per hour, with the preemptible prices of "
            "that day. The GPU is one die of a K80."
        ),
    ),
)


def build_totals_document(bill: Bill, *, shipped: bool) -> Document:
    """Build the report of whole runs of a `pip` and a `compiled` build, each run once: no
    intervals.

    `shipped` is true for the totals of the 2017 article, whose origin the report then describes.
    """
    models = console.format_count(len({row.workload for row in bill.rows}), "model")
    arms = wording.join_words(list(dict.fromkeys(row.arm for row in bill.rows)))
    origin = " of Max Woolf's article of July 2017, from its logs" if shipped else ""
    sections = (
        _build_scaling(bill, *((BUILT,) if shipped else ())),
        _build_times(bill),
        build_costs(bill),
    )
    return Document(
        title=f"{ARTICLE}, recomputed" if shipped else f"Training runs of {arms}",
        subject=f"{models}{origin}, with the prices of {bill.book} as of {bill.as_of}",
        answers=tuple(_build_answer(speedup, models) for speedup in bill.speedups),
        notes=tuple(_list_best(bill))[:1],
        warnings=(ONCE,),
        sections=(
            *(section for section in sections if section.blocks),
            *((SOURCE,) if shipped else ()),
        ),
    )


def _build_answer(speedup: tuple[int, str, Amount], models: str) -> Answer:
    vcpus, arm, amount = speedup
    speedup_text, where = wording.format_factor_span(amount), console.format_vcpus(vcpus)
    return Answer(
        label=f"{arm} over {article.PIP}, {where}",
        figure=speedup_text,
        detail=f"geometric mean of {models}",
        sentence=f"{arm} over {article.PIP} on {where}: {speedup_text} (geometric mean of "
        f"{models}).",
    )


def _build_scaling(bill: Bill, *sentences: str) -> Section:
    return build_table_section(
        SCALING,
        SPEEDUP,
        "Geometric means",
        ("arm", "#vCPUs", f"#speedup over {article.PIP}"),
        (
            (arm, str(vcpus), wording.format_factor_span(amount))
            for vcpus, arm, amount in bill.speedups
        ),
        *sentences,
    )


def _build_times(bill: Bill) -> Section:
    """Build the table of both builds with a row per model and number of vCPUs, like the
    article's figures.
    """
    rows_by_key = {(row.workload, row.arm, row.vcpus): row for row in bill.rows}
    rows = []
    for (workload, arm, count), pip in rows_by_key.items():
        compiled = rows_by_key.get((workload, article.COMPILED, count))
        if arm == article.PIP and compiled is not None:
            rows.append((workload, format_vcpus(pip), *_format_both_builds(pip, compiled)))
    return build_table_section(
        "times",
        f"Time and cost relative to {bill.baseline}",
        "Both builds by model",
        (
            *("model", "#vCPUs", f"#{article.PIP} s", f"#{article.COMPILED} s", "#speedup"),
            *(f"#time {article.PIP}", f"#time {article.COMPILED}"),
            *(f"#cost {article.PIP}", f"#cost {article.COMPILED}"),
        ),
        rows,
        f"Time and cost of a training run relative to {bill.baseline}: below 1 is better.",
    )


def _format_both_builds(pip: BillRow, compiled: BillRow) -> tuple[str, ...]:
    builds = (pip, compiled)
    return (
        *(wording.format_seconds(row.run_s) for row in builds),
        wording.format_factor_span(compute_ratio(pip.run_s, compiled.run_s)),
        *(wording.format_relative(row.relative_time) for row in builds),
        *(wording.format_relative(row.relative_cost) for row in builds),
    )
