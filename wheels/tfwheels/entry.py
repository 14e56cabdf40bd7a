"""A wheel of the index: what its pages and the choice for a CPU need to know of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from packaging.metadata import parse_email
from packaging.utils import canonicalize_name
from packaging.version import Version

from tfbuild.cpus.targets import parse_target
from tfbuild.errors import PublishError, TargetError
from tfbuild.packing.tuned import Tuned, is_control, read_tuned
from tfbuild.packing.wheel import (
    WheelIdentity,
    find_record_name,
    open_wheel,
    read_identity,
    read_member,
)
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.releases import CPU_PACKAGES
from tfwheels.layout import digest_of, pool_key


class WheelKind(StrEnum):
    TUNED = "tuned"
    STOCK = "stock"
    """TensorFlow as it was published: what a CPU gets that no tuned wheel fits."""
    PLAIN = "plain"
    """Any other package: what TensorFlow depends on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetVerdict:
    """What a comparison said of the wheel's library for `target`: `verdict` as benchmarks say it
    ("faster", …), for the mean over workloads; `file` is the name of the comparison beside the
    wheel, `sha256` its hash."""

    target: str
    verdict: str
    speedup: float
    low: float
    high: float
    cpu: str
    file: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Gating:
    """What the gate said of a published wheel: it `passed`, or --no-gate let it in. `faults` are
    reasons to refuse it, `gaps` say why a comparison was no verdict on it."""

    passed: bool
    faults: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What people should know of it, in a line; empty where it passed and that is all."""
        if self.passed:
            return f"passed the gate, but: {'; '.join(self.faults)}" if self.faults else ""
        why = "; ".join((*self.faults, *self.gaps))
        return "published without passing the gate" + (f": {why}" if why else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Signed:
    """The provenance object beside a wheel, and its hash: `key` is the id of the key that it names,
    or the identity, as --trust spells it."""

    key: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A file of the pool. `name` is normalized. Hashes are hex; `published` is ISO 8601 in UTC;
    `targets` are what a tuned wheel is built for: the specs of its kernel libraries, in the order
    in which the dispatcher tries them, or the one of a full build. That is `whole`, and no CPU can
    import it without the features `required`; a wheel of kernels falls back.

    `near` says how near the sources are that it was compiled from (--near-sources); empty where
    they are the release's own. `gating` is None where no gate was asked: of a wheel that is not
    tuned, and of one from before this was recorded. One without a `provenance` is unsigned.
    """

    file: str
    name: str
    version: str
    tags: tuple[str, ...]
    requires_python: str
    size: int
    sha256: str
    metadata_sha256: str
    published: str
    kind: WheelKind
    targets: tuple[str, ...] = ()
    whole: bool = False
    required: tuple[str, ...] = ()
    near: str = ""
    gating: Gating | None = None
    verdicts: tuple[TargetVerdict, ...] = ()
    provenance: Signed | None = None

    @property
    def public(self) -> str:
        """The version without its local part."""
        return Version(self.version).public

    @property
    def caveats(self) -> tuple[str, ...]:
        """What people should know of the wheel before they take it."""
        gated = self.gating.words if self.gating else ""
        near = f"compiled from {self.near}" if self.near else ""
        return tuple(each for each in (gated, near) if each)


def read_entry(path: Path, *, published: str) -> tuple[Entry, bytes]:
    """What a wheel says of itself, and the bytes of its METADATA.

    Raises PublishError for a wheel that no index should hold, WheelError for one that is damaged.
    """
    if path.is_symlink():
        raise PublishError(f"{path} is a link", hint="Name the wheel itself")
    identity = read_identity(path)
    pool_key(identity.name, path.name)
    metadata = _read_metadata(path)
    tuned = read_tuned(path)
    if tuned is not None:
        _need_publishable(path, tuned)
    kind = _kind(path, identity, tuned)
    requires_python = _requires_python(path, identity, metadata)
    entry = Entry(
        file=path.name,
        name=identity.name,
        version=identity.version,
        tags=identity.tags,
        requires_python=requires_python,
        size=path.stat().st_size,
        sha256=hash_file(path),
        metadata_sha256=digest_of(metadata).sha256,
        published=published,
        kind=kind,
        targets=tuned.targets if tuned else (),
        whole=tuned is not None and tuned.tree is not None,
        required=tuned.tree.required_features if tuned and tuned.tree else (),
        near=_near(tuned),
    )
    return entry, metadata


def _near(tuned: Tuned | None) -> str:
    nearness = tuned.nearness if tuned else None
    return "" if nearness is None or nearness.exact else nearness.summary


def _read_metadata(path: Path) -> bytes:
    with open_wheel(path) as archive:
        folder = find_record_name(archive).rpartition("/")[0]
    return read_member(path, f"{folder}/METADATA")


def _requires_python(path: Path, identity: WheelIdentity, metadata: bytes) -> str:
    """What METADATA says, once it has shown that it speaks of the same wheel as the file's name."""
    said, _ = parse_email(metadata)
    name, version = said.get("name", ""), said.get("version", "")
    if canonicalize_name(name) != identity.name or not _is_version(version, identity.version):
        raise PublishError(
            f"{path.name} holds the METADATA of {name!r} {version!r}",
            hint="A wheel is renamed by building it under that name",
        )
    return said.get("requires_python", "")


def _is_version(text: str, version: str) -> bool:
    try:
        return str(Version(text)) == version
    except ValueError:  # (also of more digits than Python reads)
        return False


def _need_publishable(path: Path, tuned: Tuned) -> None:
    if is_control(tuned):
        raise PublishError(
            f"{path.name} has the stock wheel's own flags: it is for comparing only",
            hint="Leave it out",
        )
    for spec in tuned.targets:
        try:
            parse_target(spec)
        except TargetError as error:
            raise PublishError(f"{path.name} is built for {spec!r}: {error.message}") from error


def _kind(path: Path, identity: WheelIdentity, tuned: Tuned | None) -> WheelKind:
    """Raises PublishError for a wheel that stands in for TensorFlow and does not say where it runs,
    and for a tuned one that an installer would take for the stock wheel."""
    local = Version(identity.version).local is not None
    if tuned is not None:
        if not local:
            raise PublishError(f"{path.name} is tuned, and its version does not say so")
        return WheelKind.TUNED
    if identity.name not in CPU_PACKAGES:
        return WheelKind.PLAIN
    if local:
        raise PublishError(
            f"{path.name} is not the stock wheel, and has no tuned.json that says where it runs"
        )
    return WheelKind.STOCK
