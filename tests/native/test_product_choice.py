"""The choice between kernels of products and oneDNN, by the cost model of the kernel library."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from tests.builders.native_kernels import compile_kernels

pytestmark = pytest.mark.toolchain

SOURCE = """
#include "tensorwright/ops/products/faster.h"
using namespace tensorwright;
// Whether Winograd convolution is faster on one thread, for images of size x size, padding SAME.
extern "C" int is_layer_faster(std::int64_t images, std::int64_t size, std::int64_t channels,
                               std::int64_t filters) {
  const Convolution of = {images, channels, filters, {size, size, 3, 1, 1, 1},
                          {size, size, 3, 1, 1, 1}};
  bool faster = false;
  WithScheme(of, kOutputs, [&](auto, KernelId kernel, const WorkPair& work) {
    faster = Predict(kernel, work).IsFaster();
  });
  return faster;
}
extern "C" int is_product_faster(std::int64_t rows, std::int64_t depth, std::int64_t columns) {
  const Contraction of = MakeProduct(rows, depth, columns, false, false);
  return Predict(KernelId::product_nn, CountContractionWork(of, KernelId::product_nn)).IsFaster();
}
// Whether the einsum of attention's scores is faster.
extern "C" int is_attention_faster(std::int64_t batch, std::int64_t tokens, std::int64_t heads,
                                   std::int64_t depth) {
  EinsumLabels labels;
  std::vector<ContractionAxis> axes;
  Sizes out;
  Contraction of;
  const Sizes sizes = {batch, tokens, heads, depth};
  labels.Parse("aecd,abcd->acbe");
  labels.GetAxes(sizes, sizes, &axes, &out);
  MakeContraction(axes, &of);
  return Predict(KernelId::einsum, CountContractionWork(of, KernelId::einsum)).IsFaster();
}
"""


def compiled(folder: Path, instructions: str) -> ctypes.CDLL:
    native = compile_kernels(folder, SOURCE, instructions)
    native.is_layer_faster.argtypes = (ctypes.c_int64,) * 4
    native.is_product_faster.argtypes = (ctypes.c_int64,) * 3
    native.is_attention_faster.argtypes = (ctypes.c_int64,) * 4
    return native


@pytest.fixture(scope="module", params=["avx2", "avx512"])
def native(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> ctypes.CDLL:
    return compiled(tmp_path_factory.mktemp("choice"), request.param)


def test_layers_of_networks_are_winograd_convolutions(native: ctypes.CDLL) -> None:
    for layer in ((32, 16, 64, 64), (32, 32, 32, 32), (128, 26, 32, 64), (8, 8, 128, 128)):
        assert native.is_layer_faster(*layer), layer


def test_layers_whose_filter_is_read_from_memory_are_not(tmp_path: Path) -> None:
    """Measured with AVX2 on a Zen 4: the first took 1.7 times as long as with oneDNN."""
    native = compiled(tmp_path, "avx2")
    for layer in ((1, 16, 640, 640), (8, 2, 512, 512), (4, 8, 1280, 1280)):
        assert not native.is_layer_faster(*layer), layer


def test_attention_is_ours(native: ctypes.CDLL) -> None:
    for sizes in ((16, 64, 4, 64), (16, 128, 4, 32), (32, 128, 8, 64)):
        assert native.is_attention_faster(*sizes), sizes


def test_products_with_avx512_are_onednns(tmp_path: Path) -> None:
    native = compiled(tmp_path, "avx512")
    assert not any(native.is_product_faster(rows, 512, 512) for rows in (1, 64, 128, 4096))


def test_products_with_avx2_are_ours_where_rows_share_cache_sets(tmp_path: Path) -> None:
    """oneDNN reads the right matrix in place; rows of 2 KiB lie in few cache sets."""
    native = compiled(tmp_path, "avx2")
    assert native.is_product_faster(128, 512, 512)
    assert not native.is_product_faster(128, 512, 500)
