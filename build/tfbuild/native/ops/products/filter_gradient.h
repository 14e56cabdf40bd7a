// Gradients of weights, by direct summation: the sum, over all output positions of all images, of
// an input times the gradient of the output. For a dense layer, this is a product with a transposed
// left matrix.
//
// Both operands are packed, one chunk of positions at a time, so that a tile of the result reads
// two streams:
//
// - The inputs, in blocks of channels, with zeros outside the image. They are packed once for all
//   taps of the filter: each tap reads them with another offset.
// - The gradients of the outputs, in panels of filters.
//
// A tile's sum over a chunk stays in registers. Threads share the tiles, and the chunks of a tile
// are added in a fixed order, so the number of threads does not change the result.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_FILTER_GRADIENT_H_
#define TENSORWRIGHT_OPS_PRODUCTS_FILTER_GRADIENT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tensorwright/compute/constant.h"
#include "tensorwright/compute/convolution.h"
#include "tensorwright/compute/matrix.h"
#include "tensorwright/compute/scratch.h"

namespace tensorwright {

// The part of the result that one thread computes: all taps, for the blocks of channels
// [first_block, last_block) and the panels of filters [first_panel, last_panel).
struct Part {
  std::int64_t first_block, last_block, first_panel, last_panel;
};

// Splits the result into at most `threads` parts such that the largest part is as small as
// possible.
inline std::vector<Part> SplitIntoParts(const Convolution& convolution, std::int64_t threads) {
  const std::int64_t blocks = convolution.blocks(), panels = convolution.panels();
  const auto each = [](std::int64_t all, std::int64_t parts) { return (all + parts - 1) / parts; };
  std::int64_t across = 1, down = 1, least = -1;
  for (std::int64_t n = 1; n <= std::min(threads, panels); ++n) {
    const std::int64_t m = std::min(std::max<std::int64_t>(threads / n, 1), blocks);
    const std::int64_t rows = each(blocks, m), columns = each(panels, n);
    // In tiles. Packing a block or a panel takes about as long as computing one tile.
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

constexpr std::int64_t kChunk = 256;  // Positions of a chunk: a panel of them fits in the L1 cache.
constexpr std::int64_t kBlockBytes = 1 << 17;  // Bytes of packed blocks: they fit in the L2 cache.

// Computes the gradient of a convolution's filter and, if `bias` is not null, of its bias. Threads
// can compute different parts at the same time.
class FilterGradient {
 public:
  // The arrays are contiguous and not owned:
  //
  //   input     images x input rows x input columns x channels
  //   back      images x output rows x output columns x filters, the gradient of the outputs
  //   filter    filter rows x filter columns x channels x filters, the result
  //   bias      filters, the sums of `back` over all positions, or null
  FilterGradient(const Convolution& convolution, const float* input, const float* back,
                 float* filter, float* bias)
      : of_(convolution), input_(input), output_gradient_(back), filter_(filter), bias_(bias) {
    const auto& rows = of_.rows;
    const auto& columns = of_.columns;
    max_chunk_.columns = std::min(columns.out, kChunk);
    max_chunk_.rows = std::clamp<std::int64_t>(kChunk / columns.out, 1, rows.out);
    max_chunk_.images =
        max_chunk_.rows < rows.out
            ? 1
            : std::clamp<std::int64_t>(kChunk / (rows.out * columns.out), 1, of_.images);
    for (std::int64_t block = 0; block <= of_.blocks(); ++block) {
      starts_.push_back(block * of_.channels / of_.blocks());
    }
  }

  const Convolution& of() const { return of_; }

  // Computes one part of `filter`, and of `bias` if the part has the first block.
  void Compute(const Part& part) const {
    std::vector<std::int32_t> places(max_chunk_.size());
    float* room = GetScratch((part.last_panel - part.first_panel) * max_chunk_.size() * kPanel +
                             BlocksPerPass(part) * Positions(max_chunk_) * kTileRows);
    bool add = false;
    for (std::int64_t image = 0; image < of_.images; image += max_chunk_.images) {
      for (std::int64_t row = 0; row < of_.rows.out; row += max_chunk_.rows) {
        for (std::int64_t column = 0; column < of_.columns.out; column += max_chunk_.columns) {
          const Chunk chunk = {image,
                               row,
                               column,
                               {std::min(max_chunk_.images, of_.images - image),
                                std::min(max_chunk_.rows, of_.rows.out - row),
                                std::min(max_chunk_.columns, of_.columns.out - column)}};
          AddChunk(chunk, part, room, places.data(), add);
          add = true;
        }
      }
    }
  }

 private:
  // The size of a chunk, in output positions.
  struct Size {
    std::int64_t images, rows, columns;

    std::int64_t size() const { return images * rows * columns; }
  };
  // A box of output positions: the first one, and their numbers along each axis.
  struct Chunk {
    std::int64_t image, row, column;
    Size count;
  };

  // Returns the number of packed input positions of a chunk.
  std::int64_t Positions(const Size& size) const {
    return size.images * of_.rows.PackedExtent(size.rows) * of_.columns.PackedExtent(size.columns);
  }

  // Writes the sums of a part over one chunk to the result, or adds them if `add`. `room` is
  // scratch memory for the packed panels and blocks, `places` for the offsets of Place.
  void AddChunk(const Chunk& chunk, const Part& part, float* room, std::int32_t* places,
                bool add) const {
    const std::int64_t positions = Positions(chunk.count), depth = chunk.count.size();
    const std::int64_t line = of_.columns.PackedExtent(chunk.count.columns);
    float* panels = room;
    float* blocks = room + (part.last_panel - part.first_panel) * max_chunk_.size() * kPanel;
    Place(chunk, places);
    PackPanels(chunk, part, panels);
    const std::int64_t some = BlocksPerPass(part);
    const auto tile = [&](std::int64_t tap, std::int64_t block, std::int64_t first,
                          std::int64_t panel) {
      const float* right = panels + (panel - part.first_panel) * depth * kPanel;
      const std::int64_t shift = tap / of_.columns.taps * of_.rows.dilation * line +
                                 tap % of_.columns.taps * of_.columns.dilation;
      const std::int64_t channel = starts_[block];
      const float* left = blocks + ((block - first) * positions + shift) * kTileRows;
      float* out = filter_ + (tap * of_.channels + channel) * of_.filters + panel * kPanel;
      WithConstant<kTileRows>(starts_[block + 1] - channel, [&](auto rows) {
        Sum<decltype(rows)::value>(left, places, right, depth, out, of_.filters, Width(panel), add);
      });
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

  // Returns the number of blocks of a part that are packed at a time.
  std::int64_t BlocksPerPass(const Part& part) const {
    const std::int64_t bytes = Positions(max_chunk_) * kTileRows * sizeof(float);
    return std::clamp<std::int64_t>(kBlockBytes / bytes, 1, part.last_block - part.first_block);
  }

  // Adds the chunk's part of the gradient of the bias, for the filters of one panel.
  void SumPanel(const float* from, std::int64_t depth, std::int64_t panel, bool add) const {
    Lanes sums[1][2] = {};
    for (std::int64_t k = 0; k < depth; ++k, from += kPanel) {
      sums[0][0] += LoadLanes(from);
      sums[0][1] += LoadLanes(from + kLanes);
    }
    StoreTile(sums, bias_ + panel * kPanel, 0, Width(panel), add);
  }

  // Returns the number of filters in a panel.
  std::int64_t Width(std::int64_t panel) const {
    return std::min<std::int64_t>(kPanel, of_.filters - panel * kPanel);
  }

  // Sets places[k] to the offset in a packed block of the input that the filter's first tap reads
  // for output position k of the chunk.
  void Place(const Chunk& chunk, std::int32_t* places) const {
    const std::int64_t lines = of_.rows.PackedExtent(chunk.count.rows),
                       line = of_.columns.PackedExtent(chunk.count.columns);
    for (std::int64_t image = 0; image < chunk.count.images; ++image) {
      for (std::int64_t row = 0; row < chunk.count.rows; ++row) {
        const std::int64_t start = (image * lines + row * of_.rows.step()) * line;
        for (std::int64_t column = 0; column < chunk.count.columns; ++column) {
          *places++ = static_cast<std::int32_t>((start + column * of_.columns.step()) * kTileRows);
        }
      }
    }
  }

  // Packs the gradients of a chunk's outputs as panels x positions x kPanel. The last panel is
  // padded with zeros. Reads memory in order, line by line.
  void PackPanels(const Chunk& chunk, const Part& part, float* to) const {
    const std::int64_t first = part.first_panel * kPanel, depth = chunk.count.size(),
                       end = std::min(part.last_panel * kPanel, of_.filters);
    for (std::int64_t image = 0; image < chunk.count.images; ++image) {
      for (std::int64_t row = 0; row < chunk.count.rows; ++row) {
        const std::int64_t line = (chunk.image + image) * of_.rows.out + chunk.row + row;
        const std::int64_t start = line * of_.columns.out + chunk.column;
        const float* from = output_gradient_ + start * of_.filters;
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

  // Packs the inputs of a chunk, for the blocks of channels [first, last), as blocks x packed
  // positions x kTileRows. Writes zeros for positions outside the image.
  void PackBlocks(const Chunk& chunk, std::int64_t first, std::int64_t last, float* to) const {
    const std::int64_t lines = of_.rows.PackedExtent(chunk.count.rows),
                       line = of_.columns.PackedExtent(chunk.count.columns),
                       positions = Positions(chunk.count) * kTileRows;
    const std::int64_t skip = of_.columns.skip(),
                       left = chunk.column * of_.columns.stride - of_.columns.before;
    // The packed positions [begin, end) of a line are in the image.
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

  // Copies the channels of one position to the blocks [first, last), which are `step` floats apart.
  // Most blocks have one of two sizes, for which the copy is a few instructions.
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

  // Computes a tile of kRows channels and `width` filters: its sum over `depth` positions. `left`
  // is a packed block, `right` a packed panel.
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
        const Lanes factor = Broadcast(factors[row]);
        sums[row][0] = MultiplyAdd(factor, first, sums[row][0]);
        sums[row][1] = MultiplyAdd(factor, second, sums[row][1]);
      }
    }
    StoreTile(sums, out, out_step, width, add);
  }

  const Convolution of_;
  const float* const input_;
  const float* const output_gradient_;
  float* const filter_;
  float* const bias_;
  Size max_chunk_;                    // The largest chunk.
  std::vector<std::int64_t> starts_;  // First channel of each block, then the number of channels.
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_FILTER_GRADIENT_H_
