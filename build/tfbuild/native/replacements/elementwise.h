// Replaces Eigen's executor of `out.device(d) = expression`, which nearly all elementwise kernels
// use. Eigen's packets still compute the values, so all bits stay the same. Only the use of threads
// and the stores differ:
//
// - Threads: Eigen's parallelFor wakes a thread to distribute the work and waits for every thread
//   that got a share. Here the caller starts at once, calls other threads only if that saves time,
//   and waits only for those that have started (sharing.h).
// - Large outputs in resident memory are stored with non-temporal stores, which bypass the caches:
//   lines need not be read before they are overwritten.
// - Large outputs in memory that is not resident yet get huge pages if the system allows them on
//   request (transparent_hugepage: madvise). There are 512 times fewer page faults.

#ifndef TENSORWRIGHT_REPLACEMENTS_ELEMENTWISE_H_
#define TENSORWRIGHT_REPLACEMENTS_ELEMENTWISE_H_

#ifndef EIGEN_USE_THREADS
#define EIGEN_USE_THREADS
#endif

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "tensorwright/compute/sharing.h"
#include "tensorwright/simd/stream.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace tensorwright {

// Whether an expression reads a tensor that begins at `start`. True for unknown expressions.
struct Reads {
  template <class Expression>
  static bool From(const Expression&, const void*) {
    return true;
  }
  template <class Plain, int kOptions, template <class> class Pointer>
  static bool From(const Eigen::TensorMap<Plain, kOptions, Pointer>& map, const void* start) {
    return map.data() == start;
  }
  template <class Op, class Type>
  static bool From(const Eigen::TensorCwiseNullaryOp<Op, Type>&, const void*) {
    return false;
  }
  template <class To, class Type>
  static bool From(const Eigen::TensorConversionOp<To, Type>& each, const void* start) {
    return From(each.expression(), start);
  }
  template <class Op, class Type>
  static bool From(const Eigen::TensorCwiseUnaryOp<Op, Type>& each, const void* start) {
    return From(each.nestedExpression(), start);
  }
  template <class Op, class Left, class Right>
  static bool From(const Eigen::TensorCwiseBinaryOp<Op, Left, Right>& each, const void* start) {
    return From(each.lhsExpression(), start) || From(each.rhsExpression(), start);
  }
  template <class If, class Then, class Else>
  static bool From(const Eigen::TensorSelectOp<If, Then, Else>& each, const void* start) {
    return From(each.ifExpression(), start) || From(each.thenExpression(), start) ||
           From(each.elseExpression(), start);
  }
};

// Returns the number of bytes from which an output is large: it would evict from the caches what
// the next op reads. This is eight times the L2 cache or half the L3 cache, whichever is more, but
// at most 16 MiB: on a cloud machine, other tenants use the L3 cache too.
inline size_t Large() {
  static const size_t bytes = [] {
    const long second = sysconf(_SC_LEVEL2_CACHE_SIZE), third = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const size_t most = size_t{16} << 20, seen = std::max(8 * second, third / 2);
    return seen == 0 ? most : std::min(most, seen);
  }();
  return bytes;
}

// Whether the last page of a buffer is resident. True if the system does not say.
inline bool IsResident(const void* start, size_t bytes) {
  const uintptr_t page = sysconf(_SC_PAGESIZE);
  const uintptr_t last = (reinterpret_cast<uintptr_t>(start) + bytes - 1) & ~(page - 1);
  unsigned char resident = 1;
  return mincore(reinterpret_cast<void*>(last), page, &resident) != 0 || (resident & 1) != 0;
}

// Requests huge pages of 2 MiB for the part of a buffer that they can cover. Errors are ignored.
inline void AdviseHugePages(void* start, size_t bytes) {
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  const uintptr_t from = reinterpret_cast<uintptr_t>(start);
  const uintptr_t first = (from + kHuge - 1) & ~(kHuge - 1), last = (from + bytes) & ~(kHuge - 1);
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

// Stores a packet, with kStream past the caches.
template <bool kStream, class Scalar, class Packet>
EIGEN_STRONG_INLINE void Store(Scalar* to, const Packet& packet) {
  if (kStream) {
    Stream(to, packet);
  } else {
    Eigen::internal::pstoreu(to, packet);
  }
}

// Computes the elements [first, last). `first` is a multiple of the packet's size.
template <bool kStream, class Scalar, class Evaluator>
EIGEN_STRONG_INLINE void Evaluate(Scalar* out, Evaluator in, Index first, Index last) {
  using Packet = typename Evaluator::PacketReturnType;
  constexpr Index kPacket = Eigen::internal::unpacket_traits<Packet>::size;
  constexpr int kAlignment = Evaluator::IsAligned ? Eigen::Aligned : Eigen::Unaligned;
  Index at = first;
  // As in Eigen: the compiler unrolls the inner loop if the expression is short.
  for (; at + 4 * kPacket <= last; at += 4 * kPacket) {
    for (Index each = at; each < at + 4 * kPacket; each += kPacket) {
      Store<kStream>(out + each, in.template packet<kAlignment>(each));
    }
  }
  for (; at + kPacket <= last; at += kPacket) {
    Store<kStream>(out + at, in.template packet<kAlignment>(at));
  }
  for (; at < last; ++at) out[at] = in.coeff(at);
  if (kStream) FenceStreams();
}

// Computes out[i] = expression[i] for all i < size.
template <class Scalar, class Expression>
void Assign(const Eigen::ThreadPoolDevice& device, Scalar* out, Index size,
            const Expression& expression) {
  using Evaluator = Eigen::TensorEvaluator<const Expression, Eigen::ThreadPoolDevice>;
  constexpr int kPacket =
      Eigen::internal::unpacket_traits<typename Evaluator::PacketReturnType>::size;
  Evaluator in(expression, device);
  if (size > 0 && in.evalSubExprsIfNeeded(out)) {
    const size_t bytes = size * sizeof(Scalar);
    const bool large = bytes >= Large();
    const bool fresh = large && !IsResident(out, bytes);
    if (fresh) AdviseHugePages(out, bytes);
    // If the output is also an input, its lines are in the cache already.
    const bool stream = large && !fresh && reinterpret_cast<uintptr_t>(out) % 64 == 0 &&
                        !Reads::From(expression, out);
    const auto range = [&](Index first, Index last) {
      if (stream) {
        Evaluate<true>(out, in, first, last);
      } else {
        Evaluate<false>(out, in, first, last);
      }
    };
    const auto cost =
        in.costPerCoeff(true) + Eigen::TensorOpCost(0, sizeof(Scalar), 0, true, kPacket);
    using Cost = Eigen::TensorCostModel<Eigen::ThreadPoolDevice>;
    Over(device, size, static_cast<Index>(1 / Cost::taskSize(1, cost)), range);
  }
  in.cleanup();
}

}  // namespace tensorwright

namespace Eigen {
namespace internal {

// Specialises the class that `out.device(d) = expression` instantiates. Applies to tensors of
// contiguous memory, if the expression has packets and is not evaluated in tiles, as broadcasts
// are.
template <class Scalar, int kDims, class At, int kOptions, template <class> class Pointer,
          class Expression>
class TensorExecutor<
    const TensorAssignOp<TensorMap<Tensor<Scalar, kDims, RowMajor, At>, kOptions, Pointer>,
                         const Expression>,
    ThreadPoolDevice, /*Vectorizable=*/true, TiledEvaluation::Off> {
 public:
  template <class Assignment>
  static EIGEN_STRONG_INLINE void run(const Assignment& each, const ThreadPoolDevice& device) {
    ::tensorwright::Assign(device, each.lhsExpression().data(), each.lhsExpression().size(),
                           each.rhsExpression());
  }
};

}  // namespace internal
}  // namespace Eigen

#endif  // TENSORWRIGHT_REPLACEMENTS_ELEMENTWISE_H_
