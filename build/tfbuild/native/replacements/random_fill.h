// Replaces FillPhiloxRandomTask (core/kernels/random_op_cpu.h) by vectorised code. Uniform numbers
// have the bits of stock; normal numbers are within a few units in the last place. A task fills the
// groups [first, limit) of the output. Numbers do not depend on how the output is split into tasks.

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
using Pairs = std::uint32_t[kSamples / 2];  // The first or second word of each pair.

// The type in which numbers of type T are computed: float for float16 and bfloat16.
template <typename T>
using ArithmeticType = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Converts and stores kCount numbers.
template <typename T, int kCount>
inline void Store(const ArithmeticType<T> (&from)[kCount], T* to) {
  Eigen::Map<Eigen::Array<T, kCount, 1>>{to} =
      Eigen::Map<const Eigen::Array<ArithmeticType<T>, kCount, 1>>(from).template cast<T>();
}

// Make() converts the words of kGroups groups to kGroups * kResultElementCount numbers. kExact says
// whether they have the bits of stock. Uniform numbers take their mantissa from the same bits as in
// Uint32ToFloat and similar functions of TensorFlow; these functions are exact, and so is the
// product here.
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
    ArithmeticType<T>
        normals[kGroups * random::NormalDistribution<PhiloxRandom, T>::kResultElementCount];
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

// A distribution of another class, for which FillPhiloxRandomTask is TensorFlow's own template
// instead of the specialisation below.
template <class Distribution>
struct Stock : Distribution {
  explicit Stock(const Distribution& distribution) : Distribution(distribution) {}
};

// Runs TensorFlow's own task.
template <class Distribution>
inline void RunStock(PhiloxRandom start, typename Distribution::ResultElementType* data,
                     std::int64_t size, std::int64_t first, std::int64_t limit,
                     const Distribution& distribution) {
  ::tensorflow::functor::FillPhiloxRandomTask<
      Stock<Distribution>, Distribution::kVariableSamplesPerOutput>::Run(start, data, size, first,
                                                                         limit,
                                                                         Stock(distribution));
}

// The task of distributions that use one group of words for each group of numbers.
template <class Distribution>
struct FixedTask {
  using T = typename Distribution::ResultElementType;

  static void Run(PhiloxRandom start, T* data, std::int64_t size, std::int64_t first,
                  std::int64_t limit, Distribution distribution) {
    constexpr int kElements = Distribution::kResultElementCount;
    // The stock task is faster for few groups. It is used only if its bits are the same, because
    // numbers must not depend on how threads share the work.
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

// The task of truncated normal numbers: those below 2 in magnitude. Each group of numbers has its
// own region of kRegion groups of words in the stream, and draws from it until it is full. Four of
// five groups of numbers need one draw. The groups of a batch that are not full are packed together
// for the next draw.
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
  // Computes `count` groups of numbers, from `group` on.
  static void Fill(const Philox& philox, std::int64_t group, int count, T* numbers) {
    int pending[kBatch + kGroups] = {};  // Entries from `count` on are drawn but ignored.
    int filled[kBatch] = {};
    for (int i = 0; i < count; ++i) pending[i] = i;
    for (int draw = 0; count > 0; ++draw) {
      int left = 0;
      for (int done = 0; done < count; done += kGroups) {
        ArithmeticType<T> normals[kGroups * kElements];
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

  // Computes the next normal numbers for kGroups pending groups.
  static void Draw(const Philox& philox, std::int64_t group, const int* pending, int draw,
                   ArithmeticType<T>* normals) {
    std::uint64_t distances[kGroups];
    for (int i = 0; i < kGroups; ++i) distances[i] = (group + pending[i]) * kRegion + draw;
    Pairs one, other;
    philox(distances, one, other);
    Normal::Normals(one, other, normals);
    Settle(one, other, normals);
  }

  // Computes pairs with a number near 2 again, as TensorFlow does: the last bits of such a number
  // decide whether it is kept, and so where the following numbers of its group go.
  static void Settle(const Pairs& one, const Pairs& other, ArithmeticType<T>* normals) {
    constexpr int kCount = kGroups * kElements;
    const auto close = [](ArithmeticType<T> x) {
      return std::abs(std::abs(x) - 2) < ArithmeticType<T>(1e-5);
    };
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

  // Appends the normal numbers below 2 in magnitude to a group. Returns its new number of elements.
  static int Keep(const ArithmeticType<T>* normals, int filled, T* numbers) {
    for (int i = 0; i < kElements && filled < kElements; ++i)
      if (std::abs(normals[i]) < ArithmeticType<T>(2))
        numbers[filled++] = static_cast<T>(normals[i]);
    return filled;
  }
};

// Replaces FillPhiloxRandom on the CPU. Shares the groups of the output among the threads.
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
