// Minimal filtering of convolutions with stride 1 (Winograd's; Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks", CVPR 2016, whose letters these are). Along one axis F(m, r) makes m
// outputs of a filter g with r taps by m + r - 1 products instead of m r:
//
//   outputs    A'[G g * B' d]    of a tile d of m + r - 1 inputs
//   filters    G'[A e * B' d]    of m gradients e of outputs, added up over tiles
//
// which multiplies polynomials by their values at as many points. Of two axes each is treated by itself,
// so that for each channel and filter a tile of 2x2 outputs of a 3x3 filter takes 16 products instead of
// 36, and one of 1x2 of a 1x3 filter 4 instead of 6. At each position of a transformed tile, the sums over
// channels (of outputs) or over tiles (of filters) are a product of matrices. Channels and filters come in
// whole vectors.
//
// Of two outputs each reaches all inputs of the tile but one, which lies at an end and enters the other
// output alone. With more outputs there are inputs that an output does not reach and that have to cancel
// in it: they would leave rounding errors of their own size, and infinities would not cancel.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_H_
#define TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_H_

#include <cstdint>

#include "tensorwright/compute/matrix.h"
#include "tensorwright/ops/products/convolution.h"

namespace tensorwright {

// F(kPoints + 1 - kTaps, kTaps) along one axis. The points are 0, p and -p for one or two p, and
// infinity. The two are those that keep rounding errors near a direct convolution's (Vincent et al., "On
// Improving the Numerical Stability of Winograd Convolutions", ICLR 2017 workshops); all factors but the
// scales are exact.
template <int kTheTaps, int kThePoints>
struct Filtering {
  static_assert(kThePoints == 4 || kThePoints == 6);
  static constexpr int kTaps = kTheTaps, kPoints = kThePoints, kOutputs = kPoints + 1 - kTaps;
  static constexpr bool kTwo = kPoints == 6;
  static constexpr float kP = kTwo ? 0.625f : 1.0f, kQ = kTwo ? 1.5f : 0.0f;

  // G g: of taps.
  static void Filter(const Lanes (&g)[kTaps], Lanes (&u)[kPoints]) {
    Values(g, u);
    Scale(u);
  }
  // A e: of what comes back to outputs.
  static void Back(const Lanes (&e)[kOutputs], Lanes (&w)[kPoints]) { Values(e, w); }
  // A' m.
  static void Outputs(const Lanes (&m)[kPoints], Lanes (&y)[kOutputs]) { Sums(m, y); }
  // G' m: taps.
  static void Taps(const Lanes (&m)[kPoints], Lanes (&g)[kTaps]) {
    Lanes scaled[kPoints];
    for (int i = 0; i < kPoints; ++i) scaled[i] = m[i];
    Scale(scaled);
    Sums(scaled, g);
  }
  // B' d.
  static void Inputs(const Lanes (&d)[kPoints], Lanes (&v)[kPoints]) {
    if constexpr (kTwo) {
      Lanes p[4], q[4];  // Without a root at p and -p, at q and -q.
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
  // Of the polynomial with these coefficients.
  template <int kCount>
  static void Values(const Lanes (&c)[kCount], Lanes (&at)[kPoints]) {
    at[0] = c[0];
    At(c, kP, &at[1], &at[2]);
    if constexpr (kTwo) At(c, kQ, &at[3], &at[4]);
    at[kPoints - 1] = c[kCount - 1];
  }
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
  // What Values does, transposed.
  template <int kCount>
  static void Sums(const Lanes (&at)[kPoints], Lanes (&c)[kCount]) {
    c[0] = at[0];
    for (int k = 1; k < kCount; ++k) c[k] = Lanes{};
    Add(at[1], at[2], kP, c);
    if constexpr (kTwo) Add(at[3], at[4], kQ, c);
    c[kCount - 1] += at[kPoints - 1];
  }
  template <int kCount>
  static void Add(Lanes here, Lanes there, float point, Lanes (&c)[kCount]) {
    const Lanes even = here + there, odd = here - there;
    float power = 1;
    for (int k = 0; k < kCount; ++k, power *= point) {
      c[k] = MultiplyAdd(k % 2 == 0 ? even : odd, Broadcast(power), c[k]);
    }
  }
  // By what the other points' distances multiply to.
  static void Scale(Lanes (&at)[kPoints]) {
    constexpr float p = kP * kP, q = kQ * kQ;
    at[0] *= kTwo ? 1 / (p * q) : -1 / p;
    for (int i = 1; i < 3; ++i) at[i] *= kTwo ? 1 / (2 * p * (p - q)) : 1 / (2 * p);
    if constexpr (kTwo) {
      for (int i = 3; i < 5; ++i) at[i] *= 1 / (2 * q * (q - p));
    }
  }
};

// An axis with one tap.
struct NoFiltering {
  static constexpr int kTaps = 1, kPoints = 1, kOutputs = 1;
  static void Same(const Lanes (&from)[1], Lanes (&to)[1]) { to[0] = from[0]; }
  static constexpr auto Filter = Same, Back = Same, Outputs = Same, Taps = Same, Inputs = Same;
};

// One transformation along columns, then another along rows.
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

// Of both axes.
template <class TheDown, class TheAcross>
struct Scheme {
  using Down = TheDown;
  using Across = TheAcross;
  static constexpr int kTaps = Down::kTaps * Across::kTaps,
                       kPositions = Down::kPoints * Across::kPoints,
                       kOutputs = Down::kOutputs * Across::kOutputs;

  static bool Serves(const Convolution& of) {
    const auto is = [](const Convolution::Axis& axis, int taps) {
      return axis.taps == taps && axis.stride == 1 && axis.dilation == 1;
    };
    return is(of.rows, Down::kTaps) && is(of.columns, Across::kTaps) && of.channels % kLanes == 0 &&
           of.filters % kLanes == 0;
  }
};

// Larger tiles would take fewer products, but lie farther from exact outputs: those of 4x4 farther than
// admission lets pass, and with those of 2x4 mnist_cnn's predictions after a few steps of training were
// 0.0015 from stock's, more than a comparison lets pass.
using SquareTiles = Scheme<Filtering<3, 4>, Filtering<3, 4>>;
template <int kTaps>
using LineTiles = Scheme<NoFiltering, Filtering<kTaps, kTaps + 1>>;

// Where the inputs and outputs of each tile are.
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

  // The inputs of a row of a tile; `zeros` beyond the borders.
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

  // The same of outputs; `beyond` where there are none.
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
