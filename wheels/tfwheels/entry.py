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
from tfwheels.layout import build_pool_key, compute_digest


class WheelKind(StrEnum):
    TUNED = "tuned"
    STOCK = "stock"
    """TensorFlow as it was published: what a CPU gets that no tuned wheel fits."""
    PLAIN = "plain"
    """Any other package: what TensorFlow depends on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetVerdict:
    """A comparison's verdict on the wheel's library for `target`.

    `verdict` is spelled as in benchmarks ("faster", …) and covers the mean over workloads;
    `file` is the name of the comparison beside the wheel, `sha256` its hash.
    """

    target: str
    verdict: str
    speedup: float
    low: float
    high: float
    cpu: str
    file: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GateResult:
    """The gate's result for a published wheel: it `passed`, or --no-gate let it in.

    `faults` are reasons to refuse it, `gaps` say why a comparison was no verdict on it.
    """

    passed: bool
    faults: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Return what users should know of the result, in a line; empty if it passed without
        faults.
        """
        if self.passed:
            return f"passed the gate, but: {'; '.join(self.faults)}" if self.faults else ""
        why = "; ".join((*self.faults, *self.gaps))
        return "published without passing the gate" + (f": {why}" if why else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedProvenance:
    """The provenance object beside a wheel: `sha256` is its hash, `key` the signer it names.

    `key` is the id of a key, or an identity as --trust spells it.
    """

    key: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A file of the pool.

    `name` is normalized, hashes are hex, `published` is ISO 8601 in UTC. `targets` are what a
    tuned wheel is built for: the specs of its kernel libraries, in the order in which the
    dispatcher tries them, or the one of a full build. `whole` marks a full build, which no
    CPU can import without the features `required`; a wheel of kernels falls back.

    `near` says how near the sources are that it was compiled from (--near-sources); empty if
    they are the release's own. `gating` is None if no gate was asked: for a wheel that is not
    tuned, and for one from before this was recorded. A wheel without `provenance` is
    unsigned.
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
    gating: GateResult | None = None
    verdicts: tuple[TargetVerdict, ...] = ()
    provenance: SignedProvenance | None = None

    @property
    def public(self) -> str:
        """Return the version without its local part."""
        return Version(self.version).public

    @property
    def caveats(self) -> tuple[str, ...]:
        """Return what users should know of the wheel before they install it."""
        gated = self.gating.words if self.gating else ""
        near = f"compiled from {self.near}" if self.near else ""
        return tuple(caveat for caveat in (gated, near) if caveat)


def read_entry(path: Path, *, published: str) -> tuple[Entry, bytes]:
    """Read the entry of a wheel and the bytes of its METADATA.

    Raises PublishError for a wheel that no index should hold, WheelError for a damaged one.
    """
    if path.is_symlink():
        raise PublishError(f"{path} is a link", hint="Name the wheel itself")
    identity = read_identity(path)
    build_pool_key(identity.name, path.name)
    metadata = _read_metadata(path)
    tuned = read_tuned(path)
    if tuned is not None:
        _require_publishable(path, tuned)
    kind = _resolve_kind(path, identity, tuned)
    requires_python = _read_requires_python(path, identity, metadata)
    entry = Entry(
        file=path.name,
        name=identity.name,
        version=identity.version,
        tags=identity.tags,
        requires_python=requires_python,
        size=path.stat().st_size,
        sha256=hash_file(path),
        metadata_sha256=compute_digest(metadata).sha256,
        published=published,
        kind=kind,
        targets=tuned.targets if tuned else (),
        whole=tuned is not None and tuned.tree is not None,
        required=tuned.tree.required_features if tuned and tuned.tree else (),
        near=_describe_sources(tuned),
    )
    return entry, metadata


def _describe_sources(tuned: Tuned | None) -> str:
    nearness = tuned.nearness if tuned else None
    return "" if nearness is None or nearness.exact else nearness.summary


def _read_metadata(path: Path) -> bytes:
    with open_wheel(path) as archive:
        folder = find_record_name(archive).rpartition("/")[0]
    return read_member(path, f"{folder}/METADATA")


def _read_requires_python(path: Path, identity: WheelIdentity, metadata: bytes) -> str:
    """Return the Requires-Python of METADATA.

    Raises PublishError if METADATA is of another wheel than the file name says.
    """
    fields, _ = parse_email(metadata)
    name, version = fields.get("name", ""), fields.get("version", "")
    if canonicalize_name(name) != identity.name or not _is_version(version, identity.version):
        raise PublishError(
            f"{path.name} holds the METADATA of {name!r} {version!r}",
            hint="A wheel is renamed by building it under that name",
        )
    return fields.get("requires_python", "")


def _is_version(text: str, version: str) -> bool:
    try:
        return str(Version(text)) == version
    except ValueError:  # (also of more digits than Python reads)
        return False


def _require_publishable(path: Path, tuned: Tuned) -> None:
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


def _resolve_kind(path: Path, identity: WheelIdentity, tuned: Tuned | None) -> WheelKind:
    """Return the kind of a wheel.

    Raises PublishError for a modified TensorFlow wheel that does not say where it runs, and
    for a tuned one that an installer would take for the stock wheel.
    """
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
