"""What is read from linked libraries: the dispatcher's table, the kernels that are registered."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.audit_cases import rows_of
from tests.builders.compiled_code import KERNEL, QUICK, REGISTERED, library
from tests.builders.compiled_code import dispatcher as linked
from tests.builders.index_wheels import tuned_for

from tfbuild.auditing.tables import find_problems, find_unregistered, read_table
from tfbuild.packing.tuned import Tuned
from tfbuild.planning.dispatcher import (
    HEADER,
    LINK_FLAGS,
    SOURCE,
    DispatchTarget,
    build_target,
    list_compile_flags,
    render_header,
)
from tfcore.errors import WheelError
from tfcore.settings import TEMPLATES

pytestmark = pytest.mark.toolchain

FLEET = tuned_for(("zen4", "skylake_avx512", "haswell"))
ARM = ("neoverse_v1", "neoverse_n1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def fleet(folder: Path) -> Path:
    return linked(folder, rows_of(FLEET.libraries), "fleet")


@pytest.fixture(scope="module")
def scratch(folder: Path) -> Path:
    return folder / "scratch.so"


def arm_rows(tuned_facts: Tuned) -> tuple[DispatchTarget, ...]:
    return tuple(
        build_target(
            kernel_library.name,
            Path(kernel_library.file).name,
            kernel_library.required_features,
            "aarch64",
        )
        for kernel_library in tuned_facts.libraries
    )


def test_the_table_is_read_as_it_was_linked(fleet: Path) -> None:
    assert read_table(fleet) == rows_of(FLEET.libraries)
    assert list(find_problems(FLEET, fleet)) == []


def test_the_other_compiler_leaves_the_same_table(fleet: Path, folder: Path) -> None:
    flags = (*list_compile_flags("x86_64"), f"-I{folder}")
    path = folder / "gcc.so"
    subprocess.run(["gcc", *flags, str(SOURCE), "-o", str(path), *LINK_FLAGS], check=True)
    assert read_table(path) == read_table(fleet)


def test_the_order_of_the_targets_is_compared(fleet: Path) -> None:
    other_facts = dataclasses.replace(FLEET, libraries=FLEET.libraries[::-1])
    (problem,) = find_problems(other_facts, fleet)
    assert "lists zen4, skylake.avx512, haswell" in problem


def test_on_aarch64_it_is_words_and_bits(folder: Path) -> None:
    facts, own_path = tuned_for(ARM), folder / "arm"
    own_path.mkdir()
    rows = arm_rows(facts)
    (own_path / HEADER).write_text(render_header(rows, TEMPLATES))
    words = ["aarch64-linux-gnu-gcc", *list_compile_flags("aarch64"), f"-I{own_path}", str(SOURCE)]
    subprocess.run([*words, "-o", str(own_path / "arm.so"), *LINK_FLAGS], check=True)
    assert read_table(own_path / "arm.so") == rows
    assert {row.features[0].__class__.__name__ for row in rows} == {"HwcapFeature"}
    assert list(find_problems(facts, own_path / "arm.so")) == []
    fewer = dataclasses.replace(
        facts.libraries[1], required_features=facts.libraries[1].required_features[1:]
    )
    other_facts = dataclasses.replace(facts, libraries=(facts.libraries[0], fewer))
    (problem,) = find_problems(other_facts, own_path / "arm.so")
    assert f"checks {facts.libraries[1].required_features[0]}" in problem


def test_a_dispatcher_of_the_other_architecture_is_a_problem(fleet: Path) -> None:
    problems = list(find_problems(tuned_for(ARM), fleet))
    assert problems
    assert problems[0].startswith("the dispatcher lists zen4")


def test_what_cannot_be_read_is_a_problem(scratch: Path) -> None:
    scratch.write_bytes(b"no library")
    (problem,) = find_problems(FLEET, scratch)
    assert problem.startswith("the dispatcher's table cannot be read: ")


TORN: Mapping[str, tuple[int, int]] = {"anywhere": (0, 1 << 20), "its head": (0, 0x300)}


@pytest.mark.parametrize("where", TORN)
@given(data=st.data())
def test_broken_bytes_are_an_error_and_never_more(
    where: str, data: st.DataObject, fleet: Path, scratch: Path
) -> None:
    """Nothing else is raised, whatever is changed: a number in the file, or its length."""
    whole = bytearray(fleet.read_bytes())
    first, last = TORN[where]
    for at, word in data.draw(
        st.lists(
            st.tuples(st.integers(first, min(last, len(whole)) - 8), st.binary(max_size=8)),
            min_size=1,
            max_size=8,
        )
    ):
        whole[at : at + len(word)] = word
    scratch.write_bytes(whole[: data.draw(st.integers(0, 2 * len(whole)))])
    for read in (read_table, lambda path: find_unregistered(path, ["Tanh"])):
        with contextlib.suppress(WheelError):
            read(scratch)


def test_a_library_without_a_table_of_names_is_an_error(fleet: Path, scratch: Path) -> None:
    """pyelftools has an assertion there."""
    content = bytearray(fleet.read_bytes())
    with fleet.open("rb") as file:
        library = ELFFile(file)
        dynamic = next(
            segment for segment in library.iter_segments() if segment["p_type"] == "PT_DYNAMIC"
        )
        number = [tag["d_tag"] for tag in dynamic.iter_tags()].index("DT_STRTAB")
        tag = dynamic["p_offset"] + 16 * number
    content[tag : tag + 8] = (0x15).to_bytes(8, "little")  # (DT_DEBUG)
    content[40:48], content[60:64] = bytes(8), bytes(4)  # no sections either
    scratch.write_bytes(content)
    with pytest.raises(WheelError):
        read_table(scratch)


def test_a_registration_is_two_pointers_and_not_a_text(folder: Path) -> None:
    ops = ["Tanh", "MatMul"]
    full = library(folder, "full", KERNEL + REGISTERED, *QUICK, "-s")
    assert find_unregistered(full, ops) == ("MatMul",)
    text = library(folder, "text", KERNEL + 'const char text[] = "Tanh";', *QUICK, "-s")
    assert find_unregistered(text, ops) == ("MatMul", "Tanh")
    alone = 'const char* const names[] = {"Tanh", 0, 0};'
    assert find_unregistered(library(folder, "alone", alone, *QUICK, "-s"), ops) == (
        "MatMul",
        "Tanh",
    )
