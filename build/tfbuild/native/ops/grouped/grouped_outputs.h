// The outputs of a grouped convolution, and the gradient of its inputs.

#ifndef TENSORWRIGHT_OPS_GROUPED_GROUPED_OUTPUTS_H_
#define TENSORWRIGHT_OPS_GROUPED_GROUPED_OUTPUTS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorwright/compute/constant.h"
#include "tensorwright/compute/convolution.h"
#include "tensorwright/compute/scratch.h"
#include "tensorwright/ops/grouped/packing.h"
#include "tensorwright/simd/lanes.h"

namespace tensorwright {

// Computes targets from sources (Taps): outputs from inputs, or the gradient of the inputs from that
// of the outputs. The weights are packed first, then the boxes are computed. Threads can pack
// different blocks, and compute different boxes, at the same time.
class GroupedOutputs {
 public:
  // `of` has the channels and filters of one group. The arrays are contiguous and not owned:
  //
  //   from      images x source rows x source columns x source channels
  //   filter    filter rows x filter columns x channels x all filters
  //   weights   memory for WeightsSize() floats
  //   to        images x target rows x target columns x target channels, the result
  GroupedOutputs(const Convolution& of, std::int64_t groups, bool is_gradient, const float* from,
                 const float* filter, float* weights, float* to)
      : of_(of),
        is_gradient_(is_gradient),
        packing_(MakePacking(of, groups, is_gradient)),
        from_(from),
        filter_(filter),
        weights_(weights),
        to_(to) {
    std::int64_t weight = 0;
    for (std::int64_t row = 0; row < packing_.rows().target_phases(); ++row) {
      for (std::int64_t column = 0; column < packing_.columns().target_phases(); ++column) {
        phases_.push_back({row, column, weight, packing_.Runs(row, column)});
        for (const Run& run : phases_.back().runs) weight += run.length * kLanes;
      }
    }
  }

  // Returns the number of floats of all packed weights.
  static std::int64_t WeightsSize(const Convolution& of, std::int64_t groups, bool is_gradient) {
    const Groups lanes = MakeGroups(of, groups, is_gradient);
    return lanes.blocks() * lanes.vectors() * of.taps() * lanes.channels * kLanes;
  }

  std::int64_t blocks() const { return packing_.groups().blocks(); }
  std::int64_t boxes() const { return packing_.images() * packing_.boxes_per_image() * blocks(); }

  // Packs the weights of the blocks [first, last).
  void PackWeights(std::int64_t first, std::int64_t last) const {
    const Groups& groups = packing_.groups();
    for (std::int64_t block = first; block < last; ++block) {
      for (std::int64_t vector = 0; vector < groups.vectors(); ++vector) {
        float* to = WeightsOf(block, vector);
        const std::int64_t filter = groups.first_filter(block, vector),
                           width = groups.width(block, vector);
        for (const Phase& phase : phases_) {
          for (const Taps::Tap& row : packing_.rows().of(phase.row)) {
            for (const Taps::Tap& column : packing_.columns().of(phase.column)) {
              const std::int64_t tap = row.index * of_.columns.taps + column.index;
              for (std::int64_t channel = 0; channel < groups.channels; ++channel, to += kLanes) {
                PackWeight(tap, channel, filter, width, to);
              }
            }
          }
        }
      }
    }
  }

  // Computes the boxes [first, last).
  void Compute(std::int64_t first, std::int64_t last) const {
    const Groups& groups = packing_.groups();
    float* packed = GetScratch(packing_.size());
    for (; first < last; ++first) {
      const std::int64_t block = first % blocks(), index = first / blocks();
      const Box box =
          packing_.BoxAt(index / packing_.boxes_per_image(), index % packing_.boxes_per_image());
      packing_.Pack(box, block, SourceRows(), SourceColumns(), from_, packed);
      for (std::int64_t vector = 0; vector < groups.vectors(); ++vector) {
        for (const Phase& phase : phases_) ComputePhase(box, block, vector, phase, packed);
      }
    }
  }

 private:
  // A phase of the targets along both axes.
  struct Phase {
    std::int64_t row, column;
    std::int64_t weights;  // Offset of its weights.
    std::vector<Run> runs;
  };

  static Groups MakeGroups(const Convolution& of, std::int64_t groups, bool is_gradient) {
    return is_gradient ? Groups{groups, of.filters, of.channels}
                       : Groups{groups, of.channels, of.filters};
  }
  static Packing MakePacking(const Convolution& of, std::int64_t groups, bool is_gradient) {
    const auto taps = is_gradient ? Taps::ForInputs : Taps::ForOutputs;
    return Packing(of.images, MakeGroups(of, groups, is_gradient), taps(of.rows), taps(of.columns));
  }

  std::int64_t SourceRows() const { return is_gradient_ ? of_.rows.out : of_.rows.in; }
  std::int64_t SourceColumns() const { return is_gradient_ ? of_.columns.out : of_.columns.in; }
  std::int64_t TargetRows() const { return is_gradient_ ? of_.rows.in : of_.rows.out; }
  std::int64_t TargetColumns() const { return is_gradient_ ? of_.columns.in : of_.columns.out; }

  float* WeightsOf(std::int64_t block, std::int64_t vector) const {
    const Groups& groups = packing_.groups();
    return weights_ + (block * groups.vectors() + vector) * of_.taps() * groups.channels * kLanes;
  }

  // Packs the weights of one tap and source channel for targets [target, target + width).
  void PackWeight(std::int64_t tap, std::int64_t channel, std::int64_t target, std::int64_t width,
                  float* to) const {
    const std::int64_t filters = packing_.groups().groups * of_.filters;
    const float* from = filter_ + tap * of_.channels * filters;
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const std::int64_t at = target + lane;
      to[lane] = lane >= width ? 0.0f
                 : is_gradient_
                     ? from[at % of_.channels * filters + at / of_.channels * of_.filters + channel]
                     : from[channel * filters + at];
    }
  }

  // Computes the targets of one phase in a box, for one vector.
  void ComputePhase(const Box& box, std::int64_t block, std::int64_t vector, const Phase& phase,
                    const float* packed) const {
    const Groups& groups = packing_.groups();
    const std::int64_t row_phases = packing_.rows().target_phases(),
                       column_phases = packing_.columns().target_phases(),
                       rows = std::min(box.rows, packing_.rows().count(phase.row) - box.row),
                       columns = std::min(box.columns,
                                          packing_.columns().count(phase.column) - box.column),
                       channels = groups.groups * groups.filters, step = column_phases * channels,
                       width = groups.width(block, vector);
    const float* weights = WeightsOf(block, vector) + phase.weights;
    const std::int64_t tiles = (columns + kPositions - 1) / kPositions;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t column = tile * columns / tiles,
                         count = (tile + 1) * columns / tiles - column;
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t target =
            (box.image * TargetRows() + (box.row + row) * row_phases + phase.row) *
                TargetColumns() +
            (box.column + column) * column_phases + phase.column;
        float* to = to_ + target * channels + groups.first_filter(block, vector);
        const float* from = packed + row * packing_.line() + column * packing_.position();
        WithConstant<kPositions>(count, [&](auto constant) {
          constexpr int kCount = decltype(constant)::value;
          if (groups.has_several()) {
            Sum<kCount, true>(phase.runs, from, weights, to, step, width);
          } else {
            Sum<kCount, false>(phase.runs, from, weights, to, step, width);
          }
        });
      }
    }
  }

  // Computes one vector of kCount adjacent targets.
  template <int kCount, bool kSeveral>
  void Sum(const std::vector<Run>& runs, const float* packed, const float* weights, float* to,
           std::int64_t to_step, std::int64_t width) const {
    constexpr std::int64_t kUnit = kSeveral ? kLanes : 1;
    const std::int64_t step = packing_.position();
    Lanes sums[kCount] = {};
    for (const Run& run : runs) {
      const float* from = packed + run.offset;
      for (std::int64_t i = 0; i < run.length; ++i, from += kUnit, weights += kLanes) {
        const Lanes weight = LoadLanes(weights);
#pragma GCC unroll 12
        for (int j = 0; j < kCount; ++j) {
          const float* value = from + j * step;
          sums[j] = MultiplyAdd(kSeveral ? LoadLanes(value) : Broadcast(*value), weight, sums[j]);
        }
      }
    }
#pragma GCC unroll 12
    for (int j = 0; j < kCount; ++j) {
      if (width == kLanes) {
        StoreLanes(to + j * to_step, sums[j]);
      } else {
        float values[kLanes];
        StoreLanes(values, sums[j]);
        std::copy_n(values, width, to + j * to_step);
      }
    }
  }

  const Convolution of_;
  const bool is_gradient_;
  const Packing packing_;
  std::vector<Phase> phases_;
  const float* const from_;
  const float* const filter_;
  float* const weights_;
  float* const to_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_GROUPED_GROUPED_OUTPUTS_H_
