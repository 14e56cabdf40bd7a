"""The entry of a wheel in the index: the data for its pages and for the choice of a wheel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from packaging.metadata import parse_email
from packaging.utils import canonicalize_name
from packaging.version import Version

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
from tfcore.cpus.targets import parse_target
from tfcore.errors import ChecksumError, PublishError, TargetError
from tfwheels.layout import build_pool_key, compute_digest


class WheelKind(StrEnum):
    TUNED = "tuned"
    STOCK = "stock"
    """The published TensorFlow wheel, for CPUs that no tuned wheel fits."""
    PLAIN = "plain"
    """Any other package: a dependency of TensorFlow."""


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
    """The gate's result for a published wheel: it `passed`, or it was published with --no-gate.

    `faults` are reasons to refuse the wheel, from the comparisons `evidence`: names of files beside
    the wheel, and their SHA-256 hashes. `gaps` are the reasons why comparisons give no verdict.
    """

    passed: bool
    faults: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    evidence: tuple[tuple[str, str], ...] = ()

    @property
    def words(self) -> str:
        """Return a line about the result for users; empty if the wheel passed without faults."""
        if self.passed:
            return f"passed the gate, but: {'; '.join(self.faults)}" if self.faults else ""
        reasons = "; ".join((*self.faults, *self.gaps))
        return "published without passing the gate" + (f": {reasons}" if reasons else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedProvenance:
    """The provenance object beside a wheel: `sha256` is its hash, `key` its signer.

    `key` is the id of a key.
    """

    key: str
    sha256: str


class WithdrawalKind(StrEnum):
    YANKED = "yanked"
    """Marked on its pages (PEP 592): installers take it only if its version is pinned."""
    QUARANTINED = "quarantined"
    """On no page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Withdrawal:
    """The state of a wheel that installers must not choose; `since` is ISO 8601 in UTC."""

    kind: WithdrawalKind
    reason: str
    since: str

    @property
    def words(self) -> str:
        """Return the state and the reason in a line for users."""
        return f"{self.kind}: {self.reason}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A file of the pool.

    `name` is normalized, hashes are hex, `published` is ISO 8601 in UTC. `targets` are the targets
    of a tuned wheel: the specs of its kernel libraries, in the order in which the dispatcher tries
    them, or the one of a full build. `whole` marks a full build: its import fails on a CPU without
    the features `required`, whereas a wheel of kernels falls back to stock.

    `near` describes how headers of the wheel's sources differ from the stock wheel's
    (--near-sources); empty if they do not, or if the sources are the release's own. `gating` is
    None for a wheel that is not tuned, and in entries of older versions. A wheel without
    `provenance` is unsigned. `rebuilt_sha256` is the hash of a rebuilder's statement beside the
    wheel; empty if there is none. `withdrawal` is None for a wheel that installers may choose.
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
    rebuilt_sha256: str = ""
    withdrawal: Withdrawal | None = None

    @property
    def public(self) -> str:
        """Return the version without its local part."""
        return Version(self.version).public

    @property
    def caveats(self) -> tuple[str, ...]:
        """Return the warnings to show before the wheel is installed."""
        gated = self.gating.words if self.gating else ""
        near = f"compiled from {self.near}" if self.near else ""
        return tuple(caveat for caveat in (gated, near) if caveat)


def read_entry(path: Path, *, published: str) -> tuple[Entry, bytes]:
    """Read the entry of a wheel and the bytes of its METADATA.

    Raises PublishError for a wheel that must not be published, WheelError for a damaged one.
    """
    if path.is_symlink():
        raise PublishError(f"{path} is a symbolic link", hint="Pass the path of the wheel itself")
    identity = read_identity(path)
    build_pool_key(identity.name, path.name)
    metadata = read_metadata(path)
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


NO_CHECKS: Mapping[Path, str] = MappingProxyType({})
"""For wheels that need no check, see `require_checked`."""


def require_checked(path: Path, sha256: str, checked: Mapping[Path, str]) -> None:
    """Raise ChecksumError if the wheel has changed since it was checked.

    `checked` has the SHA-256 of each checked wheel; wheels that need no check are not in it.
    """
    expected = checked.get(path, sha256)
    if sha256 != expected:
        raise ChecksumError(
            f"{path.name} changed after it was checked: sha256 {sha256}, not {expected}",
            hint="Wait until no program writes to the wheel, then run the same command again",
        )


def _describe_sources(tuned: Tuned | None) -> str:
    nearness = tuned.nearness if tuned else None
    return "" if nearness is None or nearness.exact else nearness.summary


def read_metadata(path: Path) -> bytes:
    """Return the bytes of METADATA in a wheel, also in a variant."""
    with open_wheel(path) as archive:
        folder = find_record_name(archive).rpartition("/")[0]
    return read_member(path, f"{folder}/METADATA")


def _read_requires_python(path: Path, identity: WheelIdentity, metadata: bytes) -> str:
    """Return the Requires-Python of METADATA.

    Raises PublishError if METADATA does not match the file name.
    """
    fields, _ = parse_email(metadata)
    name, version = fields.get("name", ""), fields.get("version", "")
    if canonicalize_name(name) != identity.name or not _is_version(version, identity.version):
        raise PublishError(
            f"{path.name} contains the METADATA of {name!r} {version!r}",
            hint="Do not rename wheels: build a wheel with the name and version",
        )
    return fields.get("requires_python", "")


def _is_version(text: str, version: str) -> bool:
    try:
        return str(Version(text)) == version
    except ValueError:  # (also for more digits than Python parses)
        return False


def _require_publishable(path: Path, tuned: Tuned) -> None:
    if is_control(tuned):
        raise PublishError(
            f"{path.name} is compiled with the stock wheel's flags, for comparison only",
            hint="Exclude this wheel",
        )
    for spec in tuned.targets:
        try:
            parse_target(spec)
        except TargetError as error:
            raise PublishError(f"{path.name} has the target {spec!r}: {error.message}") from error


def _resolve_kind(path: Path, identity: WheelIdentity, tuned: Tuned | None) -> WheelKind:
    """Return the kind of a wheel.

    Raises PublishError for a modified TensorFlow wheel without tuned.json, and for a tuned wheel
    without a local version, which installers cannot distinguish from the stock wheel.
    """
    local = Version(identity.version).local is not None
    if tuned is not None:
        if not local:
            raise PublishError(f"{path.name} is tuned, but its version has no local part")
        return WheelKind.TUNED
    if identity.name not in CPU_PACKAGES:
        return WheelKind.PLAIN
    if local:
        raise PublishError(
            f"{path.name} is a modified TensorFlow wheel, but has no tuned.json with its targets"
        )
    return WheelKind.STOCK
