"""What is said of wheels that are not made again; those that are, are in integration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.builders.audit_cases import pin_stock, small_stock, sound_wheel
from tests.builders.index_wheels import stand_in, written
from tests.builders.invoke_calls import Tasks
from tests.builders.origins import made_of, request
from tests.builders.plans import fleet_for

from tfbuild import handlers
from tfbuild.commands import AuditOptions
from tfbuild.kernelbuild.proof import Proof, require_proof
from tfbuild.kernelbuild.rebuild import read_origin
from tfbuild.packing import tuned
from tfcore.errors import RebuildError


def test_a_full_build_is_refused_in_one_line_that_says_how_to(tmp_path: Path) -> None:
    wheel = stand_in(tmp_path, "2.14.1+haswell.full", full_build="haswell")
    rebuild_result = handlers.rebuild_wheel(AuditOptions(wheel=str(wheel)))
    assert rebuild_result.proof is Proof.NONE
    (reason,) = rebuild_result.reasons
    assert "core-hours" in reason
    assert "invoke build --scope full --release 2.14.1 --arch haswell" in reason
    with pytest.raises(RebuildError, match="proves nothing"):
        require_proof(rebuild_result)


def given(folder: Path) -> Path:
    """A wheel of sources that somebody gave, as far as it says so."""
    (folder / "mine.tar").write_bytes(b"sources")
    fleet, _ = fleet_for(request(source=str(folder / "mine.tar"), kernels="mini"))
    facts = made_of(fleet)
    stem = f"tensorflow_cpu-{fleet.version}"
    members = {tuned.FILE: facts.to_bytes(), "RECORD": b""}
    return written(
        folder / f"{stem}-cp311-cp311-manylinux_2_17_x86_64.whl",
        {f"{stem}.dist-info/{name}": content for name, content in members.items()},
    )


def test_sources_that_were_given_are_asked_for_by_name_and_hash(tmp_path: Path) -> None:
    with pytest.raises(RebuildError, match=r"from mine\.tar, sha256 [0-9a-f]{64}") as caught:
        read_origin(given(tmp_path), None)
    assert "--source" in caught.value.hint


@pytest.mark.toolchain
def test_what_cannot_be_compared_has_an_exit_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sources of this small wheel are none that anybody knows."""
    invoke, wheel = Tasks(tmp_path), sound_wheel(tmp_path / "made")
    stock = small_stock(tmp_path / "made")
    pin_stock(monkeypatch, stock)
    words = ("audit", str(wheel), "--stock", str(stock), "--rebuild")
    done = invoke(*words, "--json")
    assert done.returncode == 42
    document = json.loads(done.stdout)
    assert document["problems"] == []
    assert document["rebuild"]["proof"] == "not proven"
    assert "1111" in document["rebuild"]["reasons"][0]
    done = invoke(*words)
    assert (done.returncode, done.stdout.count("rebuild: not proven\n")) == (42, 1)


@pytest.mark.parametrize("words", [("--dry-run",), ("--source", "x"), ("--jobs", "1")])
def test_options_of_a_rebuild_are_for_a_rebuild(words: tuple[str, ...], tmp_path: Path) -> None:
    done = Tasks(tmp_path)("audit", "no-such.whl", *words)
    assert done.returncode == 2
    assert f"{words[0]} needs --rebuild" in done.stderr
