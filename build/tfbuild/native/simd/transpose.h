// Copies of vectors in the order in which matrix products read them.

#ifndef TENSORWRIGHT_SIMD_TRANSPOSE_H_
#define TENSORWRIGHT_SIMD_TRANSPOSE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tensorwright/simd/isa.h"

namespace tensorwright {

// Writes the transpose of 4 x 4 elements: to[j * to_step + i] = from[i * from_step + j].
inline void Transpose4x4(const float* from, std::int64_t from_step, float* to,
                         std::int64_t to_step) {
#if defined(__SSE2__)
  __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_step),
         c = _mm_loadu_ps(from + 2 * from_step), d = _mm_loadu_ps(from + 3 * from_step);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(to, a);
  _mm_storeu_ps(to + to_step, b);
  _mm_storeu_ps(to + 2 * to_step, c);
  _mm_storeu_ps(to + 3 * to_step, d);
#else
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) to[j * to_step + i] = from[i * from_step + j];
  }
#endif
}

// Packs `count` vectors of `length` elements: to[k * kWidth + i] is element k of vector i, or 0 if
// i >= count. The vectors are `vector_step` apart, their elements `element_step`.
template <int kWidth>
void PackVectors(const float* from, std::int64_t count, std::int64_t length,
                 std::int64_t vector_step, std::int64_t element_step, float* to) {
  if (vector_step == 1 && count == kWidth) {
    for (std::int64_t k = 0; k < length; ++k, to += kWidth, from += element_step) {
      std::memcpy(to, from, kWidth * sizeof(float));
    }
    return;
  }
  // Vectors of 4 KiB share cache sets, so few of them are read at a time.
  constexpr std::int64_t kBlock = 64;
  const std::int64_t quads = element_step == 1 ? count / 4 * 4 : 0, end = length / 4 * 4;
  for (std::int64_t first = 0; quads > 0 && first < end; first += kBlock) {
    const std::int64_t last = std::min(first + kBlock, end);
    for (std::int64_t i = 0; i < quads; i += 4) {
      for (std::int64_t k = first; k < last; k += 4) {
        Transpose4x4(from + i * vector_step + k, vector_step, to + k * kWidth + i, kWidth);
      }
    }
  }
  for (std::int64_t k = 0; k < length; ++k, to += kWidth) {
    const std::int64_t done = k < end ? quads : 0;
    for (std::int64_t i = done; i < count; ++i) to[i] = from[i * vector_step + k * element_step];
    std::fill(to + count, to + kWidth, 0.0f);
  }
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_SIMD_TRANSPOSE_H_
