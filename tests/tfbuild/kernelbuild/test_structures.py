from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.builders.structure_tables import tables

from tfbuild.binaries import elf
from tfbuild.kernelbuild.structures import (
    KERNELS,
    WHEEL,
    LayoutDifference,
    find_differences,
    require_same,
)
from tfcore.errors import KernelError, WheelError

SEEN = {"sizeof(Tensor)": 32, "offsetof(NodeProperties, node_def)": 8, "sizeof(Var)": 104}


def test_equal_tables_do_not_differ() -> None:
    assert list(find_differences(SEEN, dict(reversed(SEEN.items())))) == []


def test_what_differs_is_told_in_the_order_of_the_wheels_table() -> None:
    kernels = {"sizeof(Var)": 96, "offsetof(NodeProperties, node_def)": 0, "sizeof(Tensor)": 32}
    first, second = find_differences(kernels, SEEN)
    assert first == LayoutDifference(what="offsetof(NodeProperties, node_def)", kernels=0, wheel=8)
    assert first.words == "offsetof(NodeProperties, node_def) is 0 for kernels, 8 in the wheel"
    assert second.what == "sizeof(Var)"


def test_what_only_one_table_tells_is_a_difference() -> None:
    less = {part: SEEN[part] for part in SEEN if part != "sizeof(Var)"}
    (lost,) = find_differences(less, SEEN)
    (gained,) = find_differences(SEEN, less)
    assert lost.words == "sizeof(Var) is missing for kernels, 104 in the wheel"
    assert gained.words == "sizeof(Var) is 104 for kernels, missing in the wheel"


@pytest.mark.toolchain
@pytest.mark.parametrize("compiler", ["gcc", "clang-16", "aarch64-linux-gnu-gcc"])
def test_tables_are_read_without_running_anything(compiler: str, tmp_path: Path) -> None:
    """So for a CPU that this one is not, too."""
    path = tables(tmp_path, {KERNELS: SEEN, WHEEL: {"sizeof(Tensor)": 2**40}}, compiler)
    assert list(elf.read_number_table(path, KERNELS).items()) == list(SEEN.items())
    assert elf.read_number_table(path, WHEEL) == {"sizeof(Tensor)": 2**40}


@pytest.mark.toolchain
def test_a_library_whose_tables_are_equal_passes_and_is_written_down(tmp_path: Path) -> None:
    notes = tmp_path / "structures.json"
    require_same(tables(tmp_path, {KERNELS: SEEN, WHEEL: SEEN}), notes)
    assert json.loads(notes.read_text()) == {"kernels": SEEN, "wheel": SEEN}


@pytest.mark.toolchain
def test_a_library_whose_tables_differ_is_refused_and_the_structure_named(tmp_path: Path) -> None:
    notes = tmp_path / "structures.json"
    kernels = SEEN | {"offsetof(NodeProperties, node_def)": 0}
    with pytest.raises(KernelError, match=r"NodeProperties, node_def\) is 0 .*, 8 ") as caught:
        require_same(tables(tmp_path, {KERNELS: kernels, WHEEL: SEEN}), notes)
    assert str(notes) in caught.value.hint
    assert notes.is_file()


@pytest.mark.toolchain
def test_a_library_without_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match=WHEEL):
        require_same(tables(tmp_path, {KERNELS: SEEN}), tmp_path / "structures.json")
    assert not (tmp_path / "structures.json").exists()
