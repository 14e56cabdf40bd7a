// The Box-Muller transform: computes pairs of normal numbers from pairs of uniform numbers. Radius
// and angle are computed as in BoxMullerFloat and BoxMullerDouble
// (tsl/lib/random/random_distributions*.h); logarithm, root, sine and cosine are vectorised. All
// loops run over whole arrays, so that compilers vectorise them.

#ifndef TENSORWRIGHT_REPLACEMENTS_BOX_MULLER_H_
#define TENSORWRIGHT_REPLACEMENTS_BOX_MULLER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "unsupported/Eigen/CXX11/Tensor"

namespace tensorwright {

// Constants of sine and cosine: the polynomials of Cephes (S. Moshier: sinf.c, sin.c) for angles
// reduced to [-pi/4, pi/4]. For the reduction, pi/2 is the sum of kParts; products of the first two
// with small integers are exact.
template <typename Real>
struct SineCosineConstants;

template <>
struct SineCosineConstants<float> {
  using Bits = std::uint32_t;
  static constexpr float kParts[] = {1.5703125f, 4.837512969970703125e-4f, 7.54978995489188216e-8f};
  static constexpr float kSine[] = {-1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f};
  static constexpr float kCosine[] = {2.443315711809948e-5f, -1.388731625493765e-3f,
                                      4.166664568298827e-2f};
};

template <>
struct SineCosineConstants<double> {
  using Bits = std::uint64_t;
  static constexpr double kParts[] = {1.57079625129699707031e0, 7.54978941586159635336e-8,
                                      5.39030285815811905290e-15};
  static constexpr double kSine[] = {1.58962301576546568060e-10, -2.50507477628578072866e-8,
                                     2.75573136213857245213e-6,  -1.98412698295895385996e-4,
                                     8.33333333332211858878e-3,  -1.66666666666666307295e-1};
  static constexpr double kCosine[] = {-1.13585365213876817300e-11, 2.08757008419747316778e-9,
                                       -2.75573141792967388112e-7,  2.48015872888517045348e-5,
                                       -1.38888888888730564116e-3,  4.16666666666665929218e-2};
};

// Evaluates a polynomial by Horner's rule. The coefficient of the highest power comes first.
template <typename Real, int kTerms>
inline Real Polynomial(const Real (&terms)[kTerms], Real x) {
  Real sum = terms[0];
  for (int i = 1; i < kTerms; ++i) sum = sum * x + terms[i];
  return sum;
}

// Computes sine and cosine of an angle in [0, 2 * pi].
template <typename Real>
inline void SineCosine(Real angle, Real* sine, Real* cosine) {
  using Bits = typename SineCosineConstants<Real>::Bits;
  const auto& parts = SineCosineConstants<Real>::kParts;
  const auto quarter = static_cast<std::int32_t>(angle * Real(M_2_PI) + Real(0.5));
  const Real turns = static_cast<Real>(quarter);
  const Real x = ((angle - turns * parts[0]) - turns * parts[1]) - turns * parts[2];
  const Real z = x * x;
  const Real s = x + x * z * Polynomial(SineCosineConstants<Real>::kSine, z);
  const Real c =
      (Real(1) - Real(0.5) * z) + z * z * Polynomial(SineCosineConstants<Real>::kCosine, z);
  const bool odd = quarter & 1;
  const Bits first = Eigen::numext::bit_cast<Bits>(odd ? c : s);
  const Bits second = Eigen::numext::bit_cast<Bits>(odd ? s : c);
  constexpr int kSign = 8 * sizeof(Bits) - 2;  // Shifts bit 1 of `quarter` to the sign bit.
  *sine = Eigen::numext::bit_cast<Real>(Bits(first ^ (Bits(quarter & 2) << kSign)));
  *cosine = Eigen::numext::bit_cast<Real>(Bits(second ^ (Bits((quarter + 1) & 2) << kSign)));
}

// Computes the pairs normals[2 * i], normals[2 * i + 1] from the uniform numbers radii[i] and
// angles[i] in [0, 1). Overwrites `radii`.
template <typename Real, int kPairs>
inline void BoxMuller(Real (&radii)[kPairs], Real (&angles)[kPairs], Real* normals) {
  for (Real& radius : radii) radius = std::max(radius, Real(1.0e-7));
  // Eigen vectorises this. Compilers would not vectorise a loop of std::sqrt, which sets errno.
  Eigen::Map<Eigen::Array<Real, kPairs, 1>> radius(radii);
  radius = (Real(-2) * radius.log()).sqrt();
  Real sines[kPairs], cosines[kPairs];
  for (int i = 0; i < kPairs; ++i) {
    const Real angle = 2.0f * M_PI * angles[i];
    SineCosine(angle, &sines[i], &cosines[i]);
  }
  for (int i = 0; i < kPairs; ++i) {
    normals[2 * i] = sines[i] * radii[i];
    normals[2 * i + 1] = cosines[i] * radii[i];
  }
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_REPLACEMENTS_BOX_MULLER_H_
