// Vectors of 64-bit words, and the product of their lower halves.

#ifndef TENSORWRIGHT_SIMD_WORDS_H_
#define TENSORWRIGHT_SIMD_WORDS_H_

#include <cstdint>

#include "tensorwright/simd/isa.h"

namespace tensorwright {

// With AVX alone, 32 bytes have no multiplication of integers.
#if defined(__AVX512F__)
inline constexpr int kWordBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kWordBytes = 32;
#else
inline constexpr int kWordBytes = 16;
#endif

using Words = std::uint64_t __attribute__((vector_size(kWordBytes)));

inline constexpr int kWordLanes = kWordBytes / sizeof(std::uint64_t);

// The 64-bit products of the lower halves of each lane: one instruction on x86. (Without intrinsics,
// gcc multiplies whole lanes.)
inline Words MultiplyLowerHalves(Words a, Words b) {
#if defined(__AVX512F__)
  return reinterpret_cast<Words>(
      _mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif defined(__AVX2__)
  return reinterpret_cast<Words>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#elif defined(__SSE2__)
  return reinterpret_cast<Words>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#else
  constexpr std::uint64_t kLower = 0xffffffff;
  return (a & kLower) * (b & kLower);
#endif
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_SIMD_WORDS_H_
