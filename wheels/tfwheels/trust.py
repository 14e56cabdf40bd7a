"""Who has to have signed what an index holds.

Keys and identities that are given with --trust are the reader's own, and those that count. An index
keeps the first that it was given in `trusted-keys.json`: it saves publishers from an oversight, and
no more, for who can write to the index can write that file, too.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbuild.errors import PublishError, RecordError, UsageError
from tfbuild.packing.tuned import read_tuned
from tfbuild.records import decode_record, format_json
from tfwheels.entry import Entry, Signed
from tfwheels.identities import PREFIX, Identity, Signer, described, parse_identity
from tfwheels.keys import PublicKey, SigningKey, read_public_keys, verifier
from tfwheels.layout import PROVENANCE, digest_of, provenance_key
from tfwheels.provenance import make_statement, sign, signed_by
from tfwheels.sigstore_client import SigningIdentity, need_library
from tfwheels.store import Store

FILE = "trusted-keys.json"
SCHEMA = 1
_CHANGE = f"Give the keys that it trusts; to change them, remove its {FILE} first"
_AGAIN = "Remove it, and publish with --trust PUBLIC.pem"
_OTHER = "Trust its key, too (--trust), or remove it where it should not be"
_SIGN = "Publish them again with --sign KEY"

_TORN = (ValueError, KeyError, TypeError, AttributeError, RecursionError, UsageError)
"""What garbage raises when it is read as such a file."""

Read = Callable[[str], bytes | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Signing:
    """How an index is published: `key` signs what is new, and one of the `trusted` must have signed
    all that it holds, if there are any."""

    key: SigningKey | SigningIdentity | None = None
    trusted: tuple[Signer, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _TrustedKeys:
    schema: int = SCHEMA
    keys: tuple[PublicKey, ...] = ()
    identities: tuple[Identity, ...] = ()

    @property
    def signers(self) -> tuple[Signer, ...]:
        return (*self.keys, *self.identities)


def read_trusted(text: str) -> tuple[Signer, ...]:
    """What --trust names: paths of public keys, and identities, with commas between; each once.
    Raises UsageError, and ToolError for identities that nothing here can check."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    named = dict.fromkeys(parse_identity(word) for word in words if word.startswith(PREFIX))
    files = ",".join(word for word in words if not word.startswith(PREFIX))
    if named:
        need_library()
    keys = read_public_keys(files if named else files or text)
    return (*keys, *named)


def own_keys(store: Store) -> tuple[Signer, ...]:
    """The keys and identities that an index trusts; none where it trusts nobody. Raises
    RecordError, and ToolError as `read_trusted` does."""
    data = store.read(FILE)
    if data is None:
        return ()
    try:
        found = decode_record(_TrustedKeys, json.loads(data))
        for key in found.keys:
            verifier(key)
        for identity in found.identities:
            parse_identity(identity.id)
    except _TORN as error:
        what = f"{FILE} of {store.where} cannot be read ({type(error).__name__})"
        raise RecordError(what, hint=_AGAIN) from error
    if found.schema != SCHEMA or not found.signers:
        what = f"{FILE} of {store.where} has schema {found.schema} and {len(found.signers)} keys"
        raise RecordError(what, hint=_AGAIN)
    if found.identities:
        need_library()
    return found.signers


def settled(given: Signing, store: Store) -> Signing:
    """What is given, with the keys that the index trusts where it trusts some. Raises PublishError
    where it trusts others than were given, or not the one that signs."""
    own = own_keys(store)
    if own and given.trusted and set(own) != set(given.trusted):
        known, wanted = (", ".join(each.id for each in keys) for keys in (own, given.trusted))
        raise PublishError(f"{store.where} trusts {known}, not {wanted}", hint=_CHANGE)
    trusted = given.trusted or own
    if isinstance(given.key, SigningKey):  # who an identity is, its certificate says later
        _need_trusted(given.key.public, trusted, store.where)
    return dataclasses.replace(given, trusted=trusted)


def _need_trusted(signer: Signer, trusted: Sequence[Signer], where: str) -> None:
    if trusted and signer not in trusted:
        raise PublishError(
            f"--sign has {described(signer.id)}, which {where} does not trust", hint=_CHANGE
        )


def keep(signing: Signing, store: Store) -> None:
    """Let an index that trusts nobody yet trust these keys. Raises PublishError when another
    publisher has just done so."""
    if not signing.trusted or store.read(FILE) is not None:
        return
    keys = tuple(each for each in signing.trusted if isinstance(each, PublicKey))
    identities = tuple(each for each in signing.trusted if isinstance(each, Identity))
    fields: dict[str, object] = {"schema": SCHEMA, "keys": keys}
    if identities:  # an index of keys alone stays one that older versions read
        fields["identities"] = identities
    data = format_json(fields).encode()
    if not store.swap(FILE, data, None):
        raise PublishError(f"another publisher has set {FILE} of {store.where}", hint=_CHANGE)


def provenance_for(
    wheel: Path, entry: Entry, signing: Signing, store: Store
) -> tuple[Signed, bytes] | None:
    """The provenance object that stands, or will, beside a wheel, and who signed it.

    One that the index has stays. Without a key that signs, one that lies beside the wheel is taken
    if a trusted key has signed it. Raises PublishError for one by another key, and what an identity
    raises that cannot sign.
    """
    key, trusted = signing.key, signing.trusted
    if key is None and not trusted:
        return None
    data = store.read(provenance_key(entry.name, entry.file))
    beside = wheel.with_name(wheel.name + PROVENANCE)
    if data is None and key is not None:
        _need_trusted(key.public, trusted, store.where)
        data = sign(make_statement(entry, read_tuned(wheel), key.public), key)
    elif data is None and beside.is_file():
        data = beside.read_bytes()
    if data is None:
        return None
    try:
        signers = trusted or (() if key is None else (key.public,))
        signer = signed_by(data, entry.file, entry.sha256, signers)
    except PublishError as error:
        raise PublishError(error.message, hint=_OTHER) from error
    return Signed(key=signer, sha256=digest_of(data).sha256), data


def need_signed(entries: Iterable[Entry], trusted: Sequence[Signer], read_file: Read) -> None:
    """Raises PublishError unless a trusted key has signed every wheel; all pass where none is
    trusted. `read_file` gives the bytes of a key, None where there are none."""
    faults = list(_faults(entries, trusted, read_file)) if trusted else []
    if faults:
        more = f", and {len(faults) - 1} more" if faults[1:] else ""
        raise PublishError(f"the index takes signed wheels only: {faults[0]}{more}", hint=_SIGN)


def _faults(entries: Iterable[Entry], trusted: Sequence[Signer], read_file: Read) -> Iterator[str]:
    for entry in entries:
        data = read_file(provenance_key(entry.name, entry.file)) if entry.provenance else None
        if data is None:
            yield f"{entry.file} is unsigned"
            continue
        try:
            signed_by(data, entry.file, entry.sha256, trusted)
        except PublishError as error:
            yield error.message
