// The shape of a convolution.

#ifndef TENSORWRIGHT_COMPUTE_CONVOLUTION_H_
#define TENSORWRIGHT_COMPUTE_CONVOLUTION_H_

#include <algorithm>
#include <cstdint>

#include "tensorwright/compute/matrix.h"

namespace tensorwright {

// The shape of a convolution of NHWC images. For images of batch x 1 x 1 x channels, the gradient
// of the filter is a matrix product: that of the transposed inputs and the gradient of the outputs.
struct Convolution {
  // One spatial axis: the numbers of inputs, outputs and filter taps, the stride, the dilation, and
  // the padding before the first input.
  struct Axis {
    std::int64_t in, out, taps, stride = 1, dilation = 1, before = 0;

    // Returns the axis of a convolution with the padding SAME, or VALID if not `same`. It has no
    // outputs if the filter has no taps or does not fit.
    static Axis Of(std::int64_t in, std::int64_t taps, std::int64_t stride, std::int64_t dilation,
                   bool same) {
      Axis axis = {in, 0, taps, stride, dilation};
      const std::int64_t left = same ? in : in - (taps - 1) * dilation;
      if (taps > 0 && left > 0) axis.out = (left + stride - 1) / stride;
      if (same) axis.before = std::max<std::int64_t>(axis.InputExtent(axis.out) - in, 0) / 2;
      return axis;
    }

    // Returns the number of input positions from the first to the last that `count` adjacent
    // outputs read.
    std::int64_t InputExtent(std::int64_t count) const {
      return (count - 1) * stride + (taps - 1) * dilation + 1;
    }
    // Returns the distance between input positions that are packed. With one tap, only every
    // stride-th position is read, so only these are packed.
    std::int64_t skip() const { return taps == 1 ? stride : 1; }
    // Returns the number of packed positions that `count` adjacent outputs read.
    std::int64_t PackedExtent(std::int64_t count) const {
      return taps == 1 ? count : InputExtent(count);
    }
    // Returns the distance between the inputs of adjacent outputs, in packed positions.
    std::int64_t step() const { return stride / skip(); }
    // Returns the axis of the convolution that computes the gradient of the inputs, for stride 1.
    Axis ForInputGradient() const {
      return {out, in, taps, 1, dilation, (taps - 1) * dilation - before};
    }
  };
  std::int64_t images, channels, filters;
  Axis rows, columns;

  // Returns the convolution that computes the gradient of the inputs, for stride 1. It convolves
  // the gradient of the outputs with the filter rotated by 180 degrees, its channels and filters
  // exchanged.
  Convolution ForInputGradient() const {
    return {images, filters, channels, rows.ForInputGradient(), columns.ForInputGradient()};
  }

  std::int64_t taps() const { return rows.taps * columns.taps; }
  // Returns the number of blocks of channels. Their sizes differ by at most one channel and are at
  // most kTileRows.
  std::int64_t blocks() const { return (channels + kTileRows - 1) / kTileRows; }
  // Returns the number of panels of filters.
  std::int64_t panels() const { return (filters + kPanel - 1) / kPanel; }
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_COMPUTE_CONVOLUTION_H_
