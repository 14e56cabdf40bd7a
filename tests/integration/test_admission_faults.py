"""Kernel libraries that must not be admitted, really compiled and really tried."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.builders.installed_wheel import Tried
from tests.builders.later import later
from tests.builders.rint_kernels import RIGHT, RINT_TYPES, library, rint

from tfbuild.binaries import elf
from tfbuild.kernelbuild import admission, structures
from tfbuild.kernelbuild.build_setup import unpack_stock
from tfbuild.planning.plan import require_stock
from tfbuild.tools.environment import Environment
from tfcore.settings import Paths

pytestmark = pytest.mark.toolchain


CASES = {
    "right": (rint(RIGHT), ""),
    "wrong": (rint("static_cast<T>(static_cast<float>(from(i)) + 1)"), "ULPs from the stock"),
    "partial": (rint(RIGHT, RINT_TYPES[:1]), "lacks a stock kernel"),
    "foreign": (rint(RIGHT, (*RINT_TYPES, "uint16")), "no stock kernel has the definition"),
    "crashing": (rint(RIGHT) + "static const int dead = (std::abort(), 0);", "SIGABRT"),
    "dying": (rint("(std::abort(), from(i))"), "SIGABRT"),
    # A worker of the probe is the parent of the process that loads a library.
    "killing": (rint(RIGHT) + "static const int dead = kill(getppid(), SIGKILL);", "its worker"),
    "killed": (rint(RIGHT) + "static const int dead = raise(SIGKILL);", "was ended by SIGKILL"),
    "silent": ("#include <cmath>\n", "registers no CPU kernel"),
    "unfed": (rint(RIGHT, ("float", "Eigen::half"), "NonMaxSuppressionV3"), "no test inputs"),
    "mixed": (rint(f"sizeof(T) == 8 ? T(7) : {RIGHT}"), ""),
}
FEW = ("wrong", "killing", "mixed")


@pytest.mark.parametrize("choice", ["few", *later("every")])
def test_each_fault_is_seen_and_the_sound_one_is_admitted(
    choice: str,
    native: Tried,
    staged: Path,
    paths: Paths,
    stock_arm: Environment,
    tmp_path: Path,
) -> None:
    names = FEW if choice == "few" else tuple(CASES)
    recipe, stock = native.plan.kernel_recipe, require_stock(native.plan)

    def compiled(name: str) -> Path:
        return library(name, CASES[name][0], tmp_path, native, staged, paths)

    with ThreadPoolExecutor(max_workers=2) as pool:
        libraries = dict(zip(names, pool.map(compiled, names), strict=True))
    headers = unpack_stock(native.arm.wheel, stock.sha256, recipe, paths)
    verdicts = admission.run_conformance_tests(
        libraries,
        staged=staged,
        stock_libraries=[headers / name for name in recipe.libraries],
        copts=recipe.copts,
        environment=stock_arm,
        folder=tmp_path,
    )
    assert {verdict.unit for verdict in verdicts if verdict.lost} == {"killing", "killed"} & {
        *names
    }
    (mixed,) = (verdict for verdict in verdicts if verdict.unit == "mixed")
    assert [(refused_kernel.op, refused_kernel.types) for refused_kernel in mixed.refused] == [
        ("Rint", "T=2")
    ]
    assert [registration.types for registration in mixed.registrations] == ["T=1"]
    reasons = {verdict.unit: verdict.reason for verdict in verdicts}
    for name in names:
        expected = CASES[name][1]
        assert (expected in reasons[name]) if expected else reasons[name] == "", (name, reasons)


@pytest.mark.slow
def test_a_header_whose_members_are_in_another_order_is_seen(
    native: Tried, staged: Path, paths: Paths, tmp_path: Path
) -> None:
    """As sources near a release have had it, and kernels that were compiled with it crashed."""
    name = "tensorflow/core/framework/node_properties.h"
    text = (staged / name).read_text("utf-8")
    first, second = "  const OpDef* op_def;  // not owned.\n", "  NodeDef node_def;\n"
    assert first + second in text
    other_path = tmp_path / "other" / name
    other_path.parent.mkdir(parents=True)
    other_path.write_text(text.replace(first + second, second + first))
    source = '#include "tensorwright/structures.cc"\n'

    def table(name: str, *flags: str) -> dict[str, int]:
        define = f"-DTENSORWRIGHT_STRUCTURES={name}"
        path = library(name, source, tmp_path, native, staged, paths, define, *flags)
        return elf.read_number_table(path, name)

    wheel = table(structures.WHEEL)
    kernels = table(structures.KERNELS, f"-isystem{tmp_path / 'other'}")
    assert [difference.what for difference in structures.find_differences(kernels, wheel)] == [
        "offsetof(NodeProperties, op_def)",
        "offsetof(NodeProperties, node_def)",
    ]
