// Scratch memory that each thread keeps. Memory allocated for each op would have to be mapped again
// each time.

#ifndef TENSORWRIGHT_COMPUTE_SCRATCH_H_
#define TENSORWRIGHT_COMPUTE_SCRATCH_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorwright/compute/matrix.h"

namespace tensorwright {

// Returns scratch memory of the calling thread for `floats` floats, aligned to a vector. It is
// valid until the thread calls this function again. Its contents are unspecified.
inline float* GetScratch(std::int64_t floats) {
  static thread_local std::vector<Lanes> room;
  room.resize(std::max<std::size_t>(room.size(), floats / kLanes + 1));
  return reinterpret_cast<float*>(room.data());
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_SCRATCH_H_
