// Philox4x32-10 (Salmon et al., SC 2011), the generator of TensorFlow's random ops, computed for
// many counters at once. The words are those of tsl/lib/random/philox_random.h.

#ifndef TENSORWRIGHT_REPLACEMENTS_PHILOX_H_
#define TENSORWRIGHT_REPLACEMENTS_PHILOX_H_

#include <cstdint>
#include <cstring>

#include "tensorflow/core/lib/random/philox_random.h"
#include "tensorwright/simd/words.h"

namespace tensorwright {

using ::tensorflow::random::PhiloxRandom;

// Each 64-bit lane has one word of a counter in its lower half; the upper half is ignored. So the
// 64-bit product of a round is one instruction, and rounds need no shuffles.
inline constexpr int kVectors = 2;  // Computed together, to hide the latency of multiplication.
inline constexpr int kGroups = kVectors * kWordLanes;  // Groups of words per call.
inline constexpr int kSamples = 4 * kGroups;           // Words per call.
inline constexpr std::uint64_t kLower = 0xffffffff;

// Computes the groups of four words that a PhiloxRandom returns, at any distance from its counter.
class Philox {
 public:
  explicit Philox(const PhiloxRandom& start)
      : low_(Joined(start.counter()[0], start.counter()[1])),
        high_(Joined(start.counter()[2], start.counter()[3])) {
    for (int round = 0; round < kRounds; ++round) {
      keys_[0][round] = start.key()[0] + std::uint32_t(round) * 0x9E3779B9u;
      keys_[1][round] = start.key()[1] + std::uint32_t(round) * 0xBB67AE85u;
    }
  }

  // Computes kGroups groups. Group i is distances[i] groups after the start. Its words are, in
  // order, first[2 * i], second[2 * i], first[2 * i + 1], second[2 * i + 1]: most callers need
  // pairs.
  void operator()(const std::uint64_t (&distances)[kGroups], std::uint32_t (&first)[kSamples / 2],
                  std::uint32_t (&second)[kSamples / 2]) const {
    for (int vector = 0; vector < kVectors; ++vector) {
      Words distance;
      std::memcpy(&distance, distances + vector * kWordLanes, sizeof(distance));
      Words c0 = distance + low_, c1 = c0 >> 32;
      // Comparisons give -1 for true, so this adds the carry.
      Words c2 = high_ - reinterpret_cast<Words>(c0 < distance), c3 = c2 >> 32;
      for (int round = 0; round < kRounds; ++round) {
        const Words p0 = MultiplyLowerHalves(c0, Words{} + 0xD2511F53u);
        const Words p1 = MultiplyLowerHalves(c2, Words{} + 0xCD9E8D57u);
        c0 = (p1 >> 32) ^ c1 ^ keys_[0][round];
        c1 = p1;
        c2 = (p0 >> 32) ^ c3 ^ keys_[1][round];
        c3 = p0;
      }
      const Words even = (c0 & kLower) | (c2 << 32), odd = (c1 & kLower) | (c3 << 32);
      std::memcpy(first + 2 * vector * kWordLanes, &even, sizeof(even));
      std::memcpy(second + 2 * vector * kWordLanes, &odd, sizeof(odd));
    }
  }

 private:
  static constexpr int kRounds = 10;
  static std::uint64_t Joined(std::uint32_t low, std::uint32_t high) {
    return low | std::uint64_t{high} << 32;
  }

  std::uint64_t low_, high_;
  std::uint64_t keys_[2][kRounds];
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_REPLACEMENTS_PHILOX_H_
