"""Indexes that trust identities. A real wheel with the provenance object that PyPI has of it says
that somebody published it; what PyPI has of another file says what that was made from. Where a test
needs both of one file, the first counts as the second."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pypi_attestations
import pytest
from cryptography import x509
from sigstore.models import Bundle
from tests.certified import (
    CIRCLECI,
    GITHUB,
    ME,
    PUBLISHED,
    SDIST,
    SDIST_SHA256,
    WHEEL,
    WHEEL_SHA256,
    certified_wheel,
    own_certificate,
    provenance_of_sdist,
    read,
    token,
)
from tests.published import entry_of, stand_in
from tests.served import running
from tests.signed import public_file
from tests.test_serve import ask

from tfbuild.errors import PublishError, RecordError, ToolError, UsageError
from tfwheels import provenance
from tfwheels.check_wheel import bundle_of
from tfwheels.folder import Folder
from tfwheels.identities import Identity, Signer
from tfwheels.keys import SigningKey
from tfwheels.provenance import (
    convert_bundle,
    make_statement,
    read_claimed_signer,
    verify_provenance,
)
from tfwheels.publish import PublishResult, publish
from tfwheels.serve import TreeServer
from tfwheels.sigstore_client import SigningIdentity
from tfwheels.snippet import Query, Snippet, _add_check, describe
from tfwheels.trust import FILE, Signing, load_trusted, read_trusted

pytestmark = pytest.mark.usefixtures("sigstore_root")
NOW = "2020-02-29T00:00:00+00:00"
POOL = "pool/circleci-sign-publish-example"
OTHER = Identity(name="me@example.org", issuer="https://accounts.google.com")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return certified_wheel(tmp_path / "made")


@pytest.fixture
def index(tmp_path: Path) -> Folder:
    return Folder(root=tmp_path / "index")


@pytest.fixture
def any_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """That somebody published a file counts as what it was made from."""
    monkeypatch.setattr(provenance, "PREDICATE", PUBLISHED)


def put(
    index: Folder,
    *wheels: Path,
    key: SigningKey | SigningIdentity | None = None,
    trusted: tuple[Signer, ...] = (),
) -> PublishResult:
    signing = Signing(key=key, trusted=trusted)
    return publish(wheels, index, judgements={}, now=NOW, family="x86_64", signing=signing)


def contents(index: Folder) -> dict[str, bytes | None]:
    return {each: index.read(each) for each in index.list_sizes("") if not each.startswith(".")}


# Provenance ---------------------------------------------------------------------------------------


def test_who_has_signed_what_a_file_was_made_from_is_found(key: SigningKey) -> None:
    data = provenance_of_sdist()
    for signers in ((GITHUB,), (key.public, OTHER, GITHUB)):
        assert verify_provenance(data, SDIST, SDIST_SHA256, signers) == GITHUB.id
    assert read_claimed_signer(data, SDIST) == GITHUB.id


def test_another_identity_issuer_file_or_statement_is_refused(key: SigningKey) -> None:
    data, elsewhere = provenance_of_sdist(), Identity(name=GITHUB.name, issuer=OTHER.issuer)
    someone = Identity(name=OTHER.name, issuer=GITHUB.issuer)
    for file, sha256, signers, why in (
        (SDIST, "0" * 64, (GITHUB,), "other bytes"),
        (SDIST.replace("19", "20"), SDIST_SHA256, (GITHUB,), "other bytes"),
        (SDIST, SDIST_SHA256, (someone,), f"identities {someone.id}: .*SANs do not match"),
        (SDIST, SDIST_SHA256, (elsewhere,), "OIDCIssuer does not match"),
        (SDIST, SDIST_SHA256, (key.public,), f"any of the keys {key.public.id}$"),
        (SDIST, SDIST_SHA256, (key.public, OTHER), "any of the signers"),
    ):
        with pytest.raises(PublishError, match=why):
            verify_provenance(data, file, sha256, signers)
    published = json.dumps(read(f"{SDIST}.provenance")).encode()
    with pytest.raises(PublishError, match="is not SLSA provenance v1") as caught:
        verify_provenance(published, SDIST, SDIST_SHA256, (GITHUB,))
    assert GITHUB.id in str(caught.value)


def test_a_bundle_of_sigstore_becomes_the_attestation_that_pypi_makes_of_it() -> None:
    bundle = read("pypi_attestation_models-0.0.4a2.tar.gz.sigstore")
    theirs = pypi_attestations.Attestation.from_bundle(Bundle.from_json(json.dumps(bundle)))
    assert convert_bundle(bundle) == json.loads(theirs.model_dump_json())


def test_an_attestation_becomes_the_bundle_that_pypi_makes_of_it() -> None:
    attestation = read(f"{SDIST}.slsa.attestation")
    theirs = pypi_attestations.Attestation.model_validate(attestation).to_bundle()
    assert (
        Bundle.from_json(json.dumps(bundle_of(attestation)))._to_parts()[1:]
        == (theirs._to_parts()[1:])
    )
    assert convert_bundle(bundle_of(attestation)) == attestation


def test_pypis_own_verifier_takes_the_object() -> None:
    found = pypi_attestations.Provenance.model_validate_json(provenance_of_sdist())
    (bundle,) = found.attestation_bundles
    file = pypi_attestations.Distribution(name=SDIST, digest=SDIST_SHA256)
    kind, _ = bundle.attestations[0].verify(bundle.publisher, file, offline=True)
    assert kind == provenance.PREDICATE


class Recorded(SigningIdentity):
    """Who signed a bundle once; nobody can sign the same again."""

    bundle: Mapping[str, Any] = read("pypi_attestation_models-0.0.4a2.tar.gz.sigstore")

    @property
    def certificate(self) -> bytes:
        return base64.b64decode(self.bundle["verificationMaterial"]["certificate"]["rawBytes"])

    def sign(self, statement: bytes) -> Mapping[str, Any]:
        assert statement == base64.b64decode(self.bundle["dsseEnvelope"]["payload"])
        return self.bundle


def test_what_is_signed_is_an_object_that_pypis_own_verifier_takes() -> None:
    said = base64.b64decode(Recorded.bundle["dsseEnvelope"]["payload"])
    (subject,) = json.loads(said)["subject"]
    data = provenance.sign(said, Recorded())
    (bundle,) = pypi_attestations.Provenance.model_validate_json(data).attestation_bundles
    assert bundle.publisher.kind == "GitHub"
    file = pypi_attestations.Distribution(name=subject["name"], digest=subject["digest"]["sha256"])
    kind, _ = bundle.attestations[0].verify(bundle.publisher, file, offline=True)
    assert kind == PUBLISHED
    with pytest.raises(PublishError, match="is not SLSA provenance v1"):
        verify_provenance(data, file.name, file.digest, (Recorded().public,))


def test_an_identity_is_the_builder() -> None:
    for identity, builder in ((ME, "mailto:me@example.org"), (GITHUB, GITHUB.name)):
        fields = json.loads(make_statement(entry_of("2.14.1"), None, identity))
        assert fields["predicate"]["runDetails"]["builder"]["id"] == builder


# Publishing ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("any_statement")
def test_an_index_takes_what_a_trusted_identity_has_signed_and_nothing_else(
    index: Folder, wheel: Path, tmp_path: Path
) -> None:
    done = put(index, wheel, trusted=(CIRCLECI,))
    assert done.signers == {WHEEL: CIRCLECI.id}
    kept = index.read(f"{POOL}/{WHEEL}.provenance")
    assert kept == wheel.with_name(f"{WHEEL}.provenance").read_bytes()
    assert load_trusted(index) == (CIRCLECI,)
    assert put(index, wheel).pages == ()
    before = contents(index)
    unsigned = stand_in(tmp_path / "made", "2.14.1")
    with pytest.raises(PublishError, match=f"{unsigned.name} is unsigned"):
        put(index, unsigned)
    with pytest.raises(PublishError, match="trusts sigstore:https://circleci"):
        put(index, wheel, trusted=(OTHER,))
    assert contents(index) == before


@pytest.mark.usefixtures("any_statement")
def test_what_is_signed_by_nobody_trusted_leaves_no_trace(
    index: Folder, wheel: Path, tmp_path: Path
) -> None:
    elsewhere = Identity(name=CIRCLECI.name, issuer=OTHER.issuer)
    for signer in (OTHER, elsewhere):
        with pytest.raises(PublishError, match="not signed by any of the identities"):
            put(index, wheel, trusted=(signer,))
    other = stand_in(tmp_path / "made", "2.14.1")
    shutil.copy(f"{wheel}.provenance", f"{other}.provenance")
    with pytest.raises(PublishError, match="other bytes than sha256"):
        put(index, other, trusted=(CIRCLECI,))
    assert not index.root.exists() or not contents(index)


def test_that_somebody_published_a_wheel_is_not_what_it_was_made_from(
    index: Folder, wheel: Path
) -> None:
    with pytest.raises(PublishError, match="is not SLSA provenance v1"):
        put(index, wheel, trusted=(CIRCLECI,))
    assert not index.root.exists() or not contents(index)


@pytest.mark.usefixtures("any_statement")
def test_keys_and_identities_are_trusted_side_by_side(
    index: Folder, wheel: Path, key: SigningKey, tmp_path: Path
) -> None:
    both = (key.public, CIRCLECI)
    other = stand_in(tmp_path / "made", "2.14.1")
    put(index, other, key=key, trusted=both)
    assert put(index, wheel).signers == {WHEEL: CIRCLECI.id}
    assert load_trusted(index) == both
    (index.root / POOL / f"{WHEEL}.provenance").write_bytes(b"{}")
    with pytest.raises(PublishError, match="provenance"):
        put(index, other)


@pytest.mark.usefixtures("any_statement")
def test_what_is_signed_already_asks_for_no_certificate(index: Folder, wheel: Path) -> None:
    """Fulcio is out of reach."""
    signing = SigningIdentity(token())
    put(index, wheel, trusted=(CIRCLECI,))
    assert put(index, wheel, key=signing).pages == ()


def test_an_identity_that_cannot_sign_leaves_no_trace(index: Folder, tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="Nothing was published"):
        put(index, stand_in(tmp_path / "made", "2.14.1"), key=SigningIdentity(token()))
    assert not index.root.exists() or not contents(index)


def test_an_identity_that_is_not_trusted_signs_nothing(
    index: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for the public log, which is out of reach here and would be another error."""
    own = own_certificate(x509.RFC822Name(ME.name), issuer=ME.issuer)
    monkeypatch.setattr(SigningIdentity, "certificate", own)
    with pytest.raises(PublishError, match=f"--sign uses {ME.id}, which .* does not trust"):
        put(index, stand_in(tmp_path / "made", "2.14.1"), key=SigningIdentity(), trusted=(OTHER,))
    assert not index.root.exists() or not contents(index)


def test_an_index_of_keys_alone_is_one_that_older_versions_read(
    index: Folder, key: SigningKey, tmp_path: Path
) -> None:
    put(index, stand_in(tmp_path / "made", "2.14.1"), key=key, trusted=(key.public,))
    assert json.loads(index.read(FILE) or b"").keys() == {"schema", "keys"}


def test_trust_names_keys_and_identities_in_one_list(key: SigningKey, tmp_path: Path) -> None:
    pem = public_file(tmp_path, key.public)
    text = f" {CIRCLECI.id} , {pem},{OTHER.id},{CIRCLECI.id}"
    assert read_trusted(text) == (key.public, CIRCLECI, OTHER)
    assert read_trusted(OTHER.id) == (OTHER,)
    assert read_trusted("") == ()
    with pytest.raises(UsageError, match="names no file"):
        read_trusted(",")
    with pytest.raises(UsageError, match="is not an identity"):
        read_trusted("sigstore:me")


@pytest.mark.parametrize(
    "identities",
    ['[{"name": "me", "issuer": "no-url"}]', '[{"name": 1, "issuer": "https://a.example"}]', "7"],
)
def test_identities_of_an_index_that_name_nobody_stop_it(index: Folder, identities: str) -> None:
    index.root.mkdir()
    (index.root / FILE).write_text(f'{{"schema": 1, "keys": [], "identities": {identities}}}')
    with pytest.raises(RecordError, match=FILE):
        load_trusted(index)


def test_without_the_library_an_index_of_identities_is_refused_at_once(
    index: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.root.mkdir()
    own = {"schema": 1, "identities": [{"name": OTHER.name, "issuer": OTHER.issuer}]}
    (index.root / FILE).write_text(json.dumps(own))
    assert load_trusted(index) == (OTHER,)
    monkeypatch.setitem(sys.modules, "sigstore", None)
    monkeypatch.setitem(sys.modules, "sigstore.verify", None)
    with pytest.raises(ToolError, match="sigstore"):
        load_trusted(index)
    with pytest.raises(ToolError, match="sigstore"):
        read_trusted(OTHER.id)


# Handed out, and checked by clients ---------------------------------------------------------------


@pytest.fixture
def served(index: Folder, wheel: Path) -> Iterator[TreeServer]:
    put(index, wheel)
    shutil.copy(f"{wheel}.provenance", index.root / POOL)
    with running(TreeServer(index.root, 0, (CIRCLECI,))) as server:
        yield server


@pytest.mark.usefixtures("any_statement")
def test_a_server_hands_out_what_a_trusted_identity_has_signed(
    served: TreeServer, wheel: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, _, body = ask(served, f"/{POOL}/{WHEEL}")
    assert (code, body) == (HTTPStatus.OK, wheel.read_bytes())
    (served.root / POOL / WHEEL).write_bytes(wheel.read_bytes() + b"\0")
    assert ask(served, f"/{POOL}/{WHEEL}")[0] == HTTPStatus.NOT_FOUND
    assert "other bytes" in capfd.readouterr().err


def snippet_of(server: TreeServer, trusted: tuple[Signer, ...]) -> Snippet:
    """The lines for the wheel, which is of no release that has a page."""
    wanted = Query(
        base=server.url,
        target="haswell",
        package="circleci-sign-publish-example",
        version="0.0.1.dev137",
        python="3.11",
    )
    made = Snippet(
        target=wanted.target,
        page=wanted.page,
        requirement="",
        file=WHEEL,
        sha256=WHEEL_SHA256,
        lock="",
        pip=(),
        requirements="",
        uv=(),
        pyproject="",
        fleet=(),
        notes=(),
    )
    return _add_check(made, wanted, server.root, trusted)


def checked(made: Snippet, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """The printed lines, without what installs, as one who copies them runs them."""
    program, pip, uv = made.check
    check = pip.partition(" && ")[0]
    assert uv.startswith(f"{check} && ")
    folder.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    return subprocess.run(
        ["bash", "-c", f"{program}\n{check}"],
        env=os.environ | {"PATH": path} | env,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.usefixtures("any_statement")
def test_a_client_checks_with_the_lines_that_are_printed(
    served: TreeServer, wheel: Path, tmp_path: Path
) -> None:
    made = snippet_of(served, (OTHER, CIRCLECI))
    assert made.signer == CIRCLECI.id
    text = describe(made)
    assert f"{CIRCLECI.id} signed the wheel (needs Python 3.10 and the package sigstore)" in text
    done = checked(made, tmp_path / "client")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{WHEEL} is signed by {CIRCLECI.name} of {CIRCLECI.issuer}\n"
    assert (tmp_path / "client" / WHEEL).read_bytes() == wheel.read_bytes()
    with pytest.raises(PublishError, match="any of the identities"):
        snippet_of(served, (OTHER,))


@pytest.mark.usefixtures("any_statement")
@pytest.mark.parametrize("harm", ["a bit", "another issuer", "no sigstore"])
def test_a_client_keeps_nothing_that_is_not_shown_to_be_signed(
    served: TreeServer, wheel: Path, tmp_path: Path, harm: str
) -> None:
    made = snippet_of(served, (CIRCLECI,))
    env: dict[str, str] = {}
    served.signed = type(served.signed)(served.root, ())  # the client's own check is what counts
    program, pip, uv = made.check
    if harm == "a bit":
        data = bytearray(wheel.read_bytes())
        data[len(data) // 2] ^= 1
        (served.root / POOL / WHEEL).write_bytes(data)
    elif harm == "another issuer":
        lines = (each.replace(CIRCLECI.issuer, OTHER.issuer) for each in (pip, uv))
        made = dataclasses.replace(made, check=(program, *lines))
    else:
        bare = tmp_path / "bare"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
        env |= {"PATH": f"{bare / 'bin'}:/usr/bin:/bin", "PYTHONPATH": ""}
    done = checked(made, tmp_path / "client", **env)
    assert done.returncode == 1
    assert "do not install it" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not [*(tmp_path / "client").glob("*.whl*")]
