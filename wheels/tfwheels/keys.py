"""Keys that sign what an index holds, and those that are trusted: ed25519 in PEM files.

A private key is read once, into this process alone: neither it nor its passphrase goes to a
command line, a message, a program that is started, or the index. The id of a key is the SHA-256
(hex) of its public half (DER, SubjectPublicKeyInfo), as this prints it:
openssl pkey -pubin -in FILE -outform DER | sha256sum.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from getpass import getpass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.signer import CryptoSigner, Signer, SSlibKey

from tfbuild.errors import UsageError

PASSWORD = "TENSORWRIGHT_SIGN_PASSWORD"  # noqa: S105  (the name of a variable)
_MAKE = "Make one: openssl genpkey -algorithm ed25519 -out key.pem"
_MAKE_PUBLIC = "Make one of the private key: openssl pkey -in key.pem -pubout -out public.pem"
_LONGEST = 65536
"""Bytes of a file that may be a key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicKey:
    """`pem` is the key itself, as openssl writes it."""

    id: str
    pem: str

    @property
    def builder(self) -> str:
        """As provenance names its holder, by a URI."""
        return f"urn:tensorwright:key:{self.id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SigningKey:
    public: PublicKey
    signer: Signer = field(repr=False)


def read_signing_key(path: Path) -> SigningKey:
    """The private key of a file. The passphrase of one that has one is PASSWORD's, or is asked for
    on a terminal. Raises UsageError."""
    # Programs that are started later must not inherit it.
    password = os.environ.pop(PASSWORD, "")
    data = _read_private(path)
    with _pem(path, "private", _MAKE):
        try:
            key = load_pem_private_key(data, None)
        except TypeError:
            key = _opened(path, data, password)
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} holds no ed25519 key", hint=_MAKE)
    public = _public(key.public_key())
    return SigningKey(public=public, signer=CryptoSigner(key, verifier(public)))


def read_public_keys(text: str) -> tuple[PublicKey, ...]:
    """The keys of files with commas between their paths, each once. Raises UsageError."""
    paths = (Path(word.strip()).expanduser() for word in text.split(",") if word.strip())
    found = {key.id: key for key in map(_read_public, paths)}
    if text and not found:
        raise UsageError("--trust names no file", hint=_MAKE_PUBLIC)
    return tuple(found.values())


def verifier(key: PublicKey) -> SSlibKey:
    """The key as the library checks signatures with it. Raises ValueError for one that is none."""
    loaded = load_pem_public_key(key.pem.encode())
    if not isinstance(loaded, Ed25519PublicKey) or _public(loaded) != key:
        raise ValueError(f"key {key.id} is not what it says")
    return SSlibKey.from_crypto(loaded, keyid=key.id)


def _read_public(path: Path) -> PublicKey:
    try:
        with path.open("rb") as source:
            data = source.read(_LONGEST)
    except OSError as error:
        raise UsageError(f"cannot read the public key {path}: {error.strerror}") from error
    with _pem(path, "public", _MAKE_PUBLIC):
        key = load_pem_public_key(data)
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"{path} holds no ed25519 key", hint=_MAKE)
    return _public(key)


def _read_private(path: Path) -> bytes:
    """Raises UsageError for a file that others than its owner can open."""
    try:
        with path.open("rb") as source:
            mode = os.fstat(source.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise UsageError(f"the key {path} is no plain file")
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UsageError(
                    f"the key {path} can be opened by others: its mode is {stat.S_IMODE(mode):04o}",
                    hint=f"Run: chmod 600 {path}. If others were there meanwhile, make another key",
                )
            return source.read(_LONGEST)
    except OSError as error:
        raise UsageError(f"cannot read the key {path}: {error.strerror}") from error


def _opened(path: Path, data: bytes, password: str) -> PrivateKeyTypes:
    """The key under its passphrase."""
    if not password and sys.stdin.isatty():
        password = getpass(f"Passphrase of {path}: ")
    if not password:
        raise UsageError(
            f"the key {path} has a passphrase", hint=f"Set {PASSWORD}, or run this in a terminal"
        )
    try:
        return load_pem_private_key(data, password.encode())
    except ValueError:
        raise UsageError(f"the passphrase that was given does not open {path}") from None


@contextlib.contextmanager
def _pem(path: Path, kind: str, hint: str) -> Iterator[None]:
    """The library's errors in one line. Its own words are left out: they may show what it read."""
    try:
        yield
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(f"{path} holds no {kind} key in PEM", hint=hint) from None


def _public(key: Ed25519PublicKey) -> PublicKey:
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return PublicKey(id=hashlib.sha256(der).hexdigest(), pem=pem.decode())
