// Winograd convolution with stride 1, also called minimal filtering (Lavin and Gray, "Fast
// Algorithms for Convolutional Neural Networks", CVPR 2016, whose notation is used here). Along one
// axis, F(m, r) computes m outputs of a filter g with r taps with m + r - 1 multiplications instead
// of m r:
//
//   outputs    A'[G g * B' d]    of a tile d of m + r - 1 inputs
//   filters    G'[A e * B' d]    of m gradients e of outputs, summed over tiles
//
// where ' is the transpose and * the elementwise product. This multiplies polynomials by their
// values at m + r - 1 points. Two axes are transformed one after the other. For each channel and
// filter, a tile of 2x2 outputs of a 3x3 filter takes 16 multiplications instead of 36, and a tile
// of 1x2 outputs of a 1x3 filter takes 4 instead of 6. At each position of the transformed tiles,
// the sums over channels (for outputs) or over tiles (for filters) are a matrix product. The
// numbers of channels and filters are multiples of the vector length.
//
// Tiles have two outputs along an axis. Each output depends on all inputs of its tile except one at
// an end, which contributes only to the other output. With more outputs, inputs on which an output
// does not depend would have to cancel in it. They would leave rounding errors of their own
// magnitude, and infinities would not cancel.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_H_
#define TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_H_

#include <algorithm>
#include <cstdint>

#include "tensorwright/compute/convolution.h"
#include "tensorwright/compute/matrix.h"

namespace tensorwright {

// The transforms of F(kPoints + 1 - kTaps, kTaps) along one axis. Each processes a vector of
// channels or filters. The points are 0, kP, -kP and infinity; six points also include kQ and -kQ.
// With six points, kP and kQ are chosen to keep rounding errors close to those of direct
// convolution (Vincent et al., "On Improving the Numerical Stability of Winograd Convolutions",
// ICLR 2017 workshops). All factors except the scales are exact.
template <int kTheTaps, int kThePoints>
struct WinogradTransform {
  static_assert(kThePoints == 4 || kThePoints == 6);
  static constexpr int kTaps = kTheTaps, kPoints = kThePoints, kOutputs = kPoints + 1 - kTaps;
  static constexpr bool kHasTwoPairs = kPoints == 6;
  static constexpr float kP = kHasTwoPairs ? 0.625f : 1.0f, kQ = kHasTwoPairs ? 1.5f : 0.0f;

  // Computes u = G g, of the taps of a filter.
  static void Filter(const Lanes (&g)[kTaps], Lanes (&u)[kPoints]) {
    Values(g, u);
    Scale(u);
  }
  // Computes w = A e, of the gradients of outputs.
  static void OutputGradients(const Lanes (&e)[kOutputs], Lanes (&w)[kPoints]) { Values(e, w); }
  // Computes the outputs y = A' m.
  static void Outputs(const Lanes (&m)[kPoints], Lanes (&y)[kOutputs]) { Sums(m, y); }
  // Computes g = G' m, the gradients of the taps.
  static void Taps(const Lanes (&m)[kPoints], Lanes (&g)[kTaps]) {
    Lanes scaled[kPoints];
    for (int i = 0; i < kPoints; ++i) scaled[i] = m[i];
    Scale(scaled);
    Sums(scaled, g);
  }
  // Computes v = B' d, of inputs. A row of B' has the coefficients of a polynomial whose roots are
  // the finite points except the row's own.
  static void Inputs(const Lanes (&d)[kPoints], Lanes (&v)[kPoints]) {
    if constexpr (kHasTwoPairs) {
      Lanes p[4], q[4];  // d after the factor x^2 - kP^2, and after x^2 - kQ^2.
      for (int i = 0; i < 4; ++i) {
        p[i] = MultiplyAdd(d[i], Broadcast(-kP * kP), d[i + 2]);
        q[i] = MultiplyAdd(d[i], Broadcast(-kQ * kQ), d[i + 2]);
      }
      v[0] = MultiplyAdd(p[0], Broadcast(-kQ * kQ), p[2]);
      v[1] = MultiplyAdd(q[1], Broadcast(kP), q[2]);
      v[2] = MultiplyAdd(q[1], Broadcast(-kP), q[2]);
      v[3] = MultiplyAdd(p[1], Broadcast(kQ), p[2]);
      v[4] = MultiplyAdd(p[1], Broadcast(-kQ), p[2]);
      v[5] = MultiplyAdd(p[1], Broadcast(-kQ * kQ), p[3]);
    } else {
      v[0] = d[2] - d[0];
      v[1] = d[2] + d[1];
      v[2] = d[2] - d[1];
      v[3] = d[3] - d[1];
    }
  }

 private:
  // Evaluates the polynomial with coefficients `c` at all points. Its value at infinity is the last
  // coefficient.
  template <int kCount>
  static void Values(const Lanes (&c)[kCount], Lanes (&at)[kPoints]) {
    at[0] = c[0];
    At(c, kP, &at[1], &at[2]);
    if constexpr (kHasTwoPairs) At(c, kQ, &at[3], &at[4]);
    at[kPoints - 1] = c[kCount - 1];
  }
  // Evaluates the polynomial at `point` and `-point`.
  template <int kCount>
  static void At(const Lanes (&c)[kCount], float point, Lanes* here, Lanes* there) {
    Lanes even = c[0], odd = {};
    float power = point;
    for (int k = 1; k < kCount; ++k, power *= point) {
      Lanes& part = k % 2 == 0 ? even : odd;
      part = MultiplyAdd(c[k], Broadcast(power), part);
    }
    *here = even + odd;
    *there = even - odd;
  }
  // Applies the transpose of Values.
  template <int kCount>
  static void Sums(const Lanes (&at)[kPoints], Lanes (&c)[kCount]) {
    c[0] = at[0];
    for (int k = 1; k < kCount; ++k) c[k] = Lanes{};
    Add(at[1], at[2], kP, c);
    if constexpr (kHasTwoPairs) Add(at[3], at[4], kQ, c);
    c[kCount - 1] += at[kPoints - 1];
  }
  // Adds the transpose of At.
  template <int kCount>
  static void Add(Lanes here, Lanes there, float point, Lanes (&c)[kCount]) {
    const Lanes even = here + there, odd = here - there;
    float power = 1;
    for (int k = 0; k < kCount; ++k, power *= point) {
      c[k] = MultiplyAdd(k % 2 == 0 ? even : odd, Broadcast(power), c[k]);
    }
  }
  // Divides the value at each finite point by the product of the point's differences from the other
  // finite points.
  static void Scale(Lanes (&at)[kPoints]) {
    constexpr float p = kP * kP, q = kQ * kQ;
    at[0] *= kHasTwoPairs ? 1 / (p * q) : -1 / p;
    for (int i = 1; i < 3; ++i) at[i] *= kHasTwoPairs ? 1 / (2 * p * (p - q)) : 1 / (2 * p);
    if constexpr (kHasTwoPairs) {
      for (int i = 3; i < 5; ++i) at[i] *= 1 / (2 * q * (q - p));
    }
  }
};

// The transforms of an axis with one tap: the identity.
struct IdentityTransform {
  static constexpr int kTaps = 1, kPoints = 1, kOutputs = 1;
  static void PassThrough(const Lanes (&from)[1], Lanes (&to)[1]) { to[0] = from[0]; }
  static constexpr auto Filter = PassThrough, OutputGradients = PassThrough, Outputs = PassThrough,
                        Taps = PassThrough, Inputs = PassThrough;
};

// Transforms each column with kDown, then each row of the result with kAcross.
template <auto kDown, auto kAcross, int kRows, int kColumns, int kTall, int kWide>
[[gnu::always_inline]] inline void Transform(const Lanes (&from)[kRows][kColumns],
                                             Lanes (&to)[kTall][kWide]) {
  Lanes between[kTall][kColumns];
  for (int j = 0; j < kColumns; ++j) {
    Lanes column[kRows], made[kTall];
    for (int i = 0; i < kRows; ++i) column[i] = from[i][j];
    kDown(column, made);
    for (int i = 0; i < kTall; ++i) between[i][j] = made[i];
  }
  for (int i = 0; i < kTall; ++i) kAcross(between[i], to[i]);
}

// The transforms of both axes: Down applies to the columns of a tile, Across to its rows. The
// constants are the numbers of taps, of positions of a transformed tile, and of outputs of a tile.
template <class TheDown, class TheAcross>
struct Scheme {
  using Down = TheDown;
  using Across = TheAcross;
  static constexpr int kTaps = Down::kTaps * Across::kTaps,
                       kPositions = Down::kPoints * Across::kPoints,
                       kOutputs = Down::kOutputs * Across::kOutputs;

  // Whether the scheme can compute this convolution.
  static bool Serves(const Convolution& of) {
    const auto is = [](const Convolution::Axis& axis, int taps) {
      return axis.taps == taps && axis.stride == 1 && axis.dilation == 1;
    };
    return is(of.rows, Down::kTaps) && is(of.columns, Across::kTaps) && of.channels % kLanes == 0 &&
           of.filters % kLanes == 0;
  }
};

// Larger tiles would take fewer multiplications but are less accurate. Tiles of 4x4 outputs fail
// the conformance test. With tiles of 2x4, predictions of mnist_cnn differed from stock's by 0.0015
// after a few training steps, which is more than `compare` allows.
using SquareTiles = Scheme<WinogradTransform<3, 4>, WinogradTransform<3, 4>>;
template <int kTaps>
using LineTiles = Scheme<IdentityTransform, WinogradTransform<kTaps, kTaps + 1>>;

// The tiles of a convolution: finds their inputs and outputs in memory. Tiles are numbered by
// image, row and column.
template <class Scheme>
class Tiles {
 public:
  static constexpr int kTall = Scheme::Down::kPoints, kWide = Scheme::Across::kPoints;
  static constexpr int kDown = Scheme::Down::kOutputs, kAcross = Scheme::Across::kOutputs;
  struct Tile {
    std::int64_t image, row, column;
  };

  explicit Tiles(const Convolution& of)
      : of_(of),
        rows_((of.rows.out + kDown - 1) / kDown),
        columns_((of.columns.out + kAcross - 1) / kAcross) {}

  std::int64_t count() const { return of_.images * rows_ * columns_; }

  // Returns the number of tiles for which WinogradOutputs reads the transformed filter once. Their
  // transformed inputs stay in the L2 cache.
  static std::int64_t PerBlock(std::int64_t channels) {
    constexpr std::int64_t kBytes = 1 << 18;
    const std::int64_t bytes = Scheme::kPositions * channels * sizeof(float);
    return std::clamp<std::int64_t>(kBytes / bytes / kTileRows, 1, 48 / kTileRows) * kTileRows;
  }
  // Returns the number of such blocks of tiles.
  std::int64_t blocks() const {
    const std::int64_t size = PerBlock(of_.channels);
    return (count() + size - 1) / size;
  }

  Tile At(std::int64_t index) const {
    return {index / columns_ / rows_, index / columns_ % rows_, index % columns_};
  }
  void Next(Tile* tile) const {
    if (++tile->column < columns_) return;
    tile->column = 0;
    if (++tile->row < rows_) return;
    tile->row = 0;
    ++tile->image;
  }

  // Sets at[j] to the channels of input j in a row of a tile, or to `zeros` outside the image.
  void Inputs(const Tile& tile, int row, const float* input, const float* zeros,
              const float* (&at)[kWide]) const {
    const std::int64_t y = kDown * tile.row + row - of_.rows.before,
                       x = kAcross * tile.column - of_.columns.before;
    const bool inside = y >= 0 && y < of_.rows.in;
    const float* from =
        input + ((tile.image * of_.rows.in + y) * of_.columns.in + x) * of_.channels;
    for (int j = 0; j < kWide; ++j, from += of_.channels) {
      at[j] = inside && x + j >= 0 && x + j < of_.columns.in ? from : zeros;
    }
  }

  // Sets at[i][j] to the filters of output (i, j) of a tile, or to `beyond` outside the image.
  template <typename Float>
  void Outputs(const Tile& tile, Float* output, Float* beyond, Float* (&at)[kDown][kAcross]) const {
    const std::int64_t y = kDown * tile.row, x = kAcross * tile.column;
    Float* from = output + ((tile.image * of_.rows.out + y) * of_.columns.out + x) * of_.filters;
    for (int i = 0; i < kDown; ++i, from += of_.columns.out * of_.filters) {
      for (int j = 0; j < kAcross; ++j) {
        const bool inside = y + i < of_.rows.out && x + j < of_.columns.out;
        at[i][j] = inside ? from + j * of_.filters : beyond;
      }
    }
  }

 private:
  const Convolution of_;
  const std::int64_t rows_, columns_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_H_
