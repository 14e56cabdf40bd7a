// Kernels of convolutions of NHWC images and of their gradients, for shapes for which they are
// faster than oneDNN's.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_CONVOLUTION_OP_H_
#define TENSORWRIGHT_OPS_PRODUCTS_CONVOLUTION_OP_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tensorwright/compute/threads.h"
#include "tensorwright/compute/convolution.h"
#include "tensorwright/ops/products/faster.h"
#include "tensorwright/ops/products/filter_gradient.h"
#include "tensorwright/ops/products/replaced_product.h"
#include "tensorwright/ops/products/winograd_gradient.h"
#include "tensorwright/ops/products/winograd_outputs.h"

namespace tensorwright {
namespace {

// Inputs of a convolution with batch normalisation: images, filter, scale, offset, mean, variance.
constexpr int kNormalisedInputs = 6;

// Computes the gradient of a filter, shared among `threads` threads.
inline void ShareGradient(OpKernelContext* context, std::int64_t threads,
                          const FilterGradient& gradient) {
  const std::vector<Part> parts = SplitIntoParts(gradient.of(), threads);
  ShareParts(context, threads, parts.size(), [&](std::int64_t first, std::int64_t last) {
    for (; first < last; ++first) gradient.Compute(parts[first]);
  });
}

// The base class of convolutions and their gradients. It reads the attributes, checks the shapes
// and runs Winograd convolutions.
class ConvolutionOpBase : public ReplacedProduct {
 public:
  explicit ConvolutionOpBase(OpKernelConstruction* context) : ReplacedProduct(context) {
    std::string padding;
    OP_REQUIRES_OK(context, GetNodeAttr(before(), "strides", &strides_));
    OP_REQUIRES_OK(context, GetNodeAttr(before(), "padding", &padding));
    same_ = padding == "SAME";
    std::vector<std::int32_t> dilations;  // TryGetNodeAttr appends to a vector.
    if (TryGetNodeAttr(before(), "dilations", &dilations)) dilations_ = dilations;
  }

 protected:
  // Sets `*of` from the shapes of images, filter and outputs. Returns false if a shape is empty or
  // if the shapes do not match.
  bool GetConvolution(const TensorShape& in, const TensorShape& filter, const TensorShape& out,
                      Convolution* of) const {
    if (in.dims() != 4 || filter.dims() != 4 || out.dims() != 4) return false;
    *of = {in.dim_size(0), in.dim_size(3), out.dim_size(3), AxisOf(in, filter, 1),
           AxisOf(in, filter, 2)};
    for (int axis : {1, 2}) {
      const std::int64_t outputs = (axis == 1 ? of->rows : of->columns).out;
      if (outputs == 0 || out.dim_size(axis) != outputs) return false;
    }
    return of->images > 0 && of->channels > 0 && of->filters > 0 && out.dim_size(0) == of->images &&
           filter.dim_size(2) == of->channels && filter.dim_size(3) == of->filters;
  }

  // Returns the shape of the outputs. It has no dimensions if `in` or `filter` does not have four,
  // or if the outputs are too many for a tensor.
  TensorShape GetOutputShape(const TensorShape& in, const TensorShape& filter) const {
    if (in.dims() != 4 || filter.dims() != 4) return {};
    TensorShape shape;
    const auto built = TensorShape::BuildTensorShape(
        {in.dim_size(0), AxisOf(in, filter, 1).out, AxisOf(in, filter, 2).out, filter.dim_size(3)},
        &shape);
    return built.ok() ? shape : TensorShape();
  }

  // Sets `*shape` to the sizes in an int32 tensor. Returns false unless they are four valid sizes.
  static bool ShapeOf(const Tensor& sizes, TensorShape* shape) {
    if (sizes.dims() != 1 || sizes.NumElements() != 4) return false;
    const auto size = sizes.flat<std::int32_t>();
    return TensorShape::BuildTensorShape({size(0), size(1), size(2), size(3)}, shape).ok();
  }

  // Computes output 0, of shape `shape`, by Winograd convolution and sets `*done` if that is
  // faster. The transformed filter is kept in a temporary tensor. `is_rotated` is as in
  // WinogradOutputs.
  absl::Status Filter(OpKernelContext* context, const Convolution& of,
                      const WinogradKernels& kernels, const TensorShape& shape, const Tensor& input,
                      const Tensor& filter, bool is_rotated, const Finish& finish,
                      bool* done) const {
    absl::Status status;
    WithScheme(of, kernels, [&](auto scheme, KernelId kernel, const WorkPair& work) {
      if (!IsUsed(Predict(kernel, work))) return;
      *done = true;
      using Outputs = WinogradOutputs<decltype(scheme)>;
      Tensor room, *output = nullptr;
      const TensorShape size({Outputs::TransformedSize(of)});
      status = context->allocate_output(0, shape, &output);
      if (status.ok()) status = context->allocate_temp(tensorflow::DT_FLOAT, size, &room);
      if (!status.ok()) return;
      const Outputs run(of, input.flat<float>().data(), filter.flat<float>().data(), is_rotated,
                        finish, room.flat<float>().data(), output->flat<float>().data());
      const std::int64_t threads = Threads(context);
      ShareParts(context, threads, run.lines(),
                 [&](std::int64_t first, std::int64_t last) { run.TransformFilters(first, last); });
      ShareParts(context, threads, run.blocks(),
                 [&](std::int64_t first, std::int64_t last) { run.Compute(first, last); });
    });
    return status;
  }

 private:
  Convolution::Axis AxisOf(const TensorShape& in, const TensorShape& filter, int axis) const {
    return Convolution::Axis::Of(in.dim_size(axis), filter.dim_size(axis - 1), strides_[axis],
                                 dilations_[axis], same_);
  }

  std::vector<std::int32_t> strides_, dilations_ = {1, 1, 1, 1};
  bool same_ = false;  // Whether the padding is SAME, otherwise VALID.
};

// Conv2D, alone or followed by a bias or by batch normalisation with stored mean and variance, and
// then optionally by ReLU.
class ConvolutionOp : public ConvolutionOpBase {
 public:
  explicit ConvolutionOp(OpKernelConstruction* context) : ConvolutionOpBase(context) {
    TryGetNodeAttr(before(), "epsilon", &epsilon_);
  }

 protected:
  absl::Status Computes(OpKernelContext* context, bool* done) const override {
    const Tensor &input = context->input(0), &filter = context->input(1);
    const TensorShape outputs = GetOutputShape(input.shape(), filter.shape());
    Convolution of;
    Finish finish;
    std::vector<float> factors;
    if (!GetConvolution(input.shape(), filter.shape(), outputs, &of) ||
        !GetFinish(context, of.filters, &finish) ||
        !GetBatchNorm(context, of.filters, &factors, &finish)) {
      return absl::OkStatus();
    }
    return Filter(context, of, kOutputs, outputs, input, filter, false, finish, done);
  }

 private:
  // Sets the normalisation of `*finish` if the op has the inputs scale, offset, mean and variance.
  // Stores scale / sqrt(variance + epsilon) in `*factors`, to which `*finish` points. Returns false
  // if an input has the wrong shape.
  bool GetBatchNorm(OpKernelContext* context, std::int64_t filters, std::vector<float>* factors,
                    Finish* finish) const {
    if (context->num_inputs() != kNormalisedInputs) return true;
    const float* each[4];
    for (int i = 0; i < 4; ++i) {
      const Tensor& input = context->input(2 + i);
      if (input.dims() != 1 || input.dim_size(0) != filters) return false;
      each[i] = input.flat<float>().data();
    }
    const auto [scale, offset, mean, variance] = each;
    for (std::int64_t i = 0; i < filters; ++i) {
      factors->push_back(scale[i] / std::sqrt(variance[i] + epsilon_));
    }
    finish->bias = offset;
    finish->means = mean;
    finish->factors = factors->data();
    return true;
  }

  float epsilon_ = 0;
};

// Conv2DBackpropInput with stride 1: convolves the gradient of the outputs with the rotated filter.
class InputGradientOp : public ConvolutionOpBase {
 public:
  using ConvolutionOpBase::ConvolutionOpBase;

 protected:
  absl::Status Computes(OpKernelContext* context, bool* done) const override {
    const Tensor &filter = context->input(1), &back = context->input(2);
    TensorShape inputs;
    Convolution of;
    if (!ShapeOf(context->input(0), &inputs) ||
        !GetConvolution(inputs, filter.shape(), back.shape(), &of)) {
      return absl::OkStatus();
    }
    if (of.rows.stride != 1 || of.columns.stride != 1) return absl::OkStatus();
    return Filter(context, of.ForInputGradient(), kInputGradient, inputs, back, filter, true, {},
                  done);
  }
};

// Conv2DBackpropFilter, alone or with the gradient of the bias as a second output.
class FilterGradientOp : public ConvolutionOpBase {
 public:
  using ConvolutionOpBase::ConvolutionOpBase;

 protected:
  absl::Status Computes(OpKernelContext* context, bool* done) const override {
    const Tensor &input = context->input(0), &back = context->input(2);
    TensorShape shape;
    Convolution of;
    if (!ShapeOf(context->input(1), &shape) ||
        !GetConvolution(input.shape(), shape, back.shape(), &of)) {
      return absl::OkStatus();
    }
    Prediction faster = Predict(KernelId::filter_gradient, CountFilterGradientWork(of));
    if (of.rows.dilation != 1 || of.columns.dilation != 1) faster.onednn = 0;  // Not measured.
    bool filtered = false;
    WithScheme(of, kFilterGradient, [&](auto, KernelId kernel, const WorkPair& work) {
      const Prediction winograd = Predict(kernel, work);
      // FilterGradient was not measured against oneDNN for these filters.
      faster.onednn = winograd.onednn;
      filtered = always() || winograd.ours <= faster.ours;
      if (filtered) faster = winograd;
    });
    if (!IsUsed(faster)) return absl::OkStatus();
    Tensor *filter = nullptr, *bias = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &filter));
    if (context->num_outputs() > 1) {
      TF_RETURN_IF_ERROR(context->allocate_output(1, TensorShape({of.filters}), &bias));
    }
    *done = true;
    const float *in = input.flat<float>().data(), *out = back.flat<float>().data();
    float *to = filter->flat<float>().data(),
          *sums = bias == nullptr ? nullptr : bias->flat<float>().data();
    if (filtered) return Filter(context, of, in, out, to, sums);
    ShareGradient(context, Threads(context), FilterGradient(of, in, out, to, sums));
    return absl::OkStatus();
  }

 private:
  // Computes the gradient by Winograd convolution. `bias` can be null.
  static absl::Status Filter(OpKernelContext* context, const Convolution& of, const float* in,
                             const float* out, float* filter, float* bias) {
    absl::Status status;
    WithScheme(of, kFilterGradient, [&](auto scheme, KernelId, const WorkPair&) {
      using Gradient = WinogradGradient<decltype(scheme)>;
      Tensor room;
      const TensorShape size({Gradient::SumsSize(of)});
      status = context->allocate_temp(tensorflow::DT_FLOAT, size, &room);
      if (!status.ok()) return;
      const std::int64_t threads = Threads(context);
      const Gradient run(of, threads, in, out, room.flat<float>().data(), filter, bias);
      ShareParts(
          context, threads, run.parts(),
          [&](std::int64_t first, std::int64_t last) { run.Compute(first, last); }, 1);
      ShareParts(context, threads, run.lines(),
                 [&](std::int64_t first, std::int64_t last) { run.Finish(first, last); });
    });
    return status;
  }
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_CONVOLUTION_OP_H_
