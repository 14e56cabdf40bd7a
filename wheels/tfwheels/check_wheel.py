"""Fetch a wheel, and keep it only if a key has signed its bytes.

    python3 check_wheel.py URL PUBLIC.pem

URL.provenance (PEP 740) has an in-toto statement with a signature as DSSE makes it. This needs
Python 3.7 and openssl 3, or newer ones, and nothing else.
"""

import base64
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote
from urllib.request import urlopen

TYPE = b"application/vnd.in-toto+json"
BLOCK = 1 << 20


def main(url: str, key: str) -> None:
    """Leave the wheel in this folder under its own name, or nothing."""
    wheel = Path(unquote(url.rpartition("/")[2])).name
    part = Path(wheel + ".unchecked")
    try:
        sha256 = fetch(url, part)
        with urlopen(url + ".provenance") as source:
            bundles = json.load(source)["attestation_bundles"]
        envelopes = [each["envelope"] for bundle in bundles for each in bundle["attestations"]]
        if not any(vouches(envelope, wheel, sha256, key) for envelope in envelopes):
            sys.exit(f"{wheel} is NOT signed by {key} with these bytes: do not install it")
        part.replace(wheel)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{wheel} cannot be checked, do not install it: {type(error).__name__}: {error}")
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


def vouches(envelope: "dict[str, str]", wheel: str, sha256: str, key: str) -> bool:
    """Whether the key has signed a statement, and the statement is about this wheel."""
    statement = base64.b64decode(envelope["statement"], validate=True)
    signature = base64.b64decode(envelope["signature"], validate=True)
    if not is_signed(statement, signature, key):
        return False
    said = json.loads(statement.decode())
    subjects = [(each["name"], each["digest"]["sha256"]) for each in said["subject"]]
    return said["_type"] == "https://in-toto.io/Statement/v1" and (wheel, sha256) in subjects


def is_signed(statement: bytes, signature: bytes, key: str) -> bool:
    signed = b"DSSEv1 %d %b %d %b" % (len(TYPE), TYPE, len(statement), statement)
    with tempfile.TemporaryDirectory() as name:
        said, seal = Path(name, "signed"), Path(name, "signature")
        said.write_bytes(signed)
        seal.write_bytes(signature)
        argv = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key, "-rawin"]
        argv += ["-in", str(said), "-sigfile", str(seal)]
        done = subprocess.run(argv, capture_output=True, check=False)
    if b"-rawin" in done.stderr:
        raise OSError("openssl 3 is needed")
    return done.returncode == 0


if __name__ == "__main__":
    main(*sys.argv[1:])
