"""Identities that sign instead of keys, as confirmed by an identity provider.

Certificates of Sigstore's authority (Fulcio) contain the identity and its provider
(https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md). This module does not verify that
Fulcio issued a certificate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat import asn1

from tfbuild.errors import UsageError
from tfwheels.keys import PublicKey

PREFIX = "sigstore:"
_SPELLED = re.compile(r"sigstore:(?P<name>[^\s,]+)@(?P<issuer>https://[^\s,@]+)")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+")

KIND = "Sigstore Identity"
_FULCIO = "1.3.6.1.4.1.57264.1."
_ISSUER = x509.ObjectIdentifier(f"{_FULCIO}1")
_BUILD_CONFIG = x509.ObjectIdentifier(f"{_FULCIO}18")
_WORKFLOW = r"(?P<repository>[^/]+/[^/]+)/\.github/workflows/(?P<workflow>[^@]+)@.+"
_PIPELINE = r"projects/(?P<project_id>[^/]+)/pipeline-definitions/(?P<pipeline_definition_id>[^/]+)"
_PUBLISHERS = {
    "https://token.actions.githubusercontent.com": ("GitHub", rf"https://github\.com/{_WORKFLOW}"),
    "https://gitlab.com": (
        "GitLab",
        r"https://gitlab\.com/(?P<repository>.+?)//(?P<workflow_filepath>[^@]+)@.+",
    ),
    "https://oidc.circleci.com": ("CircleCI", rf"https://circleci\.com/api/v2/{_PIPELINE}"),
    "https://accounts.google.com": ("Google", r"(?P<email>[^/]+@[^/]+)"),
}
"""By issuer: PyPI's kind of publisher, and the pattern of its fields in the URI of the build
configuration, or else in the name."""
_ODD = (
    *(x509.DuplicateExtension, x509.ExtensionNotFound, x509.UnsupportedGeneralNameType),
    *(IndexError, TypeError, ValueError),
)
"""Exceptions from parsing invalid data as a certificate of Fulcio."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """An identity that signs, known to an identity provider.

    `name` is the subject alternative name of its certificates, an e-mail address or a URI; `issuer`
    is the URL of the identity provider.
    """

    name: str
    issuer: str

    @property
    def id(self) -> str:
        """Return the identity in the form of --trust."""
        return f"{PREFIX}{self.name}@{self.issuer}"

    @property
    def builder(self) -> str:
        """Return the URI of the identity in provenance."""
        return self.name if _URI.fullmatch(self.name) else f"mailto:{self.name}"


Signer = PublicKey | Identity


def parse_identity(text: str) -> Identity:
    """Parse `sigstore:IDENTITY@ISSUER`; the last @ is the separator, because issuers have none.

    Raises UsageError.
    """
    match = _SPELLED.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--trust {text} is not an identity",
            hint=f"Use {PREFIX}IDENTITY@ISSUER, such as {PREFIX}me@example.org@https://accounts.google.com",
        )
    return Identity(name=match["name"], issuer=match["issuer"])


def describe_signer(signer: str) -> str:
    """Return a signer's id in the form for sentences."""
    return signer if signer.startswith(PREFIX) else f"key {signer}"


def extract_identity(certificate: bytes) -> Identity:
    """Return the identity that a certificate (DER) names.

    Raises ValueError if it names none.
    """
    try:
        extensions = x509.load_der_x509_certificate(certificate).extensions
        san = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = (
            *san.get_values_for_type(x509.RFC822Name),
            *san.get_values_for_type(x509.UniformResourceIdentifier),
        )
        return Identity(name=names[0], issuer=_read_extension(extensions, _ISSUER).decode())
    except _ODD as error:
        raise ValueError(f"the certificate names no identity ({type(error).__name__})") from error


def extract_publisher(certificate: bytes) -> dict[str, object]:
    """Return the PEP 740 publisher of a certificate.

    Its kind is one that PyPI knows, or else `KIND`. Raises ValueError as `extract_identity` does.
    """
    identity = extract_identity(certificate)
    kind, pattern = _PUBLISHERS.get(identity.issuer, ("", ""))
    for text in (_extract_build_config(certificate), identity.name):
        if kind and (match := re.fullmatch(pattern, text)):
            return {"kind": kind, "claims": None, **match.groupdict()}
    return {"kind": KIND, "claims": None, "identity": identity.name, "issuer": identity.issuer}


def _extract_build_config(certificate: bytes) -> str:
    """Return the URI of the build configuration; empty if there is none."""
    try:
        extensions = x509.load_der_x509_certificate(certificate).extensions
        return str(asn1.decode_der(str, _read_extension(extensions, _BUILD_CONFIG)))
    except _ODD:
        return ""


def _read_extension(extensions: x509.Extensions, oid: x509.ObjectIdentifier) -> bytes:
    value = extensions.get_extension_for_oid(oid).value
    if not isinstance(value, x509.UnrecognizedExtension):
        raise TypeError(f"{oid.dotted_string} is not an extension of Fulcio")
    return value.value
