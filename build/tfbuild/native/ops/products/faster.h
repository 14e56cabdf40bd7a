// Decides which products this library computes because it is faster than oneDNN. A cost model
// predicts the times of both from the shape (work.h); costs.h has its coefficients.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_FASTER_H_
#define TENSORWRIGHT_OPS_PRODUCTS_FASTER_H_

#include <cstdlib>
#include <string>

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
  const auto counts = work.list();
  double time = 0;
  for (int i = 0; i < Work::kCounts; ++i) time += costs[i] * counts[i];
  return time;
}

// What the cost model predicts for a kernel with one thread, in nanoseconds. The times of oneDNN are
// multiplied by less than 1, so that the kernel is only used if it is faster by more than the error
// of the model. `onednn` is 0 if the kernel was faster at too few measured shapes.
struct Prediction {
  double ours, onednn;

  // The number of threads does not matter: it must not change the result.
  bool IsFaster() const { return ours < onednn; }
};

inline Prediction Predict(KernelId kernel, const WorkPair& work) {
  const Costs& costs = kCosts[static_cast<int>(kernel)];
  const double onednn = PredictTime(costs.onednn, work.onednn);
  return {PredictTime(costs.ours, work.ours), costs.margin == 0 ? 0 : onednn / costs.margin};
}

static_assert(sizeof(kCosts) / sizeof(Costs) == sizeof(kKernelNames) / sizeof(*kKernelNames));

// Whether matrix products, batches of them or einsums are faster for some shape.
constexpr bool IsAnyContractionFaster() {
  for (int kernel = 0; kernel <= static_cast<int>(KernelId::einsum); ++kernel) {
    if (kCosts[kernel].margin > 0) return true;
  }
  return false;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_FASTER_H_
