"""A rebuilder's statement beside a wheel, and publishers who require it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.builders import publications
from tests.builders.index_wheels import stand_in
from tests.builders.publications import NOW

from tfbuild.kernelbuild.proof import Proof, RebuildResult
from tfbuild.upstream.download import hash_file
from tfcore.errors import PublishError
from tfwheels import catalog
from tfwheels.entry import read_entry
from tfwheels.folder import Folder
from tfwheels.keys import SigningKey
from tfwheels.provenance import make_statement, sign, verify_provenance
from tfwheels.publish import MANIFEST
from tfwheels.rebuild_statement import read_statement, write_statement

SAME = RebuildResult(wheel="x", proof=Proof.SAME, compiler="clang 16.0.6", bazel="4.2.3")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return stand_in(tmp_path / "made", "2.14.1+zen4", targets=("zen4",))


def test_a_statement_is_for_these_bytes_by_this_rebuilder(
    wheel: Path, key: SigningKey, other: SigningKey
) -> None:
    path = write_statement(wheel, SAME, key)
    assert path.name == f"{wheel.name}.rebuilt"
    sha256 = hash_file(wheel)
    assert read_statement(wheel, sha256, (other.public, key.public)) == path.read_bytes()
    with pytest.raises(PublishError, match="not signed by any"):
        read_statement(wheel, sha256, (other.public,))
    with pytest.raises(PublishError, match="other bytes"):
        read_statement(wheel, "0" * 64, (key.public,))
    path.unlink()
    with pytest.raises(PublishError, match="no statement of a rebuilder") as caught:
        read_statement(wheel, sha256, (key.public,))
    assert "--rebuild --sign" in caught.value.hint


def test_provenance_is_no_statement_of_a_rebuilder_nor_the_other_way_round(
    wheel: Path, key: SigningKey
) -> None:
    entry, _ = read_entry(wheel, published=NOW)
    path = write_statement(wheel, SAME, key)
    with pytest.raises(PublishError, match="is not SLSA provenance v1"):
        verify_provenance(path.read_bytes(), wheel.name, entry.sha256, (key.public,))
    path.write_bytes(sign(make_statement(entry, None, key.public), key))
    with pytest.raises(PublishError, match="is not a rebuilder's statement"):
        read_statement(wheel, entry.sha256, (key.public,))


@pytest.mark.parametrize("proof", [Proof.OTHER, Proof.NONE])
def test_other_bytes_get_no_statement(wheel: Path, key: SigningKey, proof: Proof) -> None:
    with pytest.raises(ValueError, match="same bytes"):
        write_statement(wheel, RebuildResult(wheel="x", proof=proof), key)
    assert not wheel.with_name(f"{wheel.name}.rebuilt").exists()


def test_a_statement_is_published_and_kept(wheel: Path, key: SigningKey, tmp_path: Path) -> None:
    index = Folder(root=tmp_path / "index")
    data = write_statement(wheel, SAME, key).read_bytes()
    publications.put(index, wheel)
    publications.put(index, wheel, rebuilt={hash_file(wheel): data})
    where = f"pool/tensorflow-cpu/{wheel.name}.rebuilt"
    assert index.read(where) == data
    objects = json.loads(index.read(MANIFEST) or b"")["objects"]
    (stored,) = (row for row in objects if row["key"] == where)
    assert stored["content_type"] == "application/vnd.pypi.integrity.v1+json"
    publications.put(index, wheel)
    publications.put(index, reindex=True)
    (entry,) = catalog.parse(index.read(catalog.KEY), "").entries
    assert entry.rebuilt_sha256 == stored["sha256"]
