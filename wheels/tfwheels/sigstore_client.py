"""Sigstore's library, an extra: certificates that show who signed, and signing with one.

Its certificate authority (Fulcio) gives an identity a certificate for ten minutes, and its public
log (Rekor) keeps what was signed, with the time. So a signature can be checked for ever, and nobody
has a key to lose. Checking needs no network: the root of trust is the one that the library ships,
or has fetched since. The token that says who signs goes to Fulcio and nowhere else.
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
from tfwheels.identities import Identity, identity_of

TOKEN = "SIGSTORE_ID_TOKEN"  # noqa: S105  (the name of a variable)
"""As cosign and GitLab call it."""
_GET = (
    f"Set {TOKEN}, or run this in a terminal, or where CI gives a token "
    "(GitHub Actions: permissions: id-token: write)"
)
_UNHEARD = logging.NullHandler()
_REACH = "It takes a way to Sigstore's servers. Nothing was published: run the same command again"


def need_library() -> None:
    """Raises ToolError where the library is not installed."""
    _library("verify")


# ---- checked ----


def signed_statement(attestation: Mapping[str, Any], identity: Identity) -> bytes:
    """What the identity has signed in an attestation of PEP 740. Raises PublishError with the
    reason where nothing shows that it did, ToolError."""
    verifier, bundles, policies = _verifier(), _library("models"), _library("verify.policy")
    try:
        bundle = bundles.Bundle.from_json(json.dumps(bundle_of({**attestation})))
        policy = policies.Identity(identity=identity.name, issuer=identity.issuer)
        return bytes(verifier.verify_dsse(bundle, policy)[1])
    except Exception as error:  # whatever it is, nothing is shown to be signed
        raise PublishError(_words(error)) from error


@functools.cache
def _verifier() -> Any:  # noqa: ANN401  (imported late)
    """It checks against the production instance, by the root of trust that is at hand."""
    verify = _library("verify")
    with _said("Sigstore's root of trust cannot be read"):
        return verify.Verifier.production(offline=True)


# ---- signed ----


class SigningIdentity:
    """Whoever an identity provider says that this is.

    The certificate is asked for when it is first needed: it lasts for ten minutes, and what comes
    before may take longer.
    """

    def __init__(self, given: str = "") -> None:
        self._given = given

    @property
    def public(self) -> Identity:
        """Raises PublishError or UsageError where no certificate can be had."""
        return identity_of(self.certificate)

    @functools.cached_property
    def certificate(self) -> bytes:
        """In DER."""
        # A statement has to name its builder, so the certificate is looked at before the first
        # signature; in public the library gives it with the signature only.
        certificate = self._signer._signing_cert()  # noqa: SLF001
        return bytes(certificate.public_bytes(Encoding.DER))

    @functools.cached_property
    def _signer(self) -> Any:  # noqa: ANN401  (imported late)
        models, sign = _library("models"), _library("sign")
        with _said("Sigstore's root of trust cannot be renewed", _REACH):
            config = models.ClientTrustConfig.production()
            config.force_tlog_version = 1  # PEP 740 has no place for the timestamps of version 2
            services = config.signing_config
        token = _token(self._given) or _answer_of(services.get_oidc_url())
        with _said("Fulcio gives no certificate", _REACH):
            context = sign.SigningContext(
                fulcio=services.get_fulcio(),
                rekor=services.get_tlogs()[0],
                trusted_root=config.trusted_root,
            )
            return sign.Signer(token, context)

    def sign(self, statement: bytes) -> Mapping[str, Any]:
        """A Sigstore bundle with the statement, after the public log has it. Raises PublishError or
        UsageError."""
        signer, dsse = self._signer, _library("dsse")
        with _said("the signature does not stand in Rekor's log", _REACH):
            bundle: Mapping[str, Any] = json.loads(
                signer.sign_dsse(dsse.Statement(statement)).to_json()
            )
            return bundle


def find_identity() -> SigningIdentity:
    """An identity to sign with: the token is TOKEN's, CI's, or is got by a browser for a terminal.
    Raises ToolError, and UsageError where there is none."""
    # Programs that are started later must not inherit it.
    given = os.environ.pop(TOKEN, "")
    need_library()
    if _token(given) is None and not sys.stdin.isatty():
        raise UsageError("--sign sigstore finds no identity token", hint=_GET)
    return SigningIdentity(given)


def _token(given: str) -> Any:  # noqa: ANN401  (imported late)
    """The token that was given, or CI's; None where there is neither. Raises UsageError for one
    that has expired, or is none."""
    oidc = _library("oidc")
    with _said("no identity token can be had", _GET, UsageError):
        text = given or oidc.detect_credential()
        return oidc.IdentityToken(text) if text else None


def _answer_of(url: str) -> Any:  # noqa: ANN401  (imported late)
    """The token that somebody at the terminal gets by a browser."""
    oidc = _library("oidc")
    with _said("no identity token can be had", _GET, UsageError):
        return oidc.Issuer(url).identity_token()


# ---- the library ----


def _library(name: str) -> Any:  # noqa: ANN401  (imported late: it takes a second)
    """A module of the library. What it and those below it would log is said by errors of ours."""
    try:
        found = importlib.import_module(f"sigstore.{name}")
    except ModuleNotFoundError as error:
        raise ToolError(
            "an identity that signs needs sigstore, which is not installed",
            hint="In the checkout, run: pip install '.[sigstore]'",
        ) from error
    for each in ("sigstore", "tuf", "urllib3"):
        logging.getLogger(each).addHandler(_UNHEARD)
    return found


@contextlib.contextmanager
def _said(
    what: str, hint: str = "", kind: type[TensorwrightError] = PublishError
) -> Iterator[None]:
    """The library's errors in one line."""
    try:
        yield
    except Exception as error:  # its errors have no class in common
        raise kind(f"{what} ({_words(error)})", hint=hint) from error


def _words(error: Exception) -> str:
    """Why the library gave up, in a line; what it names as the cause says more than it does."""
    lines = (str(each or "").partition("\n")[0] for each in (error, error.__cause__))
    said = dict.fromkeys(line for line in lines if line)
    return ": ".join(said) or type(error.__cause__ or error).__name__
