// Decides which products this library computes because it is faster than oneDNN. A cost model
// predicts the times of both from the shape (work.h); costs.h has its coefficients.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_FASTER_H_
#define TENSORWRIGHT_OPS_PRODUCTS_FASTER_H_

#include <cstdlib>
#include <string>

#include "tensorflow/core/platform/cpu_info.h"
#include "tensorwright/ops/products/costs.h"
#include "tensorwright/ops/products/work.h"

namespace tensorwright {

// Whether TENSORWRIGHT_PRODUCTS is "always": all shapes that this library can compute are computed
// by it. The conformance test and benchmarks/kernels use this.
inline bool AlwaysReplacesProducts() {
  const char* value = std::getenv("TENSORWRIGHT_PRODUCTS");
  return value != nullptr && std::string(value) == "always";
}

// Returns the nanoseconds that `work` takes.
inline double PredictTime(const double (&costs)[Work::kCounts], const Work& work) {
  return costs[0] * work.calls + costs[1] * work.products + costs[2] * work.inputs +
         costs[3] * work.outputs + costs[4] * work.filters + costs[5] * work.uncached +
         costs[6] * work.aliased;
}

// What the cost model predicts of a kernel.
struct Prediction {
  double time;  // Nanoseconds.
  double gain;  // Above 1 if the kernel is faster than oneDNN by more than the error of the model.
};

inline Prediction Predict(KernelId kernel, const WorkPair& work) {
  const Costs& costs = kCosts[static_cast<int>(kernel)];
  const double time = PredictTime(costs.ours, work.ours);
  if (costs.margin == 0) return {time, 0};  // It was faster at too few measured shapes.
  return {time, PredictTime(costs.onednn, work.onednn) / (time * costs.margin)};
}

// Whether matrix products are faster for some shape.
constexpr bool kProductsAreFaster =
    kCosts[static_cast<int>(KernelId::product)].margin > 0 ||
    kCosts[static_cast<int>(KernelId::transposed_product)].margin > 0;

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
