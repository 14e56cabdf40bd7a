// The vector instructions that this code is compiled for. Intrinsics and conditions on instruction
// sets belong in this folder only.

#ifndef TENSORWRIGHT_SIMD_ISA_H_
#define TENSORWRIGHT_SIMD_ISA_H_

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace tensorwright {

#if defined(__AVX512F__)
inline constexpr bool kHasAvx512 = true;
#else
inline constexpr bool kHasAvx512 = false;
#endif

#if defined(__AVX__)
inline constexpr bool kHasAvx = true;
#else
inline constexpr bool kHasAvx = false;
#endif

}  // namespace tensorwright

#endif  // TENSORWRIGHT_SIMD_ISA_H_
