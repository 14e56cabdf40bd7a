// Non-temporal stores, which bypass the caches, of Eigen's packets.

#ifndef TENSORWRIGHT_SIMD_STREAM_H_
#define TENSORWRIGHT_SIMD_STREAM_H_

#include "Eigen/Core"
#include "tensorwright/simd/isa.h"

namespace tensorwright {

// Stores a packet without writing it to the caches, or with an ordinary store if the target has no
// instruction for that. `to` must be aligned to 64 bytes.
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

// Orders preceding calls of Stream before later stores.
inline void FenceStreams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_SIMD_STREAM_H_
