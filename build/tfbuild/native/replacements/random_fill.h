// FillPhiloxRandomTask (core/kernels/random_op_cpu.h) in vectors: uniform numbers are bit for bit
// the stock ones, normal ones lie within a few units of the last place. A task fills the output's
// groups [first, limit); a number does not depend on how the output was split into tasks.

#ifndef TENSORWRIGHT_REPLACEMENTS_RANDOM_FILL_H_
#define TENSORWRIGHT_REPLACEMENTS_RANDOM_FILL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tensorflow/core/kernels/random_op_cpu.h"
#include "tensorwright/compute/sharing.h"
#include "tensorwright/replacements/box_muller.h"
#include "tensorwright/replacements/philox.h"

namespace tensorwright {

namespace random = ::tensorflow::random;
using SingleSamples = random::SingleSampleAdapter<PhiloxRandom>;
using Pairs = std::uint32_t[kSamples / 2];  // One word of each pair.

// What is computed in another type than it is stored in: half precision in float.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T, int kCount>
inline void Store(const Wide<T> (&from)[kCount], T* to) {
  Eigen::Map<Eigen::Array<T, kCount, 1>>{to} =
      Eigen::Map<const Eigen::Array<Wide<T>, kCount, 1>>(from).template cast<T>();
}

// From a block's words to kGroups * kResultElementCount numbers. Which bits become a number's
// mantissa is as in Uint32ToFloat and its like. They are exact, and so is the product here.
template <class Distribution>
struct Block;

template <typename T>
struct Block<random::UniformDistribution<PhiloxRandom, T>> {
  static constexpr bool kExact = true;

  static void Make(const Pairs& first, const Pairs& second, T* to) {
    constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
    constexpr std::uint32_t kMask = (1u << kMantissa) - 1;
    constexpr float kUnit = 1.0f / (1 << kMantissa);
    float numbers[kSamples];
    for (int i = 0; i < kSamples / 2; ++i) {
      numbers[2 * i] = static_cast<float>(static_cast<std::int32_t>(first[i] & kMask)) * kUnit;
      numbers[2 * i + 1] = static_cast<float>(static_cast<std::int32_t>(second[i] & kMask)) * kUnit;
    }
    Store<T>(numbers, to);
  }
};

template <>
struct Block<random::UniformDistribution<PhiloxRandom, double>> {
  static constexpr bool kExact = true;

  static void Make(const Pairs& first, const Pairs& second, double* to) {
    for (int i = 0; i < kSamples / 2; ++i) to[i] = random::Uint64ToDouble(first[i], second[i]);
  }
};

template <typename T>
struct Block<random::UniformFullIntDistribution<PhiloxRandom, T>> {
  static constexpr bool kExact = true;

  static void Make(const Pairs& first, const Pairs& second, T* to) {
    for (int i = 0; i < kSamples / 2; ++i) {
      if constexpr (sizeof(T) == sizeof(std::uint64_t)) {
        to[i] = first[i] | std::uint64_t{second[i]} << 32;
      } else {
        to[2 * i] = first[i];
        to[2 * i + 1] = second[i];
      }
    }
  }
};

template <typename T>
struct Block<random::NormalDistribution<PhiloxRandom, T>> {
  static constexpr bool kExact = false;

  static void Make(const Pairs& first, const Pairs& second, T* to) {
    Wide<T> normals[kGroups * random::NormalDistribution<PhiloxRandom, T>::kResultElementCount];
    Normals(first, second, normals);
    Store<T>(normals, to);
  }

  static void Normals(const Pairs& first, const Pairs& second, float* to) {
    float radii[kSamples / 2], angles[kSamples / 2];
    for (int i = 0; i < kSamples / 2; ++i) {
      radii[i] = random::Uint32ToFloat(first[i]);
      angles[i] = random::Uint32ToFloat(second[i]);
    }
    BoxMuller(radii, angles, to);
  }

  static void Normals(const Pairs& first, const Pairs& second, double* to) {
    double radii[kSamples / 4], angles[kSamples / 4];
    for (int i = 0; i < kSamples / 4; ++i) {
      radii[i] = random::Uint64ToDouble(first[2 * i], second[2 * i]);
      angles[i] = random::Uint64ToDouble(first[2 * i + 1], second[2 * i + 1]);
    }
    BoxMuller(radii, angles, to);
  }
};

// TensorFlow's own task: another class, so that it is instantiated from its own template.
template <class Distribution>
struct Stock : Distribution {
  explicit Stock(const Distribution& distribution) : Distribution(distribution) {}
};

template <class Distribution>
inline void RunStock(PhiloxRandom start, typename Distribution::ResultElementType* data,
                     std::int64_t size, std::int64_t first, std::int64_t limit,
                     const Distribution& distribution) {
  ::tensorflow::functor::FillPhiloxRandomTask<
      Stock<Distribution>, Distribution::kVariableSamplesPerOutput>::Run(start, data, size, first,
                                                                         limit,
                                                                         Stock(distribution));
}

// Distributions that take one group of words for each group of numbers.
template <class Distribution>
struct FixedTask {
  using T = typename Distribution::ResultElementType;

  static void Run(PhiloxRandom start, T* data, std::int64_t size, std::int64_t first,
                  std::int64_t limit, Distribution distribution) {
    constexpr int kElements = Distribution::kResultElementCount;
    // One by one, few groups are quicker. Only where that gives the same bits: a number must not
    // depend on how the work was split over threads.
    if (Block<Distribution>::kExact && limit - first <= kGroups / 2)
      return RunStock(start, data, size, first, limit, distribution);
    const Philox philox(start);
    const std::int64_t end = std::min(limit * kElements, size);
    for (std::int64_t group = first; group < limit; group += kGroups) {
      std::uint64_t distances[kGroups];
      for (int i = 0; i < kGroups; ++i) distances[i] = group + i;
      Pairs one, other;
      philox(distances, one, other);
      const std::int64_t offset = group * kElements;
      if (end - offset >= kGroups * kElements) {
        Block<Distribution>::Make(one, other, data + offset);
      } else {
        T rest[kGroups * kElements];
        Block<Distribution>::Make(one, other, rest);
        std::copy_n(rest, end - offset, data + offset);
      }
    }
  }
};

// Normal numbers below 2 in magnitude. A group of numbers has a region of the stream to itself and
// takes groups of words from it until it is full: four of five groups take one. Groups of a batch
// that are not yet full are packed together for the next draw.
template <typename T>
struct TruncatedTask {
  using Distribution = random::TruncatedNormalDistribution<SingleSamples, T>;
  using Normal = Block<random::NormalDistribution<PhiloxRandom, T>>;

  static constexpr int kElements = Distribution::kResultElementCount;
  static constexpr int kRegion = kElements * 256 / PhiloxRandom::kResultElementCount;
  static constexpr int kBatch = 16 * kGroups;

  static void Run(PhiloxRandom start, T* data, std::int64_t size, std::int64_t first,
                  std::int64_t limit, Distribution) {
    const Philox philox(start);
    const std::int64_t end = std::min(limit * kElements, size);
    for (std::int64_t group = first; group < limit; group += kBatch) {
      const int count = std::min<std::int64_t>(kBatch, limit - group);
      T numbers[kBatch * kElements];
      Fill(philox, group, count, numbers);
      const std::int64_t offset = group * kElements;
      std::copy_n(numbers, std::min<std::int64_t>(count * kElements, end - offset), data + offset);
    }
  }

 private:
  static void Fill(const Philox& philox, std::int64_t group, int count, T* numbers) {
    int pending[kBatch + kGroups] = {};  // Those beyond `count` are computed and left.
    int filled[kBatch] = {};
    for (int i = 0; i < count; ++i) pending[i] = i;
    for (int draw = 0; count > 0; ++draw) {
      int left = 0;
      for (int done = 0; done < count; done += kGroups) {
        Wide<T> normals[kGroups * kElements];
        Draw(philox, group, pending + done, draw, normals);
        for (int i = 0; i < std::min(kGroups, count - done); ++i) {
          const int which = pending[done + i];
          filled[which] = Keep(normals + i * kElements, filled[which], numbers + which * kElements);
          if (filled[which] < kElements) pending[left++] = which;
        }
      }
      count = left;
    }
  }

  static void Draw(const Philox& philox, std::int64_t group, const int* pending, int draw,
                   Wide<T>* normals) {
    std::uint64_t distances[kGroups];
    for (int i = 0; i < kGroups; ++i) distances[i] = (group + pending[i]) * kRegion + draw;
    Pairs one, other;
    philox(distances, one, other);
    Normal::Normals(one, other, normals);
    Settle(one, other, normals);
  }

  // The last bits of a number near 2 decide where all that follow it in its group go: such a pair
  // is computed as TensorFlow does.
  static void Settle(const Pairs& one, const Pairs& other, Wide<T>* normals) {
    constexpr int kCount = kGroups * kElements;
    const auto close = [](Wide<T> x) { return std::abs(std::abs(x) - 2) < Wide<T>(1e-5); };
    int found = 0;
    for (int i = 0; i < kCount; ++i) found |= close(normals[i]);
    for (int i = 0; found && i < kCount; i += 2) {
      if (!close(normals[i]) && !close(normals[i + 1])) continue;
      if constexpr (std::is_same_v<T, double>) {
        random::BoxMullerDouble(one[i], other[i], one[i + 1], other[i + 1], &normals[i],
                                &normals[i + 1]);
      } else {
        random::BoxMullerFloat(one[i / 2], other[i / 2], &normals[i], &normals[i + 1]);
      }
    }
  }

  // Appends what is in range to a group's numbers. Returns how many there are then.
  static int Keep(const Wide<T>* normals, int filled, T* numbers) {
    for (int i = 0; i < kElements && filled < kElements; ++i)
      if (std::abs(normals[i]) < Wide<T>(2)) numbers[filled++] = static_cast<T>(normals[i]);
    return filled;
  }
};

// What stands for FillPhiloxRandom on the CPU.
template <class Distribution>
struct Fill {
  using T = typename Distribution::ResultElementType;
  void operator()(tensorflow::OpKernelContext*, const Eigen::ThreadPoolDevice& device,
                  const std::uint64_t* key, const std::uint64_t* counter, PhiloxRandom start,
                  T* data, std::int64_t size, Distribution distribution) const {
    if (key != nullptr && counter != nullptr) {
      start = tensorflow::GetPhiloxRandomFromCounterKeyMem(counter, key);
    }
    constexpr int kGroup = Distribution::kResultElementCount;
    constexpr bool kVariable = Distribution::kVariableSamplesPerOutput;
    const Eigen::Index groups = (size + kGroup - 1) / kGroup;
    Over(device, groups, 4 * kAligned, [&](Eigen::Index first, Eigen::Index last) {
      tensorflow::functor::FillPhiloxRandomTask<Distribution, kVariable>::Run(
          start, data, size, first, last, distribution);
    });
  }
};

}  // namespace tensorwright

namespace tensorflow::functor {

#define TENSORWRIGHT_FIXED(Distribution, T)                                  \
  template <>                                                                \
  struct FillPhiloxRandomTask<random::Distribution<PhiloxRandom, T>, false>  \
      : ::tensorwright::FixedTask<random::Distribution<PhiloxRandom, T>> {}; \
  template <>                                                                \
  struct FillPhiloxRandom<CPUDevice, random::Distribution<PhiloxRandom, T>>  \
      : ::tensorwright::Fill<random::Distribution<PhiloxRandom, T>> {};
#define TENSORWRIGHT_REAL(T)                                                                \
  TENSORWRIGHT_FIXED(UniformDistribution, T)                                                \
  TENSORWRIGHT_FIXED(NormalDistribution, T)                                                 \
  template <>                                                                               \
  struct FillPhiloxRandomTask<                                                              \
      random::TruncatedNormalDistribution<SingleSampleAdapter<PhiloxRandom>, T>, true>      \
      : ::tensorwright::TruncatedTask<T> {};                                                \
  template <>                                                                               \
  struct FillPhiloxRandom<                                                                  \
      CPUDevice, random::TruncatedNormalDistribution<SingleSampleAdapter<PhiloxRandom>, T>> \
      : ::tensorwright::Fill<                                                               \
            random::TruncatedNormalDistribution<SingleSampleAdapter<PhiloxRandom>, T>> {};

TENSORWRIGHT_REAL(Eigen::half)
TENSORWRIGHT_REAL(bfloat16)
TENSORWRIGHT_REAL(float)
TENSORWRIGHT_REAL(double)
TENSORWRIGHT_FIXED(UniformFullIntDistribution, int32)
TENSORWRIGHT_FIXED(UniformFullIntDistribution, uint32)
TENSORWRIGHT_FIXED(UniformFullIntDistribution, int64_t)
TENSORWRIGHT_FIXED(UniformFullIntDistribution, uint64)

#undef TENSORWRIGHT_REAL
#undef TENSORWRIGHT_FIXED

}  // namespace tensorflow::functor

#endif  // TENSORWRIGHT_REPLACEMENTS_RANDOM_FILL_H_
