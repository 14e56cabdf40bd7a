// Convolutions with 3x3 filters and stride 1 by minimal filtering, F(2x2, 3x3): a tile of 2x2 outputs
// takes 16 products for each channel and filter instead of 36 (Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks", CVPR 2016, whose letters these are).
//
//   outputs    A'[(G g G') * (B' d B)]A    of a filter g and a tile d of 4x4 inputs
//   filters    G'[(A e A') * (B' d B)]G    of a tile e of 2x2 gradients of outputs, added up over tiles
//
// At each of the 16 positions of a transformed tile, the sums over channels (of outputs) or over tiles
// (of filters) are a product of matrices. Channels and filters come in whole vectors.

#ifndef TENSORWRIGHT_FUSED_WINOGRAD_H_
#define TENSORWRIGHT_FUSED_WINOGRAD_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tensorwright/fused/convolution.h"
#include "tensorwright/fused/product.h"
#include "tensorwright/fused/products.h"
#include "tensorwright/fused/room.h"

namespace tensorwright {

constexpr int kSide = 4;  // Of a transformed tile.
constexpr int kPositions = kSide * kSide;

inline bool IsWinograd(const Convolution& of) {
  const auto is = [](const Convolution::Axis& axis) {
    return axis.taps == 3 && axis.stride == 1 && axis.dilation == 1;
  };
  return is(of.rows) && is(of.columns) && of.channels % kLanes == 0 && of.filters % kLanes == 0;
}

inline void StoreLanes(float* to, Lanes lanes) { std::memcpy(to, &lanes, sizeof(lanes)); }

// B' of four vectors.
inline void Transform(const Lanes (&d)[4], Lanes (&to)[4]) {
  to[0] = d[0] - d[2];
  to[1] = d[1] + d[2];
  to[2] = d[2] - d[1];
  to[3] = d[1] - d[3];
}

// Tiles of 2x2 outputs, and where the inputs and outputs of each are.
class Tiles {
 public:
  struct Tile {
    std::int64_t image, row, column;
  };

  explicit Tiles(const Convolution& of)
      : of_(of), rows_((of.rows.out + 1) / 2), columns_((of.columns.out + 1) / 2) {}

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
              const float* (&at)[4]) const {
    const std::int64_t y = 2 * tile.row + row - of_.rows.before,
                       x = 2 * tile.column - of_.columns.before;
    const bool inside = y >= 0 && y < of_.rows.in;
    const float* from =
        input + ((tile.image * of_.rows.in + y) * of_.columns.in + x) * of_.channels;
    for (int j = 0; j < 4; ++j, from += of_.channels) {
      at[j] = inside && x + j >= 0 && x + j < of_.columns.in ? from : zeros;
    }
  }

  // The same of outputs; `beyond` where there are none.
  template <typename Float>
  void Outputs(const Tile& tile, Float* output, Float* beyond, Float* (&at)[2][2]) const {
    const std::int64_t y = 2 * tile.row, x = 2 * tile.column;
    Float* from = output + ((tile.image * of_.rows.out + y) * of_.columns.out + x) * of_.filters;
    const bool below = y + 1 < of_.rows.out, beside = x + 1 < of_.columns.out;
    Float* next = from + of_.columns.out * of_.filters;
    at[0][0] = from;
    at[0][1] = beside ? from + of_.filters : beyond;
    at[1][0] = below ? next : beyond;
    at[1][1] = below && beside ? next + of_.filters : beyond;
  }

 private:
  const Convolution of_;
  const std::int64_t rows_, columns_;
};

// The outputs of a convolution: or the gradient of its inputs, which is the convolution of what comes
// back with the filter turned around.
class WinogradOutputs {
 public:
  // `input` is images x rows x columns x channels, `filter` 3 x 3 x channels x filters, or of a turned
  // one 3 x 3 x filters x channels; `transformed` has room for TransformedSize() numbers.
  WinogradOutputs(const Convolution& of, const float* input, const float* filter, bool turned,
                  const Finish& finish, float* transformed, float* output)
      : of_(of),
        tiles_(of),
        input_(input),
        filter_(filter),
        turned_(turned),
        finish_(finish),
        transformed_(transformed),
        output_(output),
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
        Lanes g[3][3] = {}, u[kSide][kSide];
        if (column < of_.filters) ReadFilter(channel, column, g);
        TransformFilter(g, u);
        for (int p = 0; p < kPositions; ++p) {
          StoreLanes(to + p * of_.channels * kPanel, u[p / kSide][p % kSide]);
        }
      }
    }
  }

  // Then blocks of tiles are computed.
  std::int64_t blocks() const { return (tiles_.count() + AtOnce() - 1) / AtOnce(); }

  void Compute(std::int64_t first, std::int64_t last) const {
    const std::int64_t at_once = AtOnce(), step = of_.channels + kLanes;
    float* left = Room(kPositions * at_once * step);
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t start = block * at_once,
                         count = std::min(at_once, tiles_.count() - start);
      Tiles::Tile tile = tiles_.At(start);
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

  void ReadFilter(std::int64_t channel, std::int64_t column, Lanes (&g)[3][3]) const {
    const std::int64_t tap = of_.channels * of_.filters;
    for (int i = 0; i < 9; ++i) {
      if (!turned_) {
        g[i / 3][i % 3] = LoadLanes(filter_ + i * tap + channel * of_.filters + column);
      } else {
        const float* from = filter_ + (8 - i) * tap + column * of_.channels + channel;
        for (int j = 0; j < kLanes; ++j) g[i / 3][i % 3][j] = from[j * of_.channels];
      }
    }
  }

  // G g G'.
  static void TransformFilter(const Lanes (&g)[3][3], Lanes (&u)[kSide][kSide]) {
    Lanes t[kSide][3];
    for (int j = 0; j < 3; ++j) {
      const Lanes outer = (g[0][j] + g[2][j]) * 0.5f, inner = g[1][j] * 0.5f;
      t[0][j] = g[0][j];
      t[1][j] = outer + inner;
      t[2][j] = outer - inner;
      t[3][j] = g[2][j];
    }
    for (int i = 0; i < kSide; ++i) {
      const Lanes outer = (t[i][0] + t[i][2]) * 0.5f, inner = t[i][1] * 0.5f;
      u[i][0] = t[i][0];
      u[i][1] = outer + inner;
      u[i][2] = outer - inner;
      u[i][3] = t[i][2];
    }
  }

  void TransformInputs(const Tiles::Tile& tile, float* to, std::int64_t position) const {
    const float* at[4][4];
    for (int i = 0; i < 4; ++i) tiles_.Inputs(tile, i, input_, zeros_.data(), at[i]);
    for (std::int64_t channel = 0; channel < of_.channels; channel += kLanes, to += kLanes) {
      Lanes t[4][4];  // Columns of the tile, transformed.
      for (int j = 0; j < 4; ++j) {
        Lanes d[4];
        for (int i = 0; i < 4; ++i) d[i] = LoadLanes(at[i][j] + channel);
        Transform(d, t[j]);
      }
      for (int i = 0; i < 4; ++i) {
        const Lanes row[4] = {t[0][i], t[1][i], t[2][i], t[3][i]};
        Lanes v[4];
        Transform(row, v);
        for (int j = 0; j < 4; ++j) StoreLanes(to + (kSide * i + j) * position, v[j]);
      }
    }
  }

  void Multiply(const float* left, std::int64_t step, std::int64_t position, std::int64_t panel,
                std::int64_t rows, Tiles::Tile* tile) const {
    alignas(sizeof(Lanes)) float sums[kPositions][kTileRows * kPanel];
    for (int p = 0; p < kPositions; ++p) {
      const Matrix a = {left + p * position, rows, of_.channels, step, 1};
      TileOf<kTileRows>(rows, a, Right(panel, p), of_.channels, sums[p], kPanel, kPanel, false);
    }
    alignas(sizeof(Lanes)) float beyond[kPanel];
    for (std::int64_t row = 0; row < rows; ++row, tiles_.Next(tile)) {
      float* at[2][2];
      tiles_.Outputs(*tile, output_ + panel * kPanel, beyond, at);
      for (int half = 0; half < 2; ++half) {
        const std::int64_t column = panel * kPanel + half * kLanes;
        if (column < of_.filters) Write(sums[0] + row * kPanel + half * kLanes, column, half, at);
      }
    }
  }

  // A' m A of the sums m, then what finishes them.
  void Write(const float* sums, std::int64_t column, int half, float* const (&at)[2][2]) const {
    const Lanes zero = {};
    const auto read = [&](const float* from) {
      return from == nullptr ? zero : LoadLanes(from + column);
    };
    const Lanes bias = read(finish_.bias), mean = read(finish_.means),
                factor = read(finish_.factors);
    Lanes s[2][4];
    for (int j = 0; j < 4; ++j) {
      Lanes m[4];
      for (int i = 0; i < 4; ++i) m[i] = LoadLanes(sums + (kSide * i + j) * kTileRows * kPanel);
      s[0][j] = m[0] + m[1] + m[2];
      s[1][j] = m[1] - m[2] - m[3];
    }
    for (int i = 0; i < 2; ++i) {
      Lanes y[2] = {s[i][0] + s[i][1] + s[i][2], s[i][1] - s[i][2] - s[i][3]};
      for (int j = 0; j < 2; ++j) {
        if (finish_.factors != nullptr) y[j] = (y[j] - mean) * factor;
        y[j] += bias;
        if (finish_.relu) y[j] = y[j] < zero ? zero : y[j];
        StoreLanes(at[i][j] + half * kLanes, y[j]);
      }
    }
  }

  const Convolution of_;
  const Tiles tiles_;
  const float* const input_;
  const float* const filter_;
  const bool turned_;
  const Finish finish_;
  float* const transformed_;
  float* const output_;
  const std::vector<float> zeros_;
};

// The gradient of a filter. Each of the four rows of transformed tiles is computed by itself.
class WinogradGradient {
 public:
  // As FilterGradient; `sums` has room for SumsSize() numbers.
  WinogradGradient(const Convolution& of, const float* input, const float* back, float* sums,
                   float* filter, float* bias)
      : of_(of),
        tiles_(of),
        input_(input),
        back_(back),
        sums_(sums),
        filter_(filter),
        bias_(bias),
        zeros_(std::max(of.channels, of.filters)) {}

  static std::int64_t SumsSize(const Convolution& of) {
    return kPositions * of.channels * of.filters;
  }

  // First the sums: by rows of tiles, of blocks of channels and filters. Rows that one call computes
  // are computed together, so that memory is read once for them.
  std::int64_t parts() const { return kSide * Blocks(of_.channels) * Blocks(of_.filters); }

  void Compute(std::int64_t first, std::int64_t last) const {
    const std::int64_t channels = Blocks(of_.channels), filters = Blocks(of_.filters);
    for (std::int64_t part = first; part < last;) {
      const std::int64_t block = part / kSide, end = std::min(last, (block + 1) * kSide);
      AddTiles(part % kSide, end - block * kSide, Range(of_.channels, block % channels, channels),
               Range(of_.filters, block / channels, filters));
      part = end;
    }
  }

  // Then the filter, by channels.
  std::int64_t lines() const { return of_.channels; }

  void Finish(std::int64_t first, std::int64_t last) const {
    const std::int64_t size = of_.channels * of_.filters;
    for (std::int64_t at = first * of_.filters; at < last * of_.filters; at += kLanes) {
      Lanes t[3][4];
      for (int j = 0; j < 4; ++j) {
        Lanes s[4], made[3];
        for (int i = 0; i < 4; ++i) s[i] = LoadLanes(sums_ + (kSide * i + j) * size + at);
        TransformSums(s, made);
        for (int i = 0; i < 3; ++i) t[i][j] = made[i];
      }
      for (int i = 0; i < 3; ++i) {
        Lanes made[3];
        TransformSums(t[i], made);
        for (int j = 0; j < 3; ++j) StoreLanes(filter_ + (3 * i + j) * size + at, made[j]);
      }
    }
  }

 private:
  static constexpr std::int64_t kTiles = 64;  // At once.
  static constexpr std::int64_t kMost = 128;  // Channels or filters of a block.
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

  // G' of four vectors.
  static void TransformSums(const Lanes (&s)[4], Lanes (&to)[3]) {
    const Lanes sum = (s[1] + s[2]) * 0.5f;
    to[0] = s[0] + sum;
    to[1] = (s[1] - s[2]) * 0.5f;
    to[2] = sum + s[3];
  }

  void AddTiles(int first_row, int last_row, Some channels, Some filters) const {
    const std::int64_t step = channels.count() + kLanes,
                       panels = (filters.count() + kPanel - 1) / kPanel;
    float* left = Room(kSide * kTiles * (step + panels * kPanel));
    float* right = left + kSide * kTiles * step;
    for (std::int64_t first = 0; first < tiles_.count(); first += kTiles) {
      const std::int64_t depth = std::min(kTiles, tiles_.count() - first);
      for (int row = first_row; row < last_row; ++row) {
        Tiles::Tile tile = tiles_.At(first);
        for (std::int64_t k = 0; k < depth; ++k, tiles_.Next(&tile)) {
          TransformInputs(row, tile, channels, left + k * step, kTiles * step);
          TransformBack(row, tile, filters, right + k * kPanel, panels * kTiles * kPanel);
        }
        if (bias_ != nullptr && row == 1 && channels.first == 0) {
          AddBias(right + panels * kTiles * kPanel, depth, filters, first > 0);
        }
        for (int j = 0; j < kSide; ++j) {
          AddProduct(kSide * row + j, left + j * kTiles * step, step,
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
  void TransformInputs(int row, const Tiles::Tile& tile, Some channels, float* to,
                       std::int64_t position) const {
    constexpr int kFirst[] = {0, 1, 2, 1}, kSecond[] = {2, 2, 1, 3};
    const float *a[4], *b[4];
    tiles_.Inputs(tile, kFirst[row], input_, zeros_.data(), a);
    tiles_.Inputs(tile, kSecond[row], input_, zeros_.data(), b);
    const Lanes sign = (row == 1 ? 1.0f : -1.0f) - Lanes{};
    for (std::int64_t channel = channels.first; channel < channels.last; channel += kLanes) {
      Lanes d[4], v[4];
      for (int j = 0; j < 4; ++j) {
        d[j] = LoadLanes(a[j] + channel) + sign * LoadLanes(b[j] + channel);
      }
      Transform(d, v);
      for (int j = 0; j < 4; ++j) StoreLanes(to + j * position, v[j]);
      to += kLanes;
    }
  }

  // One row of A e A'.
  void TransformBack(int row, const Tiles::Tile& tile, Some filters, float* to,
                     std::int64_t position) const {
    const float* at[2][2];
    tiles_.Outputs(tile, back_, zeros_.data(), at);
    const auto factor = [](float value) { return value - Lanes{}; };
    constexpr float kFirst[] = {1, 1, 1, 0}, kSecond[] = {0, 1, -1, -1};
    const Lanes one = factor(kFirst[row]), other = factor(kSecond[row]);
    for (std::int64_t filter = filters.first; filter < filters.last; filter += kLanes) {
      Lanes e[2];
      for (int j = 0; j < 2; ++j) {
        e[j] = one * LoadLanes(at[0][j] + filter) + other * LoadLanes(at[1][j] + filter);
      }
      const std::int64_t column = filter - filters.first;
      float* start = to + column / kPanel * kTiles * kPanel + column % kPanel;
      StoreLanes(start, e[0]);
      StoreLanes(start + position, e[0] + e[1]);
      StoreLanes(start + 2 * position, e[0] - e[1]);
      StoreLanes(start + 3 * position, -e[1]);
    }
  }

  // Position 1, 1 of a transformed tile is the sum of all that comes back to it.
  void AddBias(const float* right, std::int64_t depth, Some filters, bool add) const {
    for (std::int64_t filter = filters.first; filter < filters.last; filter += kLanes) {
      const std::int64_t column = filter - filters.first;
      const float* from = right + column / kPanel * kTiles * kPanel + column % kPanel;
      Lanes sum = add ? LoadLanes(bias_ + filter) : Lanes{};
      for (std::int64_t k = 0; k < depth; ++k) sum += LoadLanes(from + k * kPanel);
      StoreLanes(bias_ + filter, sum);
    }
  }

  const Convolution of_;
  const Tiles tiles_;
  const float* const input_;
  const float* const back_;
  float* const sums_;
  float* const filter_;
  float* const bias_;
  const std::vector<float> zeros_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_FUSED_WINOGRAD_H_
