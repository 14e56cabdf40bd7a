// Products of float matrices in any layout, in blocks that fit in the caches (Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication", 2008).

#ifndef TENSORWRIGHT_COMPUTE_GEMM_H_
#define TENSORWRIGHT_COMPUTE_GEMM_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tensorwright/compute/finish.h"
#include "tensorwright/compute/matrix.h"
#include "tensorwright/compute/scratch.h"
#include "tensorwright/simd/transpose.h"

namespace tensorwright {

// Columns of a block of the right matrix. A packed block stays in the L2 or L3 cache.
constexpr std::int64_t kColumnBlock = 512;
// The left matrix can be packed if it is used by at least this many panels.
constexpr std::int64_t kPanelsPerPack = 16;
// The right matrix is packed for more than this many rows. Unpacked, it is not read in the order of
// memory, which is slow if it has more elements than fit in the L2 cache (1 MiB).
constexpr std::int64_t kRowsPerPack = 64, kRowsPerUncachedPack = 16, kCachedElements = 1 << 18;

// Elements of a block of the left matrix, 128 KiB, if that is more than kRowBlock rows.
constexpr std::int64_t kBlockElements = 1 << 15;

// A range of the rows and panels of an output.
struct OutputBlock {
  std::int64_t first_row, last_row, first_panel, last_panel;
};

// Computes out = a b, followed by `finish`. The columns of `out` are contiguous, its rows are
// `out_step` elements apart. Threads can compute different blocks of an output at the same time.
// How an output is split does not change it: an element is a sum over blocks of at most kDepth terms.
class Gemm {
 public:
  Gemm(const Matrix& a, const Matrix& b, const Finish& finish, float* out, std::int64_t out_step)
      : a_(a), b_(b), finish_(finish), out_(out), out_step_(out_step) {}

  // Returns the number of panels of `columns` columns.
  static std::int64_t CountPanels(std::int64_t columns) { return Divide(columns, kPanel); }

  // Whether the left matrix is packed for a block with this many panels: if the elements that a tile
  // reads together share cache sets, because the distance between them is a multiple of a power of two.
  static bool PacksLeft(std::int64_t panels, const Matrix& a) {
    return panels >= kPanelsPerPack && (a.column_step % 256 == 0 || a.row_step % 1024 == 0);
  }

  // Whether the right matrix is packed for this many rows.
  static bool PacksRight(std::int64_t rows, const Matrix& b) {
    return b.column_step != 1 || rows > (IsCached(b) ? kRowsPerPack : kRowsPerUncachedPack);
  }

  void Compute(const OutputBlock& block) const {
    const std::int64_t panels = block.last_panel - block.first_panel;
    const std::int64_t parts = Divide(panels, kColumnBlock / kPanel);
    for (std::int64_t part = 0; part < parts; ++part) {
      ComputeColumns({block.first_row, block.last_row, block.first_panel + panels * part / parts,
                      block.first_panel + panels * (part + 1) / parts});
    }
  }

 private:
  static constexpr std::int64_t kMaxPanels = kColumnBlock / kPanel;

  // A panel of the right matrix: `width` columns of rows that are `step` elements apart.
  struct Panel {
    const float* data;
    std::int64_t step, width;
  };

  static bool IsCached(const Matrix& b) { return b.rows * b.columns <= kCachedElements; }

  // Returns the quotient, rounded up.
  static std::int64_t Divide(std::int64_t count, std::int64_t size) {
    return (count + size - 1) / size;
  }

  // Computes a block with at most kMaxPanels panels.
  void ComputeColumns(const OutputBlock& block) const {
    const std::int64_t count = block.last_panel - block.first_panel,
                       rows = block.last_row - block.first_row;
    const std::int64_t steps = Divide(a_.columns, kDepth), max_depth = Divide(a_.columns, steps);
    const std::int64_t row_block = std::max(kRowBlock, kBlockElements / max_depth);
    const bool packs_left = PacksLeft(count, a_), packs_right = PacksRight(rows, b_);
    // A panel that is used once is packed just before, so that it is still in the L1 cache.
    const bool packs_ahead = rows > row_block || !IsCached(b_);
    const std::int64_t left_size = max_depth * (row_block + kTileRows);
    float* left = GetScratch(left_size + max_depth * count * kPanel);
    float* right = left + left_size;
    Panel panels[kMaxPanels];
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::int64_t from = step * a_.columns / steps,
                         depth = (step + 1) * a_.columns / steps - from;
      const auto take_panels = [&](std::int64_t first, std::int64_t last) {
        const std::int64_t column = (block.first_panel + first) * kPanel;
        const std::int64_t end = std::min((block.first_panel + last) * kPanel, b_.columns);
        const Matrix columns = {b_.data + from * b_.row_step + column * b_.column_step, depth,
                                end - column, b_.row_step, b_.column_step};
        float* packed = packs_ahead ? right + first * depth * kPanel : right;
        TakePanels(columns, packs_right, packed, panels + first);
      };
      if (packs_ahead) take_panels(0, count);
      for (std::int64_t row = block.first_row; row < block.last_row; row += row_block) {
        const Matrix part = {a_.data + row * a_.row_step + from * a_.column_step,
                             std::min(row_block, block.last_row - row), depth, a_.row_step,
                             a_.column_step};
        if (packs_left) PackRows(part, left);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t column = (block.first_panel + i) * kPanel;
          float* to = out_ + row * out_step_ + column;
          if (!packs_ahead) take_panels(i, i + 1);
          MultiplyPanel(part, packs_left ? left : nullptr, panels[i], to, step > 0);
          if (step == steps - 1) finish_.Apply(column, part.rows, panels[i].width, to, out_step_);
        }
      }
    }
  }

  // Splits `columns` into panels. Packs all to `packed` if `packs`, otherwise only a last panel with
  // fewer than kPanel columns.
  static void TakePanels(const Matrix& columns, bool packs, float* packed, Panel* panels) {
    const std::int64_t depth = columns.rows, count = CountPanels(columns.columns);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t width = std::min<std::int64_t>(kPanel, columns.columns - i * kPanel);
      const float* from = columns.data + i * kPanel * columns.column_step;
      panels[i] = {packed + i * depth * kPanel, kPanel, width};
      if (!packs && width == kPanel) {
        panels[i] = {from, columns.row_step, width};
      } else if (columns.column_step != 1 || width < kPanel) {
        PackVectors<kPanel>(from, width, depth, columns.column_step, columns.row_step,
                            packed + i * depth * kPanel);
      }
    }
    if (!packs || columns.column_step != 1) return;
    // Reads memory in order.
    for (std::int64_t k = 0; k < depth; ++k) {
      const float* from = columns.data + k * columns.row_step;
      for (std::int64_t i = 0; i < columns.columns / kPanel; ++i) {
        std::memcpy(packed + (i * depth + k) * kPanel, from + i * kPanel, kPanel * sizeof(float));
      }
    }
  }

  // Calls each(tile, first row, rows) for tiles of nearly equal height.
  template <typename Each>
  static void ForEachTile(std::int64_t rows, const Each& each) {
    const std::int64_t tiles = Divide(rows, kTileRows);
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t first = tile * rows / tiles;
      each(tile, first, (tile + 1) * rows / tiles - first);
    }
  }

  // Packs rows in tiles.
  static void PackRows(const Matrix& a, float* to) {
    ForEachTile(a.rows, [&](std::int64_t tile, std::int64_t row, std::int64_t rows) {
      PackVectors<kTileRows>(a.data + row * a.row_step, rows, a.columns, a.row_step, a.column_step,
                             to + tile * a.columns * kTileRows);
    });
  }

  // Multiplies `a` by a panel. `packed` is null, or has the rows of `a` as PackRows packs them.
  void MultiplyPanel(const Matrix& a, const float* packed, const Panel& panel, float* to,
                     bool add) const {
    ForEachTile(a.rows, [&](std::int64_t tile, std::int64_t row, std::int64_t rows) {
      const Matrix part =
          packed != nullptr
              ? Matrix{packed + tile * a.columns * kTileRows, rows, a.columns, 1, kTileRows}
              : Matrix{a.data + row * a.row_step, rows, a.columns, a.row_step, a.column_step};
      ComputeTile(part, panel.data, panel.step, to + row * out_step_, out_step_, panel.width, add);
    });
  }

  const Matrix a_, b_;
  const Finish finish_;
  float* const out_;
  const std::int64_t out_step_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_GEMM_H_
