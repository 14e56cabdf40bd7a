// Memory of a thread's own, which stays: a new one for each operation would be mapped anew.

#ifndef TENSORWRIGHT_COMPUTE_SCRATCH_H_
#define TENSORWRIGHT_COMPUTE_SCRATCH_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorwright/compute/matrix.h"

namespace tensorwright {

// So many numbers, until the thread asks again.
inline float* Room(std::int64_t floats) {
  static thread_local std::vector<Lanes> room;
  room.resize(std::max<std::size_t>(room.size(), floats / kLanes + 1));
  return reinterpret_cast<float*>(room.data());
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_SCRATCH_H_
