"""The tuned wheels that are to be published: what each says of itself, audited and judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbuild import console
from tfbuild.auditing import audit
from tfbuild.errors import (
    AdmissionError,
    AuditError,
    DownloadError,
    GateError,
    PublishError,
    TensorwrightError,
    WheelError,
)
from tfbuild.packing import admitted
from tfbuild.packing.admitted import ConformanceStatus
from tfbuild.packing.tuned import Tuned, is_control, read_tuned
from tfbuild.settings import Paths
from tfbuild.tools import environment
from tfwheels import gate
from tfwheels.entry import Entry, read_entry
from tfwheels.gate import Judgement


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """How wheels are judged: by `comparisons`, or by those in the reports where none are given.
    Without `gated` they are published whatever was measured, and with `near` also those that were
    compiled from sources near their stock wheel's, not from its own. `stock` is the stock wheel
    that they are compared with, or the folder of such, where it is not to be fetched."""

    comparisons: tuple[Path, ...]
    gated: bool
    near: bool = False
    stock: Path | None = None
    now: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelCandidate:
    """A tuned wheel that may be published, how its kernels were admitted, and what was measured of
    it."""

    wheel: Path
    entry: Entry
    tuned: Tuned
    standings: tuple[ConformanceStatus, ...] = ()
    judgement: Judgement


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """`refused` says of each wheel that was left out why, by its file name."""

    made: tuple[WheelCandidate, ...]
    refused: Mapping[str, TensorwrightError]


def candidate(path: Path, rule: Rule, paths: Paths) -> WheelCandidate:
    """Raises WheelError, PublishError, AuditError, AdmissionError, GateError for a wheel that must
    not be handed out, ChecksumError for a stock wheel that is not the pinned one, and RecordError
    for a comparison or an admission that is none."""
    facts = read_tuned(path)
    if facts is None:
        raise WheelError(
            f"{path.name} is not a tuned wheel",
            hint="The stock wheel and its dependencies are published with the tuned ones",
        )
    _need_exact(path, facts, rule)
    entry, _ = read_entry(path, published=rule.now)
    standings = admitted.read_statuses(path, facts, entry.sha256)
    admitted.check_proven(path, standings)
    stock = _stock_of(path, facts, rule, paths)
    with console.report_step(f"audit {path.name}"):
        audit.check_audit(audit.audit(path, paths=paths, stock=stock))
    files = rule.comparisons or gate.find_comparisons(paths.reports, entry.sha256)
    judge = gate.judge if rule.gated else gate.examine
    return WheelCandidate(
        wheel=path,
        entry=entry,
        tuned=facts,
        standings=standings,
        judgement=judge(path.name, entry.sha256, facts, files),
    )


def _stock_of(path: Path, facts: Tuned, rule: Rule, paths: Paths) -> Path | None:
    """What a wheel of kernels is held against; None for a full build, and where no such wheel is
    known, which no audit lets pass. Raises PublishError where it cannot be had."""
    known = audit.find_stock(path, facts)
    if known is None:
        return None
    try:
        return environment.fetch_stock(known, paths, rule.stock)
    except DownloadError as error:
        raise PublishError(
            f"{path.name} cannot be compared with its stock wheel: {error.message}",
            hint=f"Give {known.file}: --stock-wheel PATH; or let pip reach an index that has it",
        ) from error


def _need_exact(path: Path, facts: Tuned, rule: Rule) -> None:
    """Raises PublishError for a wheel of near sources where the rule does not take such."""
    nearness = facts.nearness
    if nearness is not None and not nearness.exact and not rule.near:
        raise PublishError(
            f"{path.name} was compiled from {nearness.summary}",
            hint="Build it from the release's own sources; or publish it so: --near-sources",
        )


def named_candidates(wheels: Sequence[Path], rule: Rule, paths: Paths) -> Candidates:
    """All of these wheels; one that may not be published stops the whole. Raises as `candidate`."""
    return Candidates(made=tuple(candidate(path, rule, paths) for path in wheels), refused={})


def pool_candidates(rule: Rule, paths: Paths) -> Candidates:
    """What may be published of the tuned wheels in the pool, of which some may be old, or not
    measured yet. Those that are for comparing only are none."""
    made, refused = [], dict[str, TensorwrightError]()
    for path in sorted(paths.pool.glob("*.whl")):
        try:
            facts = read_tuned(path)
            if facts is not None and not is_control(facts):
                made.append(candidate(path, rule, paths))
        except (WheelError, PublishError, AuditError, AdmissionError, GateError) as error:
            refused[path.name] = error
    return Candidates(made=tuple(made), refused=refused)
