"""A bill as a section of a report, and as a report of its own. Pure."""

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
    points,
    tabled,
    tabulate,
)
from tfbuild import console

MARKS = (
    "“Pays up to” is how many times the baseline's price per hour a machine may cost until a run "
    "on it costs more. “Front” marks what no other run beats in both time and cost."
)
SPEEDUP = f"Speedup over {article.PIP}"
ONCE = "Each cell was run once, so nothing is known of its noise: no interval, no verdict."


def costs(bill: Bill) -> Section:
    """Time and cost of every run, in money and over the bill's baseline."""
    return Section(
        key=COST,
        heading="Training runs and what they cost",
        blocks=(
            (
                f"{bill.composed} Prices are those of {bill.book} as of {bill.as_of}. Relative "
                f"figures are over {bill.baseline}: below 1 is better."
            ),
            _runs(bill),
            *points((*_best(bill), MARKS)),
            *_paid_back(bill),
            _machines(bill),
            *points(_not_priced(bill)),
        ),
    )


def lines(bill: Bill) -> Iterator[str]:
    """What a terminal shows under the table of runs."""
    yield bill.composed
    yield from _best(bill)
    for row in bill.rows:
        if row.amortisation is not None:
            yield f"{row.workload}, {_run(row)}: its build pays {row.amortisation}."
    yield from _not_priced(bill)
    for vcpus, arm, amount in bill.speedups:
        speedup = wording.factor_span(amount)
        yield f"{arm} on {console.format_vcpus(vcpus)}: {speedup}, the geometric mean of its runs."


def _not_priced(bill: Bill) -> Iterator[str]:
    yield from (f"Not priced: {each}." for each in bill.skipped)


def _runs(bill: Bill) -> Table:
    """Each with its time, its cost, both over the baseline, and what it is the best in."""
    return tabulate(
        "Training runs",
        (
            *("workload", "#vCPUs", "arm", "machine", "#run s", "#USD"),
            *("#relative time", "#relative cost", "#pays up to", "best in"),
        ),
        (
            (
                *(row.workload, vcpus(row), row.arm, row.machine),
                *(wording.seconds(row.run_s), wording.usd(row.usd)),
                *map(wording.relative, (row.relative_time, row.relative_cost)),
                *(_pays(row), marks(row)),
            )
            for row in bill.rows
        ),
    )


def vcpus(row: BillRow) -> str:
    return "" if row.vcpus is None else str(row.vcpus)


def _pays(row: BillRow) -> str:
    """How many times the baseline's price per hour this machine may cost."""
    times = row.break_even_price_ratio
    return "" if times is None else wording.relative(times)


def marks(row: BillRow) -> str:
    """A run that is neither cheapest nor fastest may still be the best for its money."""
    marks = [name for name, hit in (("cost", row.cheapest), ("time", row.fastest)) if hit]
    if row.on_front and not marks:
        return "front"
    return ", ".join(marks)


def _best(bill: Bill) -> Iterator[str]:
    for name, rows in (
        ("cheapest", [row for row in bill.rows if row.cheapest]),
        ("fastest", [row for row in bill.rows if row.fastest]),
    ):
        places = {(row.arm, row.vcpus) for row in rows}
        if len(places) == 1:
            models = f"all {len(rows)} models" if len(rows) > 1 else "the model"
            yield f"The {name} for {models} is {_run(rows[0])}."
        else:
            each = "; ".join(f"{row.workload} {_run(row)}" for row in rows)
            yield f"The {name}: {each}."


def _run(row: BillRow) -> str:
    return row.arm if row.vcpus is None else f"{row.arm} on {console.format_vcpus(row.vcpus)}"


def _paid_back(bill: Bill) -> tuple[Block, ...]:
    # (a saving per run is a small difference of small amounts)
    rows = [
        (
            *(row.workload, vcpus(row), row.arm),
            *(wording.usd(apply_monotone(paid.saving_usd, lambda usd: 1000 * usd)), str(paid)),
        )
        for row in bill.rows
        if (paid := row.amortisation) is not None
    ]
    if not rows:
        return ()
    builds = {wording.usd(r.amortisation.build_usd) for r in bill.rows if r.amortisation}
    return (
        (
            f"A build costs {wording.listed(sorted(builds))} USD. It has paid for itself when the "
            "runs have saved as much:"
        ),
        tabulate(
            "When a build has paid for itself",
            ("workload", "#vCPUs", "arm", "#saved per 1000 runs, USD", "paid back"),
            rows,
        ),
    )


def _machines(bill: Bill) -> Table:
    return tabulate(
        "Machines and their prices",
        ("machine", "provider", "mode", "#USD per hour", "as of", "source"),
        (
            (
                *(price.name, price.provider, str(price.mode).replace("_", " ")),
                *(wording.usd(price.usd_hour), price.as_of, price.source),
            )
            for price in bill.machines
        ),
    )


# --- runs without a comparison ------------------------------------------------------------------

ARTICLE = "Benchmarking TensorFlow on Cloud CPUs"
BUILT = (
    "Compiled from source with SSE4, AVX, AVX2 and FMA, against the wheel from PyPI, which had "
    "none of them (TensorFlow 1.2)."
)
SOURCE = Section(
    key="source",
    heading="Where the figures come from",
    blocks=(
        (
            f"Max Woolf, “{ARTICLE}”, July 2017; its raw logs are in "
            "minimaxir/deep-learning-cpu-gpu-benchmark. An epoch's seconds include its validation "
            "pass and, for CIFAR-10, the augmentation. Import, data preparation and compiling the "
            "model are not in it."
        ),
        (
            "Costs are seconds times the price per hour, prorated, with the preemptible prices of "
            "the day; the GPU is one die of a K80."
        ),
    ),
)


def totals_document(bill: Bill, *, shipped: bool) -> Document:
    """Whole runs of a `pip` and a `compiled` build, each run once: no interval.

    `shipped` are the 2017 article's own totals, about which there is more to say.
    """
    models = console.format_count(len({row.workload for row in bill.rows}), "model")
    arms = wording.listed(list(dict.fromkeys(row.arm for row in bill.rows)))
    origin = " of Max Woolf's article of July 2017, from its logs" if shipped else ""
    sections = (_scaling(bill, *((BUILT,) if shipped else ())), _times(bill), costs(bill))
    return Document(
        title=f"{ARTICLE}, computed again" if shipped else f"Training runs of {arms}",
        subject=f"{models}{origin}, with the prices of {bill.book} as of {bill.as_of}",
        answers=tuple(_answer(each, models) for each in bill.speedups),
        notes=tuple(_best(bill))[:1],
        warnings=(ONCE,),
        sections=(*(each for each in sections if each.blocks), *((SOURCE,) if shipped else ())),
    )


def _answer(speedup: tuple[int, str, Amount], models: str) -> Answer:
    vcpus, arm, amount = speedup
    known, where = wording.factor_span(amount), console.format_vcpus(vcpus)
    return Answer(
        label=f"{arm} over {article.PIP}, {where}",
        figure=known,
        detail=f"geometric mean of {models}",
        sentence=f"{arm} over {article.PIP} on {where}: {known} (geometric mean of {models}).",
    )


def _scaling(bill: Bill, *told: str) -> Section:
    return tabled(
        SCALING,
        SPEEDUP,
        "Geometric means",
        ("arm", "#vCPUs", f"#speedup over {article.PIP}"),
        ((arm, str(vcpus), wording.factor_span(amount)) for vcpus, arm, amount in bill.speedups),
        *told,
    )


def _times(bill: Bill) -> Section:
    """A row per model and number of vCPUs, as the article's own figures are."""
    found = {(row.workload, row.arm, row.vcpus): row for row in bill.rows}
    rows = []
    for (workload, arm, count), pip in found.items():
        compiled = found.get((workload, article.COMPILED, count))
        if arm == article.PIP and compiled is not None:
            rows.append((workload, vcpus(pip), *_side_by_side(pip, compiled)))
    return tabled(
        "times",
        f"Time and cost relative to {bill.baseline}",
        "Both builds, model by model",
        (
            *("model", "#vCPUs", f"#{article.PIP} s", f"#{article.COMPILED} s", "#speedup"),
            *(f"#time {article.PIP}", f"#time {article.COMPILED}"),
            *(f"#cost {article.PIP}", f"#cost {article.COMPILED}"),
        ),
        rows,
        f"Time and cost of a training run over those on {bill.baseline}: below 1 is better.",
    )


def _side_by_side(pip: BillRow, compiled: BillRow) -> tuple[str, ...]:
    both = (pip, compiled)
    return (
        *(wording.seconds(each.run_s) for each in both),
        wording.factor_span(compute_ratio(pip.run_s, compiled.run_s)),
        *(wording.relative(each.relative_time) for each in both),
        *(wording.relative(each.relative_cost) for each in both),
    )
