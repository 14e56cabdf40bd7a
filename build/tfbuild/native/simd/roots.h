// Square roots that are bit-identical to those of the stock wheel's kernels for x86, which use
// 32-byte vectors. Eigen's functions cannot replace them: with 64-byte vectors they approximate.

#ifndef TENSORWRIGHT_SIMD_ROOTS_H_
#define TENSORWRIGHT_SIMD_ROOTS_H_

#include <cstdint>

#include "tensorwright/simd/isa.h"

namespace tensorwright {

// Each function computes elements from out[0] on, in whole vectors, and returns how many. The
// caller computes the rest of out[0, count). Without AVX, or for other types, they return 0.

// Computes out[i] = sqrt(a[i]), as far as whole vectors fit into `count`.
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

// Computes approximations of out[i] = 1 / sqrt(a[i]). If `count` ends within a vector, computes the
// whole vector, so both buffers must have room for it.
template <typename T>
std::int64_t RsqrtVectors(T*, const T*, std::int64_t) {
  return 0;
}

#if defined(__AVX__)
// Refines the approximation of the CPU by one step of Newton's method, as Eigen's
// generic_rsqrt_newton_step does without FMA.
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
