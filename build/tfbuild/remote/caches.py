"""Shared caches and clusters: what the user said of one, and what Bazel is told of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from packaging.version import Version

from tfbuild.cpus.cpu import read_cpu
from tfbuild.cpus.targets import resolve
from tfbuild.errors import UsageError
from tfbuild.remote import headers
from tfbuild.tools.bazel import Bazel

_CACHE_SCHEMES = ("http", "https", "grpc", "grpcs", "unix")
_EXECUTOR_SCHEMES = ("grpc", "grpcs")
_ENCRYPTED = ("https", "grpcs")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_RETRIES = 5
_PEM_B = 1 << 20
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
    """What the user said of a shared cache or a cluster. Without both addresses there is none.

    `authority`, `certificate` and `key` are PEM files. `headers` is a file of lines `Name: value`.
    `properties` choose the cluster's workers, such as container-image. `timeout_s` is per call.
    """

    cache: str = ""
    executor: str = ""
    instance: str = ""
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    headers: Path | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    upload: bool = True
    timeout_s: int = 60

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.cache, self.executor)))


def check(remote: Remote, bazel: Bazel) -> None:
    """`check_given`, and what this Bazel could not use. Raises UsageError."""
    check_given(remote)
    if bazel.debian and any(each.startswith("grpcs:") for each in remote.addresses):
        # It ends in "JDK provider does not support ALPN protocol" (seen with 4.2.3).
        raise UsageError(
            f"Debian's Bazel {bazel.version} cannot speak gRPC over TLS",
            hint="Set BAZELISK_BASE_URL to a mirror of Bazel's own, or use an http:// cache",
        )
    old, secured = Version(bazel.version) < _TLS_FOR_HTTP, any(_files(remote).values())
    if old and secured and remote.cache.startswith("https:"):
        raise UsageError(
            f"Bazel {bazel.version} reads no certificate files for an https cache",
            hint="Use a grpcs:// cache, or a server whose certificate Bazel's own Java trusts",
        )


def check_given(remote: Remote) -> None:
    """Raises UsageError for what no Bazel could use, or any would show to others."""
    _check_address("--remote-cache", remote.cache, _CACHE_SCHEMES)
    _check_address("--remote-executor", remote.executor, _EXECUTOR_SCHEMES)
    if not remote.addresses:
        if remote != Remote():
            raise UsageError(
                "options of a remote cache were given without one",
                hint="Add --remote-cache URL or --remote-executor URL",
            )
        return
    over_http = urlsplit(remote.cache).scheme in {"http", "https"}
    if remote.executor and over_http:
        raise UsageError(
            f"--remote-executor cannot be combined with the HTTP cache {remote.cache}",
            hint="Name the cluster's own cache (grpcs://), or leave --remote-cache out",
        )
    if remote.timeout_s < 1:
        raise UsageError(f"--remote-timeout is {remote.timeout_s}, at least 1 second is needed")
    if not remote.instance.isprintable() or " " in remote.instance:
        raise UsageError(f"--remote-instance has a space or control character: {remote.instance!r}")
    for name, value in remote.properties.items():
        if not _NAME.fullmatch(name) or not value or not value.isprintable():
            raise UsageError(f"--remote-property {name}={value!r} is not NAME=VALUE")
    _check_files(remote)
    if remote.headers is not None:
        headers.read_headers(remote.headers)


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
            hint="Put an Authorization header into a file, and give it with --remote-headers FILE",
        )
    if parts.scheme not in schemes:
        raise UsageError(
            f"{option} {address!r} begins with none of {', '.join(schemes)}",
            hint=f"Write it as {schemes[-1] if len(schemes) == 2 else 'grpcs'}://HOST:PORT",  # noqa: PLR2004
        )
    place = parts.path if parts.scheme == "unix" else parts.hostname
    if not place or not address.isprintable() or " " in address:
        raise UsageError(f"{option} {address!r} names no place, or has a space in it")


def _files(remote: Remote) -> dict[str, Path | None]:
    """The certificate files by their options."""
    return {
        "--remote-ca": remote.authority,
        "--remote-certificate": remote.certificate,
        "--remote-key": remote.key,
    }


def _check_files(remote: Remote) -> None:
    files = {option: path for option, path in _files(remote).items() if path is not None}
    for option, path in files.items():
        _check_pem(option, path)
    if (remote.certificate is None) != (remote.key is None):
        lacks = "--remote-key" if remote.key is None else "--remote-certificate"
        raise UsageError(f"a client certificate has two files, {lacks} is missing")
    if remote.key is not None:
        headers.need_private("--remote-key", remote.key)
    plain = [each for each in remote.addresses if urlsplit(each).scheme not in _ENCRYPTED]
    if files and plain:
        raise UsageError(f"{next(iter(files))} was given, but {plain[0]} is not encrypted")


def _check_pem(option: str, path: Path) -> None:
    """Bazel 7.7.1 ends with 37 and not a word over a file that is empty or something else."""
    if not path.is_file() or not os.access(path, os.R_OK):
        raise UsageError(f"{option} {path} is no file that can be read")
    kind = "PRIVATE KEY" if option == "--remote-key" else "CERTIFICATE"
    block = rf"^-----BEGIN ([A-Z0-9 ]*{kind})-----\s.+?^-----END \1-----"
    with path.open("rb") as file:
        text = file.read(_PEM_B).decode("ascii", errors="replace")
    if not re.search(block, text, re.MULTILINE | re.DOTALL):
        raise UsageError(
            f"{option} {path} holds no whole {kind.lower()} in PEM",
            hint=f"It begins with -----BEGIN {kind}-----, and ends in the same way",
        )


def need_explicit(arch: str, remote: Remote) -> None:
    """Raises UsageError for `native` with a shared cache: it is another target on each machine."""
    if remote.addresses and arch.strip().lower() == "native":
        spec = resolve("native", read_cpu()).spec
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
    if not remote.addresses:
        return local
    alone = remote.executor and version < _DISK_WITH_EXECUTOR
    given = {
        "remote_cache": remote.cache,
        "remote_executor": remote.executor,
        "remote_instance_name": remote.instance,
        "tls_certificate": remote.authority,
        "tls_client_certificate": remote.certificate,
        "tls_client_key": remote.key,
        "remote_timeout": f"{remote.timeout_s}s",
        "remote_retries": _RETRIES,
        "remote_download_outputs": "all",
    }
    # Without it a cache that is only read would stop the disk cache from being written.
    apart = ("--incompatible_remote_results_ignore_disk",) if version < _REMOTE_IS_NOT_DISK else ()
    # TensorFlow's .bazelrc asks for every option to be shown, and headers are among them.
    silent = ("--noannounce_rc",) if remote.headers is not None else ()
    return (
        *(() if alone else local),
        *(f"--{name}={value}" for name, value in given.items() if value),
        "--remote_local_fallback",
        f"--{'' if remote.upload else 'no'}remote_upload_local_results",
        *apart,
        *silent,
        *property_options(remote.properties),
    )


def complaint(output: str) -> str:
    """What Bazel's output says first of a shared cache that did not serve; empty when nothing. Up
    to Bazel 4 it stands on a line of its own, after a Java class."""
    said = _COMPLAINT.search(output)
    return said["what"].strip()[:_SHOWN] if said else ""


def property_options(properties: Mapping[str, str]) -> tuple[str, ...]:
    """What every action asks of the machine that runs it; it is part of the action's cache key."""
    return tuple(
        f"--remote_default_exec_properties={name}={properties[name]}" for name in sorted(properties)
    )
