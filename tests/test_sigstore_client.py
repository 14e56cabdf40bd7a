"""Sigstore's own library: what others have signed, checked by the root of trust that it ships, and
all of signing that happens before its servers are reached."""

from __future__ import annotations

import base64
import copy
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from tests.certified import (
    CIRCLECI,
    GITHUB,
    ME,
    SDIST,
    SDIST_SHA256,
    WHEEL,
    own_certificate,
    read,
    token,
)

from tfbuild.errors import PublishError, ToolError, UsageError
from tfwheels.identities import Identity
from tfwheels.provenance import PREDICATE
from tfwheels.sigstore_client import TOKEN, SigningIdentity, find_identity, verify_statement

pytestmark = pytest.mark.usefixtures("sigstore_root")
Json = dict[str, Any]


@pytest.fixture
def attestation() -> Json:
    found: Json = read(f"{SDIST}.slsa.attestation")
    return found


# Checked ------------------------------------------------------------------------------------------


def test_what_an_identity_has_signed_is_its_statement(attestation: Json) -> None:
    found = json.loads(verify_statement(attestation, GITHUB))
    assert found["predicateType"] == PREDICATE
    assert found["subject"] == [{"name": SDIST, "digest": {"sha256": SDIST_SHA256}}]
    (bundle,) = read(f"{WHEEL}.provenance")["attestation_bundles"]
    assert WHEEL.encode() in verify_statement(bundle["attestations"][0], CIRCLECI)


@pytest.mark.parametrize(
    ("identity", "why"),
    [
        (Identity(name=f"{GITHUB.name}.1", issuer=GITHUB.issuer), "SANs do not match"),
        (Identity(name=GITHUB.name.lower().replace("v0", "V0"), issuer=GITHUB.issuer), "SANs"),
        (Identity(name=GITHUB.name, issuer="https://gitlab.com"), "OIDCIssuer does not match"),
        (CIRCLECI, "does not match"),
    ],
)
def test_another_identity_or_issuer_has_signed_nothing(
    attestation: Json, identity: Identity, why: str
) -> None:
    with pytest.raises(PublishError, match=why):
        verify_statement(attestation, identity)


PATHS: tuple[tuple[str | int, ...], ...] = (
    ("envelope", "statement"),
    ("envelope", "signature"),
    ("verification_material", "certificate"),
    ("verification_material", "transparency_entries", 0, "canonicalizedBody"),
    ("verification_material", "transparency_entries", 0, "inclusionProof", "rootHash"),
    (
        "verification_material",
        "transparency_entries",
        0,
        "inclusionPromise",
        "signedEntryTimestamp",
    ),
)
"""Of bytes in base64."""


@given(path=st.sampled_from(PATHS), place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_bit_of_it_can_change(path: tuple[str | int, ...], place: int, bit: int) -> None:
    found: Any = read(f"{SDIST}.slsa.attestation")
    *steps, last = path
    inner = found
    for step in steps:
        inner = inner[step]
    content = bytearray(base64.b64decode(inner[last]))
    content[place % len(content)] ^= 1 << bit
    inner[last] = base64.b64encode(content).decode()
    with pytest.raises(PublishError) as caught:
        verify_statement(found, GITHUB)
    assert str(caught.value).isprintable()


def test_parts_of_different_signatures_make_none(attestation: Json) -> None:
    (bundle,) = read(f"{SDIST}.provenance")["attestation_bundles"]
    (other,) = bundle["attestations"]
    verify_statement(other, GITHUB)
    for part, names in (
        ("envelope", ("statement", "signature")),
        ("verification_material", ("certificate", "transparency_entries")),
    ):
        for name in names:
            mixed = copy.deepcopy(attestation)
            mixed[part][name] = other[part][name]
            with pytest.raises(PublishError):
                verify_statement(mixed, GITHUB)


def test_a_certificate_of_another_authority_shows_nothing(attestation: Json) -> None:
    """One that says the same."""
    own = own_certificate(x509.UniformResourceIdentifier(GITHUB.name), issuer=GITHUB.issuer)
    attestation["verification_material"]["certificate"] = base64.b64encode(own).decode()
    with pytest.raises(PublishError, match="certificate chain"):
        verify_statement(attestation, GITHUB)


@given(
    path=st.sampled_from(
        [
            ("envelope",),
            ("envelope", "statement"),
            ("verification_material",),
            ("verification_material", "certificate"),
            ("verification_material", "transparency_entries"),
            ("verification_material", "transparency_entries", 0),
            ("verification_material", "transparency_entries", 0, "inclusionProof"),
            ("verification_material", "transparency_entries", 0, "integratedTime"),
            ("verification_material", "transparency_entries", 0, "kindVersion"),
        ]
    ),
    value=st.none()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.lists(st.text(max_size=3), max_size=2)
    | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
def test_a_part_that_is_something_else_is_one_error(path: tuple[Any, ...], value: object) -> None:
    found: Any = read(f"{SDIST}.slsa.attestation")
    *steps, last = path
    inner = found
    for step in steps:
        inner = inner[step]
    inner[last] = value
    with pytest.raises(PublishError) as caught:
        verify_statement(found, GITHUB)
    assert str(caught.value).isprintable()


def test_without_the_library_it_says_how_to_install_it(
    attestation: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("", ".verify", ".models", ".oidc"):
        monkeypatch.setitem(sys.modules, f"sigstore{name}", None)
    monkeypatch.setenv(TOKEN, token())
    for ask in (find_identity, lambda: verify_statement(attestation, GITHUB)):
        with pytest.raises(ToolError) as caught:
            ask()
        assert "pip install '.[sigstore]'" in caught.value.hint


# Tokens -------------------------------------------------------------------------------------------


@pytest.fixture
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with open(os.devnull, encoding="utf-8") as stdin:  # noqa: PTH123  (no folder of a test's)
        monkeypatch.setattr(sys, "stdin", stdin)
        yield


def test_a_token_comes_from_the_environment_and_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = token()
    monkeypatch.setenv(TOKEN, secret)
    found = find_identity()
    assert TOKEN not in os.environ
    assert secret not in repr(found)


@pytest.mark.usefixtures("no_terminal")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (str, "found no identity token"),
        (lambda: "secret.secret.secret", "malformed"),
        (lambda: token(minutes=-5), "expired"),
        (lambda: token(aud="another"), "Audience"),
    ],
)
def test_a_token_that_lacks_or_is_none_is_said_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], str], why: str
) -> None:
    given_ = make()
    monkeypatch.setenv(TOKEN, given_)
    with pytest.raises(UsageError, match=why) as caught:
        find_identity()
    assert TOKEN in caught.value.hint
    assert "\n" not in str(caught.value)
    for part in given_.split("."):
        assert not part or part not in str(caught.value)


class _Provider(BaseHTTPRequestHandler):
    """GitHub's address for tokens, as a job sees it."""

    def do_GET(self) -> None:
        fits = self.headers["Authorization"] == "bearer of a job" and "sigstore" in self.path
        body = json.dumps({"value": token(iss=GITHUB.issuer)}).encode()
        self.send_response(200 if fits else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.usefixtures("no_terminal")
def test_a_job_has_a_token_if_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", raising=False)
    with pytest.raises(UsageError, match="permissions") as caught:
        find_identity()
    assert "id-token: write" in caught.value.hint
    with HTTPServer(("127.0.0.1", 0), _Provider) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "of a job")
        url = f"http://127.0.0.1:{server.server_port}/token"
        monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", url)
        assert isinstance(find_identity(), SigningIdentity)
        server.shutdown()


# Servers that cannot be reached -------------------------------------------------------------------


def one_line(error: PublishError) -> str:
    text = str(error)
    assert "\n" not in text
    assert "Nothing was published" in text
    return text


def test_without_a_way_to_the_root_of_trust_nothing_is_signed() -> None:
    with pytest.raises(PublishError, match="cannot update Sigstore's root of trust") as caught:
        SigningIdentity(token()).sign(b"{}")
    one_line(caught.value)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The root of trust as the library ships it, as though it had been renewed."""
    config = importlib.import_module("sigstore.models").ClientTrustConfig
    shipped = config.production(offline=True)
    monkeypatch.setattr(config, "production", lambda **_: shipped)


@pytest.mark.usefixtures("offline")
def test_without_a_way_to_fulcio_nothing_is_signed() -> None:
    secret = token()
    with pytest.raises(PublishError, match="Fulcio issued no certificate") as caught:
        _ = SigningIdentity(secret).public
    assert secret not in one_line(caught.value)


@pytest.mark.usefixtures("offline")
def test_a_token_that_expires_meanwhile_is_said() -> None:
    with pytest.raises(UsageError, match="expired"):
        _ = SigningIdentity(token(minutes=-5)).public


@pytest.mark.usefixtures("offline")
def test_without_a_way_to_rekor_nothing_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a certificate that nobody gave, since Fulcio is out of reach."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = own_certificate(x509.RFC822Name(ME.name), issuer=ME.issuer, key=key)
    library = importlib.import_module("sigstore.sign").Signer
    monkeypatch.setattr(library, "_signing_cert", lambda _: x509.load_der_x509_certificate(own))
    signing = SigningIdentity(token())
    assert signing.public == ME
    statement = json.dumps(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": WHEEL, "digest": {"sha256": "0" * 64}}],
            "predicateType": PREDICATE,
            "predicate": {},
        }
    ).encode()
    with pytest.raises(PublishError, match="Rekor did not record the signature") as caught:
        signing.sign(statement)
    one_line(caught.value)


def test_signing_is_for_a_log_whose_entries_pep_740_can_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of version 1: with version 2 the time is a timestamp, for which it has no place."""
    models = importlib.import_module("sigstore.models")
    both = models.ClientTrustConfig.production(offline=True)
    logs = both._inner.signing_config.rekor_tlog_urls
    logs.append(logs[0].model_copy(update={"major_api_version": 2}))
    (newest, *_) = both.signing_config.get_tlogs()
    assert type(newest).__name__ == "RekorV2Client"
    monkeypatch.setattr(models.ClientTrustConfig, "production", lambda: both)
    library = importlib.import_module("sigstore.sign").Signer
    monkeypatch.setattr(library, "_signing_cert", lambda _: None)
    log = SigningIdentity(token())._signer._signing_ctx._rekor
    assert type(log).__name__ == "RekorClient"
