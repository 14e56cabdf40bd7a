"""Identities as they are spelled, and as certificates of others name them."""

from __future__ import annotations

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st
from tests.certified import (
    CIRCLECI,
    GITHUB,
    SDIST,
    WHEEL,
    certificate_of,
    own_certificate,
    read,
)

from tfbuild.errors import UsageError
from tfwheels.identities import (
    KIND,
    Identity,
    describe_signer,
    extract_identity,
    extract_publisher,
    parse_identity,
)

GOOGLE = "https://accounts.google.com"
PYPIS = ("gcb_attestation_test-0.0.0.tar.gz", SDIST, WHEEL)
"""Files whose provenance objects are PyPI's own."""


@pytest.mark.parametrize(
    ("name", "issuer"),
    [
        ("me@example.org", GOOGLE),
        (GITHUB.name, GITHUB.issuer),
        ("https://github.com/o/r/.github/workflows/a.yml@refs/heads/a@b", GITHUB.issuer),
        ("me@https://example.org", "https://login.example.org:8443/realms/a"),
    ],
)
def test_an_identity_is_spelled_in_one_way(name: str, issuer: str) -> None:
    identity = parse_identity(f"sigstore:{name}@{issuer}")
    assert (identity.name, identity.issuer) == (name, issuer)
    assert parse_identity(identity.id) == identity


@pytest.mark.parametrize(
    "text",
    [
        "sigstore:",
        "sigstore:me@example.org",
        "sigstore:@https://accounts.google.com",
        "sigstore:me@example.org@http://accounts.google.com",
        "sigstore:me@example.org@https://",
        "sigstore:me@example.org@https://me@accounts.google.com",
        "sigstore:me and you@https://accounts.google.com",
    ],
)
def test_what_names_nobody_is_refused_with_the_form_that_does(text: str) -> None:
    with pytest.raises(UsageError, match="is not an identity") as caught:
        parse_identity(text)
    assert "sigstore:IDENTITY@ISSUER" in caught.value.hint


def test_a_builder_is_a_uri() -> None:
    assert Identity(name="me@example.org", issuer=GOOGLE).builder == "mailto:me@example.org"
    assert GITHUB.builder == GITHUB.name


def test_a_signer_is_a_key_or_an_identity() -> None:
    assert describe_signer("f" * 64) == f"key {'f' * 64}"
    assert describe_signer(GITHUB.id) == GITHUB.id


# What certificates say ----------------------------------------------------------------------------


def test_a_certificate_of_fulcio_says_who_it_is_for() -> None:
    (bundle,) = read(f"{WHEEL}.provenance")["attestation_bundles"]
    assert extract_identity(certificate_of(bundle["attestations"][0])) == CIRCLECI
    assert extract_identity(certificate_of(read(f"{SDIST}.slsa.attestation"))) == GITHUB


@pytest.mark.parametrize("file", PYPIS)
def test_a_publisher_is_what_pypi_says_that_it_is(file: str) -> None:
    (bundle,) = read(f"{file}.provenance")["attestation_bundles"]
    theirs = {name: value for name, value in bundle["publisher"].items() if value is not None}
    # What the repository was at that time is no part of who published.
    named = {name: value for name, value in theirs.items() if not name.startswith("vcs_")}
    assert extract_publisher(certificate_of(bundle["attestations"][0])) == {"claims": None, **named}


def test_a_publisher_at_gitlab_is_a_project_and_its_configuration() -> None:
    found = read("gitlab_oidc_project-0.0.3.tar.gz.publish.attestation")
    ours = extract_publisher(certificate_of(found))
    assert ours["kind"] == "GitLab"
    assert ours["repository"] == "facutuesca/gitlab-oidc-project"
    assert ours["workflow_filepath"] == ".gitlab-ci.yml"


@pytest.mark.parametrize(
    ("name", "issuer"),
    [
        (x509.RFC822Name("me@example.org"), "https://github.com/login/oauth"),
        (x509.UniformResourceIdentifier("https://example.org/me"), GITHUB.issuer),
    ],
)
def test_a_publisher_that_pypi_does_not_know_is_of_our_own_kind(
    name: x509.RFC822Name | x509.UniformResourceIdentifier, issuer: str
) -> None:
    found = extract_publisher(own_certificate(name, issuer=issuer))
    assert (found["kind"], found["identity"], found["issuer"]) == (KIND, name.value, issuer)


@given(st.binary(max_size=200))
def test_garbage_is_no_certificate(data: bytes) -> None:
    for certificate in (data, own_certificate(issuer=GOOGLE) + data):
        with pytest.raises(ValueError, match="names no identity"):
            extract_identity(certificate)
