"""The catalog that a publisher is about to replace: may it be, and what follows it?"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tfcore import console
from tfcore.errors import PublishError, RecordError, UnverifiedError
from tfwheels import catalog
from tfwheels.catalog import Catalog, CatalogSignature
from tfwheels.signed_catalog import (
    LastCatalog,
    check_revision,
    load_last,
    record_revision,
    require_valid,
    verify_catalog,
)
from tfwheels.store import Store
from tfwheels.trust import Signing

ADD_KEY = "Add --sign KEY --trust PUBLIC: its catalog needs a new signature after each change"
_REINDEX = "If you trust the wheels in its pool, add --reindex"


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogState:
    """The bytes `current` of a catalog, and what this machine knows of the index.

    `claimed` is its signature, which nobody has verified yet; None if it has none or cannot be
    read. `last` is the last signed catalog that was read here.
    """

    store: Store
    current: bytes | None
    claimed: CatalogSignature | None
    signing: Signing
    history: Path | None
    last: LastCatalog | None

    @property
    def index(self) -> str:
        """Return the identifier of the index: the one known here, the claimed, or a new one."""
        known = self.last or self.claimed
        return known.index if known else uuid.uuid4().hex

    def require_replaceable(self, old: Catalog, now: datetime | None, *, reindex: bool) -> None:
        """Raise UnverifiedError or PublishError if `old` must not be replaced.

        With `reindex`, it was built from the pool, and the stored one counts for nothing.
        """
        if not reindex:
            self._require_verified(old, now)
        elif (self.last or self.claimed) and not self.signing.catalog_key:
            raise PublishError(f"{self.store.where} is signed", hint=ADD_KEY)

    def _require_verified(self, old: Catalog, now: datetime | None) -> None:
        """Raise UnverifiedError unless a trusted key signed the catalog `old`.

        An index without trusted signers has no signed catalog. Without a signing key, an unsigned
        catalog is accepted: it stays unsigned. Raises PublishError for one that went back, or whose
        signature is over at the time `now`, if given.
        """
        where = self.store.where
        if old.signature is None or self.current is None:
            self._require_new(old)
            return
        if not self.signing.anchors:
            raise UnverifiedError(f"{where} is signed", hint=ADD_KEY)
        _, signature = verify_catalog(self.current, self.signing.anchors, where)
        if self.history:
            check_revision(self.current, old, where, self.history)
        if self.signing.catalog_key and now:
            require_valid(signature, now, where)

    def _require_new(self, old: Catalog) -> None:
        """Raise UnverifiedError if an unsigned catalog may stand in the place of a signed one."""
        where = self.store.where
        if self.last is not None:
            raise UnverifiedError(
                f"{where} was signed when it was last read here, and is not any more", hint=_REINDEX
            )
        if self.signing.catalog_key and (old.entries or self.store.list_sizes(catalog.POOL)):
            raise UnverifiedError(f"{catalog.KEY} of {where} is not signed", hint=_REINDEX)

    def read_pool(self) -> Catalog:
        """Build a catalog from the wheels in the pool.

        In an index with trusted signers, fields that only the catalog has are copied only if it is
        signed.
        """
        if not self.signing.trusted:
            return catalog.reindex_pool(self.store, self.current)
        current = self.current
        try:
            verify_catalog(current, self.signing.anchors, self.store.where)
        except (UnverifiedError, RecordError) as error:
            console.warn(
                f"{error.message}. Times of publication, and whether wheels were yanked or "
                "quarantined, are lost: yank and quarantine such wheels again"
            )
            current = None
        return catalog.reindex_pool(self.store, current, signed=True)

    def compute_revision(self, old: Catalog) -> int:
        """Return a revision above those of the catalog and of the last one read here.

        In an index that will be signed, the revision of an unsigned, empty catalog proves nothing.
        """
        is_new = self.signing.catalog_key and old.signature is None and not old.entries
        return max(0 if is_new else old.revision, self.last.revision if self.last else 0) + 1

    def record(self) -> None:
        """Record the revision of the stored catalog, if it is signed."""
        data = self.store.read(catalog.KEY)
        stored = catalog.parse(data, self.store.where)
        if self.history and data is not None and stored.signature is not None:
            record_revision(data, stored, self.store.where, self.history)


def inspect_catalog(
    store: Store, current: bytes | None, signing: Signing, history: Path | None
) -> CatalogState:
    """Return the state of a catalog; `history` is the folder with the last revisions, if any.

    Raises RecordError for a damaged history.
    """
    claimed = None
    with contextlib.suppress(RecordError):
        claimed = catalog.parse(current, store.where).signature
    return CatalogState(
        store=store,
        current=current,
        claimed=claimed,
        signing=signing,
        history=history,
        last=load_last(store.where, history) if history else None,
    )
