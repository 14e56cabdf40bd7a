"""Certificates and signatures of Sigstore, through its library (an optional dependency).

Sigstore's certificate authority (Fulcio) issues an identity a certificate that is valid for ten
minutes, and its public log (Rekor) records the signature and the time. So a signature can be
verified at any later time, and there is no private key to lose. Verification needs no network: it
uses the root of trust that the library contains or has cached. The identity token goes to Fulcio
only.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from tfbuild.errors import PublishError, TensorwrightError, ToolError, UsageError
from tfwheels.check_wheel import bundle_of
from tfwheels.identities import Identity, extract_identity

TOKEN = "SIGSTORE_ID_TOKEN"  # noqa: S105  (the name of a variable)
"""The variable's name in cosign and GitLab."""
_GET = (
    f"Set {TOKEN}, run this in a terminal, or use CI that provides a token "
    "(GitHub Actions: permissions: id-token: write)"
)
_UNHEARD = logging.NullHandler()
_REACH = "Check the connection to Sigstore's servers. Nothing was published: run the command again"


def require_library() -> None:
    """Raise ToolError if the library is not installed."""
    _import_library("verify")


# ---- verification ----


def verify_statement(attestation: Mapping[str, Any], identity: Identity) -> bytes:
    """Return the statement that the identity signed in a PEP 740 attestation.

    Raises PublishError with the reason if it cannot be verified, and ToolError.
    """
    verifier, bundles, policies = (
        _create_verifier(),
        _import_library("models"),
        _import_library("verify.policy"),
    )
    try:
        bundle = bundles.Bundle.from_json(json.dumps(bundle_of({**attestation})))
        policy = policies.Identity(identity=identity.name, issuer=identity.issuer)
        return bytes(verifier.verify_dsse(bundle, policy)[1])
    except Exception as error:  # on any error, the signature is unverified
        raise PublishError(_describe_error(error)) from error


@functools.cache
def _create_verifier() -> Any:  # noqa: ANN401  (imported late)
    """Create a verifier for the production instance, with the local root of trust."""
    verify = _import_library("verify")
    with _convert_errors("cannot read Sigstore's root of trust"):
        return verify.Verifier.production(offline=True)


# ---- signing ----


class SigningIdentity:
    """An identity that signs, as an identity provider confirms it.

    The certificate is requested at its first use: it is valid for ten minutes, and the steps before
    may take longer.
    """

    def __init__(self, given: str = "") -> None:
        self._given = given

    @property
    def public(self) -> Identity:
        """Return the identity of the certificate.

        Raises PublishError or UsageError if no certificate can be obtained.
        """
        return extract_identity(self.certificate)

    @functools.cached_property
    def certificate(self) -> bytes:
        """Return the certificate in DER."""
        # A statement names its builder, so the certificate is needed before the first signature;
        # the library's public API returns it only with the signature.
        certificate = self._signer._signing_cert()  # noqa: SLF001
        return bytes(certificate.public_bytes(Encoding.DER))

    @functools.cached_property
    def _signer(self) -> Any:  # noqa: ANN401  (imported late)
        models, sign = _import_library("models"), _import_library("sign")
        with _convert_errors("cannot update Sigstore's root of trust", _REACH):
            config = models.ClientTrustConfig.production()
            config.force_tlog_version = 1  # PEP 740 has no field for the timestamps of version 2
            services = config.signing_config
        token = _find_token(self._given) or _request_token(services.get_oidc_url())
        with _convert_errors("Fulcio issued no certificate", _REACH):
            context = sign.SigningContext(
                fulcio=services.get_fulcio(),
                rekor=services.get_tlogs()[0],
                trusted_root=config.trusted_root,
            )
            return sign.Signer(token, context)

    def sign(self, statement: bytes) -> Mapping[str, Any]:
        """Sign a statement and return its Sigstore bundle, after the public log has recorded it.

        Raises PublishError or UsageError.
        """
        signer, dsse = self._signer, _import_library("dsse")
        with _convert_errors("Rekor did not record the signature", _REACH):
            bundle: Mapping[str, Any] = json.loads(
                signer.sign_dsse(dsse.Statement(statement)).to_json()
            )
            return bundle


def find_identity() -> SigningIdentity:
    """Find an identity to sign with, by a token from the variable TOKEN, CI or a browser.

    Raises ToolError, and UsageError if there is no token.
    """
    # Programs that start later must not inherit it.
    token = os.environ.pop(TOKEN, "")
    require_library()
    if _find_token(token) is None and not sys.stdin.isatty():
        raise UsageError("--sign sigstore found no identity token", hint=_GET)
    return SigningIdentity(token)


def _find_token(given: str) -> Any:  # noqa: ANN401  (imported late)
    """Return the given token, or that of CI; None if there is neither.

    Raises UsageError for an expired or invalid one.
    """
    oidc = _import_library("oidc")
    with _convert_errors("cannot get an identity token", _GET, UsageError):
        text = given or oidc.detect_credential()
        return oidc.IdentityToken(text) if text else None


def _request_token(url: str) -> Any:  # noqa: ANN401  (imported late)
    """Request a token in a browser; needs a user at the terminal."""
    oidc = _import_library("oidc")
    with _convert_errors("cannot get an identity token", _GET, UsageError):
        return oidc.Issuer(url).identity_token()


# ---- the library ----


def _import_library(name: str) -> Any:  # noqa: ANN401  (imported late: it takes a second)
    """Import a module of the library and silence its loggers: our errors report the same."""
    try:
        module = importlib.import_module(f"sigstore.{name}")
    except ModuleNotFoundError as error:
        raise ToolError(
            "identities need sigstore, which is not installed",
            hint="In the checkout, run: pip install '.[sigstore]'",
        ) from error
    for logger in ("sigstore", "tuf", "urllib3"):
        logging.getLogger(logger).addHandler(_UNHEARD)
    return module


@contextlib.contextmanager
def _convert_errors(
    what: str, hint: str = "", kind: type[TensorwrightError] = PublishError
) -> Iterator[None]:
    """Convert the library's errors to one line."""
    try:
        yield
    except Exception as error:  # its errors have no common base class
        raise kind(f"{what} ({_describe_error(error)})", hint=hint) from error


def _describe_error(error: Exception) -> str:
    """Describe an error of the library in one line, with its cause, which is more specific."""
    lines = (str(failure or "").partition("\n")[0] for failure in (error, error.__cause__))
    reasons = dict.fromkeys(line for line in lines if line)
    return ": ".join(reasons) or type(error.__cause__ or error).__name__
