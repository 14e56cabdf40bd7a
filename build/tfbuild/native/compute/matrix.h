// Products of float matrices in tiles. The right matrix is packed into panels. The left matrix is
// read in place and can be transposed.

#ifndef TENSORWRIGHT_COMPUTE_MATRIX_H_
#define TENSORWRIGHT_COMPUTE_MATRIX_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "tensorwright/compute/constant.h"
#include "tensorwright/simd/lanes.h"

namespace tensorwright {

constexpr int kTileRows = kHasAvx512 ? 12 : 6;  // Rows of a tile. Its sums fill the registers.
constexpr int kPanel = 2 * kLanes;              // Columns of a panel.
constexpr std::int64_t kDepth =
    256;  // Depth of a block of a product. A panel's part of the block fits in the L1 cache.
constexpr std::int64_t kRowBlock =
    96;  // Rows of the left matrix that are used at a time. They stay in the L2 cache.

// Returns the approximate cost of a matrix product, as the number of additions of two elements that
// take as long.
inline std::int64_t EstimateCost(std::int64_t rows, std::int64_t depth, std::int64_t columns) {
  return rows * depth * columns / kLanes;
}

// A view of a matrix in memory. The steps between rows and between columns are in elements.
struct Matrix {
  const float* data;
  std::int64_t rows, columns;
  std::int64_t row_step, column_step;

  Matrix Transposed() const { return {data, columns, rows, column_step, row_step}; }
};

// A packed copy of the right matrix of products. A panel holds kPanel columns, row by row. The last
// panel is padded with zeros.
class PackedMatrix {
 public:
  // Packs `matrix`. Reuses the memory of earlier matrices if it is large enough.
  void Take(const Matrix& matrix) {
    depth_ = matrix.rows;
    columns_ = matrix.columns;
    const std::int64_t size = panels() * depth_ * kPanel;
    if (size > capacity_) {
      memory_.reset(new float[size + kLanes]);
      capacity_ = size;
    }
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.get());
    data_ = memory_.get() + (-at % sizeof(Lanes)) / sizeof(float);
    for (std::int64_t panel = 0; panel < panels(); ++panel) {
      const std::int64_t first = panel * kPanel,
                         width = std::min<std::int64_t>(kPanel, columns_ - first);
      float* to = data_ + panel * depth_ * kPanel;
      for (std::int64_t k = 0; k < depth_; ++k, to += kPanel) {
        const float* from = matrix.data + k * matrix.row_step + first * matrix.column_step;
        for (std::int64_t j = 0; j < width; ++j) to[j] = from[j * matrix.column_step];
        for (std::int64_t j = width; j < kPanel; ++j) to[j] = 0;
      }
    }
  }

  std::int64_t depth() const { return depth_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t panels() const { return (columns_ + kPanel - 1) / kPanel; }
  const float* panel(std::int64_t which) const { return data_ + which * depth_ * kPanel; }

 private:
  std::unique_ptr<float[]> memory_;
  float* data_ = nullptr;
  std::int64_t capacity_ = 0, depth_ = 0, columns_ = 0;
};

// Writes the first `width` columns of a tile to `out`, or adds them to `out` if `add`. Must be
// inlined: otherwise the caller would keep the sums in memory while it computes them.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void StoreTile(Lanes (&sums)[kRows][kVectors], float* out,
                                             std::int64_t out_step, std::int64_t width, bool add) {
#pragma GCC unroll 12
  for (int row = 0; row < kRows; ++row) {
    float* to = out + row * out_step;
    if (width == kVectors * kLanes) {
      for (int i = 0; add && i < kVectors; ++i) sums[row][i] += LoadLanes(to + i * kLanes);
      std::memcpy(to, sums[row], sizeof(sums[row]));
    } else {
      float values[kVectors * kLanes];
      std::memcpy(values, sums[row], sizeof(values));
      for (std::int64_t j = 0; j < width; ++j) to[j] = add ? to[j] + values[j] : values[j];
    }
  }
}

// Multiplies `a`, which has kRows rows, by a panel, whose rows are `panel_step` elements apart, and
// stores the tile as StoreTile does. The tile has kVectors vectors of columns. If `start` is not
// null, each row of sums starts at its elements instead of zero.
template <int kRows, int kVectors>
void Tile(const Matrix& a, const float* panel, std::int64_t panel_step, float* out,
          std::int64_t out_step, std::int64_t width, bool add, const float* start) {
  constexpr int kLine = 16;  // Floats of a cache line.
  for (int row = 0; add && row < kRows; ++row) {
    for (int i = 0; i < kVectors * kLanes; i += kLine) {
      __builtin_prefetch(out + row * out_step + i, 1);
    }
  }
  Lanes sums[kRows][kVectors] = {};
  if (start != nullptr) {
    for (auto& row : sums) {
      for (int i = 0; i < kVectors; ++i) row[i] = LoadLanes(start + i * kLanes);
    }
  }
  const float* left = a.data;
  for (std::int64_t k = 0; k < a.columns; ++k, panel += panel_step, left += a.column_step) {
    Lanes right[kVectors];
    for (int i = 0; i < kVectors; ++i) right[i] = LoadLanes(panel + i * kLanes);
#pragma GCC unroll 12
    for (int row = 0; row < kRows; ++row) {
      const Lanes factor = Broadcast(left[row * a.row_step]);
      for (int i = 0; i < kVectors; ++i) {
        sums[row][i] = MultiplyAdd(factor, right[i], sums[row][i]);
      }
    }
  }
  StoreTile(sums, out, out_step, width, add);
}

// Calls Tile for the rows of `a`, of which there are 1 to kTileRows, and for one vector of columns if
// that is enough.
inline void ComputeTile(const Matrix& a, const float* panel, std::int64_t panel_step, float* out,
                        std::int64_t out_step, std::int64_t width, bool add,
                        const float* start = nullptr) {
  WithConstant<kTileRows>(a.rows, [&](auto rows) {
    constexpr int kRows = decltype(rows)::value;
    if (width <= kLanes) {
      Tile<kRows, 1>(a, panel, panel_step, out, out_step, width, add, start);
    } else {
      Tile<kRows, 2>(a, panel, panel_step, out, out_step, width, add, start);
    }
  });
}

// Computes the columns of `out` in the panels [first_panel, last_panel):
//
//   out = a b           by default
//   out += a b          if `add`
//   out = a b + bias    for each row, if `bias` is not null
//
// `bias` has b.columns() elements. The rows of `out` are `out_step` elements apart. A sum has at
// most `together` terms before it is added to `out`.
inline void Multiply(const Matrix& a, const PackedMatrix& b, const float* bias, float* out,
                     std::int64_t out_step, bool add, std::int64_t first_panel,
                     std::int64_t last_panel, std::int64_t together) {
  if (a.columns == 0 && !add) {
    const std::int64_t first = first_panel * kPanel;
    const std::int64_t count = std::min(last_panel * kPanel, b.columns()) - first;
    for (std::int64_t row = 0; row < a.rows && count > 0; ++row) {
      float* to = out + row * out_step + first;
      if (bias != nullptr) {
        std::copy_n(bias + first, count, to);
      } else {
        std::fill_n(to, count, 0.0f);
      }
    }
  }
  for (std::int64_t top = 0; top < a.rows; top += kRowBlock) {
    const std::int64_t bottom = std::min(a.rows, top + kRowBlock);
    for (std::int64_t from = 0; from < a.columns; from += together) {
      const std::int64_t depth = std::min(together, a.columns - from);
      for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
        const std::int64_t column = panel * kPanel,
                           width = std::min<std::int64_t>(kPanel, b.columns() - column);
        float start[kPanel] = {};
        const bool starts = bias != nullptr && from == 0;
        if (starts) std::copy_n(bias + column, width, start);
        for (std::int64_t row = top; row < bottom; row += kTileRows) {
          const std::int64_t rows = std::min<std::int64_t>(kTileRows, bottom - row);
          const Matrix part = {a.data + row * a.row_step + from * a.column_step, rows, depth,
                               a.row_step, a.column_step};
          ComputeTile(part, b.panel(panel) + from * kPanel, kPanel, out + row * out_step + column,
                      out_step, width, add || from > 0, starts ? start : nullptr);
        }
      }
    }
  }
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_MATRIX_H_
