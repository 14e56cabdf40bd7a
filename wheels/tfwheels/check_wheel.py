"""Fetch a wheel, and keep it only if a key or an identity has signed its bytes.

    python3 check_wheel.py URL PUBLIC.pem
    python3 check_wheel.py URL IDENTITY ISSUER

URL.provenance (PEP 740) has an in-toto statement with a signature as DSSE makes it. A key takes
Python 3.7 and openssl 3, or newer ones, and nothing else. An identity (an e-mail address or a URI,
and the URL of who vouched for it) takes Python 3.10 and the package sigstore (pip install
sigstore), by whose root of trust it is checked, without the network.
"""

import base64
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from urllib.request import urlopen

TYPE = b"application/vnd.in-toto+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
BLOCK = 1 << 20


def main(url: str, *signer: str) -> None:
    """Save the wheel in this folder under its own name if it is signed, else save nothing."""
    wheel = Path(unquote(url.rpartition("/")[2])).name
    part = Path(wheel + ".unchecked")
    who = " of ".join(signer)
    try:
        sha256 = fetch(url, part)
        with urlopen(url + ".provenance") as source:
            bundles = json.load(source)["attestation_bundles"]
        attestations = [attestation for bundle in bundles for attestation in bundle["attestations"]]
        if not any(
            is_attested(attestation, wheel, sha256, *signer) for attestation in attestations
        ):
            sys.exit(f"{wheel} is NOT signed by {who} with these bytes: do not install it")
        part.replace(wheel)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{wheel} cannot be checked, do not install it: {type(error).__name__}: {error}")
    finally:
        if part.exists():
            part.unlink()
    print(f"{wheel} is signed by {who}")


def fetch(url: str, path: Path) -> str:
    digest = hashlib.sha256()
    with urlopen(url) as source, path.open("wb") as sink:
        for block in iter(lambda: source.read(BLOCK), b""):
            digest.update(block)
            sink.write(block)
    return digest.hexdigest()


def is_attested(attestation: "dict[str, Any]", wheel: str, sha256: str, *signer: str) -> bool:
    """Return whether the key, or the identity of the issuer, signed a statement about this
    wheel.
    """
    envelope = attestation["envelope"]
    statement = base64.b64decode(envelope["statement"], validate=True)
    signature = base64.b64decode(envelope["signature"], validate=True)
    if len(signer) == 1:
        signed = is_signed(statement, signature, *signer)
    else:
        signed = is_certified(attestation, sha256, *signer)
    if not signed:
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
        raise OSError("openssl 3 is needed")
    return result.returncode == 0


def is_certified(attestation: "dict[str, Any]", sha256: str, identity: str, issuer: str) -> bool:
    with tempfile.TemporaryDirectory() as name:
        Path(name, "bundle").write_text(json.dumps(bundle_of(attestation)))
        argv = [sys.executable, "-m", "sigstore", "verify", "identity", "--offline"]
        argv += [f"--cert-identity={identity}", f"--cert-oidc-issuer={issuer}"]
        argv += ["--bundle=bundle", f"sha256:{sha256}"]
        result = subprocess.run(argv, cwd=name, capture_output=True, check=False)
    if b"No module named sigstore" in result.stderr:
        raise OSError(f"{sys.executable} has no package sigstore: pip install sigstore")
    if result.returncode != 0:
        sys.stderr.write(result.stderr.decode(errors="replace"))
    return result.returncode == 0


def bundle_of(attestation: "dict[str, Any]") -> "dict[str, object]":
    """Convert a PEP 740 attestation to a Sigstore bundle (version 0.3), as `sigstore verify`
    reads it.
    """
    material, envelope = attestation["verification_material"], attestation["envelope"]
    return {
        "mediaType": BUNDLE,
        "verificationMaterial": {
            "certificate": {"rawBytes": material["certificate"]},
            "tlogEntries": material["transparency_entries"],
        },
        "dsseEnvelope": {
            "payload": envelope["statement"],
            "payloadType": TYPE.decode(),
            "signatures": [{"sig": envelope["signature"]}],
        },
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
