"""What a wheel was made from, said and signed: an in-toto statement in an object of PEP 740.

The statement is SLSA's provenance v1 of what the wheel says of itself in tuned.json; of a wheel
that was taken over unchanged it says that. The same wheel and key give the same bytes: no time and
no path of a machine stands in them. The signature is DSSE's, by a key file. PEP 740 asks for a
certificate that an identity was given: there is none, so the key is named as a Sigstore bundle
names one (`public_key` of the verification material).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from packageurl import PackageURL
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import Signature

from tfbuild.errors import PublishError
from tfbuild.packing.tuned import KernelLibrary, Tuned, TunedTree
from tfbuild.records import canonical, pretty
from tfwheels.entry import Entry
from tfwheels.keys import PublicKey, SigningKey, verifier

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


class _Envelope(NamedTuple):
    statement: bytes
    signature: bytes


# ---- said ----


def make_statement(entry: Entry, tuned: Tuned | None, key: PublicKey) -> bytes:
    """The in-toto statement of a wheel whose signer, by `key`, is its builder; of one that is not
    tuned, that it was taken over unchanged."""
    definition = _republished(entry) if tuned is None else _built(entry, tuned)
    return canonical(
        {
            "_type": STATEMENT,
            "subject": [{"name": entry.file, "digest": {"sha256": entry.sha256}}],
            "predicateType": PREDICATE,
            "predicate": {
                "buildDefinition": definition,
                "runDetails": {"builder": {"id": f"urn:tensorwright:key:{key.id}"}},
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
            "builds": [_asked(build) for build in tuned.builds],
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


def _asked(build: KernelLibrary | TunedTree) -> dict[str, object]:
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
    said = {} if near is None or near.exact else {"annotations": {"nearness": near.words}}
    yield _material("sources", sources, tuned.source_sha256) | said
    yield _material("compiler", PackageURL("generic", name=compiler, version=version))
    yield _material("Bazel", PackageURL("generic", name="bazel", version=tuned.bazel))


def _material(name: str, url: PackageURL, sha256: str = "") -> dict[str, object]:
    digest = {"digest": {"sha256": sha256}} if sha256 else {}
    return {"name": name, "uri": url.to_string(), **digest}


# ---- signed ----


def sign(statement: bytes, key: SigningKey) -> bytes:
    """The provenance object with the statement in an envelope of its own."""
    signature = Envelope(statement, PAYLOAD, {}).sign(key.signer)
    attestation = {
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
    publisher = {"kind": KIND, "claims": None, "key": key.public.id}
    bundle = {"publisher": publisher, "attestations": [attestation]}
    return pretty({"version": _VERSION, "attestation_bundles": [bundle]}).encode()


# ---- checked ----


def signed_by(data: bytes, file: str, sha256: str, keys: Sequence[PublicKey]) -> str:
    """The id of the one of the `keys` that has signed that `file` has these bytes.

    Raises PublishError for a provenance object that says so of none of them, and for what is none.
    """
    others = []
    for each in _envelopes(data, file):
        for key in keys:
            if _verifies(each, key):
                if (file, sha256) in _subjects(each.statement, file):
                    return key.id
                others.append(key.id)
    if others:
        raise PublishError(
            f"the provenance of {file}, signed by key {others[0]}, is of other bytes than "
            f"sha256 {sha256}"
        )
    raise PublishError(f"the provenance of {file} is signed by none of the keys {_ids(keys)}")


def key_named(data: bytes, file: str) -> str:
    """The id of the key that a provenance object says it is signed by; nothing shows that it is.
    Raises PublishError for what is no such object."""
    _envelopes(data, file)
    try:
        found = json.loads(data)["attestation_bundles"][0]["publisher"]["key"]
        if _ID.fullmatch(found):
            return str(found)
    except (*_TORN, IndexError) as error:
        raise _torn(file, "it names no key") from error
    raise _torn(file, "it names no key")


def _envelopes(data: bytes, file: str) -> tuple[_Envelope, ...]:
    try:
        fields = json.loads(data)
        if fields["version"] != _VERSION:
            raise ValueError(f"its version is not {_VERSION}")
        return tuple(
            _Envelope(*(base64.b64decode(inner[name], validate=True) for name in _Envelope._fields))
            for bundle in fields["attestation_bundles"]
            for each in bundle["attestations"]
            for inner in [each["envelope"]]
        )
    except _TORN as error:
        raise _torn(file, type(error).__name__) from error


def _subjects(statement: bytes, file: str) -> frozenset[tuple[str, str]]:
    """The files that a statement about provenance speaks of, and their SHA-256."""
    try:
        fields: Mapping[str, Any] = json.loads(statement)
        if (fields["_type"], fields["predicateType"]) != (STATEMENT, PREDICATE):
            return frozenset()
        return frozenset((each["name"], each["digest"]["sha256"]) for each in fields["subject"])
    except _TORN as error:
        raise _torn(file, "its statement cannot be read") from error


def _verifies(envelope: _Envelope, key: PublicKey) -> bool:
    signature = Signature(key.id, envelope.signature.hex())
    signed = Envelope(envelope.statement, PAYLOAD, {key.id: signature})
    try:
        signed.verify([verifier(key)], 1)
    except VerificationError:
        return False
    return True


def _ids(keys: Sequence[PublicKey]) -> str:
    return ", ".join(key.id for key in keys)


def _torn(file: str, why: str) -> PublishError:
    return PublishError(f"the provenance of {file} cannot be read ({why})")
