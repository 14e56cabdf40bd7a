// The ops that replace depthwise convolutions and their gradients. A depthwise convolution is a
// grouped one with one channel per group. These ops compute those with a few filters per channel,
// for which oneDNN and TensorFlow's own kernels are slow, and run the original kernel otherwise.

#ifndef TENSORWRIGHT_OPS_GROUPED_DEPTHWISE_OP_H_
#define TENSORWRIGHT_OPS_GROUPED_DEPTHWISE_OP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorwright/compute/convolution.h"
#include "tensorwright/compute/finish.h"
#include "tensorwright/compute/threads.h"
#include "tensorwright/graph/replaced_op.h"
#include "tensorwright/ops/grouped/call.h"
#include "tensorwright/ops/grouped/events.h"
#include "tensorwright/ops/grouped/grouped_run.h"

namespace tensorwright {
namespace {

using tensorflow::OpKernelConstruction;

// The largest numbers of filters per channel for which this library was measured to be faster with
// AVX2 and with AVX-512 (docs/fused.md). With one filter per channel it is slower.
constexpr std::int64_t kMostForOutputs = 4, kMostForInputGradient = 8, kMostForFilterGradient = 2;

// The base class. It reads the attributes, and decides which shapes are computed.
class DepthwiseOp : public ReplacedOp {
 public:
  DepthwiseOp(OpKernelConstruction* context, std::int64_t most)
      : ReplacedOp(context, events::grouped_runs, events::stock_depthwise, grouped_group),
        most_(most) {
    OP_REQUIRES(context, ReadConvolution(before(), &value_),
                tensorflow::errors::Internal(before().op(), " is not supported"));
    // Without oneDNN, TensorFlow's kernels of outputs and of filters' gradients are fast if there are
    // strides.
    if (most != kMostForInputGradient && value_.strides[1] > 1 && !IsOneDnn()) most_ = 0;
  }

 protected:
  // Sets `*grouped` to the shape of the filter of the grouped convolution, rows x columns x 1 x all
  // filters. Returns false if the original kernel has to run: the shapes of images and filter do not
  // match, the filter is empty, or this library would not be faster.
  bool GetFilterShape(const TensorShape& images, const TensorShape& filter,
                      TensorShape* grouped) const {
    if (images.dims() != 4 || filter.dims() != 4 || filter.num_elements() == 0) return false;
    const std::int64_t channels = filter.dim_size(2), multiplier = filter.dim_size(3);
    if (images.dim_size(3) != channels || multiplier < 2 || multiplier > most_ ||
        !HasManyOutputs(images, filter)) {
      return false;
    }
    *grouped = filter;
    grouped->set_dim(2, 1);
    grouped->set_dim(3, channels * multiplier);
    return true;
  }

  // Sets `*grouped` to the filter of the grouped convolution. Returns false as GetFilterShape.
  bool GetFilter(const TensorShape& images, const Tensor& filter, Tensor* grouped) const {
    TensorShape shape;
    return GetFilterShape(images, filter.shape(), &shape) && grouped->CopyFrom(filter, shape);
  }

  // Returns the strides and the padding of the convolution.
  const Value& value() const { return value_; }

 private:
  // Whether there is at least one output for four positions of the images that strides do not skip.
  // There are fewer if a large filter is not padded. Then this library would be slower: to compute
  // the gradient of the inputs, it also multiplies positions outside of the outputs.
  bool HasManyOutputs(const TensorShape& images, const TensorShape& filter) const {
    double share = 4;
    for (int i : {1, 2}) {
      const auto axis = Convolution::Axis::Of(images.dim_size(i), filter.dim_size(i - 1),
                                              value_.strides[i], 1, value_.same);
      share *= static_cast<double>(axis.out * axis.stride) / static_cast<double>(axis.in);
    }
    return share >= 1;
  }

  // Whether the original kernel is oneDNN's.
  bool IsOneDnn() const { return before().op().compare(0, 4, "_Mkl") == 0; }

  Value value_ = {ValueKind::kOutputs};
  std::int64_t most_;
};

// A depthwise convolution, alone or followed by a bias, and then optionally by ReLU.
class DepthwiseOutputsOp : public DepthwiseOp {
 public:
  explicit DepthwiseOutputsOp(OpKernelConstruction* context)
      : DepthwiseOp(context, kMostForOutputs) {
    std::vector<std::string> then;
    TryGetNodeAttr(before(), "fused_ops", &then);
    relu_ = then.size() > 1;
  }

 protected:
  absl::Status Computes(OpKernelContext* context, bool* done) const override {
    const Tensor& input = context->input(0);
    Tensor filter, output;
    if (!GetFilter(input.shape(), context->input(1), &filter)) return absl::OkStatus();
    const std::int64_t filters = filter.dim_size(3);
    Finish finish = {nullptr, relu_};
    if (context->num_inputs() == 3) {
      const Tensor& bias = context->input(2);
      if (bias.dims() != 1 || bias.dim_size(0) != filters) return absl::OkStatus();
      finish.bias = bias.flat<float>().data();
    }
    if (!GroupedRun(context).Convolve(value(), input, filter, &output)) return absl::OkStatus();
    float* to = output.flat<float>().data();
    if (finish.bias != nullptr) {
      ShareParts(context, Threads(context), output.NumElements() / filters,
                 [&](std::int64_t first, std::int64_t last) {
                   finish.Apply(0, last - first, filters, to + first * filters, filters);
                 });
    }
    context->set_output(0, output);
    *done = true;
    return absl::OkStatus();
  }

 private:
  bool relu_ = false;
};

// The gradient of the inputs.
class DepthwiseInputGradientOp : public DepthwiseOp {
 public:
  explicit DepthwiseInputGradientOp(OpKernelConstruction* context)
      : DepthwiseOp(context, kMostForInputGradient) {}

 protected:
  absl::Status Computes(OpKernelContext* context, bool* done) const override {
    const Tensor& back = context->input(2);
    TensorShape shape;
    Tensor filter, output;
    *done = GroupedRun::ShapeFrom(context->input(0), &shape) &&
            GetFilter(shape, context->input(1), &filter) &&
            GroupedRun(context).GetInputGradient(value(), shape, filter, back, &output);
    if (*done) context->set_output(0, output);
    return absl::OkStatus();
  }
};

// The gradient of the filter.
class DepthwiseFilterGradientOp : public DepthwiseOp {
 public:
  explicit DepthwiseFilterGradientOp(OpKernelConstruction* context)
      : DepthwiseOp(context, kMostForFilterGradient) {}

 protected:
  absl::Status Computes(OpKernelContext* context, bool* done) const override {
    const Tensor& input = context->input(0);
    TensorShape shape, grouped;
    Tensor sums, output;
    *done =
        GroupedRun::ShapeFrom(context->input(1), &shape) &&
        GetFilterShape(input.shape(), shape, &grouped) &&
        GroupedRun(context).GetFilterGradient(value(), input, grouped, context->input(2), &sums) &&
        output.CopyFrom(sums, shape);
    if (*done) context->set_output(0, output);
    return absl::OkStatus();
  }
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_GROUPED_DEPTHWISE_OP_H_
