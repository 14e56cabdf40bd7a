// The gradient of a convolution's filter by minimal filtering. Each row of transformed tiles is computed
// by itself.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_GRADIENT_H_
#define TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_GRADIENT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorwright/compute/matrix.h"
#include "tensorwright/compute/scratch.h"
#include "tensorwright/ops/products/convolution.h"
#include "tensorwright/ops/products/winograd.h"

namespace tensorwright {

// One row of B' and of A, for the axis along which rows of a tile are computed by themselves: two inputs
// each, the first of which is added as it is, and the factors of what comes back.
struct Term {
  int input;
  float factor;
};
template <class Down>
struct Rows;
template <>
struct Rows<NoFiltering> {
  static constexpr Term kInputs[1][1] = {{{0, 1}}};
  static constexpr float kBack[1][1] = {{1}};
};
template <>
struct Rows<Filtering<3, 4>> {
  static constexpr Term kInputs[4][2] = {
      {{2, 1}, {0, -1}}, {{2, 1}, {1, 1}}, {{2, 1}, {1, -1}}, {{3, 1}, {1, -1}}};
  static constexpr float kBack[4][2] = {{1, 0}, {1, 1}, {1, -1}, {0, 1}};
};

template <class Scheme>
class FilteredGradient {
  using Down = typename Scheme::Down;
  using Across = typename Scheme::Across;
  using Tile = typename Tiles<Scheme>::Tile;
  static constexpr int kTall = Down::kPoints, kWide = Across::kPoints;

 public:
  // As FilterGradient; `sums` has room for SumsSize() numbers. For so many threads there is enough to
  // share.
  FilteredGradient(const Convolution& of, std::int64_t threads, const float* input,
                   const float* back, float* sums, float* filter, float* bias)
      : of_(of),
        tiles_(of),
        channel_blocks_(Blocks(of.channels)),
        filter_blocks_(
            std::clamp(threads / kTall / channel_blocks_, Blocks(of.filters), of.panels())),
        input_(input),
        back_(back),
        sums_(sums),
        filter_(filter),
        bias_(bias),
        zeros_(std::max(of.channels, of.filters)) {}

  static std::int64_t SumsSize(const Convolution& of) {
    return Scheme::kPositions * of.channels * of.filters;
  }

  // First the sums: by rows of tiles, of blocks of channels and filters. Rows that one call computes
  // are computed together, so that memory is read once for them.
  std::int64_t parts() const { return kTall * channel_blocks_ * filter_blocks_; }

  void Compute(std::int64_t first, std::int64_t last) const {
    for (std::int64_t part = first; part < last;) {
      const std::int64_t block = part / kTall, end = std::min(last, (block + 1) * kTall);
      AddTiles(part % kTall, end - block * kTall,
               Range(of_.channels, block % channel_blocks_, channel_blocks_),
               Range(of_.filters, block / channel_blocks_, filter_blocks_));
      part = end;
    }
  }

  // Then the filter, by channels.
  std::int64_t lines() const { return of_.channels; }

  void Finish(std::int64_t first, std::int64_t last) const {
    const std::int64_t size = of_.channels * of_.filters;
    for (std::int64_t at = first * of_.filters; at < last * of_.filters; at += kLanes) {
      Lanes s[kTall][kWide], g[Down::kTaps][Across::kTaps];
      for (int p = 0; p < Scheme::kPositions; ++p) {
        s[p / kWide][p % kWide] = LoadLanes(sums_ + p * size + at);
      }
      Transform<Down::Taps, Across::Taps>(s, g);
      for (int i = 0; i < Scheme::kTaps; ++i) {
        StoreLanes(filter_ + i * size + at, g[i / Across::kTaps][i % Across::kTaps]);
      }
    }
  }

 private:
  static constexpr std::int64_t kTiles = 256 / kWide;  // At once.
  static constexpr std::int64_t kMost = 128;           // Channels or filters of a block.
  struct Some {
    std::int64_t first, last;

    std::int64_t count() const { return last - first; }
  };

  static std::int64_t Blocks(std::int64_t count) { return (count + kMost - 1) / kMost; }
  // In whole panels.
  static Some Range(std::int64_t all, std::int64_t block, std::int64_t blocks) {
    const std::int64_t panels = (all + kPanel - 1) / kPanel;
    return {panels * block / blocks * kPanel,
            std::min(panels * (block + 1) / blocks * kPanel, all)};
  }

  void AddTiles(int first_row, int last_row, Some channels, Some filters) const {
    const std::int64_t step = channels.count() + kLanes,
                       panels = (filters.count() + kPanel - 1) / kPanel;
    float* left = Room(kWide * kTiles * (step + panels * kPanel));
    float* right = left + kWide * kTiles * step;
    const bool adds_bias = bias_ != nullptr && first_row == 0 && channels.first == 0;
    if (adds_bias) std::fill(bias_ + filters.first, bias_ + filters.last, 0.0f);
    for (std::int64_t first = 0; first < tiles_.count(); first += kTiles) {
      const std::int64_t depth = std::min(kTiles, tiles_.count() - first);
      for (int row = first_row; row < last_row; ++row) {
        Tile tile = tiles_.At(first);
        for (std::int64_t k = 0; k < depth; ++k, tiles_.Next(&tile)) {
          TransformInputs(row, tile, channels, left + k * step, kTiles * step);
          TransformBack(row, tile, filters, adds_bias && row == 0, right + k * kPanel,
                        panels * kTiles * kPanel);
        }
        for (int j = 0; j < kWide; ++j) {
          AddProduct(kWide * row + j, left + j * kTiles * step, step,
                     right + j * panels * kTiles * kPanel, depth, channels, filters, first > 0);
        }
      }
    }
  }

  void AddProduct(int position, const float* left, std::int64_t step, const float* right,
                  std::int64_t depth, Some channels, Some filters, bool add) const {
    float* sums = sums_ + position * of_.channels * of_.filters + filters.first;
    const std::int64_t tiles = (channels.count() + kTileRows - 1) / kTileRows;
    for (std::int64_t from = filters.first; from < filters.last; from += kPanel) {
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const std::int64_t first = tile * channels.count() / tiles,
                           rows = (tile + 1) * channels.count() / tiles - first;
        TileOf<kTileRows>(rows, {left + first, rows, depth, 1, step}, right, depth,
                          sums + (channels.first + first) * of_.filters, of_.filters,
                          std::min<std::int64_t>(kPanel, filters.last - from), add);
      }
      right += kTiles * kPanel;
      sums += kPanel;
    }
  }

  // One row of B' d B.
  void TransformInputs(int row, const Tile& tile, Some channels, float* to,
                       std::int64_t position) const {
    const auto& terms = Rows<Down>::kInputs[row];
    constexpr int kTerms = sizeof(terms) / sizeof(terms[0]);
    const float* at[kTerms][kWide];
    for (int i = 0; i < kTerms; ++i) {
      tiles_.Inputs(tile, terms[i].input, input_, zeros_.data(), at[i]);
    }
    for (std::int64_t channel = channels.first; channel < channels.last; channel += kLanes) {
      Lanes d[kWide], v[kWide];
      for (int j = 0; j < kWide; ++j) {
        d[j] = LoadLanes(at[0][j] + channel);
        for (int i = 1; i < kTerms; ++i) {
          d[j] = MultiplyAdd(LoadLanes(at[i][j] + channel), Broadcast(terms[i].factor), d[j]);
        }
      }
      Across::Inputs(d, v);
      for (int j = 0; j < kWide; ++j) StoreLanes(to + j * position, v[j]);
      to += kLanes;
    }
  }

  // One row of A e A', and the sum of all that comes back.
  void TransformBack(int row, const Tile& tile, Some filters, bool adds_bias, float* to,
                     std::int64_t position) const {
    const auto& factors = Rows<Down>::kBack[row];
    const float* at[Down::kOutputs][Across::kOutputs];
    tiles_.Outputs(tile, back_, zeros_.data(), at);
    for (std::int64_t filter = filters.first; filter < filters.last; filter += kLanes) {
      Lanes e[Across::kOutputs] = {}, w[kWide];
      for (int j = 0; j < Across::kOutputs; ++j) {
        for (int i = 0; i < Down::kOutputs; ++i) {
          e[j] = MultiplyAdd(LoadLanes(at[i][j] + filter), Broadcast(factors[i]), e[j]);
        }
      }
      Across::Back(e, w);
      const std::int64_t column = filter - filters.first;
      float* start = to + column / kPanel * kTiles * kPanel + column % kPanel;
      for (int j = 0; j < kWide; ++j) StoreLanes(start + j * position, w[j]);
      if (adds_bias) AddBias(at, filter);
    }
  }

  void AddBias(const float* const (&at)[Down::kOutputs][Across::kOutputs],
               std::int64_t filter) const {
    Lanes sum = LoadLanes(bias_ + filter);
    for (const auto& row : at) {
      for (const float* each : row) sum += LoadLanes(each + filter);
    }
    StoreLanes(bias_ + filter, sum);
  }

  const Convolution of_;
  const Tiles<Scheme> tiles_;
  const std::int64_t channel_blocks_, filter_blocks_;
  const float* const input_;
  const float* const back_;
  float* const sums_;
  float* const filter_;
  float* const bias_;
  const std::vector<float> zeros_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_GRADIENT_H_
