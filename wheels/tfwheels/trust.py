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
from tfwheels.entry import Entry, SignedProvenance
from tfwheels.identities import PREFIX, Identity, Signer, describe_signer, parse_identity
from tfwheels.keys import PublicKey, SigningKey, create_verifier, read_public_keys
from tfwheels.layout import PROVENANCE, build_provenance_key, compute_digest
from tfwheels.provenance import make_statement, sign, verify_provenance
from tfwheels.sigstore_client import SigningIdentity, require_library
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
    """The signing of an index: `key` signs new files.

    One of the `trusted` must have signed all that it holds, if there are any.
    """

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
    """Read what --trust names: paths of public keys, and identities, with commas between.

    Each is returned once. Raises UsageError, and ToolError for identities that cannot be
    checked here.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    identities = dict.fromkeys(parse_identity(word) for word in words if word.startswith(PREFIX))
    files = ",".join(word for word in words if not word.startswith(PREFIX))
    if identities:
        require_library()
    keys = read_public_keys(files if identities else files or text)
    return (*keys, *identities)


def load_trusted(store: Store) -> tuple[Signer, ...]:
    """Load the keys and identities that an index trusts; none if it trusts nobody.

    Raises RecordError, and ToolError as `read_trusted` does.
    """
    data = store.read(FILE)
    if data is None:
        return ()
    try:
        record = decode_record(_TrustedKeys, json.loads(data))
        for key in record.keys:
            create_verifier(key)
        for identity in record.identities:
            parse_identity(identity.id)
    except _TORN as error:
        message = f"{FILE} of {store.where} cannot be read ({type(error).__name__})"
        raise RecordError(message, hint=_AGAIN) from error
    if record.schema != SCHEMA or not record.signers:
        message = (
            f"{FILE} of {store.where} has schema {record.schema} and {len(record.signers)} keys"
        )
        raise RecordError(message, hint=_AGAIN)
    if record.identities:
        require_library()
    return record.signers


def resolve_signing(given: Signing, store: Store) -> Signing:
    """Return what is given, with the keys that the index trusts if it trusts some.

    Raises PublishError if it trusts others than were given, or not the one that signs.
    """
    stored = load_trusted(store)
    if stored and given.trusted and set(stored) != set(given.trusted):
        known, requested = (
            ", ".join(signer.id for signer in keys) for keys in (stored, given.trusted)
        )
        raise PublishError(f"{store.where} trusts {known}, not {requested}", hint=_CHANGE)
    trusted = given.trusted or stored
    if isinstance(given.key, SigningKey):  # who an identity is, its certificate says later
        _require_trusted(given.key.public, trusted, store.where)
    return dataclasses.replace(given, trusted=trusted)


def _require_trusted(signer: Signer, trusted: Sequence[Signer], where: str) -> None:
    if trusted and signer not in trusted:
        raise PublishError(
            f"--sign has {describe_signer(signer.id)}, which {where} does not trust", hint=_CHANGE
        )


def save_trusted(signing: Signing, store: Store) -> None:
    """Make an index that trusts nobody yet trust these keys.

    Raises PublishError if another publisher has just done so.
    """
    if not signing.trusted or store.read(FILE) is not None:
        return
    keys = tuple(signer for signer in signing.trusted if isinstance(signer, PublicKey))
    identities = tuple(signer for signer in signing.trusted if isinstance(signer, Identity))
    fields: dict[str, object] = {"schema": SCHEMA, "keys": keys}
    if identities:  # an index of keys alone stays one that older versions read
        fields["identities"] = identities
    data = format_json(fields).encode()
    if not store.swap(FILE, data, None):
        raise PublishError(f"another publisher has set {FILE} of {store.where}", hint=_CHANGE)


def resolve_provenance(
    wheel: Path, entry: Entry, signing: Signing, store: Store
) -> tuple[SignedProvenance, bytes] | None:
    """Return the provenance object that is, or will be, beside a wheel, and who signed it.

    One that the index has is kept. Without a key that signs, one beside the wheel is taken if
    a trusted key signed it. Raises PublishError for one by another key, and the errors of an
    identity that cannot sign.
    """
    key, trusted = signing.key, signing.trusted
    if key is None and not trusted:
        return None
    data = store.read(build_provenance_key(entry.name, entry.file))
    beside = wheel.with_name(wheel.name + PROVENANCE)
    if data is None and key is not None:
        _require_trusted(key.public, trusted, store.where)
        data = sign(make_statement(entry, read_tuned(wheel), key.public), key)
    elif data is None and beside.is_file():
        data = beside.read_bytes()
    if data is None:
        return None
    try:
        signers = trusted or (() if key is None else (key.public,))
        signer = verify_provenance(data, entry.file, entry.sha256, signers)
    except PublishError as error:
        raise PublishError(error.message, hint=_OTHER) from error
    return SignedProvenance(key=signer, sha256=compute_digest(data).sha256), data


def require_signed(entries: Iterable[Entry], trusted: Sequence[Signer], read_file: Read) -> None:
    """Raise PublishError unless a trusted key signed every wheel; all pass if none is trusted.

    `read_file` returns the bytes of a key, None if there are none.
    """
    faults = list(_list_faults(entries, trusted, read_file)) if trusted else []
    if faults:
        more = f", and {len(faults) - 1} more" if faults[1:] else ""
        raise PublishError(f"the index takes signed wheels only: {faults[0]}{more}", hint=_SIGN)


def _list_faults(
    entries: Iterable[Entry], trusted: Sequence[Signer], read_file: Read
) -> Iterator[str]:
    for entry in entries:
        data = read_file(build_provenance_key(entry.name, entry.file)) if entry.provenance else None
        if data is None:
            yield f"{entry.file} is unsigned"
            continue
        try:
            verify_provenance(data, entry.file, entry.sha256, trusted)
        except PublishError as error:
            yield error.message
