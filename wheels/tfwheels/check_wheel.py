"""Download a wheel, and save it only if a key or an identity signed its bytes.

    python3 check_wheel.py URL PUBLIC.pem
    python3 check_wheel.py URL IDENTITY ISSUER

URL.provenance (PEP 740) contains an in-toto statement with a DSSE signature. To check a key, you
need Python 3.7 and openssl 3, or newer. To check an identity (an e-mail address or a URI, and the
URL of its identity provider), you need Python 3.10 and the package sigstore (pip install sigstore).
The check uses the root of trust in that package, and no network.
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
    """Save the wheel in the current folder if it is signed; otherwise save nothing."""
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
            sys.exit(f"these bytes of {wheel} are NOT signed by {who}: do not install it")
        part.replace(wheel)
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"cannot check {wheel}, do not install it: {type(error).__name__}: {error}")
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
    """Return whether the key, or the issuer's identity, signed a statement about this wheel."""
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
        raise OSError("this check needs openssl 3")
    return result.returncode == 0


def is_certified(attestation: "dict[str, Any]", sha256: str, identity: str, issuer: str) -> bool:
    with tempfile.TemporaryDirectory() as name:
        Path(name, "bundle").write_text(json.dumps(bundle_of(attestation)))
        argv = [sys.executable, "-m", "sigstore", "verify", "identity", "--offline"]
        argv += [f"--cert-identity={identity}", f"--cert-oidc-issuer={issuer}"]
        argv += ["--bundle=bundle", f"sha256:{sha256}"]
        result = subprocess.run(argv, cwd=name, capture_output=True, check=False)
    if b"No module named sigstore" in result.stderr:
        raise OSError(f"{sys.executable} does not have the package sigstore: pip install sigstore")
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
