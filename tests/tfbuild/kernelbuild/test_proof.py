"""What a wheel proves that was made again, with small wheels whose libraries are compiled here."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.builders.audit_cases import (
    CORE,
    DISPATCHER,
    STEM,
    altered,
    papers_of,
    saying,
    stock_wheel,
    tuned_wheel,
)
from tests.builders.compiled_code import KERNEL, QUICK, library
from tests.builders.origins import FLEET
from tests.builders.recompressed import recompress

from tfbuild.binaries import elf
from tfbuild.kernelbuild.origin import Origin
from tfbuild.kernelbuild.proof import (
    Proof,
    RebuildResult,
    StepCounts,
    WheelPair,
    compare_wheels,
    describe,
    require_proof,
)
from tfbuild.packing import sbom
from tfbuild.packing.tuned import read_tuned
from tfbuild.planning.target_compiler import parse_compiler
from tfcore.errors import AuditError, RebuildError
from tfcore.records import convert_record, format_json

pytestmark = pytest.mark.toolchain

KERNELS = "tensorflow/core/kernels/tensorwright/haswell.so"
INFO = f"{STEM}.dist-info"
STEPS = (StepCounts(target="haswell", run=3, cached=1),)


def table(*rows: tuple[str, str], number: int = 1) -> str:
    """Constants with pointers, such as that of what is registered and that of the targets."""
    inner = ", ".join(f'{{"{single_text}", "{two}", {number}}}' for single_text, two in rows)
    return (
        "struct row { const char *one, *two; long number; };\n"
        f"static const struct row rows[] = {{{inner}}};\n"
        "const struct row *table(void) { return rows; }\n"
    )


ROWS = tuple(("Tanh", f"T={number}") for number in range(12))
TARGETS = (("haswell", "haswell.so"),)
CODE = "int added(int x) { return x * 3 + 1; }\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("made")

    def kernels(name: str, *flags: str, rows: object = ROWS, compiler: str = "clang-16") -> Path:
        text = KERNEL + table(*rows)  # type: ignore[misc]
        words = (*QUICK, "-march=haswell", *flags)
        return library(folder, name, text, *words, compiler=compiler)

    def dispatching(name: str, more: str = "", number: int = 1, compiler: str = "clang-16") -> Path:
        text = table(*TARGETS, number=number) + more
        return library(folder, name, text, *QUICK, compiler=compiler)

    return {
        "core": library(folder, "core", KERNEL, *QUICK, "-mavx"),
        "kernels": kernels("kernels"),
        "kernels, other flags": kernels("flags", "-O1"),
        "kernels by gcc": kernels("gcc", compiler="gcc"),
        "more kernels by gcc": kernels("more", rows=(*ROWS, ("Tan", "T=1")), compiler="gcc"),
        "dispatcher": dispatching("dispatcher"),
        "dispatcher with code": dispatching("code", CODE),
        "dispatcher by gcc": dispatching("by_gcc", compiler="gcc"),
        "dispatcher with another table by gcc": dispatching("table", number=2, compiler="gcc"),
    }


def wheel_of(
    folder: Path,
    created: Mapping[str, Path],
    kernels: str = "kernels",
    dispatching: str = "dispatcher",
) -> Path:
    stock = stock_wheel(folder / "stock", {CORE: created["core"]})
    return tuned_wheel(stock, {"haswell": created[kernels]}, created[dispatching], more={})


@pytest.fixture
def fresh(made: Mapping[str, Path], tmp_path: Path) -> Path:
    return wheel_of(tmp_path / "fresh", made)


def proven(
    wheel: Path, fresh: Path, tmp_path: Path, *, unknown: tuple[str, ...] = ()
) -> RebuildResult:
    facts, tuned = read_tuned(wheel), read_tuned(fresh)
    assert facts is not None
    assert tuned is not None
    clang = parse_compiler("clang@16.0.6", "x86_64")
    pair = WheelPair(
        wheel=wheel,
        fresh=fresh,
        origin=Origin(facts=facts, compiler=clang, fleet=FLEET, unknown=unknown),
        made=tuned,
        papers=papers_of(facts, stock_of(fresh)),
        folder=tmp_path / "unpacked",
    )
    return compare_wheels(pair, STEPS)


def stock_of(wheel: Path) -> Path:
    """The stock wheel that a wheel of `wheel_of` was made of."""
    (stock,) = wheel.parents[1].glob("*.whl")
    return stock


def mended(wheel: Path, **fields: object) -> Path:
    """With other fields of its library in tuned.json, written as a build writes them."""
    facts = read_tuned(wheel)
    assert facts is not None
    (kernel_library,) = facts.libraries
    kernel_library = dataclasses.replace(kernel_library, **fields)  # type: ignore[arg-type]
    return saying(wheel, stock_of(wheel), libraries=convert_record((kernel_library,)))


def test_the_same_bytes_are_a_proof(made: Mapping[str, Path], fresh: Path, tmp_path: Path) -> None:
    rebuild_result = proven(wheel_of(tmp_path / "own", made), fresh, tmp_path)
    assert rebuild_result.proof is Proof.SAME
    assert not (*rebuild_result.reasons, *rebuild_result.findings, *rebuild_result.agreeing)
    require_proof(rebuild_result)
    text = describe(rebuild_result)
    assert text.startswith("rebuild: the same bytes with clang 16.0.6 and Bazel 4.2.3\n")
    assert "haswell: 3 compiles and links run now, 1 result from the disk cache" in text
    assert "invoke admit" in text


def test_a_flipped_byte_is_found_though_all_hashes_were_mended(
    made: Mapping[str, Path], fresh: Path, tmp_path: Path
) -> None:
    content = bytearray(made["kernels"].read_bytes())
    place = elf.read_code(made["kernels"]).sections[-1].offset + 8
    content[place] ^= 1
    other_path = tmp_path / "flipped.so"
    other_path.write_bytes(content)
    rebuild_result = proven(
        wheel_of(tmp_path / "own", {**made, "kernels": other_path}), fresh, tmp_path
    )
    assert rebuild_result.proof is Proof.OTHER
    (line,) = (finding for finding in rebuild_result.findings if finding.startswith(KERNELS))
    assert f"differs from byte {place:,} on, in .text" in line
    assert any("haswell: sha256 (" in finding for finding in rebuild_result.findings)
    with pytest.raises(AuditError, match="haswell"):
        require_proof(rebuild_result)


@pytest.mark.parametrize(
    ("kernels", "dispatching", "file"),
    [
        ("kernels, other flags", "dispatcher", KERNELS),
        ("kernels", "dispatcher with code", DISPATCHER),
    ],
)
def test_other_code_of_the_same_compiler_is_found(
    kernels: str, dispatching: str, file: str, made: Mapping[str, Path], fresh: Path, tmp_path: Path
) -> None:
    rebuild_result = proven(wheel_of(tmp_path / "own", made, kernels, dispatching), fresh, tmp_path)
    assert rebuild_result.proof is Proof.OTHER
    assert any(finding.startswith(f"{file} (") for finding in rebuild_result.findings)


def test_of_another_compiler_what_can_be_compared_is(
    made: Mapping[str, Path], fresh: Path, tmp_path: Path
) -> None:
    wheel = wheel_of(tmp_path / "own", made, "kernels by gcc", "dispatcher by gcc")
    rebuild_result = proven(wheel, fresh, tmp_path)
    assert rebuild_result.proof is Proof.NONE
    assert any(
        "GCC" in reason and "clang version 16" in reason for reason in rebuild_result.reasons
    )
    assert rebuild_result.findings == ()
    text = "\n".join(rebuild_result.agreeing)
    assert "the dispatcher has the same table" in text
    assert "haswell registers the same 12 kernels" in text
    assert "tuned.json differs only in what depends on the compiler" in text
    with pytest.raises(RebuildError, match="proves nothing"):
        require_proof(rebuild_result)


@pytest.mark.parametrize(
    ("kernels", "dispatching", "message"),
    [
        ("more kernels by gcc", "dispatcher by gcc", KERNELS),
        ("kernels by gcc", "dispatcher with another table by gcc", DISPATCHER),
    ],
)
def test_another_compiler_excuses_no_other_table(
    kernels: str,
    dispatching: str,
    message: str,
    made: Mapping[str, Path],
    fresh: Path,
    tmp_path: Path,
) -> None:
    wheel = wheel_of(tmp_path / "own", made, kernels, dispatching)
    rebuild_result = proven(wheel, fresh, tmp_path)
    assert rebuild_result.proof is Proof.OTHER
    assert [finding.partition(" ")[0] for finding in rebuild_result.findings] == [message]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"tensorflow/plain.py": b"plain = False\n"}, "tensorflow/plain.py ("),
        ({"tensorflow/plain.py": None}, "tensorflow/plain.py is missing"),
        ({"tensorflow/more.py": b""}, "tensorflow/more.py is not in the rebuild"),
        ({f"{INFO}/{sbom.FILE}": b"{ }"}, f"{INFO}/sboms"),
    ],
)
@pytest.mark.parametrize("compiler", ["", " by gcc"])
def test_no_compiler_makes_other_files(
    compiler: str,
    members: dict[str, bytes | None],
    message: str,
    made: Mapping[str, Path],
    fresh: Path,
    tmp_path: Path,
) -> None:
    honest = wheel_of(tmp_path / "own", made, f"kernels{compiler}", f"dispatcher{compiler}")
    rebuild_result = proven(altered(honest, members), fresh, tmp_path)
    assert rebuild_result.proof is Proof.OTHER
    assert rebuild_result.findings[0].startswith(message)


def test_another_compiler_excuses_nothing_that_tuned_json_says_of_admission(
    made: Mapping[str, Path], fresh: Path, tmp_path: Path
) -> None:
    wheel = wheel_of(tmp_path / "own", made, "kernels by gcc", "dispatcher by gcc")
    rebuild_result = proven(mended(wheel, stay_stock={"bias_op": "it is slow"}), fresh, tmp_path)
    assert rebuild_result.proof is Proof.OTHER
    assert "haswell: stay_stock.bias_op (" in rebuild_result.findings[0]


def test_the_same_files_in_another_archive_are_no_proof(
    made: Mapping[str, Path], fresh: Path, tmp_path: Path
) -> None:
    wheel = wheel_of(tmp_path / "own", made)
    recompress(wheel, wheel)
    rebuild_result = proven(wheel, fresh, tmp_path)
    assert (rebuild_result.proof, rebuild_result.findings) == (Proof.NONE, ())
    assert "compressed differently" in rebuild_result.reasons[0]


def test_a_plan_of_another_version_accuses_nobody(
    made: Mapping[str, Path], fresh: Path, tmp_path: Path
) -> None:
    wheel = wheel_of(tmp_path / "own", made, "kernels, other flags")
    rebuild_result = proven(wheel, fresh, tmp_path, unknown=("haswell",))
    assert rebuild_result.proof is Proof.NONE
    assert "another version built the wheel" in rebuild_result.reasons[0]
    assert any(finding.startswith(KERNELS) for finding in rebuild_result.findings)


def test_the_record_of_it_is_plain_json(
    made: Mapping[str, Path], fresh: Path, tmp_path: Path
) -> None:
    fields = json.loads(format_json(proven(wheel_of(tmp_path / "own", made), fresh, tmp_path)))
    assert fields["proof"] == "the same bytes"
    assert fields["steps"] == [{"target": "haswell", "run": 3, "cached": 1}]
