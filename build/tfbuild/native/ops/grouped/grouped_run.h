// Runs the kernels of grouped convolutions on tensors, and checks their shapes first.

#ifndef TENSORWRIGHT_OPS_GROUPED_GROUPED_RUN_H_
#define TENSORWRIGHT_OPS_GROUPED_GROUPED_RUN_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorwright/compute/convolution.h"
#include "tensorwright/compute/threads.h"
#include "tensorwright/ops/grouped/call.h"
#include "tensorwright/ops/grouped/grouped_gradient.h"
#include "tensorwright/ops/grouped/grouped_outputs.h"

namespace tensorwright {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Computes a grouped convolution (Value) or a gradient of it. The functions return false, and leave
// the result unspecified, if TensorFlow would report an error, if the convolution is not grouped, or
// if there is no memory.
class GroupedRun {
 public:
  explicit GroupedRun(OpKernelContext* context)
      : context_(context),
        threads_(context->device()->tensorflow_cpu_worker_threads()->num_threads) {}

  // Sets `*shape` to the sizes in a vector of int32. Returns false if one is negative.
  static bool ShapeFrom(const Tensor& sizes, TensorShape* shape) {
    if (sizes.dims() != 1) return false;
    const auto size = sizes.flat<std::int32_t>();
    const std::vector<std::int64_t> all(size.data(), size.data() + size.size());
    return TensorShape::BuildTensorShape(all, shape).ok();
  }

  bool Convolve(const Value& value, const Tensor& input, const Tensor& filter,
                Tensor* result) const {
    Convolution of;
    std::int64_t groups;
    TensorShape shape;
    return GetConvolution(value, input.shape(), filter.shape(), &of, &groups) &&
           TensorShape::BuildTensorShape(
               {of.images, of.rows.out, of.columns.out, groups * of.filters}, &shape)
               .ok() &&
           Sum(of, groups, false, input, filter, shape, result);
  }

  bool GetInputGradient(const Value& value, const TensorShape& shape, const Tensor& filter,
                        const Tensor& back, Tensor* result) const {
    Convolution of;
    std::int64_t groups;
    return GetConvolution(value, shape, filter.shape(), &of, &groups) &&
           IsOutput(of, groups, back.shape()) && Sum(of, groups, true, back, filter, shape, result);
  }

  bool GetFilterGradient(const Value& value, const Tensor& input, const TensorShape& shape,
                         const Tensor& back, Tensor* result) const {
    Convolution of;
    std::int64_t groups;
    if (!GetConvolution(value, input.shape(), shape, &of, &groups) ||
        !IsOutput(of, groups, back.shape())) {
      return false;
    }
    Tensor sums;
    const TensorShape size({GroupedGradient::SumsSize(of, groups)});
    if (!Allocate(shape, result) || !Allocate(size, &sums)) return false;
    const GroupedGradient gradient(of, groups, input.flat<float>().data(),
                                   back.flat<float>().data(), sums.flat<float>().data(),
                                   result->flat<float>().data());
    ShareParts(context_, threads_, gradient.parts(),
               [&](std::int64_t first, std::int64_t last) { gradient.Compute(first, last); });
    ShareParts(context_, threads_, gradient.blocks(),
               [&](std::int64_t first, std::int64_t last) { gradient.Finish(first, last); });
    return true;
  }

 private:
  // Whether the sources that a row of kPositions targets reads are few enough to be packed. They are
  // not if strides or dilations are large.
  static bool IsCompact(const Convolution& of, std::int64_t groups) {
    const auto count = [](const Convolution::Axis& axis, std::int64_t targets) {
      return static_cast<double>(axis.stride) * static_cast<double>(targets) +
             static_cast<double>(axis.dilation) * static_cast<double>(axis.taps - 1);
    };
    const Groups outputs = {groups, of.channels, of.filters},
                 inputs = {groups, of.filters, of.channels};
    const std::int64_t position =
        std::max(outputs.channels * outputs.unit(), inputs.channels * inputs.unit());
    return count(of.rows, 1) * count(of.columns, kPositions) * static_cast<double>(position) <=
           4 * kPackedFloats;
  }

  // Sets `*of` to the convolution of one group, and `*groups`. Returns false if the shapes do not
  // match, if one is empty, if there is only one group, or if packing would take too much memory.
  static bool GetConvolution(const Value& value, const TensorShape& in, const TensorShape& filter,
                             Convolution* of, std::int64_t* groups) {
    if (in.dims() != 4 || filter.dims() != 4) return false;
    if (in.num_elements() == 0 || filter.num_elements() == 0) return false;
    const auto axis = [&](int i) {
      return Convolution::Axis::Of(in.dim_size(i), filter.dim_size(i - 1), value.strides[i],
                                   value.dilations[i], value.same);
    };
    *groups = in.dim_size(3) / filter.dim_size(2);
    *of = {in.dim_size(0), filter.dim_size(2), filter.dim_size(3), axis(1), axis(2)};
    if (*groups < 2 || in.dim_size(3) % *groups != 0 || of->channels * *groups != in.dim_size(3) ||
        of->filters % *groups != 0) {
      return false;
    }
    of->filters /= *groups;
    return of->rows.out > 0 && of->columns.out > 0 && IsCompact(*of, *groups);
  }

  // Whether `shape` is that of the outputs.
  static bool IsOutput(const Convolution& of, std::int64_t groups, const TensorShape& shape) {
    return shape.dims() == 4 && shape.dim_size(0) == of.images &&
           shape.dim_size(1) == of.rows.out && shape.dim_size(2) == of.columns.out &&
           shape.dim_size(3) == groups * of.filters;
  }

  // Computes outputs or the gradient of inputs.
  bool Sum(const Convolution& of, std::int64_t groups, bool is_gradient, const Tensor& from,
           const Tensor& filter, const TensorShape& shape, Tensor* result) const {
    Tensor weights;
    const TensorShape size({GroupedOutputs::WeightsSize(of, groups, is_gradient)});
    if (!Allocate(shape, result) || !Allocate(size, &weights)) return false;
    const GroupedOutputs outputs(of, groups, is_gradient, from.flat<float>().data(),
                                 filter.flat<float>().data(), weights.flat<float>().data(),
                                 result->flat<float>().data());
    ShareParts(context_, threads_, outputs.blocks(),
               [&](std::int64_t first, std::int64_t last) { outputs.PackWeights(first, last); });
    ShareParts(context_, threads_, outputs.boxes(),
               [&](std::int64_t first, std::int64_t last) { outputs.Compute(first, last); });
    return true;
  }

  bool Allocate(const TensorShape& shape, Tensor* tensor) const {
    return context_->allocate_temp(tensorflow::DT_FLOAT, shape, tensor).ok();
  }

  OpKernelContext* const context_;
  const std::int64_t threads_;
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_GROUPED_GROUPED_RUN_H_
