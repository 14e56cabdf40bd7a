// The gradient of the filter of a grouped convolution.

#ifndef TENSORWRIGHT_OPS_GROUPED_GROUPED_GRADIENT_H_
#define TENSORWRIGHT_OPS_GROUPED_GROUPED_GRADIENT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorwright/compute/constant.h"
#include "tensorwright/compute/convolution.h"
#include "tensorwright/compute/scratch.h"
#include "tensorwright/ops/grouped/packing.h"
#include "tensorwright/simd/lanes.h"

namespace tensorwright {

// Computes the gradient as sums over parts of the images, then adds the sums. Threads can sum
// different parts, and add the sums of different blocks, at the same time. The parts depend only on
// the shape, so the number of threads does not change the result.
class GroupedGradient {
 public:
  // `of` has the channels and filters of one group. The arrays are contiguous and not owned:
  //
  //   input     images x input rows x input columns x all channels
  //   back      images x output rows x output columns x all filters, the gradient of the outputs
  //   sums      memory for SumsSize() floats
  //   filter    filter rows x filter columns x channels x all filters, the result
  GroupedGradient(const Convolution& of, std::int64_t groups, const float* input, const float* back,
                  float* sums, float* filter)
      : of_(of),
        packing_(of.images, {groups, of.channels, of.filters}, Taps::ForOutputs(of.rows),
                 Taps::ForOutputs(of.columns)),
        runs_(packing_.Runs(0, 0)),
        input_(input),
        back_(back),
        sums_(sums),
        filter_(filter) {}

  static std::int64_t SumsSize(const Convolution& of, std::int64_t groups) {
    const Groups lanes = {groups, of.channels, of.filters};
    return lanes.blocks() * Split(of, lanes) * lanes.vectors() * of.taps() * of.channels * kLanes;
  }

  std::int64_t blocks() const { return packing_.groups().blocks(); }
  std::int64_t parts() const { return blocks() * Split(of_, packing_.groups()); }

  // Computes the sums of the parts [first, last).
  void Compute(std::int64_t first, std::int64_t last) const {
    const Groups& groups = packing_.groups();
    float* packed = GetScratch(packing_.size() + packing_.targets() * kLanes);
    float* back = packed + packing_.size();
    const std::int64_t split = Split(of_, groups), boxes = packing_.boxes_per_image();
    for (; first < last; ++first) {
      const std::int64_t block = first / split, part = first % split;
      std::fill_n(SumsOf(block, part, 0), groups.vectors() * Terms() * kLanes, 0.0f);
      for (std::int64_t image = part * of_.images / split; image < (part + 1) * of_.images / split;
           ++image) {
        for (std::int64_t index = 0; index < boxes; ++index) {
          const Box box = packing_.BoxAt(image, index);
          packing_.Pack(box, block, of_.rows.in, of_.columns.in, input_, packed);
          for (std::int64_t vector = 0; vector < groups.vectors(); ++vector) {
            PackBack(box, block, vector, back);
            AddBox(box, packed, back, SumsOf(block, part, vector));
          }
        }
      }
    }
  }

  // Adds the sums of all parts of the blocks [first, last).
  void Finish(std::int64_t first, std::int64_t last) const {
    const Groups& groups = packing_.groups();
    const std::int64_t filters = groups.groups * groups.filters, split = Split(of_, groups);
    for (std::int64_t block = first; block < last; ++block) {
      for (std::int64_t vector = 0; vector < groups.vectors(); ++vector) {
        float* to = filter_ + groups.first_filter(block, vector);
        for (std::int64_t term = 0; term < Terms(); ++term, to += filters) {
          Lanes sum = {};
          for (std::int64_t part = 0; part < split; ++part) {
            sum += LoadLanes(SumsOf(block, part, vector) + term * kLanes);
          }
          float values[kLanes];
          StoreLanes(values, sum);
          std::copy_n(values, groups.width(block, vector), to);
        }
      }
    }
  }

 private:
  // Returns into how many parts the images are split, so that many threads have work.
  static std::int64_t Split(const Convolution& of, const Groups& groups) {
    const std::int64_t positions = of.images * of.rows.out * of.columns.out,
                       most = std::min(of.images, positions / kLeastPositions);
    return std::clamp<std::int64_t>(kLeastParts / groups.blocks(), 1,
                                    std::max<std::int64_t>(most, 1));
  }

  // Returns the number of weights of one filter.
  std::int64_t Terms() const { return of_.taps() * of_.channels; }

  float* SumsOf(std::int64_t block, std::int64_t part, std::int64_t vector) const {
    const Groups& groups = packing_.groups();
    return sums_ +
           ((block * Split(of_, groups) + part) * groups.vectors() + vector) * Terms() * kLanes;
  }

  // Packs the gradients of a box's outputs for one vector. Unused lanes are zero.
  void PackBack(const Box& box, std::int64_t block, std::int64_t vector, float* to) const {
    const Groups& groups = packing_.groups();
    const std::int64_t filters = groups.groups * groups.filters,
                       width = groups.width(block, vector);
    for (std::int64_t row = 0; row < box.rows; ++row) {
      const float* from =
          back_ + groups.first_filter(block, vector) +
          ((box.image * of_.rows.out + box.row + row) * of_.columns.out + box.column) * filters;
      for (std::int64_t column = 0; column < box.columns; ++column, from += filters, to += kLanes) {
        if (width == kLanes) {
          StoreLanes(to, LoadLanes(from));
        } else {
          std::fill(std::copy_n(from, width, to), to + kLanes, 0.0f);
        }
      }
    }
  }

  // Adds the products of a box to the sums of one vector, some rows at a time, which are in the L1
  // cache.
  void AddBox(const Box& box, const float* packed, const float* back, float* sums) const {
    const std::int64_t most = std::max<std::int64_t>(kLeastPositions / box.columns, 1);
    for (std::int64_t row = 0; row < box.rows; row += most) {
      Box rows = box;
      rows.rows = std::min(most, box.rows - row);
      AddRows(rows, packed + row * packing_.line(), back + row * box.columns * kLanes, sums);
    }
  }

  void AddRows(const Box& box, const float* packed, const float* back, float* sums) const {
    for (const Run& run : runs_) {
      const std::int64_t tiles = (run.length + kPositions - 1) / kPositions;
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const std::int64_t first = tile * run.length / tiles,
                           count = (tile + 1) * run.length / tiles - first;
        const float* from = packed + run.offset + first * packing_.groups().unit();
        WithConstant<kPositions>(count, [&](auto constant) {
          constexpr int kCount = decltype(constant)::value;
          if (packing_.groups().has_several()) {
            Add<kCount, true>(box, from, back, sums);
          } else {
            Add<kCount, false>(box, from, back, sums);
          }
        });
        sums += count * kLanes;
      }
    }
  }

  // Adds to kCount adjacent sums.
  template <int kCount, bool kSeveral>
  void Add(const Box& box, const float* packed, const float* back, float* sums) const {
    constexpr std::int64_t kUnit = kSeveral ? kLanes : 1;
    const std::int64_t step = packing_.position();
    Lanes parts[kCount] = {};
    for (std::int64_t row = 0; row < box.rows; ++row) {
      const float* from = packed + row * packing_.line();
      for (std::int64_t column = 0; column < box.columns; ++column, from += step, back += kLanes) {
        const Lanes gradient = LoadLanes(back);
#pragma GCC unroll 12
        for (int i = 0; i < kCount; ++i) {
          const float* value = from + i * kUnit;
          parts[i] =
              MultiplyAdd(kSeveral ? LoadLanes(value) : Broadcast(*value), gradient, parts[i]);
        }
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < kCount; ++i) {
      float* to = sums + i * kLanes;
      StoreLanes(to, LoadLanes(to) + parts[i]);
    }
  }

  static constexpr std::int64_t kLeastParts = 16;  // If there are enough images.
  static constexpr std::int64_t kLeastPositions =
      64;  // Of a part. To add its sums takes time, too.

  const Convolution of_;
  const Packing packing_;
  const std::vector<Run> runs_;
  const float* const input_;
  const float* const back_;
  float* const sums_;
  float* const filter_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_GROUPED_GROUPED_GRADIENT_H_
