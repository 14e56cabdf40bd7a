// Decides whether oneDNN uses wider vectors than this library.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_WIDER_H_
#define TENSORWRIGHT_OPS_PRODUCTS_WIDER_H_

#include <cstdlib>
#include <string>

#include "tensorflow/core/platform/cpu_info.h"
#include "tensorwright/simd/isa.h"

namespace tensorwright {

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

#endif  // TENSORWRIGHT_OPS_PRODUCTS_WIDER_H_
