// The outputs of a convolution by Winograd convolution, or the gradient of its inputs, which is the
// convolution of the gradient of the outputs with the rotated filter.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_OUTPUTS_H_
#define TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_OUTPUTS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorwright/compute/convolution.h"
#include "tensorwright/compute/finish.h"
#include "tensorwright/compute/matrix.h"
#include "tensorwright/compute/scratch.h"
#include "tensorwright/ops/products/winograd.h"

namespace tensorwright {

// Computes the outputs in two phases. Each phase has a number of items that threads can share:
//
// 1. TransformFilters transforms the filter to panels x positions x (channels + 1) x kPanel. The
//    last row of a position is not used: without it, positions could share cache sets.
// 2. Compute transforms blocks of input tiles, multiplies them by the transformed filter and
//    transforms the products to outputs.
template <class Scheme>
class WinogradOutputs {
  using Down = typename Scheme::Down;
  using Across = typename Scheme::Across;
  using Tile = typename Tiles<Scheme>::Tile;
  static constexpr int kPositions = Scheme::kPositions;
  static constexpr std::int64_t kFloatsPerCacheLine =
      64 / sizeof(float);  // Floats in a cache line.
  static constexpr std::int64_t kMaxCachedOutputs =
      1 << 20;  // At most this many outputs may still be cached.

 public:
  // The arrays are contiguous and not owned:
  //
  //   input          images x input rows x input columns x channels
  //   filter         filter rows x filter columns x channels x filters; if `is_rotated`, it is
  //                  to be rotated and has filter rows x filter columns x filters x channels
  //   transformed    scratch memory for TransformedSize() floats
  //   output         images x output rows x output columns x filters, the result
  WinogradOutputs(const Convolution& of, const float* input, const float* filter, bool is_rotated,
                  const Finish& finish, float* transformed, float* output)
      : of_(of),
        tiles_(of),
        tiles_per_block_(Tiles<Scheme>::PerBlock(of.channels)),
        input_(input),
        filter_(filter),
        is_rotated_(is_rotated),
        finish_(finish),
        transformed_(transformed),
        output_(output),
        prefetches_outputs_(tiles_.count() * Scheme::kOutputs * of.filters > kMaxCachedOutputs),
        zeros_(of.channels) {}

  // Returns the number of floats in `transformed`.
  static std::int64_t TransformedSize(const Convolution& of) {
    return of.panels() * kPositions * (of.channels + 1) * kPanel;
  }

  // Returns the number of lines of phase 1. A line is one channel of one panel of filters.
  std::int64_t lines() const { return of_.panels() * of_.channels; }

  // Transforms the lines [first, last) of the filter.
  void TransformFilters(std::int64_t first, std::int64_t last) const {
    for (std::int64_t line = first; line < last; ++line) {
      const std::int64_t panel = line / of_.channels, channel = line % of_.channels;
      for (int half = 0; half < 2; ++half) {
        const std::int64_t column = panel * kPanel + half * kLanes;
        float* to = Right(panel, 0) + channel * kPanel + half * kLanes;
        Lanes g[Down::kTaps][Across::kTaps] = {}, u[Down::kPoints][Across::kPoints];
        if (column < of_.filters) ReadFilter(channel, column, g);
        Transform<Down::Filter, Across::Filter>(g, u);
        Scatter(u, to, (of_.channels + 1) * kPanel);
      }
    }
  }

  // Returns the number of blocks of tiles of phase 2.
  std::int64_t blocks() const { return tiles_.blocks(); }

  // Computes the outputs of the blocks of tiles [first, last).
  void Compute(std::int64_t first, std::int64_t last) const {
    const std::int64_t step = of_.channels + kLanes;
    float* left = GetScratch(kPositions * tiles_per_block_ * step);
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t start = block * tiles_per_block_,
                         count = std::min(tiles_per_block_, tiles_.count() - start);
      Tile tile = tiles_.At(start);
      for (std::int64_t row = 0; row < count; ++row, tiles_.Next(&tile)) {
        TransformInputs(tile, left + row * step, tiles_per_block_ * step);
      }
      for (std::int64_t panel = 0; panel < of_.panels(); ++panel) {
        tile = tiles_.At(start);
        for (std::int64_t row = 0; row < count; row += kTileRows) {
          Multiply(left + row * step, step, tiles_per_block_ * step, panel,
                   std::min<std::int64_t>(kTileRows, count - row), &tile);
        }
      }
    }
  }

 private:
  // Returns the transformed filter at one position, for one panel.
  float* Right(std::int64_t panel, int position) const {
    return transformed_ + (panel * kPositions + position) * (of_.channels + 1) * kPanel;
  }

  // Stores the positions of a transformed tile, `position` floats apart.
  static void Scatter(const Lanes (&from)[Down::kPoints][Across::kPoints], float* to,
                      std::int64_t position) {
    for (int p = 0; p < kPositions; ++p) {
      StoreLanes(to + p * position, from[p / Across::kPoints][p % Across::kPoints]);
    }
  }

  // Loads all taps of one channel, for kLanes filters from `column` on. Rotates the filter if
  // `is_rotated_`.
  void ReadFilter(std::int64_t channel, std::int64_t column,
                  Lanes (&g)[Down::kTaps][Across::kTaps]) const {
    const std::int64_t tap = of_.channels * of_.filters;
    for (int i = 0; i < Scheme::kTaps; ++i) {
      Lanes& to = g[i / Across::kTaps][i % Across::kTaps];
      if (!is_rotated_) {
        to = LoadLanes(filter_ + i * tap + channel * of_.filters + column);
      } else {
        const float* from =
            filter_ + (Scheme::kTaps - 1 - i) * tap + column * of_.channels + channel;
        for (int j = 0; j < kLanes; ++j) to[j] = from[j * of_.channels];
      }
    }
  }

  // Computes B' d B of one tile for all channels. Its positions are stored `position` floats apart.
  void TransformInputs(const Tile& tile, float* to, std::int64_t position) const {
    const float* at[Down::kPoints][Across::kPoints];
    for (int i = 0; i < Down::kPoints; ++i) tiles_.Inputs(tile, i, input_, zeros_.data(), at[i]);
    for (std::int64_t channel = 0; channel < of_.channels; channel += kLanes, to += kLanes) {
      Lanes d[Down::kPoints][Across::kPoints], v[Down::kPoints][Across::kPoints];
      for (int i = 0; i < Down::kPoints; ++i) {
        for (int j = 0; j < Across::kPoints; ++j) d[i][j] = LoadLanes(at[i][j] + channel);
      }
      Transform<Down::Inputs, Across::Inputs>(d, v);
      Scatter(v, to, position);
    }
  }

  // Computes the outputs of `rows` tiles for the filters of one panel, and advances `tile` past
  // them. `left` has their transformed inputs: tiles are `step` floats apart, positions `position`
  // floats.
  void Multiply(const float* left, std::int64_t step, std::int64_t position, std::int64_t panel,
                std::int64_t rows, Tile* tile) const {
    alignas(sizeof(Lanes)) float beyond[kPanel];
    if (prefetches_outputs_) Prefetch(panel, rows, *tile, beyond);
    alignas(sizeof(Lanes)) float sums[kPositions][kTileRows * kPanel];
    for (int p = 0; p < kPositions; ++p) {
      const Matrix a = {left + p * position, rows, of_.channels, step, 1};
      ComputeTile(a, Right(panel, p), kPanel, sums[p], kPanel, kPanel, false);
    }
    for (std::int64_t row = 0; row < rows; ++row, tiles_.Next(tile)) {
      float* at[Down::kOutputs][Across::kOutputs];
      tiles_.Outputs(*tile, output_ + panel * kPanel, beyond, at);
      for (int half = 0; half < 2; ++half) {
        const std::int64_t column = panel * kPanel + half * kLanes;
        if (column < of_.filters) Write(sums[0] + row * kPanel + half * kLanes, column, half, at);
      }
    }
  }

  // Prefetches the memory of outputs, which arrives while their products are computed.
  void Prefetch(std::int64_t panel, std::int64_t rows, Tile tile, float* beyond) const {
    const std::int64_t width = std::min<std::int64_t>(kPanel, of_.filters - panel * kPanel);
    for (std::int64_t row = 0; row < rows; ++row, tiles_.Next(&tile)) {
      float* at[Down::kOutputs][Across::kOutputs];
      tiles_.Outputs(tile, output_ + panel * kPanel, beyond, at);
      for (const auto& line : at) {
        for (float* each : line) {
          for (std::int64_t i = 0; i < width; i += kFloatsPerCacheLine)
            __builtin_prefetch(each + i, 1);
        }
      }
    }
  }

  // Computes A' m A of the sums m, applies `finish_` and stores kLanes filters of each output.
  void Write(const float* sums, std::int64_t column, int half,
             float* const (&at)[Down::kOutputs][Across::kOutputs]) const {
    const Lanes zero = {};
    const auto read = [&](const float* from) {
      return from == nullptr ? zero : LoadLanes(from + column);
    };
    const Lanes bias = read(finish_.bias), mean = read(finish_.means),
                factor = read(finish_.factors);
    Lanes m[Down::kPoints][Across::kPoints], y[Down::kOutputs][Across::kOutputs];
    for (int p = 0; p < kPositions; ++p) {
      m[p / Across::kPoints][p % Across::kPoints] = LoadLanes(sums + p * kTileRows * kPanel);
    }
    Transform<Down::Outputs, Across::Outputs>(m, y);
    for (int i = 0; i < Down::kOutputs; ++i) {
      for (int j = 0; j < Across::kOutputs; ++j) {
        Lanes value = y[i][j];
        if (finish_.factors != nullptr) value = (value - mean) * factor;
        value += bias;
        if (finish_.relu) value = value < zero ? zero : value;
        StoreLanes(at[i][j] + half * kLanes, value);
      }
    }
  }

  const Convolution of_;
  const Tiles<Scheme> tiles_;
  const std::int64_t tiles_per_block_;
  const float* const input_;
  const float* const filter_;
  const bool is_rotated_;
  const Finish finish_;
  float* const transformed_;
  float* const output_;
  const bool prefetches_outputs_;
  const std::vector<float> zeros_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_OUTPUTS_H_
