"""Withdraw published wheels: installers must not choose them any more.

A yanked wheel (PEP 592) stays on its pages, marked, for those who pin exactly this version. A
quarantined wheel is on no page. Both stay in the pool, because a published file never changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tfcore.console import suggest_spelling
from tfcore.errors import UsageError
from tfwheels.entry import Entry, Withdrawal, WithdrawalKind

_LONGEST = 300
"""Largest length of a reason, in characters."""
_NAMES = "Give the file name of a wheel, or PACKAGE==VERSION for all its files"


@dataclass(frozen=True, kw_only=True, slots=True)
class WithdrawalChange:
    """A change of the state of wheels; `kind` None restores them.

    `names` are file names or PACKAGE==VERSION.
    """

    names: tuple[str, ...]
    kind: WithdrawalKind | None
    reason: str = ""


NO_CHANGE = WithdrawalChange(names=(), kind=None)


def parse_change(yank: str, quarantine: str, restore: str, reason: str) -> WithdrawalChange:
    """Return the change that the options ask for; NO_CHANGE if there are none.

    Raises UsageError for two of the options, a missing reason, or one that is not a short line.
    """
    given = {
        "--yank": (yank, WithdrawalKind.YANKED),
        "--quarantine": (quarantine, WithdrawalKind.QUARANTINED),
        "--restore": (restore, None),
    }
    chosen = {option: pair for option, pair in given.items() if pair[0]}
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} exclude each other", hint="Run one at a time")
    if not chosen:
        if reason:
            raise UsageError("--reason has no effect without --yank or --quarantine")
        return NO_CHANGE
    ((option, (text, kind)),) = chosen.items()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UsageError(f"{option} names no wheel", hint=_NAMES)
    if kind is None and reason:
        raise UsageError("--reason has no effect with --restore", hint="Omit one of them")
    if kind is not None and not reason.strip():
        raise UsageError(f"{option} needs --reason", hint="Installers show it to users")
    if len(reason) > _LONGEST or not reason.isprintable():
        raise UsageError(f"--reason must be one line of at most {_LONGEST} characters")
    return WithdrawalChange(names=names, kind=kind, reason=reason.strip())


def find_files(entries: Iterable[Entry], change: WithdrawalChange, where: str) -> frozenset[str]:
    """Return the files that a change names.

    Raises UsageError for a name that the index does not have.
    """
    entries = tuple(entries)
    return frozenset(
        entry.file for name in change.names for entry in _find_named(name, entries, where)
    )


def apply_change(
    entries: Iterable[Entry], files: Container[str], change: WithdrawalChange, now: str
) -> tuple[Entry, ...]:
    """Return the entries after a change of the `files`; `now` is ISO 8601 in UTC.

    A wheel that is already in the new state is not changed.
    """
    return tuple(
        _change_entry(entry, change, now) if entry.file in files else entry for entry in entries
    )


def _change_entry(entry: Entry, change: WithdrawalChange, now: str) -> Entry:
    if change.kind is None:
        return dataclasses.replace(entry, withdrawal=None)
    old = entry.withdrawal
    if old is not None and (old.kind, old.reason) == (change.kind, change.reason):
        return entry
    new = Withdrawal(kind=change.kind, reason=change.reason, since=now)
    return dataclasses.replace(entry, withdrawal=new)


def _find_named(name: str, entries: Sequence[Entry], where: str) -> list[Entry]:
    package, equals, version = name.partition("==")
    if equals:
        wanted = canonicalize_name(package), _normalize_version(version)
        named = [entry for entry in entries if (entry.name, entry.version) == wanted]
    else:
        named = [entry for entry in entries if entry.file == name]
    if not named:
        known = [entry.file for entry in entries]
        if equals:
            known = sorted({f"{entry.name}=={entry.version}" for entry in entries})
        hint = suggest_spelling(name, known) or _NAMES
        raise UsageError(f"{where} has no wheel {name}", hint=hint)
    return named


def _normalize_version(text: str) -> str:
    try:
        return str(Version(text))
    except InvalidVersion:
        raise UsageError(f"{text!r} is not a version", hint=_NAMES) from None
