"""Shared caches and clusters: what the user said of one, and what Bazel is told of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from packaging.version import Version

from tfbuild.cpus.cpu import read_cpu
from tfbuild.cpus.targets import resolve_target
from tfbuild.errors import UsageError
from tfbuild.remote import bazelrc, headers
from tfbuild.remote.bazelrc import Bazelrc
from tfbuild.tools.bazel import Bazel

_CACHE_SCHEMES = ("http", "https", "grpc", "grpcs", "unix")
_EXECUTOR_SCHEMES = ("grpc", "grpcs")
_ENCRYPTED = ("https", "grpcs")
_PEM = {
    "tls_certificate": "CERTIFICATE",
    "tls_client_certificate": "CERTIFICATE",
    "tls_client_key": "PRIVATE KEY",
}
_COMPLAINT = re.compile(
    r"^WARNING: (?:(?:Reading from|Writing to) )?Remote Cache:\s+(?:[\w.$]+: )?(?P<what>.+)",
    re.MULTILINE,
)
_SHOWN = 200

# For a second attempt after an entry that is well-formed and wrong: Bazel 4 fails on an action
# result that lists no outputs. What the attempt makes overwrites the shared cache. The cache on
# disk has to be removed before it: Bazel copies bad entries there and overwrites none.
DISTRUSTING = ("--noremote_accept_cached",)

# Before it, files for TLS serve gRPC only (bazelbuild/bazel#14397); 4.2.3 was seen to crash.
_TLS_FOR_HTTP = Version("5.0")
# Before it Bazel refuses the pair (bazelbuild/bazel#13852).
_DISK_WITH_EXECUTOR = Version("5.0")
# From it on, what --remote_… says of results is never about the disk cache.
_REMOTE_IS_NOT_DISK = Version("7.0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Remote:
    """A shared cache or a cluster, named by an option or in the user's bazelrc, and that file.
    Without both addresses there is none."""

    cache: str = ""
    executor: str = ""
    rc: Bazelrc = field(default_factory=Bazelrc)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.cache, self.executor)))


def named(*, cache: str = "", executor: str = "", rc: Path | None = None) -> Remote:
    """What the options say, and the file. Raises UsageError."""
    given = bazelrc.read(rc)
    caches = given.values("remote_cache", "remote_http_cache")
    return Remote(
        cache=_one("--remote-cache", cache, *caches),
        executor=_one("--remote-executor", executor, *given.values("remote_executor")),
        rc=given,
    )


def _one(option: str, *found: str) -> str:
    """The address that an option and the lines of a file name. Raises UsageError for several."""
    addresses = set(found) - {""}
    if len(addresses) > 1:
        raise UsageError(f"{option} and the bazelrc name several addresses", hint="Leave one")
    return "".join(addresses)


def check(remote: Remote, bazel: Bazel) -> None:
    """`check_given`, and what this Bazel could not use. Raises UsageError."""
    check_given(remote)
    if bazel.debian and any(each.startswith("grpcs:") for each in remote.addresses):
        # It ends in "JDK provider does not support ALPN protocol" (seen with 4.2.3).
        raise UsageError(
            f"Debian's Bazel {bazel.version} cannot speak gRPC over TLS",
            hint="Set BAZELISK_BASE_URL to a mirror of Bazel's own, or use an http:// cache",
        )
    old, secured = Version(bazel.version) < _TLS_FOR_HTTP, remote.rc.values(*_PEM)
    if old and secured and remote.cache.startswith("https:"):
        raise UsageError(
            f"Bazel {bazel.version} reads no certificate files for an https cache",
            hint="Use a grpcs:// cache, or a server whose certificate Bazel's own Java trusts",
        )


def check_given(remote: Remote) -> None:
    """Raises UsageError for what no Bazel could use, or any would show to others."""
    _check_address("--remote-cache", remote.cache, _CACHE_SCHEMES)
    _check_address("--remote-executor", remote.executor, _EXECUTOR_SCHEMES)
    over_http = urlsplit(remote.cache).scheme in {"http", "https"}
    if remote.executor and over_http:
        raise UsageError(
            f"--remote-executor cannot be combined with the HTTP cache {remote.cache}",
            hint="Name the cluster's own cache (grpcs://), or no cache",
        )
    if remote.rc.path and remote.rc.secrets:
        headers.need_private("--bazelrc", remote.rc.path)
    _check_files(remote)


def _check_address(option: str, address: str, schemes: tuple[str, ...]) -> None:
    if not address:
        return
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"{option} is no URL: {error}") from error
    if "@" in parts.netloc or parts.query or parts.fragment:
        # Not shown: what stands there is likely a password.
        raise UsageError(
            f"{option} holds a user, a password or a query, which every process list would show",
            hint='Put a header into a file for --bazelrc: build "--remote_header=NAME=VALUE"',
        )
    if parts.scheme not in schemes:
        raise UsageError(
            f"{option} {address!r} begins with none of {', '.join(schemes)}",
            hint=f"Write it as {schemes[-1] if len(schemes) == 2 else 'grpcs'}://HOST:PORT",  # noqa: PLR2004
        )
    place = parts.path if parts.scheme == "unix" else parts.hostname
    if not place or not address.isprintable() or " " in address:
        raise UsageError(f"{option} {address!r} names no place, or has a space in it")


def _check_files(remote: Remote) -> None:
    """Those for TLS that the bazelrc names."""
    files = {name: Path(text) for name in _PEM for text in remote.rc.values(name)}
    for name, path in files.items():
        _check_pem(f"--{name}", path, _PEM[name])
    certificate, key = map(files.get, ("tls_client_certificate", "tls_client_key"))
    if (certificate is None) != (key is None):
        lacks = "key" if key is None else "certificate"
        raise UsageError(f"a client certificate has two files, --tls_client_{lacks} is missing")
    if key is not None:
        headers.need_private("--tls_client_key", key)
    plain = [each for each in remote.addresses if urlsplit(each).scheme not in _ENCRYPTED]
    if files and plain:
        raise UsageError(f"--{next(iter(files))} was given, but {plain[0]} is not encrypted")


def _check_pem(option: str, path: Path, kind: str) -> None:
    """Bazel 7.7.1 ends with 37 and not a word over a file that is empty or something else."""
    if not path.is_absolute():
        raise UsageError(f"{option} {path} is no whole path, which a bazelrc needs")
    text = bazelrc.content(option, path).decode("ascii", errors="replace")
    block = rf"^-----BEGIN ([A-Z0-9 ]*{kind})-----\s.+?^-----END \1-----"
    if not re.search(block, text, re.MULTILINE | re.DOTALL):
        raise UsageError(
            f"{option} {path} holds no whole {kind.lower()} in PEM",
            hint=f"It begins with -----BEGIN {kind}-----, and ends in the same way",
        )


def need_explicit(arch: str, remote: Remote) -> None:
    """Raises UsageError for `native` with a shared cache: it is another target on each machine."""
    if remote.addresses and arch.strip().lower() == "native":
        spec = resolve_target("native", read_cpu()).spec
        raise UsageError(
            "--arch native means another target on each machine that shares a cache",
            hint=f"Here it is {spec}: give --arch {spec}",
        )


def options(remote: Remote, bazel: str, disk: Path) -> tuple[str, ...]:
    """Options of `bazel build`, none of them secret. `disk` is the cache of this machine.

    A cache that is down, slow, full or damaged costs time and never the build: a call that fails is
    tried again, then the action runs here. All outputs are fetched at once, since one that a server
    forgets before it is needed cannot be had again.
    """
    version = Version(bazel)
    local = (f"--disk_cache={disk}",)
    silent = headers.SILENT if remote.rc.secrets else ()
    if not remote.addresses:
        return (*local, *silent)
    alone = remote.executor and version < _DISK_WITH_EXECUTOR
    services = {"remote_cache": remote.cache, "remote_executor": remote.executor}
    # Without it a cache that is only read would stop the disk cache from being written.
    apart = ("--incompatible_remote_results_ignore_disk",) if version < _REMOTE_IS_NOT_DISK else ()
    return (
        *(() if alone else local),
        *(f"--{name}={address}" for name, address in services.items() if address),
        "--remote_download_outputs=all",
        "--remote_local_fallback",
        *apart,
        *silent,
    )


def complaint(output: str) -> str:
    """What Bazel's output says first of a shared cache that did not serve; empty when nothing. Up
    to Bazel 4 it stands on a line of its own, after a Java class."""
    said = _COMPLAINT.search(output)
    return said["what"].strip()[:_SHOWN] if said else ""
