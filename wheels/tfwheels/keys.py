"""Signing keys and trusted public keys: ed25519, in PEM files.

A private key is read once, into this process only. The key and its passphrase never appear in a
command line, a message, another process, or the index. The id of a key is the SHA-256 (hex) of its
public half (DER, SubjectPublicKeyInfo), as printed by: openssl pkey -pubin -in FILE -outform DER |
sha256sum.
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
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, Signature, Signer, SSlibKey

from tfcore.errors import UsageError
from tfcore.settings import expand_paths

PASSWORD = "TENSORWRIGHT_SIGN_PASSWORD"  # noqa: S105  (the name of a variable)
_MAKE = "Create one: openssl genpkey -algorithm ed25519 -out key.pem"
_MAKE_PUBLIC = "Create one from the private key: openssl pkey -in key.pem -pubout -out public.pem"
_LONGEST = 65536
"""Largest size of a key file, in bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicKey:
    """A public ed25519 key; `pem` is the key itself, as openssl writes it."""

    id: str
    pem: str

    @property
    def builder(self) -> str:
        """Return the URI of the key's holder in provenance."""
        return f"urn:tensorwright:key:{self.id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SigningKey:
    public: PublicKey
    signer: Signer = field(repr=False)


def read_signing_key(path: Path) -> SigningKey:
    """Read a private key from a file.

    The passphrase, if any, comes from the environment variable that PASSWORD names, or from a
    prompt in a terminal. Raises UsageError.
    """
    # Programs that start later must not inherit it.
    password = os.environ.pop(PASSWORD, "")
    data = _read_private(path)
    with _convert_errors(path, "private", _MAKE):
        try:
            key = load_pem_private_key(data, None)
        except TypeError:
            key = _decrypt_key(path, data, password)
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} is not an ed25519 key", hint=_MAKE)
    public = _create_public_key(key.public_key())
    return SigningKey(public=public, signer=CryptoSigner(key, create_verifier(public)))


def read_public_keys(text: str, option: str = "--trust") -> tuple[PublicKey, ...]:
    """Read the keys in comma-separated files, each once.

    Raises UsageError.
    """
    keys = {key.id: key for key in map(_read_public, expand_paths(text, option))}
    if text and not keys:
        raise UsageError(f"{option} names no file", hint=_MAKE_PUBLIC)
    return tuple(keys.values())


def create_verifier(key: PublicKey) -> SSlibKey:
    """Convert a key to the form in which securesystemslib verifies signatures.

    Raises ValueError for an invalid key.
    """
    loaded = load_pem_public_key(key.pem.encode())
    if not isinstance(loaded, Ed25519PublicKey) or _create_public_key(loaded) != key:
        raise ValueError(f"the id of key {key.id} does not match its PEM")
    return SSlibKey.from_crypto(loaded, keyid=key.id)


def is_signed(payload: bytes, kind: str, signature: bytes, key: PublicKey) -> bool:
    """Return whether the key made this DSSE signature of a payload of this type."""
    signed = Envelope(payload, kind, {key.id: Signature(key.id, signature.hex())})
    try:
        signed.verify([create_verifier(key)], 1)
    except VerificationError:
        return False
    return True


def _read_public(path: Path) -> PublicKey:
    try:
        with path.open("rb") as source:
            data = source.read(_LONGEST)
    except OSError as error:
        raise UsageError(f"cannot read the public key {path}: {error.strerror}") from error
    with _convert_errors(path, "public", _MAKE_PUBLIC):
        key = load_pem_public_key(data)
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"{path} is not an ed25519 key", hint=_MAKE)
    return _create_public_key(key)


def _read_private(path: Path) -> bytes:
    """Read the bytes of a private key.

    Raises UsageError for a file that other users can open.
    """
    try:
        with path.open("rb") as source:
            mode = os.fstat(source.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise UsageError(f"the key {path} is not a regular file")
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UsageError(
                    f"other users can open the key {path}: its mode is {stat.S_IMODE(mode):04o}",
                    hint=f"Run: chmod 600 {path}. If others may have read it, create a new key",
                )
            return source.read(_LONGEST)
    except OSError as error:
        raise UsageError(f"cannot read the key {path}: {error.strerror}") from error


def _decrypt_key(path: Path, data: bytes, password: str) -> PrivateKeyTypes:
    """Decrypt a private key with its passphrase."""
    if not password and sys.stdin.isatty():
        password = getpass(f"Passphrase of {path}: ")
    if not password:
        raise UsageError(
            f"the key {path} has a passphrase", hint=f"Set {PASSWORD}, or run this in a terminal"
        )
    try:
        return load_pem_private_key(data, password.encode())
    except ValueError:
        raise UsageError(f"wrong passphrase for the key {path}") from None


@contextlib.contextmanager
def _convert_errors(path: Path, kind: str, hint: str) -> Iterator[None]:
    """Convert the library's errors to one line, without their text, which may show key data."""
    try:
        yield
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(f"{path} is not a {kind} key in PEM format", hint=hint) from None


def _create_public_key(key: Ed25519PublicKey) -> PublicKey:
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return PublicKey(id=hashlib.sha256(der).hexdigest(), pem=pem.decode())
