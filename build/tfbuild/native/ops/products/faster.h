// What this library computes in less time than oneDNN, by what was measured against that of TensorFlow
// 2.14.1: with AVX2 on a Zen 3, with AVX-512 on a Zen 4 (docs/fused.md).

#ifndef TENSORWRIGHT_OPS_PRODUCTS_FASTER_H_
#define TENSORWRIGHT_OPS_PRODUCTS_FASTER_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tensorflow/core/platform/cpu_info.h"
#include "tensorwright/compute/matrix.h"
#include "tensorwright/ops/products/convolution.h"
#include "tensorwright/ops/products/winograd.h"

namespace tensorwright {

// Products with AVX-512 are as fast as oneDNN's, no faster: minimal filtering alone is.
constexpr bool kProductsAreFaster = !kHasAvx512;

// Tiles of products want channels; nothing was measured of taps that stand apart.
inline bool IsFasterGradient(const Convolution& of) {
  return kProductsAreFaster && of.channels >= 2 * kTileRows && of.filters >= kPanel &&
         of.rows.dilation == 1 && of.columns.dilation == 1;
}
// Minimal filtering. Tiles at the border are computed whole. For outputs the filter is transformed each
// time, which is worth it for many tiles only: for half as many along one axis.
template <class Scheme>
bool IsFasterFiltered(const Convolution& of, bool makes_outputs) {
  const std::int64_t tiles = Tiles<Scheme>(of).count(),
                     outputs = of.images * of.rows.out * of.columns.out;
  if (!Scheme::Serves(of) || of.filters < kPanel || tiles < 32 ||
      3 * outputs < 2 * Scheme::kOutputs * tiles) {
    return false;
  }
  const std::int64_t each = Scheme::Down::kTaps == 1 ? 8 : 4;
  return !makes_outputs || each * tiles >= std::max(of.channels, of.filters);
}

// Calls `run` with the scheme by which outputs, or the gradient of a filter, are faster; false if there is
// none.
template <class Run>
bool WithFasterScheme(const Convolution& of, bool makes_outputs, const Run& run) {
  const auto with = [&](auto scheme) {
    if (!IsFasterFiltered<decltype(scheme)>(of, makes_outputs)) return false;
    run(scheme);
    return true;
  };
  return with(SquareTiles{}) || with(LineTiles<3>{}) || with(LineTiles<5>{});
}

// Of a dense layer's gradient: the transposed inputs by what comes back.
inline bool IsFasterTransposed(const Convolution& of) {
  return IsFasterGradient(of) && of.images >= 64 && of.filters >= 128 &&
         of.channels * of.filters >= 1 << 16;
}
inline bool IsFasterProduct(const Matrix& a, const Matrix& b) {
  return a.rows >= 64 && a.rows <= 512 && a.columns >= 256 && b.columns >= 256;
}

// Whether oneDNN computes here with wider vectors than those of this code and of what it was measured
// against: a library for AVX2 on a CPU with AVX-512, unless ONEDNN_MAX_CPU_ISA keeps oneDNN from it.
inline bool HasWiderVectors() {
  if constexpr (kHasAvx512) return false;
  const char* most = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string name = most == nullptr ? "" : most;
  const bool capped =
      name == "SSE41" || (name.rfind("AVX", 0) == 0 && name.rfind("AVX512", 0) != 0);
  return !capped && tensorflow::port::TestCPUFeature(tensorflow::port::AVX512F);
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_FASTER_H_
