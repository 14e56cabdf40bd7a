// Convolutions of NHWC images and their gradients, where they are faster than oneDNN's.

#ifndef TENSORWRIGHT_FUSED_CONVOLUTION_OP_H_
#define TENSORWRIGHT_FUSED_CONVOLUTION_OP_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tensorwright/fused/convolution.h"
#include "tensorwright/fused/filter_gradient.h"
#include "tensorwright/fused/replaced_op.h"
#include "tensorwright/fused/threads.h"
#include "tensorwright/fused/winograd.h"

namespace tensorwright {
namespace {

// By what was measured against TensorFlow 2.14.1's oneDNN, with AVX2 on a Zen 3 and with AVX-512 on a
// Zen 4 (docs/fused.md). Products with AVX-512 are as fast as oneDNN's, no faster.
constexpr bool kProductsAreFaster = kLanes <= 8;

// Tiles of products want channels; nothing was measured of taps that stand apart.
inline bool IsFasterGradient(const Convolution& of) {
  return kProductsAreFaster && of.channels >= 2 * kTileRows && of.filters >= kPanel &&
         of.rows.dilation == 1 && of.columns.dilation == 1;
}
// Minimal filtering. Tiles at the border are computed whole.
inline bool IsFasterFiltered(const Convolution& of) {
  const std::int64_t tiles = Tiles(of).count(), outputs = of.images * of.rows.out * of.columns.out;
  return IsWinograd(of) && tiles >= 32 && 5 * outputs >= 12 * tiles && of.channels >= kLanes &&
         of.filters >= kPanel;
}
// For outputs the filter is transformed each time, which is worth it for many tiles only.
inline bool IsFasterFilteredOutputs(const Convolution& of) {
  return IsFasterFiltered(of) && 4 * Tiles(of).count() >= std::max(of.channels, of.filters);
}

inline void ShareGradient(OpKernelContext* context, std::int64_t threads,
                          const FilterGradient& gradient) {
  const std::vector<Part> parts = PartsOf(gradient.of(), threads);
  ShareParts(context, threads, parts.size(), [&](std::int64_t first, std::int64_t last) {
    for (; first < last; ++first) gradient.Compute(parts[first]);
  });
}

// What a convolution and its gradients have in common.
class ConvolvingOp : public ReplacedOp {
 public:
  explicit ConvolvingOp(OpKernelConstruction* context) : ReplacedOp(context) {
    std::string padding;
    OP_REQUIRES_OK(context, GetNodeAttr(before(), "strides", &strides_));
    OP_REQUIRES_OK(context, GetNodeAttr(before(), "padding", &padding));
    same_ = padding == "SAME";
    TryGetNodeAttr(before(), "dilations", &dilations_);
  }

 protected:
  // Of the shapes of images, filter and outputs; false where they do not belong together.
  bool ConvolutionOf(const TensorShape& in, const TensorShape& filter, const TensorShape& out,
                     Convolution* of) const {
    if (in.dims() != 4 || filter.dims() != 4 || out.dims() != 4) return false;
    *of = {in.dim_size(0), in.dim_size(3), out.dim_size(3), AxisOf(in, filter, out, 1),
           AxisOf(in, filter, out, 2)};
    return of->images > 0 && out.dim_size(0) == of->images &&
           filter.dim_size(2) == of->channels && filter.dim_size(3) == of->filters &&
           Fits(of->rows) && Fits(of->columns);
  }

  // The outputs of these images, if there are any.
  TensorShape OutputsOf(const TensorShape& in, const TensorShape& filter) const {
    if (in.dims() != 4 || filter.dims() != 4) return {};
    const auto size = [&](int axis) {
      const std::int64_t lost = same_ ? 0 : (filter.dim_size(axis - 1) - 1) * dilations_[axis];
      return std::max<std::int64_t>(in.dim_size(axis) - lost + strides_[axis] - 1, 0) /
             strides_[axis];
    };
    return TensorShape({in.dim_size(0), size(1), size(2), filter.dim_size(3)});
  }

  // A shape that came as numbers.
  static bool ShapeOf(const Tensor& sizes, TensorShape* shape) {
    if (sizes.dims() != 1 || sizes.NumElements() != 4) return false;
    const auto size = sizes.flat<std::int32_t>();
    return TensorShape::BuildTensorShape({size(0), size(1), size(2), size(3)}, shape).ok();
  }

  // What minimal filtering gives, in `output`.
  absl::Status Filtered(OpKernelContext* context, const Convolution& of, const Tensor& input,
                        const Tensor& filter, bool turned, const Finish& finish,
                        Tensor* output) const {
    Tensor room;
    const TensorShape size({WinogradOutputs::TransformedSize(of)});
    TF_RETURN_IF_ERROR(context->allocate_temp(tensorflow::DT_FLOAT, size, &room));
    const WinogradOutputs run(of, input.flat<float>().data(), filter.flat<float>().data(), turned,
                              finish, room.flat<float>().data(), output->flat<float>().data());
    const std::int64_t threads = Threads(context);
    ShareParts(context, threads, run.lines(), [&](std::int64_t first, std::int64_t last) {
      run.TransformFilters(first, last);
    });
    ShareParts(context, threads, run.blocks(),
               [&](std::int64_t first, std::int64_t last) { run.Compute(first, last); });
    return absl::OkStatus();
  }

 private:
  Convolution::Axis AxisOf(const TensorShape& in, const TensorShape& filter,
                           const TensorShape& out, int axis) const {
    Convolution::Axis of = {in.dim_size(axis), out.dim_size(axis), filter.dim_size(axis - 1),
                            strides_[axis], dilations_[axis]};
    if (same_) of.before = std::max<std::int64_t>(of.Reached(of.out) - of.in, 0) / 2;
    return of;
  }

  // Whether there are as many outputs as the convolution has.
  bool Fits(const Convolution::Axis& of) const {
    const std::int64_t lost = same_ ? 0 : (of.taps - 1) * of.dilation;
    return of.taps > 0 && of.in > lost && of.out == (of.in - lost + of.stride - 1) / of.stride;
  }

  std::vector<std::int32_t> strides_, dilations_ = {1, 1, 1, 1};
  bool same_ = false;  // Or nothing is padded.
};

// Conv2D, and the same with a bias and ReLU.
class ConvolutionOp : public ConvolvingOp {
 public:
  explicit ConvolutionOp(OpKernelConstruction* context) : ConvolvingOp(context) {
    std::vector<std::string> then;
    TryGetNodeAttr(before(), "fused_ops", &then);
    relu_ = then.size() > 1;
  }

 protected:
  absl::Status Computes(OpKernelContext* context, bool* done) const override {
    const Tensor &input = context->input(0), &filter = context->input(1);
    const TensorShape outputs = OutputsOf(input.shape(), filter.shape());
    Convolution of;
    if (!ConvolutionOf(input.shape(), filter.shape(), outputs, &of) ||
        !IsFasterFilteredOutputs(of)) {
      return absl::OkStatus();
    }
    Finish finish = {nullptr, relu_};
    if (context->num_inputs() > 2) {
      const Tensor& bias = context->input(2);
      if (bias.dims() != 1 || bias.dim_size(0) != of.filters) return absl::OkStatus();
      finish.bias = bias.flat<float>().data();
    }
    Tensor* out = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, outputs, &out));
    *done = true;
    return Filtered(context, of, input, filter, false, finish, out);
  }

 private:
  bool relu_ = false;
};

// Conv2DBackpropInput: the convolution of what comes back with the filter turned around.
class InputGradientOp : public ConvolvingOp {
 public:
  using ConvolvingOp::ConvolvingOp;

 protected:
  absl::Status Computes(OpKernelContext* context, bool* done) const override {
    const Tensor &filter = context->input(1), &back = context->input(2);
    TensorShape inputs;
    Convolution of;
    if (!ShapeOf(context->input(0), &inputs) ||
        !ConvolutionOf(inputs, filter.shape(), back.shape(), &of)) {
      return absl::OkStatus();
    }
    const auto turned = [](const Convolution::Axis& axis) {
      const std::int64_t before = (axis.taps - 1) * axis.dilation - axis.before;
      return Convolution::Axis{axis.out, axis.in, axis.taps, axis.stride, axis.dilation, before};
    };
    const Convolution other = {of.images, of.filters, of.channels, turned(of.rows),
                               turned(of.columns)};
    if (!IsFasterFilteredOutputs(other)) return absl::OkStatus();
    Tensor* out = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, inputs, &out));
    *done = true;
    return Filtered(context, other, back, filter, true, {}, out);
  }
};

// Conv2DBackpropFilter, and the same with the gradient of a bias.
class FilterGradientOp : public ConvolvingOp {
 public:
  using ConvolvingOp::ConvolvingOp;

 protected:
  absl::Status Computes(OpKernelContext* context, bool* done) const override {
    const Tensor &input = context->input(0), &back = context->input(2);
    TensorShape shape;
    Convolution of;
    if (!ShapeOf(context->input(1), &shape) ||
        !ConvolutionOf(input.shape(), shape, back.shape(), &of)) {
      return absl::OkStatus();
    }
    const bool filtered = IsFasterFiltered(of);
    if (!filtered && !IsFasterGradient(of)) return absl::OkStatus();
    Tensor *filter = nullptr, *bias = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &filter));
    if (context->num_outputs() > 1) {
      TF_RETURN_IF_ERROR(context->allocate_output(1, TensorShape({of.filters}), &bias));
    }
    *done = true;
    const float *in = input.flat<float>().data(), *out = back.flat<float>().data();
    float *to = filter->flat<float>().data(),
          *sums = bias == nullptr ? nullptr : bias->flat<float>().data();
    if (filtered) return Filtered(context, of, in, out, to, sums);
    ShareGradient(context, Threads(context), FilterGradient(of, in, out, to, sums));
    return absl::OkStatus();
  }

 private:
  static absl::Status Filtered(OpKernelContext* context, const Convolution& of, const float* in,
                               const float* out, float* filter, float* bias) {
    Tensor room;
    const TensorShape size({WinogradGradient::SumsSize(of)});
    TF_RETURN_IF_ERROR(context->allocate_temp(tensorflow::DT_FLOAT, size, &room));
    const WinogradGradient run(of, in, out, room.flat<float>().data(), filter, bias);
    const std::int64_t threads = Threads(context);
    ShareParts(
        context, threads, run.parts(),
        [&](std::int64_t first, std::int64_t last) { run.Compute(first, last); }, 1);
    ShareParts(context, threads, run.lines(),
               [&](std::int64_t first, std::int64_t last) { run.Finish(first, last); });
    return absl::OkStatus();
  }
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_FUSED_CONVOLUTION_OP_H_
