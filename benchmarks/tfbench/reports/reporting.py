"""Handler of `invoke report`: reports of comparisons, recordings and other people's runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tfbench import options
from tfbench.commands import ReportOptions
from tfbench.costs import article, bill, catalog, kit_runs
from tfbench.costs.bill import Bill, Build
from tfbench.costs.machines import find_machines, parse_machines, parse_mode
from tfbench.costs.prices import PriceBook, merge_books
from tfbench.costs.runs import TrainingRun
from tfbench.engine import folder as folders
from tfbench.engine.journal import read_entries
from tfbench.measuring import merging
from tfbench.measuring.comparing import KIND
from tfbench.measuring.replay import recompute_comparison
from tfbench.measuring.samples import KINDS, Sample
from tfbench.reports import chapters, cost_section, csv_table, page, pyperf, report
from tfcore import settings
from tfcore.comparisons.comparison import Comparison, load, save
from tfcore.errors import RecordError, UsageError
from tfcore.records import convert_record, format_json, write_atomic
from tfcore.settings import Paths

CSV = "report.csv"
ARTICLE = "2017"
"""The value of --totals for the shipped totals."""
_OF_PRICES = (
    *("as_of", "region", "mode", "mix_dates", "machines", "relative_to", "build_usd"),
    *("runs_per_day", "kit"),
)


def report_results(report_options: ReportOptions, *, as_json: bool) -> str:
    """Write the report of recorded results beside the comparison or to --out, and return what to
    print.

    Raises UsageError for options that do not go together, RecordError, SampleError, HostError.
    """
    paths = settings.paths()
    sources = (
        report_options.comparison,
        report_options.samples,
        report_options.totals,
        report_options.logs,
    )
    if len(list(filter(None, sources))) > 1:
        raise UsageError(
            "--comparison, --samples, --totals and --logs exclude each other",
            hint="Give only one of them",
        )
    _check_options(report_options)
    if report_options.totals or report_options.logs:
        return _report_totals(report_options, paths, as_json=as_json)
    comparison, folder, samples = _load_measurement(report_options, paths)
    if report_options.line:
        return report.format_line(comparison) + "\n"
    priced = _compute_bill(comparison, report_options) if report_options.prices else None
    return write_reports(comparison, folder, paths, as_json=as_json, samples=samples, priced=priced)


def _check_options(report_options: ReportOptions) -> None:
    """Check that every option has an effect. Raises UsageError if one would be ignored."""
    unread: tuple[str, ...] = ()
    without, hint = "a comparison", "Remove it"
    if (
        report_options.totals or report_options.logs
    ):  # (they name their machines and have default prices)
        unread = ("kit",)
    elif not report_options.prices:
        unread = _OF_PRICES
        without = "--prices"
        hint = f"Add, for example, --prices {catalog.list_shipped_books()[0]}"
    unused = next((name for name in unread if getattr(report_options, name)), "")
    if unused:
        raise UsageError(f"--{unused.replace('_', '-')} has no effect without {without}", hint=hint)


def write_reports(
    comparison: Comparison,
    folder: Path,
    paths: Paths,
    *,
    as_json: bool,
    samples: tuple[Sample, ...] | None = None,
    priced: Bill | None = None,
) -> str:
    """Write all files of the report to `folder`; return the table, or the records as JSON."""
    used_samples = samples if samples is not None else read_samples(folder)
    templates = paths.templates
    document = chapters.build_document(comparison, templates, priced)
    figures = page.draw_comparison_figures(comparison, priced, used_samples)
    html_path = page.write_page(folder, document, figures, templates)
    write_atomic(folder / CSV, csv_table.format_csv(comparison))
    for name, picture in page.render_speedup_files(comparison).items():
        write_atomic(folder / name, picture)
    for arm, text in pyperf.export_suites(comparison, used_samples).items() if used_samples else ():
        write_atomic(folder / f"pyperf-{arm.replace(' ', '-')}.json", text)
    if as_json:
        records = {"comparison": convert_record(comparison), "bill": convert_record(priced)}
        return format_json(records if priced else comparison)
    colour = sys.stdout.isatty()
    costs = f"{report.format_bill(priced, colour=colour)}\n" if priced else ""
    return f"{report.format_table(comparison, colour=colour)}\n{costs}report: {html_path}\n"


def read_samples(folder: Path) -> tuple[Sample, ...]:
    """Read the samples of the journal; empty if there is no journal, as with a comparison from
    another machine.
    """
    try:
        journal = read_entries(folder / KIND.journal, KINDS)
    except RecordError:
        return ()
    return tuple(entry for entry in journal if isinstance(entry, Sample))


def _load_measurement(
    report_options: ReportOptions, paths: Paths
) -> tuple[Comparison, Path, tuple[Sample, ...]]:
    """Return the comparison, the folder for its reports and its samples. Several comparisons are
    merged.
    """
    if report_options.samples:
        comparison, recorded_samples = recompute_comparison(
            settings.expand_home(report_options.samples, "--samples")
        )
        folder = (
            Path(report_options.out) if report_options.out else paths.choose_report_folder("again")
        )
        save(folder / KIND.result, comparison)
        return comparison, folder, recorded_samples
    paths_given = settings.expand_paths(report_options.comparison) or (_find_newest(paths),)
    files = [path / KIND.result if path.is_dir() else path for path in paths_given]
    parts = [(str(path.parent), load(path)) for path in files]
    samples = tuple(sample for path in files for sample in read_samples(path.parent))
    if len(parts) == 1:
        return parts[0][1], Path(report_options.out or files[0].parent), samples
    merged = merging.merge_comparisons(parts)
    folder = (
        Path(report_options.out) if report_options.out else paths.choose_report_folder("merged")
    )
    save(folder / KIND.result, merged)
    return merged, folder, samples


def _find_newest(paths: Paths) -> Path:
    path = folders.find_newest(KIND, paths)
    if path is None:
        raise UsageError("there is no comparison yet", hint="Run invoke compare")
    return path


# --- prices ---------------------------------------------------------------------------------------


def _compute_bill(comparison: Comparison, report_options: ReportOptions) -> Bill:
    book = _load_book(report_options, report_options.prices)
    counts = {cell.vcpus: None for cell in comparison.cells}
    machines = find_machines(book, counts, parse_machines(report_options.machines))
    return bill.compute_bill(
        comparison,
        book,
        machines,
        baseline=report_options.relative_to,
        build=_parse_build(report_options),
        extra_runs=tuple(_read_kit_runs(report_options, book)),
    )


def _read_kit_runs(report_options: ReportOptions, book: PriceBook) -> Iterator[TrainingRun]:
    """Yield the training runs of the kit's files, priced on the machines that they come from."""
    for file, machine in _parse_kits(report_options):
        yield from kit_runs.compose_runs(kit_runs.read_launches(file), book.find_price(machine))


def _parse_kits(report_options: ReportOptions) -> Iterator[tuple[Path, str]]:
    """Yield the kit's files with their machines. Raises UsageError."""
    for word in options.parse_words(report_options.kit):
        file, equals, machine = word.rpartition("=")
        if not (file and equals and machine):
            raise UsageError(
                f"--kit {word} names no machine",
                hint="Write --kit samples.jsonl=MACHINE",
            )
        path = settings.expand_home(file, "--kit")
        if not path.is_file():
            raise UsageError(
                f"file not found: {path}",
                hint="Write the kit with invoke kit, run it on the other machine, and copy its "
                "results here",
            )
        yield path, machine


def _load_book(report_options: ReportOptions, text: str) -> PriceBook:
    """Load one price book, or merge several separated by commas; later books take precedence."""
    names = tuple(parse_machines(report_options.machines).values())
    if names:
        names += tuple(machine for _, machine in _parse_kits(report_options))
    words = options.parse_words(text) or (text,)
    books = [catalog.find_book(word, as_of=report_options.as_of, names=names) for word in words]
    book = merge_books(*books, mix_dates=report_options.mix_dates) if len(books) > 1 else books[0]
    return book.restrict(region=report_options.region, mode=parse_mode(report_options.mode))


def _parse_build(report_options: ReportOptions) -> Build | None:
    if not report_options.build_usd:
        if report_options.runs_per_day:
            raise UsageError("--runs-per-day needs the cost of a build", hint="Add --build-usd")
        return None
    rate = (
        options.parse_positive(report_options.runs_per_day, "--runs-per-day")
        if report_options.runs_per_day
        else None
    )
    return Build(
        usd=options.parse_positive(report_options.build_usd, "--build-usd", 0.0), runs_per_day=rate
    )


# --- other people's runs --------------------------------------------------------------------------


def _report_totals(report_options: ReportOptions, paths: Paths, *, as_json: bool) -> str:
    """Report whole training runs of a pip build and a compiled build, each run once, like the
    2017 article.
    """
    book = _load_book(report_options, report_options.prices or article.PRICES)
    if report_options.totals:
        path = (
            article.TOTALS
            if report_options.totals == ARTICLE
            else settings.expand_home(report_options.totals, "--totals")
        )
        totals = article.read_totals(book, path)
    else:
        totals = tuple(
            article.read_log(word, book) for word in options.parse_words(report_options.logs)
        )
    baseline = report_options.relative_to or article.BASELINE
    totals_bill = bill.compute_bill_from_totals(
        totals, book, baseline=baseline, build=_parse_build(report_options)
    )
    folder = (
        Path(report_options.out) if report_options.out else paths.choose_report_folder("totals")
    )
    shipped = report_options.totals == ARTICLE
    document = cost_section.build_totals_document(totals_bill, shipped=shipped)
    html_path = page.write_page(
        folder, document, page.draw_bill_figures(totals_bill), paths.templates
    )
    if as_json:
        return format_json(totals_bill)
    return f"{report.format_bill(totals_bill, colour=sys.stdout.isatty())}\nreport: {html_path}\n"
