"""Who has to have signed what an index holds.

Keys that are given with --trust are the reader's own copies, and those that count. An index keeps
the first that it was given in `trusted-keys.json`: it saves publishers from an oversight, and no
more, for who can write to the index can write that file, too.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbuild.errors import PublishError, RecordError
from tfbuild.packing.tuned import read_tuned
from tfbuild.records import pretty, read
from tfwheels.entry import Entry, Signed
from tfwheels.keys import PublicKey, SigningKey, verifier
from tfwheels.layout import PROVENANCE, digest_of, provenance_key
from tfwheels.provenance import make_statement, sign, signed_by
from tfwheels.store import Store

FILE = "trusted-keys.json"
SCHEMA = 1
_CHANGE = f"Give the keys that it trusts; to change them, remove its {FILE} first"
_AGAIN = "Remove it, and publish with --trust PUBLIC.pem"
_OTHER = "Trust its key, too (--trust), or remove it where it should not be"
_SIGN = "Publish them again with --sign KEY"

Read = Callable[[str], bytes | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Signing:
    """How an index is published: `key` signs what is new, and one of the `trusted` must have signed
    all that it holds, if there are any."""

    key: SigningKey | None = None
    trusted: tuple[PublicKey, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _TrustedKeys:
    schema: int = SCHEMA
    keys: tuple[PublicKey, ...] = ()


def own_keys(store: Store) -> tuple[PublicKey, ...]:
    """The keys that an index trusts; none where it trusts nobody. Raises RecordError."""
    data = store.read(FILE)
    if data is None:
        return ()
    try:
        found = read(_TrustedKeys, json.loads(data))
        for key in found.keys:
            verifier(key)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"{FILE} of {store.where} cannot be read ({type(error).__name__})"
        raise RecordError(what, hint=_AGAIN) from error
    if found.schema != SCHEMA or not found.keys:
        what = f"{FILE} of {store.where} has schema {found.schema} and {len(found.keys)} keys"
        raise RecordError(what, hint=_AGAIN)
    return found.keys


def settled(given: Signing, store: Store) -> Signing:
    """What is given, with the keys that the index trusts where it trusts some. Raises PublishError
    where it trusts others than were given, or not the one that signs."""
    own = own_keys(store)
    if own and given.trusted and set(own) != set(given.trusted):
        seen, wanted = (", ".join(each.id for each in keys) for keys in (own, given.trusted))
        raise PublishError(f"{store.where} trusts {seen}, not {wanted}", hint=_CHANGE)
    trusted = given.trusted or own
    if given.key is not None and trusted and given.key.public not in trusted:
        raise PublishError(
            f"--sign has key {given.key.public.id}, which {store.where} does not trust",
            hint=_CHANGE,
        )
    return dataclasses.replace(given, trusted=trusted)


def keep(signing: Signing, store: Store) -> None:
    """Let an index that trusts nobody yet trust these keys. Raises PublishError when another
    publisher has just done so."""
    if not signing.trusted or store.read(FILE) is not None:
        return
    data = pretty(_TrustedKeys(keys=signing.trusted)).encode()
    if not store.swap(FILE, data, None):
        raise PublishError(f"another publisher has set {FILE} of {store.where}", hint=_CHANGE)


def provenance_for(
    wheel: Path, entry: Entry, signing: Signing, store: Store
) -> tuple[Signed, bytes] | None:
    """The provenance object that stands, or will, beside a wheel, and who signed it.

    One that the index has stays. Without a key that signs, one that lies beside the wheel is taken
    if a trusted key has signed it. Raises PublishError for one by another key.
    """
    keys = (*([signing.key.public] if signing.key else ()), *signing.trusted)
    if not keys:
        return None
    data = store.read(provenance_key(entry.name, entry.file))
    beside = wheel.with_name(wheel.name + PROVENANCE)
    if data is None and signing.key is not None:
        data = sign(make_statement(entry, read_tuned(wheel), signing.key.public), signing.key)
    elif data is None and beside.is_file():
        data = beside.read_bytes()
    if data is None:
        return None
    try:
        signer = signed_by(data, entry.file, entry.sha256, keys)
    except PublishError as error:
        raise PublishError(error.message, hint=_OTHER) from error
    return Signed(key=signer, sha256=digest_of(data).sha256), data


def need_signed(entries: Iterable[Entry], trusted: Sequence[PublicKey], read_file: Read) -> None:
    """Raises PublishError unless a trusted key has signed every wheel; all pass where none is
    trusted. `read_file` gives the bytes of a key, None where there are none."""
    faults = list(_faults(entries, trusted, read_file)) if trusted else []
    if faults:
        more = f", and {len(faults) - 1} more" if faults[1:] else ""
        raise PublishError(f"the index takes signed wheels only: {faults[0]}{more}", hint=_SIGN)


def _faults(
    entries: Iterable[Entry], trusted: Sequence[PublicKey], read_file: Read
) -> Iterator[str]:
    for entry in entries:
        data = read_file(provenance_key(entry.name, entry.file)) if entry.provenance else None
        if data is None:
            yield f"{entry.file} is unsigned"
            continue
        try:
            signed_by(data, entry.file, entry.sha256, trusted)
        except PublishError as error:
            yield error.message
