// The gradient of a convolution's filter by Winograd convolution. The rows of the transformed tiles
// are computed independently of each other.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_GRADIENT_H_
#define TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_GRADIENT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorwright/compute/convolution.h"
#include "tensorwright/compute/matrix.h"
#include "tensorwright/compute/scratch.h"
#include "tensorwright/ops/products/winograd.h"

namespace tensorwright {

// The rows of B' and A for the vertical axis, which allow one row of a transformed tile to be
// computed alone. kInputs[i] has the inputs that row i of B' combines, the first of which has the
// factor 1. kGradientFactors[i] has the factors that row i of A gives to the gradients of outputs.
struct Term {
  int input;
  float factor;
};
template <class Down>
struct Rows;
template <>
struct Rows<IdentityTransform> {
  static constexpr Term kInputs[1][1] = {{{0, 1}}};
  static constexpr float kGradientFactors[1][1] = {{1}};
};
template <>
struct Rows<WinogradTransform<3, 4>> {
  static constexpr Term kInputs[4][2] = {
      {{2, 1}, {0, -1}}, {{2, 1}, {1, 1}}, {{2, 1}, {1, -1}}, {{3, 1}, {1, -1}}};
  static constexpr float kGradientFactors[4][2] = {{1, 0}, {1, 1}, {1, -1}, {0, 1}};
};

// Computes the gradient of a filter and, if `bias` is not null, of the bias, in two phases. Each
// phase has a number of items that threads can share:
//
// 1. Compute sums the products of transformed tiles over all tiles. The sums are positions x
//    channels x filters, with kPanel floats between positions, so that these do not share cache
//    sets. It also computes the gradient of the bias.
// 2. Finish transforms the sums to the gradient of the filter.
template <class Scheme>
class WinogradGradient {
  using Down = typename Scheme::Down;
  using Across = typename Scheme::Across;
  using Tile = typename Tiles<Scheme>::Tile;
  static constexpr int kTall = Down::kPoints, kWide = Across::kPoints;

 public:
  // The arrays are as in FilterGradient. `sums` is scratch memory for SumsSize() floats. The work
  // is split so that `threads` threads can share it.
  WinogradGradient(const Convolution& of, std::int64_t threads, const float* input,
                   const float* back, float* sums, float* filter, float* bias)
      : of_(of),
        tiles_(of),
        channel_blocks_(Blocks(of.channels)),
        filter_blocks_(
            std::clamp(threads / kTall / channel_blocks_, Blocks(of.filters), of.panels())),
        input_(input),
        output_gradient_(back),
        sums_(sums),
        filter_(filter),
        bias_(bias),
        zeros_(std::max(of.channels, of.filters)) {}

  // Returns the number of floats in `sums`.
  static std::int64_t SumsSize(const Convolution& of) {
    return Scheme::kPositions * PositionSize(of);
  }

  // Returns the number of parts of phase 1. A part is one row of the transformed tiles, for one
  // block of channels and one of filters.
  std::int64_t parts() const { return kTall * channel_blocks_ * filter_blocks_; }

  // Computes the parts [first, last) of phase 1. Rows of the same block are computed together, so
  // that memory is read once for them.
  void Compute(std::int64_t first, std::int64_t last) const {
    for (std::int64_t part = first; part < last;) {
      const std::int64_t block = part / kTall, end = std::min(last, (block + 1) * kTall);
      AddTiles(part % kTall, end - block * kTall,
               Range(of_.channels, block % channel_blocks_, channel_blocks_),
               Range(of_.filters, block / channel_blocks_, filter_blocks_));
      part = end;
    }
  }

  // Returns the number of lines of phase 2. A line is one channel of the filter.
  std::int64_t lines() const { return of_.channels; }

  // Computes the lines [first, last) of phase 2.
  void Finish(std::int64_t first, std::int64_t last) const {
    const std::int64_t size = of_.channels * of_.filters, position = PositionSize(of_);
    for (std::int64_t at = first * of_.filters; at < last * of_.filters; at += kLanes) {
      Lanes s[kTall][kWide], g[Down::kTaps][Across::kTaps];
      for (int p = 0; p < Scheme::kPositions; ++p) {
        s[p / kWide][p % kWide] = LoadLanes(sums_ + p * position + at);
      }
      Transform<Down::Taps, Across::Taps>(s, g);
      for (int i = 0; i < Scheme::kTaps; ++i) {
        StoreLanes(filter_ + i * size + at, g[i / Across::kTaps][i % Across::kTaps]);
      }
    }
  }

 private:
  static constexpr std::int64_t kTiles = 256 / kWide;  // Tiles that are transformed at a time.
  static constexpr std::int64_t kMost = 128;           // Largest block of channels or filters.
  // A range of channels or filters.
  struct Some {
    std::int64_t first, last;

    std::int64_t count() const { return last - first; }
  };

  // Returns the number of floats from one position of the sums to the next.
  static std::int64_t PositionSize(const Convolution& of) {
    return of.channels * of.filters + kPanel;
  }
  // Returns the number of blocks of `count` channels or filters.
  static std::int64_t Blocks(std::int64_t count) { return (count + kMost - 1) / kMost; }
  // Returns block number `block` of `blocks` of [0, all). Blocks start at multiples of kPanel.
  static Some Range(std::int64_t all, std::int64_t block, std::int64_t blocks) {
    const std::int64_t panels = (all + kPanel - 1) / kPanel;
    return {panels * block / blocks * kPanel,
            std::min(panels * (block + 1) / blocks * kPanel, all)};
  }

  // Sums over all tiles, for rows [first_row, last_row) of the transformed tiles. The scratch
  // memory holds kTiles transformed tiles: columns x tiles x channels of inputs, then columns x
  // panels x tiles x kPanel of gradients.
  void AddTiles(int first_row, int last_row, Some channels, Some filters) const {
    const std::int64_t step = channels.count() + kLanes,
                       panels = (filters.count() + kPanel - 1) / kPanel;
    float* left = GetScratch(kWide * kTiles * (step + panels * kPanel));
    float* right = left + kWide * kTiles * step;
    const bool adds_bias = bias_ != nullptr && first_row == 0 && channels.first == 0;
    if (adds_bias) std::fill(bias_ + filters.first, bias_ + filters.last, 0.0f);
    for (std::int64_t first = 0; first < tiles_.count(); first += kTiles) {
      const std::int64_t depth = std::min(kTiles, tiles_.count() - first);
      for (int row = first_row; row < last_row; ++row) {
        Tile tile = tiles_.At(first);
        for (std::int64_t k = 0; k < depth; ++k, tiles_.Next(&tile)) {
          TransformInputs(row, tile, channels, left + k * step, kTiles * step);
          TransformOutputGradients(row, tile, filters, adds_bias && row == 0, right + k * kPanel,
                                   panels * kTiles * kPanel);
        }
        for (int j = 0; j < kWide; ++j) {
          AddProduct(kWide * row + j, left + j * kTiles * step, step,
                     right + j * panels * kTiles * kPanel, depth, channels, filters, first > 0);
        }
      }
    }
  }

  // Multiplies the transformed inputs of `depth` tiles, transposed, by the transformed gradients,
  // at one position of the tiles. Writes the product to the sums, or adds it if `add`.
  void AddProduct(int position, const float* left, std::int64_t step, const float* right,
                  std::int64_t depth, Some channels, Some filters, bool add) const {
    float* sums = sums_ + position * PositionSize(of_) + filters.first;
    const std::int64_t tiles = (channels.count() + kTileRows - 1) / kTileRows;
    for (std::int64_t from = filters.first; from < filters.last; from += kPanel) {
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const std::int64_t first = tile * channels.count() / tiles,
                           rows = (tile + 1) * channels.count() / tiles - first;
        ComputeTile({left + first, rows, depth, 1, step}, right, kPanel,
                    sums + (channels.first + first) * of_.filters, of_.filters,
                    std::min<std::int64_t>(kPanel, filters.last - from), add);
      }
      right += kTiles * kPanel;
      sums += kPanel;
    }
  }

  // Computes one row of B' d B. Its columns are stored `position` floats apart.
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

  // Computes one row of A e A'. Its columns are stored `position` floats apart. If `adds_bias`,
  // also adds the gradients of the tile's outputs to the gradient of the bias.
  void TransformOutputGradients(int row, const Tile& tile, Some filters, bool adds_bias, float* to,
                                std::int64_t position) const {
    const auto& factors = Rows<Down>::kGradientFactors[row];
    const float* at[Down::kOutputs][Across::kOutputs];
    tiles_.Outputs(tile, output_gradient_, zeros_.data(), at);
    for (std::int64_t filter = filters.first; filter < filters.last; filter += kLanes) {
      Lanes e[Across::kOutputs] = {}, w[kWide];
      for (int j = 0; j < Across::kOutputs; ++j) {
        for (int i = 0; i < Down::kOutputs; ++i) {
          e[j] = MultiplyAdd(LoadLanes(at[i][j] + filter), Broadcast(factors[i]), e[j]);
        }
      }
      Across::OutputGradients(e, w);
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
  const float* const output_gradient_;
  float* const sums_;
  float* const filter_;
  float* const bias_;
  const std::vector<float> zeros_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_GRADIENT_H_
