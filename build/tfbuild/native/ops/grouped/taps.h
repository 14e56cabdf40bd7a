// The positions of an image that a convolution reads, along one axis.

#ifndef TENSORWRIGHT_OPS_GROUPED_TAPS_H_
#define TENSORWRIGHT_OPS_GROUPED_TAPS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorwright/compute/convolution.h"

namespace tensorwright {

// A convolution or the gradient of its inputs, along one axis. It reads sources and computes
// targets. Both are split into phases (polyphase decomposition), so that there is no stride: target
// j of a phase is the sum, over taps of the filter, of the tap's weight times source j + shift of
// the tap's source phase. Target j of phase p is position p + j * target_phases().
class Taps {
 public:
  struct Tap {
    std::int64_t index;  // In the filter.
    std::int64_t phase, shift;
  };

  // Targets are the outputs, in one phase. There is a source phase for each remainder, modulo the
  // stride, of the taps' positions.
  static Taps ForOutputs(const Convolution::Axis& axis) {
    Taps taps(axis.in, axis.out, axis.stride, 1);
    std::vector<std::int64_t> phases(axis.stride, -1);
    for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
      const std::int64_t rest = tap * axis.dilation % axis.stride;
      if (phases[rest] < 0) {
        phases[rest] = taps.source_phases();
        taps.starts_.push_back(rest - axis.before);
      }
      taps.Add(0, {tap, phases[rest], tap * axis.dilation / axis.stride});
    }
    return taps;
  }

  // Targets are the inputs, in as many phases as the stride. Sources are the gradients of the
  // outputs, in one phase.
  static Taps ForInputs(const Convolution::Axis& axis) {
    Taps taps(axis.out, axis.in, 1, axis.stride);
    const std::int64_t after = (axis.taps - 1) * axis.dilation - axis.before;
    const std::int64_t start = -((after + axis.stride - 1) / axis.stride);
    taps.starts_.push_back(start);
    for (std::int64_t phase = 0; phase < axis.stride; ++phase) {
      for (std::int64_t tap = axis.taps; tap-- > 0;) {
        const std::int64_t ahead = phase + axis.before - tap * axis.dilation;
        if (ahead % axis.stride == 0) taps.Add(phase, {tap, 0, ahead / axis.stride - start});
      }
    }
    return taps;
  }

  std::int64_t source_phases() const { return starts_.size(); }
  std::int64_t target_phases() const { return taps_.size(); }
  // Returns the taps that a target phase reads.
  const std::vector<Tap>& of(std::int64_t phase) const { return taps_[phase]; }
  // Returns the number of targets of a phase. Phase 0 has the most.
  std::int64_t count(std::int64_t phase) const {
    return std::max<std::int64_t>((targets_ - phase + target_phases() - 1) / target_phases(), 0);
  }
  // Returns the number of sources of a phase that `count` adjacent targets of a phase read.
  std::int64_t length(std::int64_t count) const { return count + last_shift_; }
  // Returns the position of source j of a phase. It may be outside the image.
  std::int64_t Source(std::int64_t phase, std::int64_t j) const {
    return j * stride_ + starts_[phase];
  }
  bool IsInside(std::int64_t source) const { return source >= 0 && source < sources_; }

 private:
  Taps(std::int64_t sources, std::int64_t targets, std::int64_t stride, std::int64_t phases)
      : sources_(sources), targets_(targets), stride_(stride), taps_(phases) {}

  void Add(std::int64_t phase, const Tap& tap) {
    taps_[phase].push_back(tap);
    last_shift_ = std::max(last_shift_, tap.shift);
  }

  std::int64_t sources_, targets_;
  std::int64_t stride_;  // Between the sources of a phase.
  std::int64_t last_shift_ = 0;
  std::vector<std::int64_t> starts_;    // Source 0 of each phase.
  std::vector<std::vector<Tap>> taps_;  // By target phase.
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_GROUPED_TAPS_H_
