"""Check the tuned wheels to publish: sources, conformance test, audit and gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbuild.auditing import audit
from tfbuild.packing import conformance
from tfbuild.packing.conformance import ConformanceStatus
from tfbuild.packing.tuned import Tuned, is_control, read_tuned
from tfbuild.tools import environment
from tfcore import console
from tfcore.errors import (
    AdmissionError,
    AuditError,
    DownloadError,
    GateError,
    PublishError,
    RecordError,
    TensorwrightError,
    WheelError,
)
from tfcore.settings import Paths
from tfwheels import gate
from tfwheels.entry import Entry, read_entry
from tfwheels.gate import Judgement
from tfwheels.keys import PublicKey
from tfwheels.rebuild_statement import read_statement

_REASONS = (WheelError, PublishError, AuditError, AdmissionError, GateError, RecordError)
"""Errors of one wheel, which exclude it. (RecordError: a damaged conformance record beside it.)"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishRule:
    """The requirements for publishing a tuned wheel.

    The gate takes verdicts from `comparisons`, or from those in the reports if none are given, and
    reasons to refuse a wheel from both. Without `gated`, it refuses no wheel. With `near`, wheels
    are also published if they were compiled from other sources than the release's own, and headers
    of these differ from the stock wheel's. `stock` is the stock wheel to compare with, or a folder
    that contains it; by default, pip downloads it. With `searched`, random programs must have found
    no wrong results. If there are `rebuilders`, one of them must have rebuilt the wheel.
    """

    comparisons: tuple[Path, ...]
    gated: bool
    near: bool = False
    stock: Path | None = None
    searched: bool = False
    rebuilders: tuple[PublicKey, ...] = ()
    now: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelCandidate:
    """A tuned wheel that may be published, with its conformance and gate results.

    `rebuilt` is the rebuilder's statement; empty if none is required.
    """

    wheel: Path
    entry: Entry
    tuned: Tuned
    standings: tuple[ConformanceStatus, ...] = ()
    judgement: Judgement
    rebuilt: bytes = b""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """The wheels that may be published, and by file name the error of each excluded wheel."""

    made: tuple[WheelCandidate, ...]
    refused: Mapping[str, TensorwrightError]

    @property
    def hashes(self) -> dict[Path, str]:
        """Return the SHA-256 that each wheel had when it was checked."""
        return {candidate.wheel: candidate.entry.sha256 for candidate in self.made}


def check_candidate(path: Path, rule: PublishRule, paths: Paths) -> WheelCandidate:
    """Check a tuned wheel and return it as a candidate for publishing.

    Raises WheelError, PublishError, AuditError, AdmissionError, GateError for a wheel that
    must not be published, ChecksumError for a stock wheel that is not the pinned one, and
    RecordError for an invalid comparison or conformance record.
    """
    facts = read_tuned(path)
    if facts is None:
        raise WheelError(
            f"{path.name} is not a tuned wheel",
            hint="Pass tuned wheels only: publish adds the stock wheel and the dependencies",
        )
    _require_exact(path, facts, rule)
    entry, _ = read_entry(path, published=rule.now)
    standings = conformance.read_statuses(path, facts, entry.sha256)
    conformance.check_proven(path, standings)
    stock = _fetch_stock(path, facts, rule, paths)
    with console.report_step(f"audit {path.name}"):
        audit.check_audit(audit.audit(path, paths=paths, stock=stock))
    if rule.searched:
        gate.require_searched(path.name, entry.sha256, paths.reports)
    found = gate.find_comparisons(paths.reports, entry.sha256)
    judge = gate.require_passed if rule.gated else gate.judge_comparisons
    return WheelCandidate(
        wheel=path,
        entry=entry,
        tuned=facts,
        standings=standings,
        judgement=judge(path.name, entry.sha256, facts, rule.comparisons or found, found),
        rebuilt=read_statement(path, entry.sha256, rule.rebuilders) if rule.rebuilders else b"",
    )


def _fetch_stock(path: Path, facts: Tuned, rule: PublishRule, paths: Paths) -> Path | None:
    """Return the stock wheel to compare a wheel of kernels with.

    None for a full build, and if no stock wheel is known (the audit then fails). Raises
    PublishError if it cannot be downloaded.
    """
    pinned = audit.find_stock(path, facts)
    if pinned is None:
        return None
    try:
        return environment.fetch_stock(pinned, paths, rule.stock)
    except DownloadError as error:
        raise PublishError(
            f"cannot compare {path.name} with its stock wheel: {error.message}",
            hint=f"Pass {pinned.file} with --stock-wheel PATH, or check pip's index settings",
        ) from error


def _require_exact(path: Path, facts: Tuned, rule: PublishRule) -> None:
    """Raise PublishError for a wheel that needs `near`, unless the rule has it."""
    nearness = facts.nearness
    if nearness is not None and not nearness.exact and not rule.near:
        raise PublishError(
            f"{path.name} was compiled from {nearness.summary}",
            hint="Build it from the release's own sources, or publish it with --near-sources",
        )


def check_named(wheels: Sequence[Path], rule: PublishRule, paths: Paths) -> Candidates:
    """Check these wheels; stop at the first that may not be published.

    Raises the errors of `check_candidate`.
    """
    return Candidates(made=tuple(check_candidate(path, rule, paths) for path in wheels), refused={})


def check_pool(rule: PublishRule, paths: Paths) -> Candidates:
    """Check the tuned wheels in the pool, and collect the errors of those that fail.

    Wheels built for comparison only are skipped.
    """
    accepted, refused = [], dict[str, TensorwrightError]()
    for path in sorted(paths.pool.glob("*.whl")):
        try:
            facts = read_tuned(path)
            if facts is not None and not is_control(facts):
                accepted.append(check_candidate(path, rule, paths))
        except _REASONS as error:
            refused[path.name] = error
    return Candidates(made=tuple(accepted), refused=refused)
