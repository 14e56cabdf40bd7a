"""Keys of a test, as files, and wheels that they signed."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from tfwheels.keys import PublicKey, SigningKey, read_signing_key


def key_file(folder: Path, name: str = "key", passphrase: bytes = b"") -> Path:
    """A new private key, which only its owner can open."""
    shut: KeySerializationEncryption = (
        BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    )
    key = Ed25519PrivateKey.generate()
    path = folder / f"{name}.pem"
    path.touch(0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, shut))
    return path


def made_key(folder: Path, name: str = "key") -> SigningKey:
    return read_signing_key(key_file(folder, name))


def public_file(folder: Path, key: PublicKey, name: str = "public") -> Path:
    path = folder / f"{name}.pem"
    path.write_text(key.pem, "utf-8")
    return path
