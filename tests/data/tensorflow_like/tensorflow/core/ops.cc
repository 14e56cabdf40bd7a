#include <vector>

#include "tensorflow/core/table.h"

extern "C" {
void xnn_vmul(const float* a, const float* b, float* out, long size);

// The sum of `values`, each times 1.
__attribute__((visibility("default"))) double like_reduce_sum(const float* values, long size) {
  std::vector<float> ones(size, kTable[1]), products(size);
  xnn_vmul(values, ones.data(), products.data(), size);
  double total = 0;
  for (long i = 0; i < size; ++i) total += products[i];
  return total;
}

__attribute__((visibility("default"))) void like_scale(float* values, long size, float by) {
  for (long i = 0; i < size; ++i) values[i] = values[i] * by + kTable[i % 64] * by;
}
}
