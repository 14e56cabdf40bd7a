"""The answer to `invoke releases --check VERSION`: what the project has and lacks for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tfbuild.commands import HOT, ReleasesOptions
from tfbuild.planning import defaults, selection
from tfbuild.terminal_tables import format_grid
from tfbuild.upstream import lock_files, releases
from tfbuild.upstream.releases import Release
from tfcore.errors import ReleaseError, UsageError
from tfcore.records import format_json
from tfcore.settings import ROOT

LISTINGS = ROOT / "tests" / "data" / "stock"
"""The recorded listings of stock wheels, in a checkout."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseFact:
    """One thing that a release needs; `remedy` says how to add it, empty if it is there.

    Without a thing that is not `required`, builds work with less: `remedy` says what is lost.
    """

    name: str
    required: bool
    remedy: str

    @property
    def state(self) -> str:
        if not self.remedy:
            return "yes"
        return "missing" if self.required else "no"


def check_options(options: ReleasesOptions) -> None:
    """Raise UsageError for options that have no effect without --add, and for --check with it."""
    if options.add and options.check:
        raise UsageError("--add and --check exclude each other", hint="Give only one of them")
    given = {
        "--source-sha256": options.source_sha256,
        "--source": options.source,
        "--kernels": options.kernels != HOT,
        "--budget": options.budget,
        "--facts-only": options.facts_only,
    }
    unused = next((name for name, value in given.items() if value), "")
    if unused and not options.add:
        raise UsageError(f"{unused} has no effect without --add", hint="Add --add VERSION")


def check_release(text: str) -> tuple[ReleaseFact, ...]:
    """Check what builds of kernels, comparisons and tests need of a release.

    `text` is a version (2.21.0), or the series (2.21) of a known release. Raises UsageError.
    """
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", text):
        raise UsageError(
            f"--check {text} is not a version", hint="Use, for example, --check 2.21.0"
        )
    try:
        row: Release | None = releases.find_release(text)
    except ReleaseError:
        row = None
    version = text if row is None else row.version
    full_only = row is not None and not row.kernels
    fact = _create_fact(
        "facts for kernels",
        not full_only,
        "Only a full build is possible: [kernels] in releases.toml starts at a later series",
        required=False,
    )
    kernels = () if row is None else (fact,)
    return (
        _create_fact(
            "row of releases.toml",
            row is not None,
            "Run: invoke releases --add VERSION --source-sha256 HASH",
        ),
        *kernels,
        _create_fact(
            "lock file",
            (lock_files.LOCKS / f"{version}.txt").is_file(),
            f"Write build/tfbuild/upstream/locks/{version}.txt, as releases --add does",
            required=not full_only,
        ),
        _create_fact(
            "recorded listing of the stock wheel",
            not LISTINGS.is_dir() or (LISTINGS / f"{version}.json").is_file(),
            "Run: python -m tests.tools.stock_listings WHEEL",
            required=not full_only,
        ),
        _create_fact(
            "traits for run-time defaults",
            version in defaults.load_traits(),
            "Comparisons of other releases do not count for its run-time defaults; to change that, "
            "add [[release]] to build/tfbuild/planning/defaults.toml",
            required=False,
        ),
        _create_fact(
            "recorded selection",
            version in {known.release for known in selection.load_recorded_selections()},
            "`--kernels hot` compiles kernel groups that were not measured; record one with "
            "invoke select",
            required=False,
        ),
    )


def _create_fact(name: str, present: bool, remedy: str, *, required: bool = True) -> ReleaseFact:
    return ReleaseFact(name=name, required=required, remedy="" if present else remedy)


def format_check(facts: tuple[ReleaseFact, ...], *, as_json: bool) -> str:
    """Format the facts as a table."""
    if as_json:
        rows = [{"name": fact.name, "state": fact.state, "remedy": fact.remedy} for fact in facts]
        return format_json(rows)
    return format_grid(
        ("needed or used", "state", "what to do"),
        [(fact.name, fact.state, fact.remedy) for fact in facts],
    )


def require_complete(facts: tuple[ReleaseFact, ...], version: str) -> None:
    """Raise ReleaseError if a required fact is missing."""
    absent = [fact for fact in facts if fact.state == "missing"]
    if absent:
        names = ", ".join(fact.name for fact in absent)
        raise ReleaseError(
            f"for TensorFlow {version}, Tensorwright lacks: {names}", hint=absent[0].remedy
        )
