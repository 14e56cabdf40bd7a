"""Downloads: they resume after an interruption, and only the pinned hash is accepted."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import re
import shutil
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tfcore import console
from tfcore.errors import ChecksumError, DiskError, DownloadError
from tfcore.settings import expand_home

_CHUNK = 1 << 20
_TIMEOUT_S = 30.0
_ASK_S = 10.0
_UNREACHED = (
    urllib.error.URLError,
    http.client.HTTPException,
    TimeoutError,
    ConnectionError,
    ssl.SSLError,
    ValueError,  # (urllib's error for an invalid address)
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """A pinned file: its name, its SHA-256 (hex) and, if known, its size in bytes."""

    name: str
    sha256: str
    size: int | None = None


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify_file(path: Path, pin: Pin) -> Path:
    """Return the path if its bytes are the pinned ones.

    Raises ChecksumError, DownloadError.
    """
    if not path.is_file():
        raise DownloadError(f"{path}: no such file")
    sha256 = hash_file(path)
    if sha256 != pin.sha256:
        raise ChecksumError(
            f"{path} has SHA-256 {sha256}; {pin.name} is pinned to {pin.sha256}",
            hint="The file is truncated or changed: download it again",
        )
    return path


def keep_verified(path: Path, pin: Pin) -> Path | None:
    """Keep the file of an earlier run only if its bytes are still the pinned ones.

    Returns its path, or None without such a file. A file with other bytes is removed, so that
    it is downloaded again.
    """
    if not path.is_file():
        return None
    try:
        return verify_file(path, pin)
    except ChecksumError as error:
        console.warn(f"{error.message}; removing it and downloading it again")
        path.unlink()
        return None


def fetch(url: str, pin: Pin, folder: Path) -> Path:
    """Download `url` to `folder/pin.name` and check it; a broken download is resumed.

    A file with wrong bytes is removed, so that the next run starts clean. Raises
    DownloadError, ChecksumError, DiskError.
    """
    target = folder / pin.name
    if keep_verified(target, pin):
        return target
    part = folder / f"{pin.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _transfer(url, part, pin)
    except _UNREACHED as error:
        reason = getattr(error, "reason", error)
        raise DownloadError(f"cannot download {_redact_url(url)}: {reason}") from error
    except OSError as error:
        raise DiskError(f"cannot write {part}: {error.strerror}") from error
    try:
        verify_file(part, pin)
    except ChecksumError:
        part.unlink()
        raise
    part.rename(target)
    return target


def probe_url(url: str) -> str:
    """Return why an address does not offer a file; empty if it does."""
    request = _create_request(url)
    request.method = "HEAD"
    try:
        urllib.request.urlopen(request, timeout=_ASK_S).close()  # noqa: S310
    except _UNREACHED as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        return f"{urlsplit(url).hostname or _redact_url(url)}: {getattr(error, 'reason', error)}"
    return ""


def _transfer(url: str, part: Path, pin: Pin) -> None:
    resume_at = part.stat().st_size if part.exists() else 0
    if pin.size is not None and resume_at >= pin.size:
        return
    try:
        answer = _open_url(url, resume_at)
    except urllib.error.HTTPError as error:
        if not resume_at or error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        part.unlink()
        answer = _open_url(url, 0)
    with contextlib.closing(answer):
        resumed = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        done = resume_at if resumed else 0
        length = answer.headers.get("Content-Length")
        total = done + int(length) if length else pin.size or 0
        with (
            part.open("ab" if resumed else "wb") as sink,
            console.track_progress("MB", total >> 20) as count,
        ):
            while block := _read(answer):
                sink.write(block)
                done += len(block)
                count.advance(done >> 20, detail=pin.name)
        if total and done < total:
            raise ConnectionError(f"the connection ended after {done} of {total} bytes")


def _read(answer: Any) -> bytes:  # noqa: ANN401  (its type depends on the scheme)
    """Read the next bytes. Raises ConnectionError for any error of the network, so that it is not
    taken for one of the disk.
    """
    try:
        block: bytes = answer.read(_CHUNK)
    except OSError as error:
        raise ConnectionError(error.strerror or str(error)) from error
    return block


def _open_url(url: str, start: int) -> Any:  # noqa: ANN401  (its type depends on the scheme)
    """Return the response to a request for a file from its byte `start` on."""
    request = _create_request(url)
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT_S)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        raise


def _create_request(url: str) -> urllib.request.Request:
    """Return a request whose user name and password, if any, are moved to a header.

    No redirect passes the header on.
    """
    parts = urlsplit(url)
    user, has_login, host = parts.netloc.rpartition("@")
    address = parts._replace(netloc=host).geturl()
    request = urllib.request.Request(address)  # noqa: S310  (https, http and file are allowed)
    if has_login:
        token = base64.b64encode(unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request


def adopt(path: Path, pin: Pin, folder: Path) -> Path:
    """Move a file that was downloaded elsewhere into `folder`, after checking its bytes.

    Raises ChecksumError, DownloadError.
    """
    verify_file(path, pin)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / pin.name
    with contextlib.suppress(FileNotFoundError):
        target.unlink()
    shutil.move(path, target)
    return target


def _redact_url(url: str) -> str:
    """Return the address without login and query, for messages and logs."""
    return strip_login(url).partition("?")[0]


def strip_login(url: str) -> str:
    """Return the address without a user name or password; it need not be valid."""
    return re.sub(r"^([\w+.-]+://)[^/]*@", r"\1", url)


def build_mirror_url(mirror: str, name: str) -> str:
    """Return the address of a file in a mirror, which is an address itself, or a folder."""
    is_url = "://" in mirror
    base = mirror if is_url else expand_home(mirror, "TENSORWRIGHT_MIRROR").resolve().as_uri()
    return f"{base.rstrip('/')}/{name}"
