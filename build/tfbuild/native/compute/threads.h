// Shares the work of one op among the threads of its device.

#ifndef TENSORWRIGHT_COMPUTE_THREADS_H_
#define TENSORWRIGHT_COMPUTE_THREADS_H_

#include <algorithm>
#include <cstdint>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorwright/compute/sharing.h"

namespace tensorwright {

// Runs some(first, last) over [0, count) on up to `threads` threads, and returns when all is done.
// There are about `each` parts per thread, so that a thread that starts late still finds some.
// Threads take the next part whenever they are free. The calling thread starts at once and does not
// wait for threads that have not started, because a step is often done before a thread wakes up.
//
// Exception: in a pool that is lent to one run, there is one part per thread, and the calling
// thread waits for all of them.
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
