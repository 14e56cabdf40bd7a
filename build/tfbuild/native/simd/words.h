// A vector of 64-bit unsigned integers, and the multiplication of their lower halves.

#ifndef TENSORWRIGHT_SIMD_WORDS_H_
#define TENSORWRIGHT_SIMD_WORDS_H_

#include <cstdint>

#include "tensorwright/simd/isa.h"

namespace tensorwright {

// Bytes of a vector. AVX without AVX2 has no integer multiplication of 32-byte vectors.
#if defined(__AVX512F__)
inline constexpr int kWordBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kWordBytes = 32;
#else
inline constexpr int kWordBytes = 16;
#endif

using Words = std::uint64_t __attribute__((vector_size(kWordBytes)));

inline constexpr int kWordLanes = kWordBytes / sizeof(std::uint64_t);

// Returns the 64-bit product of the lower 32 bits of each lane. On x86, this is one instruction.
// Without the intrinsics, gcc would multiply all 64 bits.
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
