"""Statements about wheels, signed; and envelopes of others, read."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.index_wheels import entry_of, full_build_for, tuned_for
from tests.builders.signing_keys import made_key

from tfbuild.packing.tuned import Tuned
from tfbuild.upstream.source_matching import SourceMatch
from tfcore.errors import PublishError
from tfwheels.keys import SigningKey
from tfwheels.provenance import (
    BUILT,
    PREDICATE,
    REPUBLISHED,
    STATEMENT,
    make_statement,
    read_claimed_signer,
    sign,
    verify_provenance,
)

ENTRY = entry_of("2.14.1+zen4", targets=("zen4",))
TUNED = tuned_for(("zen4", "haswell"))


@pytest.fixture(scope="module")
def signed(key: SigningKey) -> bytes:
    return sign(make_statement(ENTRY, TUNED, key.public), key)


def said(key: SigningKey, tuned: Tuned | None = TUNED) -> dict[str, Any]:
    fields = json.loads(make_statement(ENTRY, tuned, key.public))
    assert (fields["_type"], fields["predicateType"]) == (STATEMENT, PREDICATE)
    assert fields["subject"] == [{"name": ENTRY.file, "digest": {"sha256": ENTRY.sha256}}]
    record: dict[str, Any] = fields["predicate"]
    assert record["runDetails"]["builder"]["id"].endswith(key.public.id)
    return record


def materials(record: dict[str, Any]) -> dict[str, Any]:
    return {
        resolved_dependency["name"]: resolved_dependency
        for resolved_dependency in record["buildDefinition"]["resolvedDependencies"]
    }


# What is said -------------------------------------------------------------------------------------


def test_the_statement_says_what_the_wheel_says_of_itself(key: SigningKey) -> None:
    definition = said(key)["buildDefinition"]
    parameters = definition["externalParameters"]
    assert definition["buildType"] == BUILT
    assert (parameters["release"], parameters["scope"]) == ("2.14.1", "kernels")
    assert [build["target"] for build in parameters["builds"]] == ["zen4", "haswell"]
    assert parameters["builds"][0]["flags"] == ["-march=zen4"]
    assert parameters["builds"][0]["kernels"] == ["cwise_op_tanh"]
    assert definition["internalParameters"]["plan_keys"]["haswell"] == "4" * 64
    made_from = materials(said(key))
    assert made_from["stock wheel"]["uri"] == "pkg:pypi/tensorflow-cpu@2.14.1"
    assert made_from["stock wheel"]["digest"] == {"sha256": "2" * 64}
    assert made_from["sources"]["digest"] == {"sha256": "1" * 64}
    assert made_from["compiler"]["uri"] == "pkg:generic/clang@16.0.6"
    assert made_from["Bazel"]["uri"] == "pkg:generic/bazel@4.2.3"


def test_a_full_build_says_its_options(key: SigningKey) -> None:
    tuned = full_build_for("zen4")
    assert tuned.tree is not None
    tuned = dataclasses.replace(
        tuned, tree=dataclasses.replace(tuned.tree, options={"lto": "thin"})
    )
    parameters = said(key, tuned)["buildDefinition"]["externalParameters"]
    assert parameters["scope"] == "full"
    assert parameters["builds"][0]["options"] == {"lto": "thin"}


def test_what_has_no_hash_or_is_only_near_is_not_said_to_be_more(key: SigningKey) -> None:
    near = SourceMatch(own=False, compared=10, differing=("tensorflow/core/a.h",))
    made_from = materials(said(key, dataclasses.replace(TUNED, source_sha256="", nearness=near)))
    assert "digest" not in made_from["sources"]
    assert "1 of 10 headers" in made_from["sources"]["annotations"]["nearness"]


def test_a_wheel_that_was_taken_over_is_said_to_be_that(key: SigningKey) -> None:
    record = said(key, None)
    assert record["buildDefinition"]["buildType"] == REPUBLISHED
    (material,) = materials(record).values()
    assert material["digest"] == {"sha256": ENTRY.sha256}


def test_the_same_wheel_and_key_give_the_same_bytes(key: SigningKey, signed: bytes) -> None:
    assert sign(make_statement(ENTRY, TUNED, key.public), key) == signed


def test_the_object_has_the_form_of_pep_740_and_claims_no_identity(
    key: SigningKey, signed: bytes
) -> None:
    document = json.loads(signed)
    assert document["version"] == 1
    (bundle,) = document["attestation_bundles"]
    assert (bundle["publisher"]["kind"], bundle["publisher"]["claims"]) == ("Key File", None)
    (attestation,) = bundle["attestations"]
    material = attestation["verification_material"]
    assert material["certificate"] is None
    assert material["transparency_entries"] == []
    assert material["public_key"] == {"hint": key.public.id}
    assert read_claimed_signer(signed, ENTRY.file) == key.public.id


def test_the_signature_is_that_of_dsse_by_its_specification(key: SigningKey, signed: bytes) -> None:
    """By hand: DSSEv1, then type and body, each with its length before it."""
    envelope = json.loads(signed)["attestation_bundles"][0]["attestations"][0]["envelope"]
    body = base64.b64decode(envelope["statement"])
    text = b"DSSEv1 28 application/vnd.in-toto+json " + str(len(body)).encode() + b" " + body
    loaded: Any = load_pem_public_key(key.public.pem.encode())
    loaded.verify(base64.b64decode(envelope["signature"]), text)


# What is checked ----------------------------------------------------------------------------------


def test_a_trusted_key_is_found_among_several(
    key: SigningKey, other: SigningKey, signed: bytes
) -> None:
    for keys in ((key.public,), (other.public, key.public), (key.public, other.public)):
        assert verify_provenance(signed, ENTRY.file, ENTRY.sha256, keys) == key.public.id


def test_other_bytes_another_name_and_another_key_are_refused(
    key: SigningKey, other: SigningKey, signed: bytes
) -> None:
    for file, sha256, public, reason in (
        (ENTRY.file, "0" * 64, key.public, "other bytes"),
        (ENTRY.file.replace("zen4", "zen5"), ENTRY.sha256, key.public, "other bytes"),
        (ENTRY.file, ENTRY.sha256, other.public, "not signed by any"),
    ):
        with pytest.raises(PublishError, match=reason):
            verify_provenance(signed, file, sha256, (public,))
    with pytest.raises(PublishError, match="not signed by any"):
        verify_provenance(signed, ENTRY.file, ENTRY.sha256, ())


@given(
    place=st.integers(0, 10_000),
    bit=st.integers(0, 7),
    name=st.sampled_from(["statement", "signature"]),
)
def test_no_bit_of_an_envelope_can_change(
    key: SigningKey, signed: bytes, place: int, bit: int, name: str
) -> None:
    document = json.loads(signed)
    envelope = document["attestation_bundles"][0]["attestations"][0]["envelope"]
    content = bytearray(base64.b64decode(envelope[name]))
    content[place % len(content)] ^= 1 << bit
    envelope[name] = base64.b64encode(content).decode()
    with pytest.raises(PublishError, match="not signed by any"):
        verify_provenance(json.dumps(document).encode(), ENTRY.file, ENTRY.sha256, (key.public,))


def test_a_signed_statement_of_another_kind_does_not_count(key: SigningKey) -> None:
    statement = json.loads(make_statement(ENTRY, TUNED, key.public))
    for name in ("_type", "predicateType"):
        changed = json.dumps(statement | {name: "https://example.org/other"}).encode()
        with pytest.raises(PublishError):
            verify_provenance(sign(changed, key), ENTRY.file, ENTRY.sha256, (key.public,))
    for torn in (b"{", b"[]", b'{"_type": 1}', b"\xff"):
        with pytest.raises(PublishError):
            verify_provenance(sign(torn, key), ENTRY.file, ENTRY.sha256, (key.public,))


def test_what_others_have_added_does_no_harm(
    key: SigningKey, other: SigningKey, signed: bytes
) -> None:
    """PEP 740 allows more keys, more attestations and more bundles."""
    actual, theirs = json.loads(signed), json.loads(sign(b"{}", other))
    actual["attestation_bundles"] = [*theirs["attestation_bundles"], *actual["attestation_bundles"]]
    actual["more"] = {"a": 1}
    data = json.dumps(actual).encode()
    assert verify_provenance(data, ENTRY.file, ENTRY.sha256, (key.public,)) == key.public.id


# Garbage ------------------------------------------------------------------------------------------

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
ANY = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def refused(data: bytes, key: SigningKey) -> None:
    with pytest.raises(PublishError) as caught:
        verify_provenance(data, ENTRY.file, ENTRY.sha256, (key.public,))
    assert str(caught.value).isprintable()
    with pytest.raises(PublishError) as caught:
        read_claimed_signer(data, ENTRY.file)
    assert str(caught.value).isprintable()


@given(data=st.binary(max_size=300))
def test_bytes_that_are_no_provenance_are_one_error(key: SigningKey, data: bytes) -> None:
    refused(data, key)


@given(data=ANY)
def test_json_that_is_no_provenance_is_one_error(key: SigningKey, data: object) -> None:
    refused(json.dumps(data).encode(), key)


@given(
    path=st.sampled_from(
        [
            ("version",),
            ("attestation_bundles",),
            ("attestation_bundles", 0),
            ("attestation_bundles", 0, "attestations"),
            ("attestation_bundles", 0, "attestations", 0),
            ("attestation_bundles", 0, "attestations", 0, "envelope"),
            ("attestation_bundles", 0, "attestations", 0, "envelope", "statement"),
            ("attestation_bundles", 0, "attestations", 0, "envelope", "signature"),
        ]
    ),
    value=ANY,
)
def test_a_part_that_is_something_else_is_one_error(
    key: SigningKey, signed: bytes, path: tuple[Any, ...], value: object
) -> None:
    document = copy.deepcopy(json.loads(signed))
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    if inner[path[-1]] == value:
        return
    inner[path[-1]] = value
    with pytest.raises(PublishError) as caught:
        verify_provenance(json.dumps(document).encode(), ENTRY.file, ENTRY.sha256, (key.public,))
    assert str(caught.value).isprintable()


def test_json_without_an_end_is_one_error(key: SigningKey) -> None:
    refused(b'{"version": 1, "attestation_bundles": ' + b"[" * 100_000, key)


def test_a_named_key_is_an_id(signed: bytes) -> None:
    document = json.loads(signed)
    for foreign in ("\x1b[31m", "0" * 63, 7, None):
        document["attestation_bundles"][0]["publisher"]["key"] = foreign
        with pytest.raises(PublishError, match="names no signer"):
            read_claimed_signer(json.dumps(document).encode(), ENTRY.file)


def test_the_key_lies_nowhere_in_what_is_written(signed: bytes, tmp_path: Path) -> None:
    key = made_key(tmp_path)
    data = sign(make_statement(ENTRY, TUNED, key.public), key)
    secret = (tmp_path / "key.pem").read_text().splitlines()[1]
    raw = base64.b64decode(secret)[-32:]
    for form in (secret.encode(), raw, raw.hex().encode(), base64.b64encode(raw)):
        assert form not in data
