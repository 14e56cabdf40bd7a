// Square roots with the bits of the stock wheel's kernels for x86, which use vectors of 32 bytes.
// Eigen's own functions are no replacement: for vectors of 64 bytes they approximate.

#ifndef TENSORWRIGHT_SIMD_ROOTS_H_
#define TENSORWRIGHT_SIMD_ROOTS_H_

#include <cstdint>

#include "tensorwright/simd/isa.h"

namespace tensorwright {

// Each function computes whole vectors of out[0 .. count), and returns the number of elements that
// it computed; the caller computes the rest. Without AVX that is 0.

template <typename T>
std::int64_t SqrtVectors(T*, const T*, std::int64_t) {
  return 0;
}

#if defined(__AVX__)
inline std::int64_t SqrtVectors(float* out, const float* a, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(out + i, _mm256_sqrt_ps(_mm256_loadu_ps(a + i)));
  return i;
}

inline std::int64_t SqrtVectors(double* out, const double* a, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) _mm256_storeu_pd(out + i, _mm256_sqrt_pd(_mm256_loadu_pd(a + i)));
  return i;
}
#endif

// 1 / sqrt(a), approximated. `count` may end within a vector, which is then computed whole: the
// buffers have room for it.
template <typename T>
std::int64_t RsqrtVectors(T*, const T*, std::int64_t) {
  return 0;
}

#if defined(__AVX__)
// One step of Newton's method, as Eigen's generic_rsqrt_newton_step without FMA.
inline std::int64_t RsqrtVectors(float* out, const float* a, std::int64_t count) {
  std::int64_t i = 0;
  for (; i < count; i += 8) {
    const __m256 x = _mm256_loadu_ps(a + i), guess = _mm256_rsqrt_ps(x);
    const __m256 half = _mm256_mul_ps(_mm256_set1_ps(-0.5f), guess);
    const __m256 error =
        _mm256_add_ps(_mm256_mul_ps(_mm256_mul_ps(x, guess), guess), _mm256_set1_ps(-1.0f));
    const __m256 better = _mm256_add_ps(_mm256_mul_ps(error, half), guess);
    const __m256 is_nan = _mm256_cmp_ps(better, better, _CMP_UNORD_Q);
    _mm256_storeu_ps(out + i, _mm256_blendv_ps(better, guess, is_nan));
  }
  return i;
}
#endif

}  // namespace tensorwright

#endif  // TENSORWRIGHT_SIMD_ROOTS_H_
