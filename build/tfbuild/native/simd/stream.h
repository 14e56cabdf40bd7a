// Stores that bypass the caches, for Eigen's packets.

#ifndef TENSORWRIGHT_SIMD_STREAM_H_
#define TENSORWRIGHT_SIMD_STREAM_H_

#include "Eigen/Core"
#include "tensorwright/simd/isa.h"

namespace tensorwright {

// Stores a packet past the caches, or as usual if there is no instruction for it. `to` is aligned to
// 64 bytes.
template <class Scalar, class Packet>
EIGEN_STRONG_INLINE void Stream(Scalar* to, const Packet& packet) {
  Eigen::internal::pstoreu(to, packet);
}
#ifdef EIGEN_VECTORIZE_AVX
EIGEN_STRONG_INLINE void Stream(float* to, const Eigen::internal::Packet8f& packet) {
  _mm256_stream_ps(to, packet);
}
EIGEN_STRONG_INLINE void Stream(double* to, const Eigen::internal::Packet4d& packet) {
  _mm256_stream_pd(to, packet);
}
#endif
#ifdef EIGEN_VECTORIZE_AVX512
EIGEN_STRONG_INLINE void Stream(float* to, const Eigen::internal::Packet16f& packet) {
  _mm512_stream_ps(to, packet);
}
EIGEN_STRONG_INLINE void Stream(double* to, const Eigen::internal::Packet8d& packet) {
  _mm512_stream_pd(to, packet);
}
#endif

// Orders the streamed stores before later ones.
inline void FenceStreams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_SIMD_STREAM_H_
