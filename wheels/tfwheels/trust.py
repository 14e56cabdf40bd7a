"""The trusted signers of an index.

The signers of --trust belong to the user, and they decide. An index stores the first ones that it
gets in `trusted-keys.json`. This only protects publishers from mistakes: anyone who can write to
the index can change the file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm

from tfbuild.packing.tuned import read_tuned
from tfcore.errors import PublishError, RecordError, UsageError
from tfcore.records import decode_record, format_json
from tfwheels.entry import Entry, SignedProvenance
from tfwheels.keys import PublicKey, SigningKey, create_verifier
from tfwheels.layout import PROVENANCE, build_provenance_key, compute_digest
from tfwheels.provenance import make_statement, sign, verify_provenance
from tfwheels.store import Store

FILE = "trusted-keys.json"
SCHEMA = 1
_CHANGE = f"Pass the signers that it trusts; to change them, remove its {FILE} first"
_AGAIN = "Remove it, and publish with --trust PUBLIC.pem"
_OTHER = "Add its signer to --trust, or remove the provenance if it is not yours"
_SIGN = "Publish these wheels again with --sign KEY, or remove them from the pool"

_TORN = (
    *(ValueError, KeyError, TypeError, AttributeError, RecursionError, UsageError),
    UnsupportedAlgorithm,
)
"""Exceptions from parsing invalid data as such a file."""

Read = Callable[[str], bytes | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Signing:
    """The signer and the trusted signers: `key` signs new files.

    If there are `trusted` signers, one of them must have signed every wheel in the index. `given`
    are those that the user named; None before `resolve_signing` adds the stored ones.
    """

    key: SigningKey | None = None
    trusted: tuple[PublicKey, ...] = ()
    given: tuple[PublicKey, ...] | None = None

    @property
    def catalog_key(self) -> SigningKey | None:
        """Return the key that signs the catalog; None in an index without trusted signers."""
        return self.key if self.trusted else None

    @property
    def anchors(self) -> tuple[PublicKey, ...]:
        """Return the keys that may have signed the catalog.

        The user's, else the signing key; those that the index stores only for readers, because
        whoever can write to the index can change them.
        """
        own = () if self.key is None else (self.key.public,)
        return self.given or own or self.trusted


@dataclass(frozen=True, kw_only=True, slots=True)
class _TrustedKeys:
    schema: int = SCHEMA
    keys: tuple[PublicKey, ...]


def load_trusted(store: Store) -> tuple[PublicKey, ...]:
    """Load the signers that an index trusts; none if it trusts nobody. Raises RecordError."""
    data = store.read(FILE)
    if data is None:
        return ()
    try:
        record = decode_record(_TrustedKeys, json.loads(data))
        for key in record.keys:
            create_verifier(key)
    except _TORN as error:
        message = f"cannot read {FILE} of {store.where} ({type(error).__name__})"
        raise RecordError(message, hint=_AGAIN) from error
    if record.schema != SCHEMA or not record.keys:
        message = f"{FILE} of {store.where} has schema {record.schema} and {len(record.keys)} keys"
        raise RecordError(message, hint=_AGAIN)
    return record.keys


def resolve_signing(signing: Signing, store: Store) -> Signing:
    """Return `signing` with the signers that the index trusts, if it trusts any.

    Raises PublishError if it trusts other signers than the given ones, or not the signing key.
    """
    stored = load_trusted(store)
    if stored and signing.trusted and set(stored) != set(signing.trusted):
        known, requested = (
            ", ".join(signer.id for signer in keys) for keys in (stored, signing.trusted)
        )
        raise PublishError(f"{store.where} trusts {known}, not {requested}", hint=_CHANGE)
    trusted = signing.trusted or stored
    if signing.key is not None:
        _require_trusted(signing.key.public, trusted, store.where)
    given = signing.trusted if signing.given is None else signing.given
    return dataclasses.replace(signing, trusted=trusted, given=given)


def _require_trusted(signer: PublicKey, trusted: Sequence[PublicKey], where: str) -> None:
    if trusted and signer not in trusted:
        raise PublishError(
            f"--sign uses key {signer.id}, which {where} does not trust", hint=_CHANGE
        )


def save_trusted(signing: Signing, store: Store) -> None:
    """Store the trusted signers in an index that has none.

    Raises PublishError if another publisher has just done so.
    """
    if not signing.trusted or store.read(FILE) is not None:
        return
    data = format_json(_TrustedKeys(keys=signing.trusted)).encode()
    if not store.swap(FILE, data, None):
        raise PublishError(
            f"another publisher has just written {FILE} of {store.where}", hint=_CHANGE
        )


def resolve_provenance(
    wheel: Path, entry: Entry, signing: Signing, store: Store
) -> tuple[SignedProvenance, bytes] | None:
    """Return the provenance object to store beside a wheel, and its signer.

    A provenance in the index has precedence. Without a signing key, a provenance beside the wheel
    is used if a trusted signer signed it. Raises PublishError if another signer signed it.
    """
    key, trusted = signing.key, signing.trusted
    if key is None and not trusted:
        return None
    data = store.read(build_provenance_key(entry.name, entry.file))
    beside = wheel.with_name(wheel.name + PROVENANCE)
    if data is None and key is not None:
        data = sign(make_statement(entry, read_tuned(wheel), key.public), key)
    elif data is None and beside.is_file():
        data = beside.read_bytes()
    if data is None:
        return None
    try:
        signer = verify_provenance(data, entry.file, entry.sha256, signing.anchors)
    except PublishError as error:
        raise PublishError(error.message, hint=_OTHER) from error
    return SignedProvenance(key=signer, sha256=compute_digest(data).sha256), data


def require_signed(entries: Iterable[Entry], trusted: Sequence[PublicKey], read_file: Read) -> None:
    """Raise PublishError unless a trusted signer signed every wheel; accept all if none is trusted.

    `read_file` returns the bytes of a key, None if there are none.
    """
    faults = list(_list_faults(entries, trusted, read_file)) if trusted else []
    if faults:
        more = f", and {len(faults) - 1} more" if faults[1:] else ""
        raise PublishError(f"the index accepts only signed wheels: {faults[0]}{more}", hint=_SIGN)


def _list_faults(
    entries: Iterable[Entry], trusted: Sequence[PublicKey], read_file: Read
) -> Iterator[str]:
    for entry in entries:
        data = read_file(build_provenance_key(entry.name, entry.file)) if entry.provenance else None
        if data is None:
            yield f"{entry.file} is unsigned"
            continue
        if entry.provenance and compute_digest(data).sha256 != entry.provenance.sha256:
            yield f"the provenance of {entry.file} was changed"
            continue
        try:
            verify_provenance(data, entry.file, entry.sha256, trusted)
        except PublishError as error:
            yield error.message
