// Decides which products this library computes because it is faster than oneDNN. The conditions
// follow measurements against the oneDNN of TensorFlow 2.14.1: with AVX2 on a Zen 3, with AVX-512
// on a Zen 4 (docs/fused.md).

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

// With AVX-512, only Winograd convolution is faster than oneDNN. Matrix products are as fast.
constexpr bool kProductsAreFaster = !kHasAvx512;

// Whether FilterGradient is faster. It needs enough channels and filters to fill its tiles. Filters
// with dilation were not measured.
inline bool IsFasterGradient(const Convolution& of) {
  return kProductsAreFaster && of.channels >= 2 * kTileRows && of.filters >= kPanel &&
         of.rows.dilation == 1 && of.columns.dilation == 1;
}
// Whether Winograd convolution with `Scheme` is faster. At least two thirds of the computed outputs
// must be used: tiles at the border are computed completely. `makes_outputs` is false for the
// gradient of the filter. For outputs and the gradient of the inputs, each execution transforms the
// filter, which is only worth it for many tiles; half as many suffice if one axis is transformed.
template <class Scheme>
bool IsFasterWinograd(const Convolution& of, bool makes_outputs) {
  const std::int64_t tiles = Tiles<Scheme>(of).count(),
                     outputs = of.images * of.rows.out * of.columns.out;
  if (!Scheme::Serves(of) || of.filters < kPanel || tiles < 32 ||
      3 * outputs < 2 * Scheme::kOutputs * tiles) {
    return false;
  }
  const std::int64_t each = Scheme::Down::kTaps == 1 ? 8 : 4;
  return !makes_outputs || each * tiles >= std::max(of.channels, of.filters);
}

// Calls run(scheme) with the first Winograd scheme that is faster. Returns false if there is none.
// `makes_outputs` is as in IsFasterWinograd.
template <class Run>
bool WithFasterScheme(const Convolution& of, bool makes_outputs, const Run& run) {
  const auto with = [&](auto scheme) {
    if (!IsFasterWinograd<decltype(scheme)>(of, makes_outputs)) return false;
    run(scheme);
    return true;
  };
  return with(SquareTiles{}) || with(LineTiles<3>{}) || with(LineTiles<5>{});
}

// Whether FilterGradient is faster for the gradient of a dense layer's weights, the product of the
// transposed inputs and the gradient of the outputs.
inline bool IsFasterTransposed(const Convolution& of) {
  return IsFasterGradient(of) && of.images >= 64 && of.filters >= 128 &&
         of.channels * of.filters >= 1 << 16;
}
// Whether Product is faster, with AVX2.
inline bool IsFasterProduct(const Matrix& a, const Matrix& b) {
  return a.rows >= 64 && a.rows <= 512 && a.columns >= 256 && b.columns >= 256;
}

// Whether oneDNN uses wider vectors here than this library, and than when the two were compared.
// This is so for a library for AVX2 on a CPU with AVX-512, unless ONEDNN_MAX_CPU_ISA limits oneDNN.
inline bool HasWiderVectors() {
  if constexpr (kHasAvx512) return false;
  const char* most = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string name = most == nullptr ? "" : most;
  const auto begins_with = [&](const char* word) { return name.rfind(word, 0) == 0; };
  const bool capped =
      name == "SSE41" || (begins_with("AVX") && !begins_with("AVX512") && !begins_with("AVX10"));
  return !capped && tensorflow::port::TestCPUFeature(tensorflow::port::AVX512F);
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_FASTER_H_
