// A vector of float and its basic operations, for the instruction set of the target.

#ifndef TENSORWRIGHT_SIMD_LANES_H_
#define TENSORWRIGHT_SIMD_LANES_H_

#include <cstring>

#include "tensorwright/simd/isa.h"

namespace tensorwright {

// Floats in a vector: 16 with AVX-512, 8 with AVX, otherwise 4.
inline constexpr int kLanes = kHasAvx512 ? 16 : kHasAvx ? 8 : 4;

using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

// Loads kLanes floats. `from` can have any alignment.
inline Lanes LoadLanes(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return lanes;
}

// Stores kLanes floats. `to` can have any alignment.
inline void StoreLanes(float* to, Lanes lanes) { std::memcpy(to, &lanes, sizeof(lanes)); }

// Returns a vector with `value` in every lane.
inline Lanes Broadcast(float value) { return value - Lanes{}; }

using Indices = int __attribute__((vector_size(kLanes * sizeof(int))));

// Returns the lanes of `values` at `indices`, which are at least 0 and less than kLanes.
inline Lanes Permute(Lanes values, Indices indices) {
#if defined(__AVX512F__)
  return (Lanes)_mm512_permutexvar_ps((__m512i)indices, (__m512)values);
#elif defined(__AVX2__)
  return (Lanes)_mm256_permutevar8x32_ps((__m256)values, (__m256i)indices);
#else
  Lanes lanes;
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = values[indices[lane]];
  return lanes;
#endif
}

// Returns a * b + c, rounded once if the target has FMA. Otherwise it is rounded twice, because
// kernels are compiled with -ffp-contract=off.
inline Lanes MultiplyAdd(Lanes a, Lanes b, Lanes c) {
#if defined(__AVX512F__)
  return (Lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  return (Lanes)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON)
  return (Lanes)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_SIMD_LANES_H_
