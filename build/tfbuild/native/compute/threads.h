// Work of one operation, shared among the threads of its device.

#ifndef TENSORWRIGHT_COMPUTE_THREADS_H_
#define TENSORWRIGHT_COMPUTE_THREADS_H_

#include <algorithm>
#include <cstdint>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorwright/compute/sharing.h"

namespace tensorwright {

// Does [0, count) in parts, `each` for a thread, so that one that comes late finds some. Threads take
// them as they come: the caller begins at once and waits for none that has not begun, as a step is
// often over before one has woken up.
template <typename Some>
void ShareParts(tensorflow::OpKernelContext* context, std::int64_t threads, std::int64_t count,
                const Some& some, std::int64_t each = 2) {
  const Eigen::ThreadPoolDevice& device = context->eigen_cpu_device();
  if (threads <= 1 || count < 2) {
    some(0, count);
  } else if (IsLent(device)) {
    using Pool = tensorflow::thread::ThreadPool;
    const Pool::SchedulingParams parts(Pool::SchedulingStrategy::kFixedBlockSize, {},
                                       Eigen::divup(count, threads));
    context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(count, parts, some);
  } else {
    const std::int64_t part = Eigen::divup(count, each * threads);
    Share(device, std::min(threads, Eigen::divup(count, part)) - 1, 0, count, part, some);
  }
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_THREADS_H_
