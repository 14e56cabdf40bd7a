// The op that replaces a call of a function that XLA compiles (call.h). If it cannot compute the
// function for its inputs, it runs the original call.

#ifndef TENSORWRIGHT_OPS_GROUPED_GROUPED_OP_H_
#define TENSORWRIGHT_OPS_GROUPED_GROUPED_OP_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorwright/graph/original.h"
#include "tensorwright/graph/variables.h"
#include "tensorwright/ops/grouped/call.h"
#include "tensorwright/ops/grouped/events.h"
#include "tensorwright/ops/grouped/grouped_run.h"

namespace tensorwright {
namespace {

// One execution of a ConvolvingCall. Values are computed when they are needed.
class CallRun {
 public:
  CallRun(const ConvolvingCall& call, OpKernelContext* context)
      : call_(call),
        context_(context),
        run_(context),
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
        return GroupedRun::ShapeFrom(inputs[1], &shape) &&
               shape.num_elements() == inputs[0].NumElements() &&
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
      case ValueKind::kOutputs: return run_.Convolve(value, inputs[0], inputs[1], result);
      case ValueKind::kInputGradient: {
        TensorShape shape;
        return GroupedRun::ShapeFrom(inputs[0], &shape) &&
               run_.GetInputGradient(value, shape, inputs[1], inputs[2], result);
      }
      case ValueKind::kFilterGradient: {
        TensorShape shape;
        return GroupedRun::ShapeFrom(inputs[1], &shape) &&
               run_.GetFilterGradient(value, inputs[0], shape, inputs[2], result);
      }
    }
    return false;
  }

  const ConvolvingCall& call_;
  OpKernelContext* const context_;
  const GroupedRun run_;
  std::vector<bool> computed_;
  std::vector<Tensor> tensors_;
};

// The kernel. Its attribute `f` is the function.
class GroupedOp : public tensorflow::AsyncOpKernel {
 public:
  explicit GroupedOp(tensorflow::OpKernelConstruction* context)
      : AsyncOpKernel(context), original_(context), verification_(grouped_group) {
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
    if (verification_.IsOff()) return original_.Run(context, std::move(done));
    if (is_supported_ && verification_.IsDue()) {
      const auto verify = [this, context](const Original::Results& expected) {
        const bool is_computed = Computes(context);
        if (!is_computed) events::stock_grouped.Add();
        verification_.Finish(context, expected, is_computed);
      };
      return original_.Call(context, std::move(done), verify);
    }
    if (!is_supported_ || !Computes(context)) {
      events::stock_grouped.Add();
      return original_.Run(context, std::move(done));
    }
    done();
  }

 private:
  // Sets the outputs, or returns false if they cannot be computed.
  bool Computes(OpKernelContext* context) {
    CallRun run(call_, context);
    std::vector<std::pair<int, Tensor>> outputs;
    for (int i = 0; i < context->num_outputs(); ++i) {
      if (!context->output_required(i)) continue;
      Tensor output;
      if (!run.Get(call_.results[i], &output) ||
          output.dtype() != context->expected_output_dtype(i)) {
        return false;
      }
      outputs.emplace_back(i, std::move(output));
    }
    for (const auto& [i, output] : outputs) context->set_output(i, output);
    events::grouped_runs.Add();
    verification_.Count();
    return true;
  }

  ConvolvingCall call_;
  bool is_supported_ = false;  // False if Grappler changed the function after the pass.
  Original original_;
  Verification verification_;
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_GROUPED_GROUPED_OP_H_
