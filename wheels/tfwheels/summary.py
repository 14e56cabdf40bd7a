"""Summaries of publishing, as text and as JSON. Pure functions."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from packaging.version import Version

from tfbuild.packing.tuned import choose_build
from tfbuild.terminal_tables import format_grid
from tfcore.console import format_count
from tfcore.cpus.cpu import Cpu
from tfcore.cpus.targets import match_cpu, parse_target
from tfwheels.candidates import Candidates, WheelCandidate
from tfwheels.catalog import add_judgement
from tfwheels.entry import Entry, TargetVerdict, WheelKind, Withdrawal
from tfwheels.publish import PublishResult
from tfwheels.upload import Upload, UploadState
from tfwheels.wheel_choice import (
    PageChoice,
    choose_best,
    explain,
    find_missing_features,
    targets_for,
)

_FEW = 3
_TARGETS = 60
"""Width of a line of targets, in characters."""


def describe(published: PublishResult, candidates: Candidates, where: str, *, dry_run: bool) -> str:
    """Summarize the result in a line, then list each wheel's targets and verdicts."""
    head = _describe_change(published, where, dry_run=dry_run)
    reached = _group_targets(published.choices)
    rows = [
        (format_title(entry), format_verdicts(entry), textwrap.fill(" ".join(targets), _TARGETS))
        for entry, targets in reached.items()
    ]
    listed = {entry.file for entry in reached}
    rows += [
        (
            format_title(candidate.entry),
            format_verdicts(candidate.entry, candidate.judgement.verdicts),
            _explain_unlisted(candidate.entry),
        )
        for candidate in candidates.made
        if candidate.entry.file not in listed
    ]
    table = f"\n{format_grid(('wheel', 'verdict', 'targets'), rows)}" if rows else ""
    shown = _list_entries(published, candidates)
    lines = (
        *_describe_withdrawals(published.withdrawals),
        *_describe_lacking(published.choices),
        *_describe_caveats(shown),
        *_describe_unread(published, where),
        *_describe_signed(published.signers),
    )
    return f"{head}\n{table}" + ("\n" if lines else "") + "".join(f"{line}\n" for line in lines)


def _describe_change(published: PublishResult, where: str, *, dry_run: bool) -> str:
    be, change = ("would be ", "would be written") if dry_run else ("", "written")
    pages = f"{format_count(len(published.pages), 'page')} {change}"
    if published.withdrawals:
        return f"{where}: {pages}"
    restored = f"{len(published.restored)} {be}restored, " if published.restored else ""
    return (
        f"{where}: {format_count(len(published.added), 'wheel')} {be}added, {restored}"
        f"{len(published.present)} already there, {pages}"
    )


def build_fields(
    published: PublishResult, candidates: Candidates, where: str, *, dry_run: bool
) -> dict[str, object]:
    """Return the summary as JSON fields: per target the listed wheels, with the reasons."""
    return {
        "index": where,
        "dry_run": dry_run,
        "added": published.added,
        "restored": published.restored,
        "present": published.present,
        "unread": published.unread,
        "pages": published.pages,
        "signers": published.signers,
        "withdrawals": published.withdrawals,
        "choices": {
            name: [
                {
                    "file": choice.entry.file,
                    "version": choice.entry.version,
                    "sha256": choice.entry.sha256,
                    "library": choice.library,
                    "why": explain(choice, parse_target(name)),
                }
                for choice in listed
            ]
            for name, listed in published.choices.items()
        },
        "lacking": {
            name: find_missing_features(parse_target(name))
            for name in _find_lacking(published.choices)
        },
        "caveats": {
            entry.file: entry.caveats
            for entry in _list_entries(published, candidates)
            if entry.caveats
        },
        **_build_candidate_fields(candidates),
    }


def describe_uploads(
    sent: Sequence[Upload], candidates: Candidates, url: str, *, dry_run: bool
) -> str:
    """Summarize the uploads in a line, then list each wheel's state and verdicts."""
    states = Counter(upload.state for upload in sent)
    new, present = (
        states[UploadState.ABSENT if dry_run else UploadState.SENT],
        states[UploadState.THERE],
    )
    verb = "would be sent" if dry_run else "sent"
    head = f"{url}: {format_count(new, 'wheel')} {verb}, {present} already there"
    entries = {
        candidate.wheel: (candidate.entry, candidate.judgement.verdicts)
        for candidate in candidates.made
    }
    rows = [
        (
            format_title(entries[upload.wheel][0]),
            format_verdicts(*entries[upload.wheel]),
            upload.state.value,
        )
        for upload in sent
    ]
    table = f"\n{format_grid(('wheel', 'verdict', 'state'), rows)}" if rows else ""
    lines = tuple(_describe_caveats(_list_candidates(candidates)))
    return f"{head}\n{table}" + ("\n" if lines else "") + "".join(f"{line}\n" for line in lines)


def build_upload_fields(
    sent: Sequence[Upload], candidates: Candidates, url: str
) -> dict[str, object]:
    states = {wheel_upload.wheel.name: wheel_upload.state.value for wheel_upload in sent}
    return {"index": url, "states": states, **_build_candidate_fields(candidates)}


def find_unserved(
    published: PublishResult, candidates: Iterable[WheelCandidate], cpu: Cpu
) -> Iterator[str]:
    """Yield a line for each wheel that this CPU runs but the page of its target cannot list.

    Another CPU of the target lacks a feature. --arch native on a virtual machine builds such
    wheels.
    """
    target = match_cpu(cpu).best
    for choice in published.choices.get(target.name, ()):
        reasons = explain(choice, target)
        for entry in (
            candidate.entry for candidate in candidates if choose_build(candidate.tuned, cpu)
        ):
            if entry.file in reasons and choose_best((entry,), target) is None:
                yield (
                    f"this CPU runs {entry.version}, but simple/{target.name}/ lists "
                    f"{choice.entry.version}: {reasons[entry.file]}; "
                    f"invoke build --arch {target.name} builds a wheel for that page"
                )


def format_title(entry: Entry) -> str:
    return f"{entry.name} {entry.version} {entry.tags[0].partition('-')[0]}"


def format_verdicts(entry: Entry, verdicts: Iterable[TargetVerdict] | None = None) -> str:
    """Format a line for each verdict, and for each target without one.

    The default for `verdicts` is those in the index.
    """
    if entry.kind is not WheelKind.TUNED:
        return "stock"
    selected = tuple(entry.verdicts if verdicts is None else verdicts)
    covered = {verdict.target for verdict in selected}
    lines = [(verdict.target, _format_verdict(verdict)) for verdict in selected]
    lines += [(target, "none") for target in entry.targets if target not in covered]
    several = len(entry.targets) > 1
    return "\n".join(f"{target}: {text}" if several else text for target, text in lines)


def _format_verdict(verdict: TargetVerdict) -> str:
    figures = f"{verdict.speedup:.3f}x ({verdict.low:.3f} to {verdict.high:.3f})"
    return f"{verdict.verdict}, {figures} on {verdict.cpu}"


def _describe_withdrawals(withdrawals: Mapping[str, Withdrawal | None]) -> Iterator[str]:
    for file, withdrawal in withdrawals.items():
        yield f"{file} is {withdrawal.words if withdrawal else 'not withdrawn'}"


def _describe_signed(signers: Mapping[str, str]) -> Iterator[str]:
    """Yield the number of given wheels per signer, and the unsigned wheels."""
    keys = Counter(key for key in signers.values() if key)
    for key, wheels in keys.items():
        yield f"{format_count(wheels, 'wheel')} signed by key {key}"
    unsigned = [file for file, key in signers.items() if not key]
    if unsigned:
        shown = ", ".join(unsigned[:_FEW]) + (
            f" and {len(unsigned) - _FEW} more" * bool(unsigned[_FEW:])
        )
        yield f"{format_count(len(unsigned), 'wheel')} unsigned: {shown}"


def _group_targets(choices: Mapping[str, Sequence[PageChoice]]) -> dict[Entry, list[str]]:
    """Return the wheels that pages list, newest first, with their targets."""
    targets: dict[Entry, list[str]] = defaultdict(list)
    for target, listed in choices.items():
        for choice in listed:
            targets[choice.entry].append(target)
    order = sorted(targets, key=lambda entry: (Version(entry.version), entry.file), reverse=True)
    return {entry: targets[entry] for entry in order}


def _explain_unlisted(entry: Entry) -> str:
    fits = any(choose_best((entry,), target) for target in targets_for((entry,)))
    return "no page: others are nearer" if fits else "no page: no target has all its features"


def _list_candidates(candidates: Candidates) -> tuple[Entry, ...]:
    """Return the entries of the candidates with their current gate result."""
    return tuple(
        add_judgement(candidate.entry, candidate.judgement) for candidate in candidates.made
    )


def _list_entries(published: PublishResult, candidates: Candidates) -> tuple[Entry, ...]:
    """Return the entries of the candidates and of the listed wheels, as in the index."""
    reached = _group_targets(published.choices)
    return tuple(
        {entry.file: entry for entry in (*_list_candidates(candidates), *reached)}.values()
    )


def _describe_caveats(entries: Iterable[Entry]) -> Iterator[str]:
    return (f"{format_title(entry)}: {caveat}" for entry in entries for caveat in entry.caveats)


def _find_lacking(choices: Mapping[str, Sequence[PageChoice]]) -> tuple[str, ...]:
    """Return the targets without wheels because they lack features that stock TensorFlow needs."""
    served = {parse_target(name).family for name, listed in choices.items() if listed}
    targets = (parse_target(name) for name, listed in choices.items() if not listed)
    return tuple(
        target.name
        for target in targets
        if target.family in served and find_missing_features(target)
    )


def _describe_lacking(choices: Mapping[str, Sequence[PageChoice]]) -> Iterator[str]:
    names = _find_lacking(choices)
    if names:
        lacks = sorted(
            set.intersection(*({*find_missing_features(parse_target(name))} for name in names))
        )
        yield (
            f"no TensorFlow for {' '.join(names)}: they lack {', '.join(lacks)}, which the stock "
            "code in its wheels needs. Only a full build can run there: invoke build --scope full "
            f"--arch {names[-1]}"
        )


def _describe_unread(published: PublishResult, where: str) -> Iterator[str]:
    if published.unread:
        yield (
            f"the bytes of {', '.join(published.unread)} were not compared: {where} reports no "
            "hash. --reindex reads all wheels"
        )


def _build_candidate_fields(candidates: Candidates) -> dict[str, object]:
    return {
        "judgements": {
            candidate.entry.file: {
                "passed": candidate.judgement.gating.passed,
                "verdicts": candidate.judgement.verdicts,
                "faults": candidate.judgement.faults,
                "gaps": candidate.judgement.gaps,
                "silent": candidate.judgement.silent,
            }
            for candidate in candidates.made
        },
        "admissions": {candidate.entry.file: candidate.standings for candidate in candidates.made},
        "left_out": {file: error.message for file, error in candidates.refused.items()},
    }
