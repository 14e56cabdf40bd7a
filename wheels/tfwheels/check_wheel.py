"""Download a wheel, and save it only if a key signed its bytes.

    python3 check_wheel.py URL PUBLIC.pem [SHA256]

URL.provenance (PEP 740) contains an in-toto statement with a DSSE signature. The check needs
Python 3.7 and openssl 3, or newer.
"""

import base64
import hashlib
import json
import subprocess
import sys
import tempfile
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from urllib.request import urlopen

TYPE = b"application/vnd.in-toto+json"
BLOCK = 1 << 20


def main(url: str, key: str, expected: str = "") -> None:
    """Save the wheel in the current folder if it is signed; otherwise save nothing."""
    wheel = Path(unquote(url.rpartition("/")[2])).name
    part = Path(wheel + ".unchecked")
    try:
        sha256 = fetch(url, part)
        if expected not in ("", sha256):
            sys.exit(f"{wheel} has other bytes than expected: do not install it")
        with urlopen(url + ".provenance") as source:
            bundles = json.load(source)["attestation_bundles"]
        attestations = [attestation for bundle in bundles for attestation in bundle["attestations"]]
        if not any(is_attested(attestation, wheel, sha256, key) for attestation in attestations):
            sys.exit(f"these bytes of {wheel} are NOT signed by {key}: do not install it")
        part.replace(wheel)
    except (OSError, ValueError, LookupError, TypeError, RecursionError, HTTPException) as error:
        sys.exit(f"cannot check {wheel}, do not install it: {type(error).__name__}: {error}")
    finally:
        if part.exists():
            part.unlink()
    print(f"{wheel} is signed by {key}")


def fetch(url: str, path: Path) -> str:
    digest = hashlib.sha256()
    with urlopen(url) as source, path.open("wb") as sink:
        for block in iter(lambda: source.read(BLOCK), b""):
            digest.update(block)
            sink.write(block)
    return digest.hexdigest()


def is_attested(attestation: "dict[str, Any]", wheel: str, sha256: str, key: str) -> bool:
    """Return whether the key signed a statement about this wheel."""
    envelope = attestation["envelope"]
    statement = base64.b64decode(envelope["statement"], validate=True)
    signature = base64.b64decode(envelope["signature"], validate=True)
    if not is_signed(statement, signature, key):
        return False
    fields = json.loads(statement.decode())
    subjects = [(subject["name"], subject["digest"]["sha256"]) for subject in fields["subject"]]
    return fields["_type"] == "https://in-toto.io/Statement/v1" and (wheel, sha256) in subjects


def is_signed(statement: bytes, signature: bytes, key: str) -> bool:
    signed = b"DSSEv1 %d %b %d %b" % (len(TYPE), TYPE, len(statement), statement)
    with tempfile.TemporaryDirectory() as name:
        payload_path, signature_path = Path(name, "signed"), Path(name, "signature")
        payload_path.write_bytes(signed)
        signature_path.write_bytes(signature)
        argv = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key, "-rawin"]
        argv += ["-in", str(payload_path), "-sigfile", str(signature_path)]
        result = subprocess.run(argv, capture_output=True, check=False)
    if b"-rawin" in result.stderr:
        raise OSError("this check needs openssl 3")
    return result.returncode == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
