// Gradients of weights: sums, over all positions of all images, of what went into a position times
// what comes back from it. For a dense layer that is a product with a transposed left matrix.
//
// Both sides are packed, a chunk of positions at a time, so that a tile of the result reads two
// streams: the inputs in blocks of some channels, with the border's zeros, once for all taps of the
// filter, which are only shifts of it; what comes back in panels of filters. A tile's sum over a chunk
// stays in registers, and the chunks are added up in one order, so that threads, which share tiles,
// change no bit.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_FILTER_GRADIENT_H_
#define TENSORWRIGHT_OPS_PRODUCTS_FILTER_GRADIENT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tensorwright/compute/matrix.h"
#include "tensorwright/compute/scratch.h"
#include "tensorwright/ops/products/convolution.h"

namespace tensorwright {

// What one thread computes: all taps of some blocks of channels and some panels of filters.
struct Part {
  std::int64_t first_block, last_block, first_panel, last_panel;
};

// The parts for so many threads: those with the least to do for the busiest one.
inline std::vector<Part> PartsOf(const Convolution& convolution, std::int64_t threads) {
  const std::int64_t blocks = convolution.blocks(), panels = convolution.panels();
  const auto each = [](std::int64_t all, std::int64_t parts) { return (all + parts - 1) / parts; };
  std::int64_t across = 1, down = 1, least = -1;
  for (std::int64_t n = 1; n <= std::min(threads, panels); ++n) {
    const std::int64_t m = std::min(std::max<std::int64_t>(threads / n, 1), blocks);
    const std::int64_t rows = each(blocks, m), columns = each(panels, n);
    // In tiles; packing a block or a panel is about one.
    const std::int64_t work = rows * columns * convolution.taps() + rows + columns;
    if (least < 0 || work < least) across = n, down = m, least = work;
  }
  std::vector<Part> parts;
  for (std::int64_t m = 0; m < down; ++m) {
    for (std::int64_t n = 0; n < across; ++n) {
      parts.push_back({blocks * m / down, blocks * (m + 1) / down, panels * n / across,
                       panels * (n + 1) / across});
    }
  }
  return parts;
}

constexpr std::int64_t kChunk = 256;  // Positions, of which one panel fits the first-level cache.
constexpr std::int64_t kBlockBytes = 1 << 17;  // Of packed blocks, for the second-level cache.

class FilterGradient {
 public:
  // `input` is images x rows x columns x channels, `back` the same of the output, `filter` rows x
  // columns x channels x filters of the filter; `bias`, if it is wanted, has the filters' sums of `back`.
  FilterGradient(const Convolution& convolution, const float* input, const float* back,
                 float* filter, float* bias)
      : of_(convolution), input_(input), back_(back), filter_(filter), bias_(bias) {
    const auto& rows = of_.rows;
    const auto& columns = of_.columns;
    at_once_.columns = std::min(columns.out, kChunk);
    at_once_.rows = std::clamp<std::int64_t>(kChunk / columns.out, 1, rows.out);
    at_once_.images =
        at_once_.rows < rows.out
            ? 1
            : std::clamp<std::int64_t>(kChunk / (rows.out * columns.out), 1, of_.images);
    for (std::int64_t block = 0; block <= of_.blocks(); ++block) {
      starts_.push_back(block * of_.channels / of_.blocks());
    }
  }

  const Convolution& of() const { return of_; }

  void Compute(const Part& part) const {
    std::vector<std::int32_t> places(at_once_.size());
    float* room = Room((part.last_panel - part.first_panel) * at_once_.size() * kPanel +
                       BlocksAtOnce(part) * Positions(at_once_) * kTileRows);
    bool add = false;
    for (std::int64_t image = 0; image < of_.images; image += at_once_.images) {
      for (std::int64_t row = 0; row < of_.rows.out; row += at_once_.rows) {
        for (std::int64_t column = 0; column < of_.columns.out; column += at_once_.columns) {
          const Chunk chunk = {image,
                               row,
                               column,
                               {std::min(at_once_.images, of_.images - image),
                                std::min(at_once_.rows, of_.rows.out - row),
                                std::min(at_once_.columns, of_.columns.out - column)}};
          AddChunk(chunk, part, room, places.data(), add);
          add = true;
        }
      }
    }
  }

 private:
  struct Size {
    std::int64_t images, rows, columns;

    std::int64_t size() const { return images * rows * columns; }
  };
  // Positions of the output, from one on.
  struct Chunk {
    std::int64_t image, row, column;
    Size count;
  };

  // Packed ones.
  std::int64_t Positions(const Size& size) const {
    return size.images * of_.rows.Held(size.rows) * of_.columns.Held(size.columns);
  }

  void AddChunk(const Chunk& chunk, const Part& part, float* room, std::int32_t* places,
                bool add) const {
    const std::int64_t positions = Positions(chunk.count), depth = chunk.count.size();
    const std::int64_t line = of_.columns.Held(chunk.count.columns);
    float* panels = room;
    float* blocks = room + (part.last_panel - part.first_panel) * at_once_.size() * kPanel;
    Place(chunk, places);
    PackPanels(chunk, part, panels);
    const std::int64_t some = BlocksAtOnce(part);
    const auto tile = [&](std::int64_t tap, std::int64_t block, std::int64_t first,
                          std::int64_t panel) {
      const float* right = panels + (panel - part.first_panel) * depth * kPanel;
      const std::int64_t shift = tap / of_.columns.taps * of_.rows.dilation * line +
                                 tap % of_.columns.taps * of_.columns.dilation;
      const std::int64_t channel = starts_[block];
      const float* left = blocks + ((block - first) * positions + shift) * kTileRows;
      float* out = filter_ + (tap * of_.channels + channel) * of_.filters + panel * kPanel;
      SumOf<kTileRows>(starts_[block + 1] - channel, left, places, right, depth, out, of_.filters,
                       Width(panel), add);
    };
    for (std::int64_t panel = part.first_panel;
         bias_ != nullptr && part.first_block == 0 && panel < part.last_panel; ++panel) {
      SumPanel(panels + (panel - part.first_panel) * depth * kPanel, depth, panel, add);
    }
    for (std::int64_t first = part.first_block; first < part.last_block; first += some) {
      const std::int64_t last = std::min(first + some, part.last_block);
      PackBlocks(chunk, first, last, blocks);
      for (std::int64_t tap = 0; tap < of_.taps(); ++tap) {
        for (std::int64_t block = first; block < last; ++block) {
          for (std::int64_t panel = part.first_panel; panel < part.last_panel; ++panel) {
            tile(tap, block, first, panel);
          }
        }
      }
    }
  }

  std::int64_t BlocksAtOnce(const Part& part) const {
    const std::int64_t bytes = Positions(at_once_) * kTileRows * sizeof(float);
    return std::clamp<std::int64_t>(kBlockBytes / bytes, 1, part.last_block - part.first_block);
  }

  // What the chunk adds to the gradient of the bias.
  void SumPanel(const float* from, std::int64_t depth, std::int64_t panel, bool add) const {
    Lanes sums[1][2] = {};
    for (std::int64_t k = 0; k < depth; ++k, from += kPanel) {
      sums[0][0] += LoadLanes(from);
      sums[0][1] += LoadLanes(from + kLanes);
    }
    StoreTile<1>(sums, bias_ + panel * kPanel, 0, Width(panel), add);
  }

  std::int64_t Width(std::int64_t panel) const {
    return std::min<std::int64_t>(kPanel, of_.filters - panel * kPanel);
  }

  // Where in a packed block the input of each position's first tap is.
  void Place(const Chunk& chunk, std::int32_t* places) const {
    const std::int64_t lines = of_.rows.Held(chunk.count.rows),
                       line = of_.columns.Held(chunk.count.columns);
    for (std::int64_t image = 0; image < chunk.count.images; ++image) {
      for (std::int64_t row = 0; row < chunk.count.rows; ++row) {
        const std::int64_t start = (image * lines + row * of_.rows.step()) * line;
        for (std::int64_t column = 0; column < chunk.count.columns; ++column) {
          *places++ = static_cast<std::int32_t>((start + column * of_.columns.step()) * kTileRows);
        }
      }
    }
  }

  // Line by line, so that memory is read in its order.
  void PackPanels(const Chunk& chunk, const Part& part, float* to) const {
    const std::int64_t first = part.first_panel * kPanel, depth = chunk.count.size(),
                       end = std::min(part.last_panel * kPanel, of_.filters);
    for (std::int64_t image = 0; image < chunk.count.images; ++image) {
      for (std::int64_t row = 0; row < chunk.count.rows; ++row) {
        const std::int64_t line = (chunk.image + image) * of_.rows.out + chunk.row + row;
        const std::int64_t start = line * of_.columns.out + chunk.column;
        const float* from = back_ + start * of_.filters;
        for (std::int64_t column = 0; column < chunk.count.columns; ++column) {
          float* panel = to;
          std::int64_t filter = first;
          for (; filter + kPanel <= end; filter += kPanel, panel += depth * kPanel) {
            std::memcpy(panel, from + filter, kPanel * sizeof(float));
          }
          if (filter < end) {
            std::copy(from + filter, from + end, panel);
            std::fill(panel + (end - filter), panel + kPanel, 0.0f);
          }
          to += kPanel;
          from += of_.filters;
        }
      }
    }
  }

  void PackBlocks(const Chunk& chunk, std::int64_t first, std::int64_t last, float* to) const {
    const std::int64_t lines = of_.rows.Held(chunk.count.rows),
                       line = of_.columns.Held(chunk.count.columns),
                       positions = Positions(chunk.count) * kTileRows;
    const std::int64_t skip = of_.columns.skip(),
                       left = chunk.column * of_.columns.stride - of_.columns.before;
    // Those packed positions that are in the image.
    const std::int64_t begin = std::clamp<std::int64_t>((skip - 1 - left) / skip, 0, line),
                       end = std::clamp<std::int64_t>((of_.columns.in - left + skip - 1) / skip,
                                                      begin, line);
    const auto clear = [&](float* at, std::int64_t count) {
      for (std::int64_t block = first; block < last; ++block, at += positions) {
        std::fill_n(at, count * kTileRows, 0.0f);
      }
    };
    for (std::int64_t image = 0; image < chunk.count.images; ++image) {
      for (std::int64_t each = 0; each < lines; ++each, to += line * kTileRows) {
        const std::int64_t row =
            chunk.row * of_.rows.stride - of_.rows.before + each * of_.rows.skip();
        if (row < 0 || row >= of_.rows.in) {
          clear(to, line);
          continue;
        }
        clear(to, begin);
        clear(to + end * kTileRows, line - end);
        const std::int64_t start = ((chunk.image + image) * of_.rows.in + row) * of_.columns.in;
        const float* from = input_ + (start + left + begin * skip) * of_.channels;
        for (std::int64_t i = begin; i < end; ++i, from += skip * of_.channels) {
          PackPosition(from, first, last, positions, to + i * kTileRows);
        }
      }
    }
  }

  // Most blocks are of one of the two sizes for which a copy is a few moves.
  void PackPosition(const float* from, std::int64_t first, std::int64_t last, std::int64_t step,
                    float* to) const {
    for (std::int64_t block = first; block < last; ++block, to += step) {
      const std::int64_t channel = starts_[block];
      if (starts_[block + 1] - channel == kTileRows) {
        std::memcpy(to, from + channel, kTileRows * sizeof(float));
      } else if (starts_[block + 1] - channel == kTileRows - 1) {
        std::memcpy(to, from + channel, (kTileRows - 1) * sizeof(float));
      } else {
        std::copy(from + channel, from + starts_[block + 1], to);
      }
    }
  }

  template <int kRows>
  static void Sum(const float* left, const std::int32_t* places, const float* right,
                  std::int64_t depth, float* out, std::int64_t out_step, std::int64_t width,
                  bool add) {
    Lanes sums[kRows][2] = {};
    for (std::int64_t k = 0; k < depth; ++k, right += kPanel) {
      const Lanes first = LoadLanes(right), second = LoadLanes(right + kLanes);
      const float* factors = left + places[k];
#pragma GCC unroll 12
      for (int row = 0; row < kRows; ++row) {
        const Lanes factor = factors[row] - Lanes{};
        sums[row][0] = MultiplyAdd(factor, first, sums[row][0]);
        sums[row][1] = MultiplyAdd(factor, second, sums[row][1]);
      }
    }
    StoreTile<kRows>(sums, out, out_step, width, add);
  }

  template <int kRows>
  static void SumOf(std::int64_t rows, const float* left, const std::int32_t* places,
                    const float* right, std::int64_t depth, float* out, std::int64_t out_step,
                    std::int64_t width, bool add) {
    if (rows == kRows) {
      Sum<kRows>(left, places, right, depth, out, out_step, width, add);
    } else if constexpr (kRows > 1) {
      SumOf<kRows - 1>(rows, left, places, right, depth, out, out_step, width, add);
    }
  }

  const Convolution of_;
  const float* const input_;
  const float* const back_;
  float* const filter_;
  float* const bias_;
  Size at_once_;
  std::vector<std::int64_t> starts_;  // The first channel of each block, and the end.
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_FILTER_GRADIENT_H_
