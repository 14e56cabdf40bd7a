"""Kernels of Rint: right, wrong, and what a library of them registers."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.builders.installed_wheel import Tried

from tfbuild.kernelbuild.build_setup import unpack_stock
from tfbuild.planning.plan import NATIVE, require_stock
from tfcore.cpus import compilers
from tfcore.run import run
from tfcore.settings import Paths

# Rint is registered for few types, and quick to write anew.
WRONG = """
#define EIGEN_USE_THREADS
#include <signal.h>
#include <unistd.h>
#include "tensorflow/core/framework/op_kernel.h"
namespace tensorflow {
template <typename T>
class Off : public OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    Tensor* out = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, context->input(0).shape(), &out));
    auto from = context->input(0).flat<T>();
    auto to = out->flat<T>();
    for (int64_t i = 0; i < from.size(); ++i) to(i) = BODY;
  }
};
TYPES
}  // namespace tensorflow
"""

REGISTER = """REGISTER_KERNEL_BUILDER(
    Name("{op}").Device(DEVICE_CPU).TypeConstraint<{type}>("T"), Off<{type}>);
"""

RINT_TYPES = ("float", "double")


def library(
    name: str,
    text: str,
    folder: Path,
    native: Tried,
    staged: Path,
    paths: Paths,
    *flags: str,
) -> Path:
    """Compile and link a source of ours exactly as kernel sources are."""
    recipe, stock = native.plan.kernel_recipe, require_stock(native.plan)
    headers = unpack_stock(native.arm.wheel, stock.sha256, recipe, paths)
    source, out = folder / f"{name}.cc", folder / f"{name}.so"
    source.write_text(text)
    include = folder / "include"
    include.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (include / "tensorwright").symlink_to(NATIVE)
    links = [option for option in recipe.linkopts if not option.startswith("-L")]
    words: list[str | Path] = [compilers.find_compiler().path, "-shared", "-fuse-ld=gold"]
    words += [f"-std={recipe.cxx_standard}", *recipe.copts, *flags, f"-I{include}"]
    words += [f"-isystem{headers / root}" for root in recipe.include_roots]
    words += [f"-isystem{staged}", source]
    words += [NATIVE / "counter.cc", NATIVE / "everything.cc"]
    words += ["-o", out, f"-L{headers / 'tensorflow'}", *links, "-lstdc++", "-lm"]
    run(words, timeout_s=300)
    return out


def rint(body: str, types: tuple[str, ...] = RINT_TYPES, op: str = "Rint") -> str:
    rows = "".join(REGISTER.format(op=op, type=dtype) for dtype in types)
    return WRONG.replace("BODY", body).replace("TYPES", rows)


RIGHT = "static_cast<T>(std::nearbyint(static_cast<double>(from(i))))"
