// The op that replaces a call of a function that XLA compiles (call.h). If it cannot compute the
// function for its inputs, it runs the original call.

#ifndef TENSORWRIGHT_OPS_GROUPED_GROUPED_OP_H_
#define TENSORWRIGHT_OPS_GROUPED_GROUPED_OP_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorwright/compute/convolution.h"
#include "tensorwright/compute/threads.h"
#include "tensorwright/graph/original.h"
#include "tensorwright/graph/variables.h"
#include "tensorwright/ops/grouped/call.h"
#include "tensorwright/ops/grouped/events.h"
#include "tensorwright/ops/grouped/grouped_gradient.h"
#include "tensorwright/ops/grouped/grouped_outputs.h"

namespace tensorwright {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// One execution of a ConvolvingCall. Values are computed when they are needed.
class CallRun {
 public:
  CallRun(const ConvolvingCall& call, OpKernelContext* context)
      : call_(call),
        context_(context),
        threads_(context->device()->tensorflow_cpu_worker_threads()->num_threads),
        computed_(call.values.size()),
        tensors_(call.values.size()) {}

  // Sets `*value` to the value at `index`. Returns false if it cannot be computed: TensorFlow would
  // report an error, the convolution is not grouped, or there is no memory.
  bool Get(int index, Tensor* value) {
    if (!computed_[index]) {
      if (!Compute(call_.values[index], &tensors_[index])) return false;
      computed_[index] = true;
    }
    *value = tensors_[index];
    return true;
  }

 private:
  bool Compute(const Value& value, Tensor* result) {
    std::vector<Tensor> inputs(value.inputs.size());
    // A variable is read below.
    for (std::size_t i = 0; value.kind != ValueKind::kReadVariable && i < inputs.size(); ++i) {
      if (!Get(value.inputs[i], &inputs[i])) return false;
    }
    switch (value.kind) {
      case ValueKind::kArgument: *result = context_->input(value.argument); return true;
      case ValueKind::kReadVariable:
        return ReadVariable(context_, call_.values[value.inputs[0]].argument, result) &&
               result->dtype() == tensorflow::DT_FLOAT;
      case ValueKind::kPass: *result = inputs[0]; return true;
      case ValueKind::kConstant: *result = value.constant; return true;
      case ValueKind::kExpandDims: {
        TensorShape shape = inputs[0].shape();
        const int axis = value.axis < 0 ? value.axis + shape.dims() + 1 : value.axis;
        if (axis < 0 || axis > shape.dims()) return false;
        shape.InsertDim(axis, 1);
        return result->CopyFrom(inputs[0], shape);
      }
      case ValueKind::kSqueeze: {
        TensorShape shape = inputs[0].shape();
        const int axis = value.axis < 0 ? value.axis + shape.dims() : value.axis;
        if (axis < 0 || axis >= shape.dims() || shape.dim_size(axis) != 1) return false;
        shape.RemoveDim(axis);
        return result->CopyFrom(inputs[0], shape);
      }
      case ValueKind::kReshape: {
        TensorShape shape;
        return ShapeFrom(inputs[1], &shape) && shape.num_elements() == inputs[0].NumElements() &&
               result->CopyFrom(inputs[0], shape);
      }
      case ValueKind::kShape: {
        *result = Tensor(tensorflow::DT_INT32, TensorShape({inputs[0].dims()}));
        for (int i = 0; i < inputs[0].dims(); ++i) {
          if (inputs[0].dim_size(i) > INT32_MAX) return false;
          result->flat<std::int32_t>()(i) = static_cast<std::int32_t>(inputs[0].dim_size(i));
        }
        return true;
      }
      case ValueKind::kOutputs: return Convolve(value, inputs[0], inputs[1], result);
      case ValueKind::kInputGradient: {
        TensorShape shape;
        return ShapeFrom(inputs[0], &shape) &&
               GetInputGradient(value, shape, inputs[1], inputs[2], result);
      }
      case ValueKind::kFilterGradient: {
        TensorShape shape;
        return ShapeFrom(inputs[1], &shape) &&
               GetFilterGradient(value, inputs[0], shape, inputs[2], result);
      }
    }
    return false;
  }

  // Sets `*shape` to the sizes in a vector of int32. Returns false if one is negative.
  static bool ShapeFrom(const Tensor& sizes, TensorShape* shape) {
    if (sizes.dims() != 1) return false;
    const auto size = sizes.flat<std::int32_t>();
    const std::vector<std::int64_t> all(size.data(), size.data() + size.size());
    return TensorShape::BuildTensorShape(all, shape).ok();
  }

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

  bool Convolve(const Value& value, const Tensor& input, const Tensor& filter, Tensor* result) {
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
                        const Tensor& back, Tensor* result) {
    Convolution of;
    std::int64_t groups;
    return GetConvolution(value, shape, filter.shape(), &of, &groups) &&
           IsOutput(of, groups, back.shape()) && Sum(of, groups, true, back, filter, shape, result);
  }

  // Computes outputs or the gradient of inputs.
  bool Sum(const Convolution& of, std::int64_t groups, bool is_gradient, const Tensor& from,
           const Tensor& filter, const TensorShape& shape, Tensor* result) {
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

  bool GetFilterGradient(const Value& value, const Tensor& input, const TensorShape& shape,
                         const Tensor& back, Tensor* result) {
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

  bool Allocate(const TensorShape& shape, Tensor* tensor) {
    return context_->allocate_temp(tensorflow::DT_FLOAT, shape, tensor).ok();
  }

  const ConvolvingCall& call_;
  OpKernelContext* const context_;
  const std::int64_t threads_;
  std::vector<bool> computed_;
  std::vector<Tensor> tensors_;
};

// The kernel. Its attribute `f` is the function.
class GroupedOp : public tensorflow::AsyncOpKernel {
 public:
  explicit GroupedOp(tensorflow::OpKernelConstruction* context)
      : AsyncOpKernel(context), original_(context) {
    tensorflow::NameAttrList function;
    OP_REQUIRES_OK(context, context->GetAttr("f", &function));
    OP_REQUIRES(context, context->function_library() != nullptr,
                tensorflow::errors::Internal(name(), " has no functions"));
    const auto* library = context->function_library()->GetFunctionLibraryDefinition();
    const tensorflow::FunctionDef* definition = library->Find(function.name());
    bool convolves = false;
    is_supported_ = definition != nullptr && CallReader(*definition, &call_).Read(&convolves);
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    if (!is_supported_) {
      events::stock_grouped.Add();
      return original_.Run(context, std::move(done));
    }
    CallRun run(call_, context);
    std::vector<std::pair<int, Tensor>> outputs;
    for (int i = 0; i < context->num_outputs(); ++i) {
      if (!context->output_required(i)) continue;
      Tensor output;
      if (!run.Get(call_.results[i], &output) ||
          output.dtype() != context->expected_output_dtype(i)) {
        events::stock_grouped.Add();
        return original_.Run(context, std::move(done));
      }
      outputs.emplace_back(i, std::move(output));
    }
    for (const auto& [i, output] : outputs) context->set_output(i, output);
    events::grouped_runs.Add();
    done();
  }

 private:
  ConvolvingCall call_;
  bool is_supported_ = false;  // False if Grappler changed the function after the pass.
  Original original_;
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_GROUPED_GROUPED_OP_H_
