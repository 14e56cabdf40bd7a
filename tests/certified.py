"""What others have signed with Sigstore's production instance (tests/data/sigstore), and a
certificate that nobody gave."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from tfbuild.settings import ROOT
from tfwheels.identities import Identity, extract_publisher

DATA = ROOT / "tests" / "data" / "sigstore"

SDIST = "pypi_attestations-0.0.19.tar.gz"
SDIST_SHA256 = "9bb1add04b1b4e182be6b0b80931593f7a291eb49d69b4fd728a5d4cbcdc4bd3"
GITHUB = Identity(
    name="https://github.com/trailofbits/pypi-attestations/.github/workflows/release.yml"
    "@refs/tags/v0.0.19",
    issuer="https://token.actions.githubusercontent.com",
)
"""Who has signed SLSA provenance of SDIST."""

WHEEL = "circleci_sign_publish_example-0.0.1.dev137-py3-none-any.whl"
WHEEL_SHA256 = "8cb34da1e27336f11a2c43f3f9c7433bd76f24f470c904724f06ad7f131d9e9f"
CIRCLECI = Identity(
    name="https://circleci.com/api/v2/projects/fdd9283f-e619-46af-8f9c-851f7d3e8b2b"
    "/pipeline-definitions/8e4f8ab2-8d7c-4827-9f15-de076d6d647f",
    issuer="https://oidc.circleci.com",
)
"""Who has signed that it published WHEEL."""
PUBLISHED = "https://docs.pypi" + ".org/attestations/publish/v1"
"""What WHEEL's statement is one of."""

ME = Identity(name="me@example.org", issuer="https://oauth2.sigstore.dev/auth")
ISSUER = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")


def read(name: str) -> Any:  # noqa: ANN401  (JSON)
    return json.loads((DATA / name).read_text("utf-8"))


def provenance_of_sdist() -> bytes:
    """The attestation with SLSA provenance, in an object as `publish` makes it."""
    attestation = read(f"{SDIST}.slsa.attestation")
    publisher = extract_publisher(certificate_of(attestation))
    bundle = {"publisher": publisher, "attestations": [attestation]}
    return json.dumps({"version": 1, "attestation_bundles": [bundle]}).encode()


def certificate_of(attestation: Any) -> bytes:  # noqa: ANN401  (JSON)
    return base64.b64decode(attestation["verification_material"]["certificate"])


def certified_wheel(folder: Path) -> Path:
    """WHEEL, with its provenance object beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / WHEEL
    path.write_bytes(base64.b64decode((DATA / f"{WHEEL}.base64").read_text("utf-8")))
    beside = path.with_name(f"{WHEEL}.provenance")
    beside.write_bytes((DATA / beside.name).read_bytes())
    return path


def token(minutes: int = 5, **claims: str) -> str:
    """An identity token (JWT) of ME that nobody vouches for."""
    now = datetime.now(UTC)
    times = {"iat": now - timedelta(hours=1), "exp": now + timedelta(minutes=minutes)}
    named = {"aud": "sigstore", "sub": ME.name, "email": ME.name, "iss": ME.issuer}
    return jwt.encode(named | times | claims, "k" * 32)


def own_certificate(
    *names: x509.GeneralName, issuer: str, key: ec.EllipticCurvePrivateKey | None = None
) -> bytes:
    """One that says the same as Fulcio's (DER), and is signed by itself."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(x509.Name([]), x509.Name([]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(minutes=10))
        .add_extension(x509.UnrecognizedExtension(ISSUER, issuer.encode()), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)
