// Packs the images of a grouped convolution for the vectors that compute it.

#ifndef TENSORWRIGHT_OPS_GROUPED_PACKING_H_
#define TENSORWRIGHT_OPS_GROUPED_PACKING_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorwright/compute/convolution.h"
#include "tensorwright/ops/grouped/taps.h"
#include "tensorwright/simd/lanes.h"

namespace tensorwright {

constexpr int kPositions = 12;                   // Sums of a tile, one vector each.
constexpr std::int64_t kPackedFloats = 1 << 16;  // Packed at a time: they fit in most L2 caches.
// Of the rows that a row of targets reads: they fit in the L1 cache.
constexpr std::int64_t kRowFloats = 6 << 10;

// The groups of a convolution. Each reads `channels` channels of an image and computes `filters`
// channels of another, one per lane of a vector. A block of groups is computed at a time:
//
// - If a vector has room for the filters of several groups, a block is that many groups and one
//   vector. Each channel is packed as a vector, which has the channel of each lane's group.
// - Otherwise a block is one group and its vectors. Each channel is packed as one float.
struct Groups {
  std::int64_t groups, channels, filters;

  // Returns the number of groups in a block, but for the last block.
  std::int64_t together() const { return std::clamp<std::int64_t>(kLanes / filters, 1, groups); }
  bool has_several() const { return together() > 1; }
  std::int64_t blocks() const { return (groups + together() - 1) / together(); }
  // Returns the number of vectors of a block.
  std::int64_t vectors() const { return (filters + kLanes - 1) / kLanes; }
  // Returns the number of floats of a packed channel.
  std::int64_t unit() const { return has_several() ? kLanes : 1; }
  std::int64_t first_channel(std::int64_t block) const { return block * together() * channels; }
  std::int64_t first_filter(std::int64_t block, std::int64_t vector) const {
    return block * together() * filters + vector * kLanes;
  }
  // Returns the number of lanes that a vector uses.
  std::int64_t width(std::int64_t block, std::int64_t vector) const {
    return has_several() ? GroupsOf(block) * filters
                         : std::min<std::int64_t>(kLanes, filters - vector * kLanes);
  }

  // Returns, for each lane, the distance of its group's first channel from the block's first one.
  // Lanes without a group have 0. Only used if has_several().
  Indices offsets() const {
    Indices indices = {};
    for (std::int64_t lane = 0; has_several() && lane < together() * filters; ++lane) {
      indices[lane] = static_cast<int>(lane / filters * channels);
    }
    return indices;
  }

  // Packs the channels of a block at one position. `from` is its first channel; before `end`, all
  // floats may be read. May write kLanes more floats.
  void Pack(std::int64_t block, Indices offsets, const float* from, const float* end,
            float* to) const {
    if (!has_several()) {
      std::copy_n(from, channels, to);
      return;
    }
    if ((together() - 1) * channels < kLanes && end - from >= channels + kLanes) {
      for (std::int64_t channel = 0; channel < channels; ++channel, to += kLanes) {
        StoreLanes(to, Permute(LoadLanes(from + channel), offsets));
      }
      return;
    }
    const std::int64_t count = GroupsOf(block);
    for (std::int64_t channel = 0; channel < channels; ++channel, to += kLanes) {
      // What is stored beyond a group's lanes is overwritten next.
      for (std::int64_t group = 0; group < count; ++group) {
        StoreLanes(to + group * filters, Broadcast(from[group * channels + channel]));
      }
    }
  }

 private:
  std::int64_t GroupsOf(std::int64_t block) const {
    return std::min(together(), groups - block * together());
  }
};

// Some adjacent channels of a packed image, relative to the target's first one.
struct Run {
  std::int64_t offset, length;  // In floats; in channels.
};

// A box of adjacent targets of one image and one block, and the sources that they read.
struct Box {
  std::int64_t image, row, column;  // The first target.
  std::int64_t rows, columns;       // The number of targets of each phase.
};

// How an image is split into boxes, and how the sources of a box are packed: as row phases x rows x
// column phases x columns x channels.
class Packing {
 public:
  Packing(std::int64_t images, const Groups& groups, const Taps& rows, const Taps& columns)
      : images_(images),
        groups_(groups),
        rows_(rows),
        columns_(columns),
        offsets_(groups.offsets()) {
    const std::int64_t position = groups.channels * groups.unit();
    const auto fit = [](const Taps& taps, std::int64_t floats, std::int64_t each,
                        std::int64_t least) {
      const std::int64_t length = floats / (each * taps.source_phases());
      const std::int64_t most = taps.count(0);
      return std::clamp(length - taps.length(0), std::min(least, most), most);
    };
    box_columns_ =
        fit(columns, kRowFloats, position * rows.source_phases() * rows.length(1), kPositions);
    line_ = position * columns.source_phases() * columns.length(box_columns_);
    box_rows_ = fit(rows, kPackedFloats, line_, 1);
  }

  const Groups& groups() const { return groups_; }
  const Taps& rows() const { return rows_; }
  const Taps& columns() const { return columns_; }
  std::int64_t images() const { return images_; }

  // Returns the number of floats of a packed box.
  std::int64_t size() const {
    return rows_.source_phases() * rows_.length(box_rows_) * line_ + kLanes;
  }
  // Returns the number of floats from one packed row to the next, and from one column to the next.
  std::int64_t line() const { return line_; }
  std::int64_t position() const { return groups_.channels * groups_.unit(); }

  std::int64_t boxes_per_image() const { return RowBoxes() * ColumnBoxes(); }
  // Returns the largest number of targets of a phase in a box.
  std::int64_t targets() const { return box_rows_ * box_columns_; }

  Box BoxAt(std::int64_t image, std::int64_t index) const {
    const std::int64_t row = index / ColumnBoxes() * box_rows_,
                       column = index % ColumnBoxes() * box_columns_;
    return {image, row, column, std::min(box_rows_, rows_.count(0) - row),
            std::min(box_columns_, columns_.count(0) - column)};
  }

  // Returns the runs that the targets of a phase read, in the order of the taps of the filter that
  // `Taps` has. Neighbouring runs are merged.
  std::vector<Run> Runs(std::int64_t row_phase, std::int64_t column_phase) const {
    std::vector<Run> runs;
    for (const Taps::Tap& row : rows_.of(row_phase)) {
      for (const Taps::Tap& column : columns_.of(column_phase)) {
        const std::int64_t line = row.phase * rows_.length(box_rows_) + row.shift,
                           at = column.phase * columns_.length(box_columns_) + column.shift;
        const Run run = {line * line_ + at * position(), groups_.channels};
        const bool adjoins =
            !runs.empty() && runs.back().offset + runs.back().length * groups_.unit() == run.offset;
        if (adjoins) {
          runs.back().length += run.length;
        } else {
          runs.push_back(run);
        }
      }
    }
    return runs;
  }

  // Packs the sources of a box. `from` holds the images, whose positions have groups x channels
  // floats.
  void Pack(const Box& box, std::int64_t block, std::int64_t rows, std::int64_t columns,
            const float* from, float* to) const {
    const std::int64_t channels = groups_.groups * groups_.channels;
    const float* end = from + images_ * rows * columns * channels;
    from += box.image * rows * columns * channels + groups_.first_channel(block);
    for (std::int64_t phase = 0; phase < rows_.source_phases(); ++phase) {
      float* line = to + phase * rows_.length(box_rows_) * line_;
      for (std::int64_t j = 0; j < rows_.length(box.rows); ++j, line += line_) {
        const std::int64_t row = rows_.Source(phase, box.row + j);
        PackLine(box, block, rows_.IsInside(row) ? from + row * columns * channels : nullptr, end,
                 line);
      }
    }
  }

 private:
  std::int64_t RowBoxes() const { return (rows_.count(0) + box_rows_ - 1) / box_rows_; }
  std::int64_t ColumnBoxes() const { return (columns_.count(0) + box_columns_ - 1) / box_columns_; }

  // Packs one row. `from` is its first position, or null if the row is outside the image.
  void PackLine(const Box& box, std::int64_t block, const float* from, const float* end,
                float* to) const {
    const std::int64_t channels = groups_.groups * groups_.channels, step = position();
    for (std::int64_t phase = 0; phase < columns_.source_phases(); ++phase) {
      float* at = to + phase * columns_.length(box_columns_) * step;
      for (std::int64_t j = 0; j < columns_.length(box.columns); ++j, at += step) {
        const std::int64_t column = columns_.Source(phase, box.column + j);
        if (from != nullptr && columns_.IsInside(column)) {
          groups_.Pack(block, offsets_, from + column * channels, end, at);
        } else {
          std::fill_n(at, step, 0.0f);
        }
      }
    }
  }

  std::int64_t images_;
  Groups groups_;
  Taps rows_, columns_;
  Indices offsets_;
  std::int64_t box_rows_, box_columns_;  // Of the largest box.
  std::int64_t line_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_GROUPED_PACKING_H_
