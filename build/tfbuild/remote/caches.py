"""Shared caches and clusters: the user's settings, and Bazel's options for them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from packaging.version import Version

from tfbuild.remote import bazelrc, headers
from tfbuild.remote.bazelrc import Bazelrc
from tfbuild.tools.bazel import Bazel
from tfcore.cpus.cpu import read_cpu
from tfcore.cpus.targets import match_cpu
from tfcore.errors import UsageError

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

# For a second attempt after a well-formed but wrong entry: Bazel 4 fails on an action result that
# lists no outputs. The results of the attempt overwrite the shared cache. The disk cache must be
# removed before: Bazel copies bad entries to it, and overwrites none.
DISTRUSTING = ("--noremote_accept_cached",)

# Older versions use TLS files for gRPC only (bazelbuild/bazel#14397); 4.2.3 crashes.
_TLS_FOR_HTTP = Version("5.0")
# Older versions refuse the two options together (bazelbuild/bazel#13852).
_DISK_WITH_EXECUTOR = Version("5.0")
# From this version on, the --remote_… options for results do not apply to the disk cache.
_REMOTE_IS_NOT_DISK = Version("7.0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Remote:
    """A shared cache or a cluster, named by an option or in the user's bazelrc, and that file.
    Both addresses are empty if there is none."""

    cache: str = ""
    executor: str = ""
    rc: Bazelrc = field(default_factory=Bazelrc)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.cache, self.executor)))


def resolve_remote(*, cache: str = "", executor: str = "", rc: Path | None = None) -> Remote:
    """Resolve the remote from the options and the bazelrc. Raises UsageError."""
    user_rc = bazelrc.read_bazelrc(rc)
    caches = user_rc.get_values("remote_cache", "remote_http_cache")
    return Remote(
        cache=_select_address("--remote-cache", cache, *caches),
        executor=_select_address(
            "--remote-executor", executor, *user_rc.get_values("remote_executor")
        ),
        rc=user_rc,
    )


def _select_address(option: str, *values: str) -> str:
    """Return the address that an option or the bazelrc names. Raises UsageError for several."""
    addresses = set(values) - {""}
    if len(addresses) > 1:
        raise UsageError(
            f"{option} and the bazelrc name several addresses", hint="Keep one of them"
        )
    return "".join(addresses)


def check_remote(remote: Remote, bazel: Bazel) -> None:
    """Check the remote as `check_settings` does, and for what this Bazel could not use.

    Raises UsageError.
    """
    check_settings(remote)
    if bazel.debian and any(address.startswith("grpcs:") for address in remote.addresses):
        # It fails with "JDK provider does not support ALPN protocol" (seen with 4.2.3).
        raise UsageError(
            f"Debian's Bazel {bazel.version} cannot speak gRPC over TLS",
            hint="Set BAZELISK_BASE_URL to a mirror of Bazel's releases, or use an http:// cache",
        )
    old, secured = Version(bazel.version) < _TLS_FOR_HTTP, remote.rc.get_values(*_PEM)
    if old and secured and remote.cache.startswith("https:"):
        raise UsageError(
            f"Bazel {bazel.version} does not read certificate files for an https cache",
            hint="Use a grpcs:// cache, or a server with a certificate that Bazel's Java trusts",
        )


def check_settings(remote: Remote) -> None:
    """Raise UsageError for settings that no Bazel could use, or that would expose secrets."""
    _check_address("--remote-cache", remote.cache, _CACHE_SCHEMES)
    _check_address("--remote-executor", remote.executor, _EXECUTOR_SCHEMES)
    over_http = urlsplit(remote.cache).scheme in {"http", "https"}
    if remote.executor and over_http:
        raise UsageError(
            f"--remote-executor cannot be combined with the HTTP cache {remote.cache}",
            hint="Name the cluster's cache (grpcs://), or no cache",
        )
    if remote.rc.path and remote.rc.secrets:
        headers.require_private("--bazelrc", remote.rc.path)
    _check_files(remote)


def _check_address(option: str, address: str, schemes: tuple[str, ...]) -> None:
    if not address:
        return
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"{option} is not a URL: {error}") from error
    if "@" in parts.netloc or parts.query or parts.fragment:
        # Do not show the address: it probably contains a password.
        raise UsageError(
            f"{option} contains a user, a password or a query, which process lists would show",
            hint='Write a header into a file for --bazelrc: build "--remote_header=NAME=VALUE"',
        )
    if parts.scheme not in schemes:
        raise UsageError(
            f"{option} {address!r} does not begin with one of {', '.join(schemes)}",
            hint=f"Write it as {schemes[-1] if len(schemes) == 2 else 'grpcs'}://HOST:PORT",  # noqa: PLR2004
        )
    host = parts.path if parts.scheme == "unix" else parts.hostname
    if not host or not address.isprintable() or " " in address:
        raise UsageError(f"{option} {address!r} has no host or path, or contains a space")


def _check_files(remote: Remote) -> None:
    """Check the TLS files that the bazelrc names."""
    files = {name: Path(text) for name in _PEM for text in remote.rc.get_values(name)}
    for name, path in files.items():
        _check_pem(f"--{name}", path, _PEM[name])
    certificate, key = map(files.get, ("tls_client_certificate", "tls_client_key"))
    if (certificate is None) != (key is None):
        lacks = "key" if key is None else "certificate"
        raise UsageError(f"a client certificate needs two files: --tls_client_{lacks} is missing")
    if key is not None:
        headers.require_private("--tls_client_key", key)
    plain = [address for address in remote.addresses if urlsplit(address).scheme not in _ENCRYPTED]
    if files and plain:
        raise UsageError(f"--{next(iter(files))} is set, but {plain[0]} is not encrypted")


def _check_pem(option: str, path: Path, kind: str) -> None:
    """Check that a file is PEM of this kind.

    Bazel 7.7.1 ends with code 37 and no message if the file is empty or something else.
    """
    if not path.is_absolute():
        raise UsageError(f"{option} {path} is not an absolute path, which a bazelrc needs")
    text = bazelrc.read_user_file(option, path).decode("ascii", errors="replace")
    block = rf"^-----BEGIN ([A-Z0-9 ]*{kind})-----\s.+?^-----END \1-----"
    if not re.search(block, text, re.MULTILINE | re.DOTALL):
        raise UsageError(
            f"{option} {path} contains no complete {kind.lower()} in PEM",
            hint=f"The file must have -----BEGIN {kind}----- and -----END {kind}-----",
        )


def require_explicit_target(arch: str, remote: Remote) -> None:
    """Raise UsageError for `native` with a shared cache.

    It is another target on each machine.
    """
    if remote.addresses and arch.strip().lower() == "native":
        spec = match_cpu(read_cpu()).native.spec
        raise UsageError(
            "--arch native is another target on each machine that shares a cache",
            hint=f"On this machine it is {spec}. Use --arch {spec}",
        )


def build_options(remote: Remote, bazel: str, disk: Path) -> tuple[str, ...]:
    """Return the options of `bazel build`, none of them secret. `disk` is this machine's cache.

    A cache that is down, slow, full or damaged costs time and never the build: a call that
    fails is tried again, then the action runs here. All outputs are fetched at once, since
    one that a server forgets before it is needed cannot be had again.
    """
    version = Version(bazel)
    local = (f"--disk_cache={disk}",)
    silent = headers.SILENT if remote.rc.secrets else ()
    if not remote.addresses:
        return (*local, *silent)
    without_disk = remote.executor and version < _DISK_WITH_EXECUTOR
    services = {"remote_cache": remote.cache, "remote_executor": remote.executor}
    # Without this option, a read-only shared cache also makes the disk cache read-only.
    apart = ("--incompatible_remote_results_ignore_disk",) if version < _REMOTE_IS_NOT_DISK else ()
    return (
        *(() if without_disk else local),
        *(f"--{name}={address}" for name, address in services.items() if address),
        "--remote_download_outputs=all",
        "--remote_local_fallback",
        *apart,
        *silent,
    )


def find_cache_warning(output: str) -> str:
    """Return Bazel's first warning of a shared cache that did not serve; "" if there is none.

    Up to Bazel 4 it is on a separate line, after a Java class.
    """
    match = _COMPLAINT.search(output)
    return match["what"].strip()[:_SHOWN] if match else ""
