"""The signature of a catalog: it shows changed, older and outdated copies of an index.

The signature is DSSE, over the canonical JSON of the catalog with an empty signature value. It
covers the revision, which only increases; the time until which the catalog is valid; and the hash
of the manifest, which lists every page and every file of the pool. So a reader with the public key
detects a changed catalog, an older one (by the last revision that it read), one that nobody renews,
and files of different revisions.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from securesystemslib.dsse import Envelope

from tfcore import records
from tfcore.errors import PublishError, RecordError, UnverifiedError
from tfcore.records import decode_record, format_canonical, parse_json
from tfwheels.catalog import KEY, Catalog, CatalogSignature, parse
from tfwheels.keys import PublicKey, SigningKey, is_signed
from tfwheels.reader import IndexReader

PAYLOAD = "application/vnd.tensorwright.catalog+json"
VALID_DAYS = 90
_RENEW = "Its publisher renews it: invoke publish --to INDEX --sign KEY --renew"
_REINDEX = (
    "Pass all keys that may sign it with --trust. If you publish it and trust the wheels in its "
    "pool, read them again: invoke publish --to INDEX --reindex --sign KEY --trust PUBLIC"
)
_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LastCatalog:
    """The last catalog of an index that was read on this machine."""

    schema: int = _SCHEMA
    where: str
    index: str
    revision: int
    sha256: str


def sign_catalog(
    catalog: Catalog, key: SigningKey, *, manifest: str, now: str, index: str
) -> Catalog:
    """Return the catalog with a signature that is valid for VALID_DAYS.

    `manifest` is the SHA-256 of the manifest, `now` is ISO 8601 in UTC, `index` identifies the
    index.
    """
    expires = datetime.fromisoformat(now) + timedelta(days=VALID_DAYS)
    signature = CatalogSignature(
        issued=now,
        expires=expires.isoformat(timespec="seconds"),
        manifest=manifest,
        index=index,
        key=key.public.id,
        value="",
    )
    unsigned = dataclasses.replace(catalog, signature=signature)
    payload = _build_payload(parse_json(unsigned.to_bytes()))
    value = Envelope(payload, PAYLOAD, {}).sign(key.signer).signature
    return dataclasses.replace(catalog, signature=dataclasses.replace(signature, value=value))


def verify_catalog(
    data: bytes | None, trusted: Sequence[PublicKey], where: str
) -> tuple[Catalog, CatalogSignature]:
    """Return a catalog that one of the keys signed, and its signature.

    Raises UnverifiedError, and RecordError for a catalog that cannot be read.
    """
    catalog = parse(data, where)
    signature = catalog.signature
    if data is None or signature is None:
        raise UnverifiedError(f"{KEY} of {where} is not signed", hint=_REINDEX)
    payload = _build_payload(parse_json(data))
    if not any(_has_signed(payload, signature, key) for key in trusted):
        keys = ", ".join(key.id for key in trusted)
        raise UnverifiedError(
            f"{KEY} of {where} was changed, or is not signed by any of the keys {keys}",
            hint=_REINDEX,
        )
    return catalog, signature


def read_catalog(
    reader: IndexReader, trusted: Sequence[PublicKey], *, now: datetime, history: Path
) -> tuple[Catalog, CatalogSignature]:
    """Read and verify the catalog of an index: signature, time and revision.

    `history` is the folder with the last revision of each index. Raises PublishError, RecordError.
    """
    data = reader.read(KEY)
    if data is None:
        raise PublishError(f"{reader.where} has no {KEY}: it is not an index, or is not signed")
    catalog, signature = verify_catalog(data, trusted, reader.where)
    require_valid(signature, now, reader.where)
    check_revision(data, catalog, reader.where, history)
    return catalog, signature


def require_valid(signature: CatalogSignature, now: datetime, where: str) -> None:
    """Raise PublishError for a signature whose time is over: the index may be an old copy."""
    if datetime.fromisoformat(signature.expires) <= now:
        raise PublishError(
            f"the signature of {where} expired on {signature.expires}: nobody renewed it, or this "
            "is an old copy",
            hint=_RENEW,
        )


def check_revision(data: bytes, catalog: Catalog, where: str, folder: Path) -> None:
    """Compare a verified catalog with the last one read on this machine, and record it in `folder`.

    Raises PublishError for a lower revision, for another catalog with the same revision, and for
    that of another index.
    """
    last, now = load_last(where, folder), _describe(data, catalog, where)
    path = _get_history(where, folder)
    if last is not None and last.index != now.index:
        raise PublishError(
            f"{where} is another index than the one read here before",
            hint=f"If it replaces that one on purpose, remove {path}",
        )
    if last is not None and last.revision > now.revision:
        raise PublishError(
            f"{where} went back to revision {now.revision}; revision {last.revision} was read here "
            "before",
            hint="This may be an old copy. If you publish it and restored it on purpose, add "
            "--reindex",
        )
    if last is not None and last.revision == now.revision and last.sha256 != now.sha256:
        raise PublishError(
            f"{where} has another catalog with revision {now.revision} than the one read here "
            "before",
            hint=f"Two copies of the index differ. If this one is right, remove {path}",
        )
    if last != now:
        records.save(path, now)


def record_revision(data: bytes, catalog: Catalog, where: str, folder: Path) -> None:
    """Record a catalog that was just written."""
    records.save(_get_history(where, folder), _describe(data, catalog, where))


def _describe(data: bytes, catalog: Catalog, where: str) -> LastCatalog:
    return LastCatalog(
        where=where,
        index=catalog.signature.index if catalog.signature else "",
        revision=catalog.revision,
        sha256=hashlib.sha256(data).hexdigest(),
    )


def load_last(where: str, folder: Path) -> LastCatalog | None:
    """Return the last signed catalog of an index that was read on this machine, if any.

    Raises RecordError for a damaged record.
    """
    path = _get_history(where, folder)
    if not path.exists():
        return None
    try:
        return decode_record(LastCatalog, records.load(path, schema=_SCHEMA))
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"cannot read {path} ({error})", hint=f"Remove {path}") from error


def _get_history(where: str, folder: Path) -> Path:
    place = where if "://" in where else str(Path(where).resolve())
    return folder / f"{hashlib.sha256(place.encode()).hexdigest()[:16]}.json"


def _build_payload(fields: Mapping[str, Any]) -> bytes:
    """Return the signed bytes of a catalog from its JSON fields.

    The fields are those of the file, because a later version may add fields with defaults.
    """
    unsigned = {**fields, "signature": {**fields["signature"], "value": ""}}
    return format_canonical(unsigned).encode()


def _has_signed(payload: bytes, signature: CatalogSignature, key: PublicKey) -> bool:
    try:
        value = bytes.fromhex(signature.value)
    except ValueError:
        return False
    return key.id == signature.key and is_signed(payload, PAYLOAD, value, key)
