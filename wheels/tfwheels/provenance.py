"""The signed provenance of a wheel: an in-toto statement in a PEP 740 object.

The statement is SLSA provenance v1 with the values of the wheel's tuned.json. For another wheel, it
states that the wheel was republished unchanged. The same wheel and key give the same bytes: the
statement contains no time and no local path. The signature is DSSE. PEP 740 requires the
certificate of an identity. A key file has none, so the key is named as in a Sigstore bundle
(`public_key` of the verification material); attestations with a certificate are not verified.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packageurl import PackageURL
from securesystemslib.dsse import Envelope

from tfbuild.packing.tuned import KernelLibrary, Tuned, TunedTree
from tfcore.errors import PublishError
from tfcore.records import format_canonical, format_json, quote_value
from tfwheels.entry import Entry
from tfwheels.keys import PublicKey, SigningKey, is_signed
from tfwheels.layout import is_sha256

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILT = "urn:tensorwright:built:1"
REPUBLISHED = "urn:tensorwright:republished:1"
PAYLOAD = "application/vnd.in-toto+json"
KIND = "Key File"
REBUILT = "urn:tensorwright:rebuilt:1"
_NAMES = {PREDICATE: "SLSA provenance v1", REBUILT: "a rebuilder's statement"}
_NOUNS = {PREDICATE: "provenance", REBUILT: "rebuilder's statement"}
_VERSION = 1
_TORN = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Exceptions from parsing invalid data as JSON of a known shape."""


# ---- statement ----


def make_statement(entry: Entry, tuned: Tuned | None, signer: PublicKey) -> bytes:
    """Build the in-toto statement of a wheel whose signer is its builder.

    For a wheel that is not tuned, it states that the wheel was republished unchanged.
    """
    definition = _define_republishing(entry) if tuned is None else _define_build(entry, tuned)
    return format_canonical(
        {
            "_type": STATEMENT,
            "subject": [{"name": entry.file, "digest": {"sha256": entry.sha256}}],
            "predicateType": PREDICATE,
            "predicate": {
                "buildDefinition": definition,
                "runDetails": {"builder": {"id": signer.builder}},
            },
        }
    ).encode()


def _define_build(entry: Entry, tuned: Tuned) -> dict[str, object]:
    return {
        "buildType": BUILT,
        "externalParameters": {
            **_describe_package(entry),
            "release": tuned.release,
            "scope": tuned.scope,
            "builds": [_list_build_parameters(build) for build in tuned.builds],
        },
        "internalParameters": {
            "key": tuned.key,
            "plan_keys": {build.target: build.plan_key for build in tuned.builds},
        },
        "resolvedDependencies": list(_list_materials(entry, tuned)),
    }


def _define_republishing(entry: Entry) -> dict[str, object]:
    url = PackageURL("pypi", name=entry.name, version=entry.version)
    return {
        "buildType": REPUBLISHED,
        "externalParameters": _describe_package(entry),
        "resolvedDependencies": [_create_material(entry.file, url, entry.sha256)],
    }


def _describe_package(entry: Entry) -> dict[str, object]:
    return {"package": entry.name, "version": entry.version, "tags": entry.tags}


def _list_build_parameters(build: KernelLibrary | TunedTree) -> dict[str, object]:
    """Return the parameters of the build for one target."""
    specific: dict[str, object] = (
        {"options": build.options}
        if isinstance(build, TunedTree)
        else {"kernels": build.kernels, "source_flags": build.source_flags}
    )
    return {"target": build.target, "flags": build.flags, "defaults": build.defaults, **specific}


def _list_materials(entry: Entry, tuned: Tuned) -> Iterator[dict[str, object]]:
    """Yield the materials of a build.

    Tools have a version but no hash, because they belong to the building machine.
    """
    stock = PackageURL("pypi", name=entry.name, version=tuned.release)
    sources = PackageURL("github", "tensorflow", "tensorflow", f"v{tuned.release}")
    compiler, _, version = tuned.compiler.partition(" ")
    yield _create_material("stock wheel", stock, tuned.stock_sha256)
    nearness = tuned.nearness
    annotations = (
        {}
        if nearness is None or nearness.exact
        else {"annotations": {"nearness": nearness.summary}}
    )
    yield _create_material("sources", sources, tuned.source_sha256) | annotations
    yield _create_material("compiler", PackageURL("generic", name=compiler, version=version))
    yield _create_material("Bazel", PackageURL("generic", name="bazel", version=tuned.bazel))


def _create_material(name: str, url: PackageURL, sha256: str = "") -> dict[str, object]:
    digest = {"digest": {"sha256": sha256}} if sha256 else {}
    return {"name": name, "uri": url.to_string(), **digest}


# ---- signing ----


def sign(statement: bytes, key: SigningKey) -> bytes:
    """Sign a statement and return the provenance object that contains it."""
    publisher = {"kind": KIND, "claims": None, "key": key.public.id}
    bundle = {"publisher": publisher, "attestations": [_create_attestation(statement, key)]}
    return format_json({"version": _VERSION, "attestation_bundles": [bundle]}).encode()


def _create_attestation(statement: bytes, key: SigningKey) -> dict[str, object]:
    signature = Envelope(statement, PAYLOAD, {}).sign(key.signer)
    return {
        "version": _VERSION,
        "verification_material": {
            "certificate": None,
            "transparency_entries": [],
            "public_key": {"hint": key.public.id},
        },
        "envelope": {
            "statement": base64.b64encode(statement).decode(),
            "signature": base64.b64encode(bytes.fromhex(signature.signature)).decode(),
        },
    }


# ---- verification ----


def verify_provenance(data: bytes, file: str, sha256: str, signers: Sequence[PublicKey]) -> str:
    """Return the id of the key that signed the provenance of a file with this name and hash.

    Raises PublishError if none of the `signers` did, and for an invalid provenance object.
    """
    return verify_statement(data, file, sha256, signers, PREDICATE)


def verify_statement(
    data: bytes, file: str, sha256: str, signers: Sequence[PublicKey], predicate: str
) -> str:
    """Return the id of the key that signed a statement with this predicate about a file.

    Raises PublishError if none of the `signers` did, and for an invalid provenance object.
    """
    faults = []
    pairs = [
        (*_decode_envelope(attestation), signer)
        for attestation in _parse_attestations(data, file)
        for signer in signers
    ]
    for statement, signature, signer in pairs:
        if not is_signed(statement, PAYLOAD, signature, signer):
            continue
        fault = _find_fault(statement, file, sha256, predicate)
        if not fault:
            return signer.id
        faults.append(f"signed by key {signer.id}, {fault}")
    if faults:
        raise PublishError(f"the {_NOUNS[predicate]} of {file}, {faults[0]}")
    keys = ", ".join(signer.id for signer in signers)
    raise PublishError(f"the {_NOUNS[predicate]} of {file} is not signed by any of the keys {keys}")


def read_claimed_signer(data: bytes, file: str) -> str:
    """Return the unverified id of the key that a provenance object names as signer.

    Raises PublishError for an invalid provenance object.
    """
    _parse_attestations(data, file)
    try:
        (first, *_) = json.loads(data)["attestation_bundles"]
        key_id = first["publisher"]["key"]
        if is_sha256(key_id):
            return key_id
    except (*_TORN, IndexError) as error:
        raise _create_error(file, "it names no signer") from error
    raise _create_error(file, "it names no signer")


def _parse_attestations(data: bytes, file: str) -> tuple[Mapping[str, Any], ...]:
    try:
        fields = json.loads(data)
        if fields["version"] != _VERSION:
            raise ValueError(f"its version is not {_VERSION}")
        attestations = tuple(
            attestation
            for bundle in fields["attestation_bundles"]
            for attestation in bundle["attestations"]
        )
        for attestation in attestations:
            _decode_envelope(attestation)
    except _TORN as error:
        raise _create_error(file, type(error).__name__) from error
    return attestations


def _decode_envelope(attestation: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Return the statement and its signature."""
    envelope = attestation["envelope"]
    statement, signature = (
        base64.b64decode(envelope[name], validate=True) for name in ("statement", "signature")
    )
    return statement, signature


def _find_fault(statement: bytes, file: str, sha256: str, predicate: str) -> str:
    """Return why a statement is not about this file or has another predicate; "" if it fits."""
    try:
        fields: Mapping[str, Any] = json.loads(statement)
        kind = fields["predicateType"]
        if (fields["_type"], kind) != (STATEMENT, predicate):
            return f"is not {_NAMES[predicate]} ({quote_value(kind)})"
        subjects = {(subject["name"], subject["digest"]["sha256"]) for subject in fields["subject"]}
    except _TORN as error:
        raise _create_error(file, "its statement is invalid") from error
    return (
        ""
        if (file, sha256) in subjects
        else f"is for another file name or other bytes than sha256 {sha256}"
    )


def _create_error(file: str, reason: str) -> PublishError:
    return PublishError(f"cannot read the provenance of {file} ({reason})")
