"""Files from elsewhere: resumed where they broke off, and accepted only with the pinned hash."""

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

from tfbuild import console
from tfbuild.errors import ChecksumError, DiskError, DownloadError

_CHUNK = 1 << 20
_TIMEOUT_S = 30.0
_ASK_S = 10.0
_UNREACHED = (
    urllib.error.URLError,
    http.client.HTTPException,
    TimeoutError,
    ConnectionError,
    ssl.SSLError,
    ValueError,  # (what urllib says of an address that is none)
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """A file that is known by its bytes: name, SHA-256 (hex) and, where known, its size."""

    name: str
    sha256: str
    size: int | None = None


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verified(path: Path, pin: Pin) -> Path:
    """The path, if its bytes are the pinned ones. Raises ChecksumError, DownloadError."""
    if not path.is_file():
        raise DownloadError(f"there is no file {path}")
    seen = sha256_of(path)
    if seen != pin.sha256:
        raise ChecksumError(
            f"{path} has sha256 {seen}, {pin.name} is pinned to {pin.sha256}",
            hint="It was cut short or changed: fetch it again",
        )
    return path


def kept(path: Path, pin: Pin) -> Path | None:
    """What an earlier run left in the cache, if its bytes are still the pinned ones.

    A file that has gone bad is removed, so that it is fetched again.
    """
    if not path.is_file():
        return None
    try:
        return verified(path, pin)
    except ChecksumError as error:
        console.warn(f"{error.message}; it is removed and fetched again")
        path.unlink()
        return None


def fetch(url: str, pin: Pin, folder: Path) -> Path:
    """Download `url` to `folder/pin.name` and check it; a broken download is continued.

    Bytes that turn out wrong are removed, so that the next run starts clean. Raises DownloadError,
    ChecksumError, DiskError.
    """
    target = folder / pin.name
    if kept(target, pin):
        return target
    part = folder / f"{pin.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _transfer(url, part, pin)
    except _UNREACHED as error:
        reason = getattr(error, "reason", error)
        raise DownloadError(f"{_public(url)}: {reason}") from error
    except OSError as error:
        raise DiskError(f"cannot write {part}: {error.strerror}") from error
    try:
        verified(part, pin)
    except ChecksumError:
        part.unlink()
        raise
    part.rename(target)
    return target


def refusal(url: str) -> str:
    """Why a file cannot be had at an address; empty where its server says that it can."""
    request = _request(url)
    request.method = "HEAD"
    try:
        urllib.request.urlopen(request, timeout=_ASK_S).close()  # noqa: S310
    except _UNREACHED as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        return f"{urlsplit(url).hostname or _public(url)}: {getattr(error, 'reason', error)}"
    return ""


def _transfer(url: str, part: Path, pin: Pin) -> None:
    have = part.stat().st_size if part.exists() else 0
    if pin.size is not None and have >= pin.size:
        return
    try:
        answer = _opened(url, have)
    except urllib.error.HTTPError as error:
        if not have or error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        part.unlink()
        answer = _opened(url, 0)
    with contextlib.closing(answer):
        resumed = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        done = have if resumed else 0
        length = answer.headers.get("Content-Length")
        total = done + int(length) if length else pin.size or 0
        with (
            part.open("ab" if resumed else "wb") as sink,
            console.counting("MB", total >> 20) as count,
        ):
            while block := answer.read(_CHUNK):
                sink.write(block)
                done += len(block)
                count.advance(done >> 20, detail=pin.name)
        if total and done < total:
            raise ConnectionError(f"broke off after {done} of {total} bytes")


def _opened(url: str, start: int) -> Any:  # noqa: ANN401  (http, https and file answer alike)
    """The answer to a request for a file from its byte `start` on."""
    request = _request(url)
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT_S)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        raise


def _request(url: str) -> urllib.request.Request:
    """A user name and password in the address become a header, which no redirect takes along."""
    parts = urlsplit(url)
    user, given, host = parts.netloc.rpartition("@")
    address = parts._replace(netloc=host).geturl()
    request = urllib.request.Request(address)  # noqa: S310  (https, http and file are all wanted)
    if given:
        token = base64.b64encode(unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request


def adopt(path: Path, pin: Pin, folder: Path) -> Path:
    """Take a file that somebody else fetched into `folder`, after checking its bytes."""
    verified(path, pin)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / pin.name
    with contextlib.suppress(FileNotFoundError):
        target.unlink()
    shutil.move(path, target)
    return target


def _public(url: str) -> str:
    """The address without a user name or password, for messages and logs."""
    return without_login(url).partition("?")[0]


def without_login(url: str) -> str:
    """The address without a user name or password; it need not be a right one."""
    return re.sub(r"^([\w+.-]+://)[^/]*@", r"\1", url)


def mirrored(mirror: str, name: str) -> str:
    """The address of a file in a mirror, which is an address itself, or a folder."""
    base = mirror if "://" in mirror else Path(mirror).expanduser().resolve().as_uri()
    return f"{base.rstrip('/')}/{name}"
