// Compares two results of floating-point numbers that were rounded differently.

#ifndef TENSORWRIGHT_COMPUTE_DIFFERENCE_H_
#define TENSORWRIGHT_COMPUTE_DIFFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tensorwright {

// The largest difference allowed, relative to what another rounding of the inputs changes.
constexpr double kAllowedTimes = 8;

// The largest differences that a group of fused ops may have.
struct Allowed {
  double relative = 1e-3;  // Relative to the largest number of the result.
  double absolute = 0;
};

// The element that differs most, or `index` -1 if no difference is too large.
struct Difference {
  std::int64_t index = -1;
  double expected = 0, actual = 0;
  double largest = 0;  // The largest absolute value of the expected numbers, or of their changes.
};

// Compares `count` numbers. Where the expected number is not finite, the actual one must be the same.
//
// Args:
//   moved: the numbers that are expected if the inputs are rounded differently, or nullptr if they
//     are not known.
//   before: the numbers that were updated, or nullptr if the result is no update. Of an update, the
//     change counts as the result.
template <typename T>
Difference FindDifference(const T* expected, const T* actual, const T* moved, const T* before,
                          std::int64_t count, const Allowed& allowed) {
  Difference found;
  double natural = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<double>(expected[i]);
    const double change = before == nullptr ? number : number - static_cast<double>(before[i]);
    if (!std::isfinite(number) || !std::isfinite(change)) continue;
    found.largest = std::max(found.largest, std::abs(change));
    const double distance = moved == nullptr ? 0 : std::abs(static_cast<double>(moved[i]) - number);
    if (std::isfinite(distance)) natural = std::max(natural, distance);
  }
  // Of an update, each number may be off by a few units in the last place.
  const double ulps =
      before == nullptr ? 0 : 4 * static_cast<double>(std::numeric_limits<T>::epsilon());
  double farthest =
      std::max({allowed.absolute, allowed.relative * found.largest, kAllowedTimes * natural});
  for (std::int64_t i = 0; i < count; ++i) {
    const auto one = static_cast<double>(expected[i]), other = static_cast<double>(actual[i]);
    if (one == other || (std::isnan(one) && std::isnan(other))) continue;
    const double rounding = std::isfinite(one) ? ulps * std::abs(one) : 0;
    const double distance = std::abs(one - other) - rounding;
    if (distance <= farthest) continue;  // Never true of infinity and NaN.
    found.index = i, found.expected = one, found.actual = other;
    if (!std::isfinite(distance)) break;
    farthest = distance;
  }
  return found;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_DIFFERENCE_H_
