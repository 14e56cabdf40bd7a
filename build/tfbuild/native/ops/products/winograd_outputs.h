// The outputs of a convolution by minimal filtering: or the gradient of its inputs, which is the
// convolution of what comes back with the filter turned around.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_OUTPUTS_H_
#define TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_OUTPUTS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorwright/compute/matrix.h"
#include "tensorwright/compute/product.h"
#include "tensorwright/compute/scratch.h"
#include "tensorwright/ops/products/convolution.h"
#include "tensorwright/ops/products/winograd.h"

namespace tensorwright {

template <class Scheme>
class FilteredOutputs {
  using Down = typename Scheme::Down;
  using Across = typename Scheme::Across;
  using Tile = typename Tiles<Scheme>::Tile;
  static constexpr int kPositions = Scheme::kPositions;
  static constexpr std::int64_t kLine = 64 / sizeof(float);  // Numbers in a line of a cache.
  static constexpr std::int64_t kCached = 1
                                          << 20;  // So many outputs may lie in a cache from before.

 public:
  // `input` is images x rows x columns x channels, `filter` rows x columns x channels x filters of the
  // filter, or of a turned one rows x columns x filters x channels; `transformed` has room for
  // TransformedSize() numbers.
  FilteredOutputs(const Convolution& of, const float* input, const float* filter, bool turned,
                  const Finish& finish, float* transformed, float* output)
      : of_(of),
        tiles_(of),
        input_(input),
        filter_(filter),
        turned_(turned),
        finish_(finish),
        transformed_(transformed),
        output_(output),
        is_large_(tiles_.count() * Scheme::kOutputs * of.filters > kCached),
        zeros_(of.channels) {}

  static std::int64_t TransformedSize(const Convolution& of) {
    return of.panels() * kPositions * of.channels * kPanel;
  }

  // First each of the filter's lines is transformed, of one panel and channel.
  std::int64_t lines() const { return of_.panels() * of_.channels; }

  void TransformFilters(std::int64_t first, std::int64_t last) const {
    for (std::int64_t line = first; line < last; ++line) {
      const std::int64_t panel = line / of_.channels, channel = line % of_.channels;
      for (int half = 0; half < 2; ++half) {
        const std::int64_t column = panel * kPanel + half * kLanes;
        float* to = Right(panel, 0) + channel * kPanel + half * kLanes;
        Lanes g[Down::kTaps][Across::kTaps] = {}, u[Down::kPoints][Across::kPoints];
        if (column < of_.filters) ReadFilter(channel, column, g);
        Transform<Down::Filter, Across::Filter>(g, u);
        Scatter(u, to, of_.channels * kPanel);
      }
    }
  }

  // Then blocks of tiles are computed.
  std::int64_t blocks() const { return (tiles_.count() + AtOnce() - 1) / AtOnce(); }

  void Compute(std::int64_t first, std::int64_t last) const {
    const std::int64_t at_once = AtOnce(), step = of_.channels + kLanes;
    float* left = Room(kPositions * at_once * step);
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t start = block * at_once, count = std::min(at_once, tiles_.count() - start);
      Tile tile = tiles_.At(start);
      for (std::int64_t row = 0; row < count; ++row, tiles_.Next(&tile)) {
        TransformInputs(tile, left + row * step, at_once * step);
      }
      for (std::int64_t panel = 0; panel < of_.panels(); ++panel) {
        tile = tiles_.At(start);
        for (std::int64_t row = 0; row < count; row += kTileRows) {
          Multiply(left + row * step, step, at_once * step, panel,
                   std::min<std::int64_t>(kTileRows, count - row), &tile);
        }
      }
    }
  }

 private:
  // Tiles whose transformed inputs stay in the second-level cache, and for which a panel is read once.
  std::int64_t AtOnce() const {
    constexpr std::int64_t kBytes = 1 << 18;
    const std::int64_t bytes = kPositions * of_.channels * sizeof(float);
    return std::clamp<std::int64_t>(kBytes / bytes / kTileRows, 1, 48 / kTileRows) * kTileRows;
  }

  float* Right(std::int64_t panel, int position) const {
    return transformed_ + (panel * kPositions + position) * of_.channels * kPanel;
  }

  static void Scatter(const Lanes (&from)[Down::kPoints][Across::kPoints], float* to,
                      std::int64_t position) {
    for (int p = 0; p < kPositions; ++p) {
      StoreLanes(to + p * position, from[p / Across::kPoints][p % Across::kPoints]);
    }
  }

  void ReadFilter(std::int64_t channel, std::int64_t column,
                  Lanes (&g)[Down::kTaps][Across::kTaps]) const {
    const std::int64_t tap = of_.channels * of_.filters;
    for (int i = 0; i < Scheme::kTaps; ++i) {
      Lanes& to = g[i / Across::kTaps][i % Across::kTaps];
      if (!turned_) {
        to = LoadLanes(filter_ + i * tap + channel * of_.filters + column);
      } else {
        const float* from =
            filter_ + (Scheme::kTaps - 1 - i) * tap + column * of_.channels + channel;
        for (int j = 0; j < kLanes; ++j) to[j] = from[j * of_.channels];
      }
    }
  }

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

  void Multiply(const float* left, std::int64_t step, std::int64_t position, std::int64_t panel,
                std::int64_t rows, Tile* tile) const {
    alignas(sizeof(Lanes)) float beyond[kPanel];
    if (is_large_) Prefetch(panel, rows, *tile, beyond);
    alignas(sizeof(Lanes)) float sums[kPositions][kTileRows * kPanel];
    for (int p = 0; p < kPositions; ++p) {
      const Matrix a = {left + p * position, rows, of_.channels, step, 1};
      TileOf<kTileRows>(rows, a, Right(panel, p), of_.channels, sums[p], kPanel, kPanel, false);
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

  // Fetches what is going to be written, while products are computed.
  void Prefetch(std::int64_t panel, std::int64_t rows, Tile tile, float* beyond) const {
    const std::int64_t width = std::min<std::int64_t>(kPanel, of_.filters - panel * kPanel);
    for (std::int64_t row = 0; row < rows; ++row, tiles_.Next(&tile)) {
      float* at[Down::kOutputs][Across::kOutputs];
      tiles_.Outputs(tile, output_ + panel * kPanel, beyond, at);
      for (const auto& line : at) {
        for (float* each : line) {
          for (std::int64_t i = 0; i < width; i += kLine) __builtin_prefetch(each + i, 1);
        }
      }
    }
  }

  // A' m A of the sums m, then what finishes them.
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
  const float* const input_;
  const float* const filter_;
  const bool turned_;
  const Finish finish_;
  float* const transformed_;
  float* const output_;
  const bool is_large_;
  const std::vector<float> zeros_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_WINOGRAD_OUTPUTS_H_
