"""Identities that sign, beside keys: who an identity provider says that somebody is.

Sigstore's certificate authority (Fulcio) writes into a certificate who signs, and who said so
(https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md). Whether a certificate is one of
Fulcio's is not looked at here.
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
"""By issuer the kind of publisher that PyPI has for it, and how its fields stand in the URI of the
configuration that was built, or else in the name."""
_ODD = (
    *(x509.DuplicateExtension, x509.ExtensionNotFound, x509.UnsupportedGeneralNameType),
    *(IndexError, TypeError, ValueError),
)
"""What garbage raises when it is read as a certificate of Fulcio's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """An identity that signs, as an identity provider knows it.

    `name` is the subject alternative name of its certificates, an e-mail address or a URI,
    and `issuer` the URL of the identity provider.
    """

    name: str
    issuer: str

    @property
    def id(self) -> str:
        """Return the identity as --trust spells it."""
        return f"{PREFIX}{self.name}@{self.issuer}"

    @property
    def builder(self) -> str:
        """Return the URI by which provenance names it."""
        return self.name if _URI.fullmatch(self.name) else f"mailto:{self.name}"


Signer = PublicKey | Identity


def parse_identity(text: str) -> Identity:
    """Parse `sigstore:IDENTITY@ISSUER`; the last @ is the separator, as an issuer has none.

    Raises UsageError.
    """
    match = _SPELLED.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--trust {text} names no identity",
            hint=f"Write {PREFIX}IDENTITY@ISSUER, such as {PREFIX}me@example.org@https://accounts.google.com",
        )
    return Identity(name=match["name"], issuer=match["issuer"])


def describe_signer(signer: str) -> str:
    """Describe a signer's id in a sentence."""
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
        raise ValueError(
            f"a certificate that names no identity ({type(error).__name__})"
        ) from error


def extract_publisher(certificate: bytes) -> dict[str, object]:
    """Return the PEP 740 publisher that a certificate is for.

    It is of the kinds that PyPI knows, or of one of our own if none fits. Raises ValueError
    as `extract_identity` does.
    """
    identity = extract_identity(certificate)
    kind, pattern = _PUBLISHERS.get(identity.issuer, ("", ""))
    for text in (_extract_build_config(certificate), identity.name):
        if kind and (match := re.fullmatch(pattern, text)):
            return {"kind": kind, "claims": None, **match.groupdict()}
    return {"kind": KIND, "claims": None, "identity": identity.name, "issuer": identity.issuer}


def _extract_build_config(certificate: bytes) -> str:
    """Return the URI of the configuration that was built; empty if there is none."""
    try:
        extensions = x509.load_der_x509_certificate(certificate).extensions
        return str(asn1.decode_der(str, _read_extension(extensions, _BUILD_CONFIG)))
    except _ODD:
        return ""


def _read_extension(extensions: x509.Extensions, oid: x509.ObjectIdentifier) -> bytes:
    value = extensions.get_extension_for_oid(oid).value
    if not isinstance(value, x509.UnrecognizedExtension):
        raise TypeError(f"{oid.dotted_string} is no extension of Fulcio's")
    return value.value
