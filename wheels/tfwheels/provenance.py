"""What a wheel was made from, said and signed: an in-toto statement in an object of PEP 740.

The statement is SLSA's provenance v1 of what the wheel says of itself in tuned.json; of a wheel
that was taken over unchanged it says that. The same wheel and key give the same bytes: no time and
no path of a machine stands in them. The signature is DSSE's. PEP 740 asks for a certificate that an
identity was given. With a key file there is none, so the key is named as a Sigstore bundle names
one (`public_key` of the verification material).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packageurl import PackageURL
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import Signature

from tfbuild.errors import PublishError
from tfbuild.packing.tuned import KernelLibrary, Tuned, TunedTree
from tfbuild.records import format_canonical, format_json, quote_value
from tfwheels.entry import Entry
from tfwheels.identities import Signer, described, identity_of, publisher_of
from tfwheels.keys import PublicKey, SigningKey, verifier
from tfwheels.sigstore_client import SigningIdentity, signed_statement

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILT = "urn:tensorwright:built:1"
REPUBLISHED = "urn:tensorwright:republished:1"
PAYLOAD = "application/vnd.in-toto+json"
KIND = "Key File"
_VERSION = 1
_ID = re.compile(r"[0-9a-f]{64}")
_TORN = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What garbage raises when it is read as JSON of a known shape."""


# ---- said ----


def make_statement(entry: Entry, tuned: Tuned | None, signer: Signer) -> bytes:
    """The in-toto statement of a wheel whose signer is its builder; of one that is not tuned, that
    it was taken over unchanged."""
    definition = _republished(entry) if tuned is None else _built(entry, tuned)
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


def _built(entry: Entry, tuned: Tuned) -> dict[str, object]:
    return {
        "buildType": BUILT,
        "externalParameters": {
            **_named(entry),
            "release": tuned.release,
            "scope": tuned.scope,
            "builds": [_build_parameters(build) for build in tuned.builds],
        },
        "internalParameters": {
            "key": tuned.key,
            "plan_keys": {build.target: build.plan_key for build in tuned.builds},
        },
        "resolvedDependencies": list(_made_from(entry, tuned)),
    }


def _republished(entry: Entry) -> dict[str, object]:
    url = PackageURL("pypi", name=entry.name, version=entry.version)
    return {
        "buildType": REPUBLISHED,
        "externalParameters": _named(entry),
        "resolvedDependencies": [_material(entry.file, url, entry.sha256)],
    }


def _named(entry: Entry) -> dict[str, object]:
    return {"package": entry.name, "version": entry.version, "tags": entry.tags}


def _build_parameters(build: KernelLibrary | TunedTree) -> dict[str, object]:
    """What was asked for of one target."""
    own: dict[str, object] = (
        {"options": build.options}
        if isinstance(build, TunedTree)
        else {"kernels": build.kernels, "source_flags": build.source_flags}
    )
    return {"target": build.target, "flags": build.flags, "defaults": build.defaults, **own}


def _made_from(entry: Entry, tuned: Tuned) -> Iterator[dict[str, object]]:
    """Of tools the version is known, and no hash: they are the building machine's own."""
    stock = PackageURL("pypi", name=entry.name, version=tuned.release)
    sources = PackageURL("github", "tensorflow", "tensorflow", f"v{tuned.release}")
    compiler, _, version = tuned.compiler.partition(" ")
    yield _material("stock wheel", stock, tuned.stock_sha256)
    near = tuned.nearness
    said = {} if near is None or near.exact else {"annotations": {"nearness": near.summary}}
    yield _material("sources", sources, tuned.source_sha256) | said
    yield _material("compiler", PackageURL("generic", name=compiler, version=version))
    yield _material("Bazel", PackageURL("generic", name="bazel", version=tuned.bazel))


def _material(name: str, url: PackageURL, sha256: str = "") -> dict[str, object]:
    digest = {"digest": {"sha256": sha256}} if sha256 else {}
    return {"name": name, "uri": url.to_string(), **digest}


# ---- signed ----


def sign(statement: bytes, key: SigningKey | SigningIdentity) -> bytes:
    """The provenance object with the statement in an envelope of its own. Raises what an identity
    raises that cannot sign."""
    if isinstance(key, SigningIdentity):
        attestation, publisher = attestation_of(key.sign(statement)), publisher_of(key.certificate)
    else:
        attestation = _attestation(statement, key)
        publisher = {"kind": KIND, "claims": None, "key": key.public.id}
    bundle = {"publisher": publisher, "attestations": [attestation]}
    return format_json({"version": _VERSION, "attestation_bundles": [bundle]}).encode()


def _attestation(statement: bytes, key: SigningKey) -> dict[str, object]:
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


def attestation_of(bundle: Mapping[str, Any]) -> dict[str, object]:
    """A Sigstore bundle (version 0.3) with a statement as an attestation of PEP 740."""
    material, envelope = bundle["verificationMaterial"], bundle["dsseEnvelope"]
    (signature,) = envelope["signatures"]
    return {
        "version": _VERSION,
        "verification_material": {
            "certificate": material["certificate"]["rawBytes"],
            "transparency_entries": material["tlogEntries"],
        },
        "envelope": {"statement": envelope["payload"], "signature": signature["sig"]},
    }


# ---- checked ----


def signed_by(data: bytes, file: str, sha256: str, signers: Sequence[Signer]) -> str:
    """The id of the one of the `signers` that has signed that `file` has these bytes.

    Raises PublishError for a provenance object that says so of none of them, and for what is none.
    """
    faults, reasons = [], []
    pairs = [(each, signer) for each in _attestations(data, file) for signer in signers]
    for each, signer in pairs:
        try:
            statement = _signed_statement(each, signer)
        except PublishError as error:
            reasons.append(error.message)
            continue
        fault = _fault(statement, file, sha256)
        if not fault:
            return signer.id
        faults.append(f"signed by {described(signer.id)}, {fault}")
    if faults:
        raise PublishError(f"the provenance of {file}, {faults[0]}")
    why = next((f": {reason}" for reason in reasons if reason), "")
    raise PublishError(f"the provenance of {file} is signed by none of {_listed(signers)}{why}")


def signer_named(data: bytes, file: str) -> str:
    """The id of the key or identity that a provenance object says it is signed by; nothing shows
    that it is. Raises PublishError for what is no such object."""
    _attestations(data, file)
    try:
        (first, *_) = json.loads(data)["attestation_bundles"]
        if certificate := _certificate(first["attestations"][0]):
            return identity_of(certificate).id
        found = first["publisher"]["key"]
        if _ID.fullmatch(found):
            return str(found)
    except (*_TORN, IndexError) as error:
        raise _torn(file, "it names no signer") from error
    raise _torn(file, "it names no signer")


def _attestations(data: bytes, file: str) -> tuple[Mapping[str, Any], ...]:
    try:
        fields = json.loads(data)
        if fields["version"] != _VERSION:
            raise ValueError(f"its version is not {_VERSION}")
        found = tuple(
            each for bundle in fields["attestation_bundles"] for each in bundle["attestations"]
        )
        for each in found:
            _envelope(each)
    except _TORN as error:
        raise _torn(file, type(error).__name__) from error
    return found


def _envelope(attestation: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """The statement and its signature."""
    envelope = attestation["envelope"]
    statement, signature = (
        base64.b64decode(envelope[name], validate=True) for name in ("statement", "signature")
    )
    return statement, signature


def _certificate(attestation: Mapping[str, Any]) -> bytes:
    """In DER; empty where there is none, as with a key file."""
    material = attestation.get("verification_material") or {}
    return base64.b64decode(material.get("certificate") or "", validate=True)


def _signed_statement(attestation: Mapping[str, Any], signer: Signer) -> bytes:
    """What the signer has signed. Raises PublishError, with the reason where one is known."""
    if isinstance(signer, PublicKey):
        statement, signature = _envelope(attestation)
        if not _verifies(statement, signature, signer):
            raise PublishError("")
        return statement
    try:
        certified = _certificate(attestation)
    except _TORN:
        certified = b""
    if not certified:  # a key file's
        raise PublishError("")
    return signed_statement(attestation, signer)


def _verifies(statement: bytes, signature: bytes, key: PublicKey) -> bool:
    signed = Envelope(statement, PAYLOAD, {key.id: Signature(key.id, signature.hex())})
    try:
        signed.verify([verifier(key)], 1)
    except VerificationError:
        return False
    return True


def _fault(statement: bytes, file: str, sha256: str) -> str:
    """Why a statement is not one that a file of these bytes has its provenance in; empty where it
    is."""
    try:
        fields: Mapping[str, Any] = json.loads(statement)
        kind = fields["predicateType"]
        if (fields["_type"], kind) != (STATEMENT, PREDICATE):
            return f"says something else than what the file was made from ({quote_value(kind)})"
        subjects = {(each["name"], each["digest"]["sha256"]) for each in fields["subject"]}
    except _TORN as error:
        raise _torn(file, "its statement cannot be read") from error
    return "" if (file, sha256) in subjects else f"is of other bytes than sha256 {sha256}"


def _listed(signers: Sequence[Signer]) -> str:
    kinds = {"keys" if isinstance(each, PublicKey) else "identities" for each in signers}
    kind = "signers" if len(kinds) > 1 else next(iter(kinds), "keys")
    return f"the {kind} {', '.join(each.id for each in signers)}"


def _torn(file: str, why: str) -> PublishError:
    return PublishError(f"the provenance of {file} cannot be read ({why})")
