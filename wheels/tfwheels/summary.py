"""What publishing came to, for people and as JSON. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from packaging.version import Version

from tfbuild.console import format_count
from tfbuild.cpus.cpu import Cpu
from tfbuild.cpus.targets import match_cpu, parse_target
from tfbuild.packing.tuned import choose_build
from tfbuild.terminal_tables import format_grid
from tfwheels.candidates import Candidates, WheelCandidate
from tfwheels.catalog import with_judgement
from tfwheels.choosing import PageChoice, decide, explain, stock_lacks, targets_for
from tfwheels.entry import Entry, TargetVerdict, WheelKind
from tfwheels.identities import described
from tfwheels.publish import Published
from tfwheels.upload import State, Upload

_FEW = 3
_TARGETS = 60
"""Characters of a line of targets: a page is right for many."""


def describe(published: Published, candidates: Candidates, where: str, *, dry_run: bool) -> str:
    """What happened, in a line; then which targets get which wheel, and what was measured of it."""
    be, change = ("would be ", "would change") if dry_run else ("", "changed")
    restored = f"{len(published.restored)} {be}restored, " if published.restored else ""
    head = (
        f"{where}: {format_count(len(published.added), 'wheel')} {be}added, {restored}"
        f"{len(published.present)} there already, {format_count(len(published.pages), 'page')} {change}"
    )
    reached = _reached(published.choices)
    rows = [
        (title(entry), verdicts_of(entry), textwrap.fill(" ".join(targets), _TARGETS))
        for entry, targets in reached.items()
    ]
    listed = {entry.file for entry in reached}
    rows += [
        (title(each.entry), verdicts_of(each.entry, each.judgement.verdicts), _unlisted(each.entry))
        for each in candidates.made
        if each.entry.file not in listed
    ]
    table = f"\n{format_grid(('wheel', 'verdict', 'targets'), rows)}" if rows else ""
    shown = _shown(published, candidates)
    lines = (
        *_without(published.choices),
        *_caveats(shown),
        *_unread(published, where),
        *_signed(published.signers),
    )
    return f"{head}\n{table}" + ("\n" if lines else "") + "".join(f"{line}\n" for line in lines)


def fields(
    published: Published, candidates: Candidates, where: str, *, dry_run: bool
) -> dict[str, object]:
    """The same for a program: for each target the wheels that its pages list, with the reasons."""
    return {
        "index": where,
        "dry_run": dry_run,
        "added": published.added,
        "restored": published.restored,
        "present": published.present,
        "unread": published.unread,
        "pages": published.pages,
        "signers": published.signers,
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
        "lacking": {name: stock_lacks(parse_target(name)) for name in _lacking(published.choices)},
        "caveats": {
            each.file: each.caveats for each in _shown(published, candidates) if each.caveats
        },
        **_offered(candidates),
    }


def describe_uploads(
    sent: Sequence[Upload], candidates: Candidates, url: str, *, dry_run: bool
) -> str:
    """How many wheels were sent, then each with its state and what was measured of it."""
    states = Counter(each.state for each in sent)
    new, there = states[State.ABSENT if dry_run else State.SENT], states[State.THERE]
    verb = "would be sent" if dry_run else "sent"
    head = f"{url}: {format_count(new, 'wheel')} {verb}, {there} there already"
    entries = {each.wheel: (each.entry, each.judgement.verdicts) for each in candidates.made}
    rows = [
        (title(entries[each.wheel][0]), verdicts_of(*entries[each.wheel]), each.state.value)
        for each in sent
    ]
    table = f"\n{format_grid(('wheel', 'verdict', 'state'), rows)}" if rows else ""
    lines = tuple(_caveats(_judged(candidates)))
    return f"{head}\n{table}" + ("\n" if lines else "") + "".join(f"{line}\n" for line in lines)


def upload_fields(sent: Sequence[Upload], candidates: Candidates, url: str) -> dict[str, object]:
    states = {each.wheel.name: each.state.value for each in sent}
    return {"index": url, "states": states, **_offered(candidates)}


def unserved(published: Published, made: Iterable[WheelCandidate], cpu: Cpu) -> Iterator[str]:
    """Which of the wheels that this CPU runs the page of its own target cannot list, for another
    CPU of that target lacks a feature: --arch native on a virtual machine makes such a wheel."""
    target = match_cpu(cpu).best
    for choice in published.choices.get(target.name, ()):
        why = explain(choice, target)
        for entry in (each.entry for each in made if choose_build(each.tuned, cpu)):
            if entry.file in why and decide((entry,), target) is None:
                yield (
                    f"this CPU runs {entry.version}, but simple/{target.name}/ lists "
                    f"{choice.entry.version}, as {why[entry.file]}; "
                    f"invoke build --arch {target.name} makes a wheel for that page"
                )


def title(entry: Entry) -> str:
    return f"{entry.name} {entry.version} {entry.tags[0].partition('-')[0]}"


def verdicts_of(entry: Entry, verdicts: Iterable[TargetVerdict] | None = None) -> str:
    """A line for each verdict, and for each target without one; `verdicts` are those that the index
    has where none are given."""
    if entry.kind is not WheelKind.TUNED:
        return "stock"
    own = tuple(entry.verdicts if verdicts is None else verdicts)
    spoken = {verdict.target for verdict in own}
    lines = [(verdict.target, _said(verdict)) for verdict in own]
    lines += [(target, "none") for target in entry.targets if target not in spoken]
    several = len(entry.targets) > 1
    return "\n".join(f"{target}: {text}" if several else text for target, text in lines)


def _said(verdict: TargetVerdict) -> str:
    figures = f"{verdict.speedup:.3f}x ({verdict.low:.3f} to {verdict.high:.3f})"
    return f"{verdict.verdict}, {figures} on {verdict.cpu}"


def _signed(signers: Mapping[str, str]) -> Iterator[str]:
    """How many of the wheels that were given each signer has signed, and which are unsigned."""
    keys = Counter(key for key in signers.values() if key)
    for key, wheels in keys.items():
        yield f"{format_count(wheels, 'wheel')} signed by {described(key)}"
    others = [file for file, key in signers.items() if not key]
    if others:
        shown = ", ".join(others[:_FEW]) + (f" and {len(others) - _FEW} more" * bool(others[_FEW:]))
        yield f"{format_count(len(others), 'wheel')} unsigned: {shown}"


def _reached(choices: Mapping[str, Sequence[PageChoice]]) -> dict[Entry, list[str]]:
    """The wheels that pages list, the newest first, with their targets."""
    found: dict[Entry, list[str]] = defaultdict(list)
    for target, listed in choices.items():
        for choice in listed:
            found[choice.entry].append(target)
    order = sorted(found, key=lambda each: (Version(each.version), each.file), reverse=True)
    return {entry: found[entry] for entry in order}


def _unlisted(entry: Entry) -> str:
    fits = any(decide((entry,), target) for target in targets_for((entry,)))
    return "no page: others are nearer" if fits else "no page: no target has all that it needs"


def _judged(candidates: Candidates) -> tuple[Entry, ...]:
    """The entries of what is offered, with what was judged of it now."""
    return tuple(with_judgement(each.entry, each.judgement) for each in candidates.made)


def _shown(published: Published, candidates: Candidates) -> tuple[Entry, ...]:
    """Those entries and those that pages list, as the index has them."""
    reached = _reached(published.choices)
    return tuple({each.file: each for each in (*_judged(candidates), *reached)}.values())


def _caveats(entries: Iterable[Entry]) -> Iterator[str]:
    return (f"{title(entry)}: {each}" for entry in entries for each in entry.caveats)


def _lacking(choices: Mapping[str, Sequence[PageChoice]]) -> tuple[str, ...]:
    """The targets that get none of the wheels since they lack what stock TensorFlow needs."""
    served = {parse_target(name).family for name, listed in choices.items() if listed}
    targets = (parse_target(name) for name, listed in choices.items() if not listed)
    return tuple(each.name for each in targets if each.family in served and stock_lacks(each))


def _without(choices: Mapping[str, Sequence[PageChoice]]) -> Iterator[str]:
    names = _lacking(choices)
    if names:
        lacks = sorted(set.intersection(*({*stock_lacks(parse_target(name))} for name in names)))
        yield (
            f"no TensorFlow for {' '.join(names)}: they lack {', '.join(lacks)}, which its wheels "
            "need. Only a full build for such a target may stand on its page: invoke build --scope "
            f"full --arch {names[-1]}"
        )


def _unread(published: Published, where: str) -> Iterator[str]:
    if published.unread:
        yield (
            f"nobody looked at the bytes of {', '.join(published.unread)}: {where} does not tell "
            "their hash. --reindex reads all that is there"
        )


def _offered(candidates: Candidates) -> dict[str, object]:
    return {
        "judgements": {
            each.entry.file: {
                "passed": each.judgement.gating.passed,
                "verdicts": each.judgement.verdicts,
                "faults": each.judgement.faults,
                "gaps": each.judgement.gaps,
                "silent": each.judgement.silent,
            }
            for each in candidates.made
        },
        "admissions": {each.entry.file: each.standings for each in candidates.made},
        "left_out": {file: error.message for file, error in candidates.refused.items()},
    }
