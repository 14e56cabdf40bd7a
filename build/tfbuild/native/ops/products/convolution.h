// The shape of a convolution.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_CONVOLUTION_H_
#define TENSORWRIGHT_OPS_PRODUCTS_CONVOLUTION_H_

#include <cstdint>

#include "tensorwright/compute/matrix.h"

namespace tensorwright {

// A convolution of NHWC images. The gradient of its filter, with batch x 1 x 1 x channels, is a product: of
// the transposed inputs and what comes back.
struct Convolution {
  // Along rows, then along columns.
  struct Axis {
    std::int64_t in, out, taps, stride = 1, dilation = 1, before = 0;

    // Positions of the input from the first to the last one that `count` of the output reach.
    std::int64_t Reached(std::int64_t count) const {
      return (count - 1) * stride + (taps - 1) * dilation + 1;
    }
    // Of those the ones that are packed: with one tap every stride-th.
    std::int64_t skip() const { return taps == 1 ? stride : 1; }
    std::int64_t Held(std::int64_t count) const { return taps == 1 ? count : Reached(count); }
    std::int64_t step() const { return stride / skip(); }
    // Of the gradient of inputs, with stride 1.
    Axis Turned() const { return {out, in, taps, 1, dilation, (taps - 1) * dilation - before}; }
  };
  std::int64_t images, channels, filters;
  Axis rows, columns;

  // What gives the gradient of inputs: of what comes back, with the filter turned around.
  Convolution Turned() const {
    return {images, filters, channels, rows.Turned(), columns.Turned()};
  }

  std::int64_t taps() const { return rows.taps * columns.taps; }
  // Blocks of channels, alike but for one, and none of more than kTileRows.
  std::int64_t blocks() const { return (channels + kTileRows - 1) / kTileRows; }
  std::int64_t panels() const { return (filters + kPanel - 1) / kPanel; }
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_CONVOLUTION_H_
