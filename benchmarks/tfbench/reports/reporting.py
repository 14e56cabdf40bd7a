"""Reports to files: of one comparison, of several machines together, of runs that others made."""

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
from tfbench.measuring.comparison import KIND
from tfbench.measuring.recorded import recompute_comparison
from tfbench.measuring.samples import KINDS, Sample
from tfbench.reports import chapters, page, pyperf, report, spending, tabular
from tfbuild import settings
from tfbuild.errors import RecordError, UsageError
from tfbuild.measured.comparison import Comparison, load, save
from tfbuild.records import convert_record, format_json, write_atomic
from tfbuild.settings import Paths

CSV = "report.csv"
ARTICLE = "2017"
"""What --totals calls the totals that are shipped."""
_OF_PRICES = (
    *("as_of", "region", "mode", "mix_dates", "machines", "relative_to", "build_usd"),
    *("runs_per_day", "kit"),
)


def report_again(wanted: ReportOptions, *, as_json: bool) -> str:
    """What to print; files go beside the comparison, or to --out.

    Raises UsageError for options that do not go together, RecordError, SampleError, HostError.
    """
    paths = settings.paths()
    sources = (wanted.comparison, wanted.samples, wanted.totals, wanted.logs)
    if len(list(filter(None, sources))) > 1:
        raise UsageError(
            "a report is of one thing", hint="Give --comparison, --samples, --totals or --logs"
        )
    _check_together(wanted)
    if wanted.totals or wanted.logs:
        return _of_totals(wanted, paths, as_json=as_json)
    comparison, folder, samples = _measured(wanted, paths)
    if wanted.line:
        return report.line(comparison) + "\n"
    priced = _bill(comparison, wanted) if wanted.prices else None
    return write_reports(comparison, folder, paths, as_json=as_json, samples=samples, priced=priced)


def _check_together(wanted: ReportOptions) -> None:
    """Raises UsageError for an option that nothing would read."""
    unread: tuple[str, ...] = ()
    without, hint = "a comparison", "Leave it out"
    if wanted.totals or wanted.logs:  # (they name their machines, and have prices of their own)
        unread = ("kit",)
    elif not wanted.prices:
        unread = _OF_PRICES
        without, hint = "prices", f"Add --prices, such as {', '.join(catalog.list_shipped_books())}"
    given = next((name for name in unread if getattr(wanted, name)), "")
    if given:
        raise UsageError(f"--{given.replace('_', '-')} says nothing without {without}", hint=hint)


def write_reports(
    comparison: Comparison,
    folder: Path,
    paths: Paths,
    *,
    as_json: bool,
    samples: tuple[Sample, ...] | None = None,
    priced: Bill | None = None,
) -> str:
    """Every form into `folder`; the table, or the records as JSON, as text."""
    taken = samples if samples is not None else read_samples(folder)
    templates = paths.templates
    document = chapters.document(comparison, templates, priced)
    figures = page.comparison_figures(comparison, priced, taken)
    written = page.write(folder, document, figures, templates)
    write_atomic(folder / CSV, tabular.comparison_csv(comparison))
    for name, picture in page.pictures(comparison).items():
        write_atomic(folder / name, picture)
    for arm, text in pyperf.suites(comparison, taken).items() if taken else ():
        write_atomic(folder / f"pyperf-{arm.replace(' ', '-')}.json", text)
    if as_json:
        both = {"comparison": convert_record(comparison), "bill": convert_record(priced)}
        return format_json(both if priced else comparison)
    colour = sys.stdout.isatty()
    costs = f"{report.bill_table(priced, colour=colour)}\n" if priced else ""
    return f"{report.table(comparison, colour=colour)}\n{costs}report: {written}\n"


def read_samples(folder: Path) -> tuple[Sample, ...]:
    """Those of the journal; none where it is not at hand, as with a comparison that was sent."""
    try:
        every = read_entries(folder / KIND.journal, KINDS)
    except RecordError:
        return ()
    return tuple(entry for entry in every if isinstance(entry, Sample))


def _measured(wanted: ReportOptions, paths: Paths) -> tuple[Comparison, Path, tuple[Sample, ...]]:
    """The comparison, where its reports go, and its samples. Several become one."""
    if wanted.samples:
        found, taken = recompute_comparison(Path(wanted.samples).expanduser())
        folder = Path(wanted.out) if wanted.out else paths.choose_report_folder("again")
        save(folder / KIND.result, found)
        return found, folder, taken
    given = options.parse_paths(wanted.comparison) or [_newest(paths)]
    files = [path / KIND.result if path.is_dir() else path for path in given]
    parts = [(str(path.parent), load(path)) for path in files]
    samples = tuple(sample for path in files for sample in read_samples(path.parent))
    if len(parts) == 1:
        return parts[0][1], Path(wanted.out or files[0].parent), samples
    merged = merging.merge_comparisons(parts)
    folder = Path(wanted.out) if wanted.out else paths.choose_report_folder("merged")
    save(folder / KIND.result, merged)
    return merged, folder, samples


def _newest(paths: Paths) -> Path:
    path = folders.find_newest(KIND, paths)
    if path is None:
        raise UsageError("no comparison was measured yet", hint="Run: invoke compare")
    return path


# --- prices ---------------------------------------------------------------------------------------


def _bill(comparison: Comparison, wanted: ReportOptions) -> Bill:
    book = _book(wanted, wanted.prices)
    counts = {cell.vcpus: None for cell in comparison.cells}
    machines = find_machines(book, counts, parse_machines(wanted.machines))
    return bill.compute_bill(
        comparison,
        book,
        machines,
        baseline=wanted.relative_to,
        build=_build(wanted),
        others=tuple(_kit_runs(wanted, book)),
    )


def _kit_runs(wanted: ReportOptions, book: PriceBook) -> Iterator[TrainingRun]:
    """Runs of the kit's files, on the machines that they were brought from."""
    for file, machine in _kits(wanted):
        yield from kit_runs.compose_runs(kit_runs.read_launches(file), book.find_price(machine))


def _kits(wanted: ReportOptions) -> Iterator[tuple[Path, str]]:
    """The kit's files with their machines. Raises UsageError."""
    for word in options.parse_words(wanted.kit):
        file, equals, machine = word.rpartition("=")
        if not (file and equals and machine):
            raise UsageError(
                f"--kit {word} does not say which machine it is of",
                hint="Write --kit samples.jsonl=MACHINE",
            )
        path = Path(file).expanduser()
        if not path.is_file():
            raise UsageError(f"there is no file {path}", hint="invoke kit writes what measures one")
        yield path, machine


def _book(wanted: ReportOptions, text: str) -> PriceBook:
    """One book, or several with commas between, of which later ones win."""
    names = tuple(parse_machines(wanted.machines).values())
    if names:
        names += tuple(machine for _, machine in _kits(wanted))
    words = options.parse_words(text) or (text,)
    books = [catalog.find_book(each, as_of=wanted.as_of, names=names) for each in words]
    book = merge_books(*books, mix_dates=wanted.mix_dates) if len(books) > 1 else books[0]
    return book.restrict(region=wanted.region, mode=parse_mode(wanted.mode))


def _build(wanted: ReportOptions) -> Build | None:
    if not wanted.build_usd:
        if wanted.runs_per_day:
            raise UsageError("--runs-per-day needs the cost of a build", hint="Add --build-usd")
        return None
    rate = (
        options.parse_positive(wanted.runs_per_day, "--runs-per-day")
        if wanted.runs_per_day
        else None
    )
    return Build(
        usd=options.parse_positive(wanted.build_usd, "--build-usd", 0.0), runs_per_day=rate
    )


# --- runs that others made ------------------------------------------------------------------------


def _of_totals(wanted: ReportOptions, paths: Paths, *, as_json: bool) -> str:
    """The 2017 article's form: whole runs, each once, of a pip build and a compiled one."""
    book = _book(wanted, wanted.prices or article.PRICES)
    if wanted.totals:
        path = article.TOTALS if wanted.totals == ARTICLE else Path(wanted.totals).expanduser()
        totals = article.read_totals(book, path)
    else:
        totals = tuple(article.read_log(word, book) for word in options.parse_words(wanted.logs))
    baseline = wanted.relative_to or article.BASELINE
    found = bill.compute_bill_from_totals(totals, book, baseline=baseline, build=_build(wanted))
    folder = Path(wanted.out) if wanted.out else paths.choose_report_folder("totals")
    shipped = wanted.totals == ARTICLE
    document = spending.totals_document(found, shipped=shipped)
    written = page.write(folder, document, page.bill_figures(found), paths.templates)
    if as_json:
        return format_json(found)
    return f"{report.bill_table(found, colour=sys.stdout.isatty())}\nreport: {written}\n"
