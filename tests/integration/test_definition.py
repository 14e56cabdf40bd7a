"""What a registration says while it is compiled: the same as TensorFlow's KernelDef says later."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders.installed_wheel import Tried
from tests.builders.later import later

from tfbuild.kernelbuild.build_setup import unpack_stock
from tfbuild.planning.plan import NATIVE, require_stock
from tfbuild.tools.environment import Environment
from tfcore.cpus import compilers
from tfcore.run import run
from tfcore.settings import Paths

pytestmark = pytest.mark.toolchain

PROGRAM = """
#include "tensorwright/definition.h"

using tensorwright::Definition;
using namespace tensorflow;

static_assert(Definition("Mul").Device("CPU").TypeConstraint<float>("T").IsCompiled());
static_assert(!Definition("Mul").Device("CPU").TypeConstraint<double>("T").IsCompiled());
static_assert(!Definition("Mul").Device("CPU").IsCompiled());
static_assert(!Definition("Mul").Device("GPU").TypeConstraint<float>("T").IsCompiled());
static_assert(!Definition("Mu").Device("CPU").TypeConstraint<float>("T").IsCompiled());
// Constraints are in the order of their names, not of the calls; types keep theirs.
static_assert(Definition("Scatter").Device("CPU").HostMemory("resource")
                  .TypeConstraint("dtype", DT_FLOAT).TypeConstraint<int32>("Tindices")
                  .IsCompiled());
static_assert(Definition("Where").Device("CPU").TypeConstraint("T", {DT_FLOAT, DT_INT64})
                  .IsCompiled());
static_assert(!Definition("Where").Device("CPU").TypeConstraint("T", {DT_INT64, DT_FLOAT})
                   .IsCompiled());
static_assert(Definition("Depth").Device("CPU").TypeConstraint<float>("T")
                  .AttrConstraint("data_format", "NHWC").Priority(1).IsCompiled());
static_assert(Definition("Rng").Device("CPU").Label("fast").TypeConstraint<float>("dtype")
                  .IsCompiled());
static_assert(!Definition("Rng").Device("CPU").TypeConstraint<float>("dtype").IsCompiled());
static_assert(Definition("NoOp").Device("CPU").IsCompiled());
static_assert(Definition("Half").Device("CPU").TypeConstraint<bfloat16>("T").IsCompiled());
"""
TABLE = """constexpr Row kCompiled[] = {
    {"Depth", "T=1,data_format="}, {"Half", "T=14"}, {"Mul", "T=1"}, {"NoOp", ""},
    {"Rng", "dtype=1;fast"}, {"Scatter", "Tindices=3,dtype=1"}, {"Where", "T=1|9"},
};
"""


@pytest.mark.parametrize("name", ["clang-16", *later("g++")])
def test_a_definition_is_compared_as_it_is_compiled(
    name: str, native: Tried, stock_arm: Environment, paths: Paths, tmp_path: Path
) -> None:
    plan, recipe = native.plan, native.plan.kernel_recipe
    # (The native wheel's build has unpacked them: two processes that do are in each other's way.)
    headers = unpack_stock(stock_arm.wheel, require_stock(plan).sha256, recipe, paths)
    own_path = tmp_path / "tensorwright"
    own_path.mkdir()
    (own_path / "definition.h").symlink_to(NATIVE / "definition.h")
    (own_path / "compiled.inc").write_text(TABLE, encoding="utf-8")
    (tmp_path / "program.cc").write_text(PROGRAM, encoding="utf-8")
    roots = [f"-isystem{headers / root}" for root in recipe.include_roots]
    defines = [word for word in recipe.copts if word.startswith("-D")]
    words = ["-fsyntax-only", f"-std={recipe.cxx_standard}", *defines, f"-I{tmp_path}", *roots]
    run([compilers.find_compiler(name, "x86_64").path, *words, tmp_path / "program.cc"])
