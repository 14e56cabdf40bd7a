// The fused op that computes a chain. It plans for the shapes of its inputs and runs the plan. If
// there is no plan, it runs the original ops, which it holds as a function.

#ifndef TENSORWRIGHT_OPS_CHAINS_CHAIN_OP_H_
#define TENSORWRIGHT_OPS_CHAINS_CHAIN_OP_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorwright/compute/threads.h"
#include "tensorwright/graph/original.h"
#include "tensorwright/ops/chains/events.h"
#include "tensorwright/ops/chains/plan.h"
#include "tensorwright/ops/chains/planner.h"
#include "tensorwright/ops/chains/program.h"
#include "tensorwright/ops/chains/run.h"

namespace tensorwright::chains {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr std::size_t kMaxPlans =
    64;  // Plans that are kept. When there are as many, all are dropped.
constexpr std::int64_t kMaxIntegers = 64;  // Elements of an integer input: axes or a shape.
// Elementwise operations that are worth sharing among threads.
constexpr std::int64_t kSharedOperations = 1 << 17;

// The kernel of _TensorwrightChain. Executions may run at the same time; the mutex guards the plans.
class ChainOp : public tensorflow::OpKernel {
 public:
  explicit ChainOp(tensorflow::OpKernelConstruction* context)
      : OpKernel(context), original_(context), verification_(chains_group) {
    std::vector<std::int64_t> program;
    OP_REQUIRES_OK(context, context->GetAttr("program", &program));
    OP_REQUIRES_OK(context, context->GetAttr("outputs", &outputs_));
    steps_ = ReadProgram(program);
  }

  void Compute(OpKernelContext* context) override {
    const bool is_off = verification_.IsOff();
    const std::shared_ptr<const Plan> plan = is_off ? nullptr : PlanFor(context);
    if (plan == nullptr) {
      if (!is_off) events::stock_chain.Add();
      OP_REQUIRES_OK(context, original_.RunInline(context));
      return;
    }
    if (verification_.IsDue()) return Verify(context, *plan);
    OP_REQUIRES_OK(context, Execute(context, *plan));
  }

 private:
  // Runs the original ops on copies of the inputs, because outputs may overwrite these, then the
  // plan.
  void Verify(OpKernelContext* context, const Plan& plan) {
    const std::vector<Tensor> copies = CopyTensors(ArgumentsOf(context));
    std::vector<Tensor> expected;
    OP_REQUIRES_OK(context, original_.CallInline(context, copies, &expected));
    const bool is_computed = Execute(context, plan).ok();
    verification_.Finish(context, expected, is_computed, [&] {
      std::vector<Tensor> moved;
      const bool is_known = original_.CallInline(context, MoveNumbers(copies), &moved).ok();
      return is_known ? moved : std::vector<Tensor>();
    });
  }

  // Returns the plan for these inputs, or nullptr if there is none. It depends on their shapes and
  // integers.
  std::shared_ptr<const Plan> PlanFor(OpKernelContext* context) {
    static thread_local std::vector<std::int64_t> key;
    key.clear();
    for (int number = 0; number < context->num_inputs(); ++number) {
      const Tensor& input = context->input(number);
      key.push_back(input.dims());
      for (int i = 0; i < input.dims(); ++i) key.push_back(input.dim_size(i));
      const bool is_short = input.dtype() == tensorflow::DT_INT32;
      if (!is_short && input.dtype() != tensorflow::DT_INT64) continue;
      if (input.NumElements() > kMaxIntegers) return nullptr;
      for (std::int64_t i = 0; i < input.NumElements(); ++i) {
        key.push_back(is_short ? input.flat<std::int32_t>()(i) : input.flat<std::int64_t>()(i));
      }
    }
    tensorflow::mutex_lock lock(mutex_);
    const auto known = plans_.find(key);
    if (known != plans_.end()) return known->second;
    if (plans_.size() >= kMaxPlans) plans_.clear();
    std::shared_ptr<const Plan> plan = Planner(steps_, outputs_, ArgumentsOf(context)).Make();
    plans_.emplace(key, plan);
    return plan;
  }

  absl::Status Execute(OpKernelContext* context, const Plan& plan) {
    std::vector<char*> data(plan.values.size());
    for (int i = 0; i < context->num_inputs(); ++i) {
      data[i] = static_cast<char*>(context->input(i).data());
    }
    TF_RETURN_IF_ERROR(AllocateOutputs(context, plan, &data));
    Tensor memory;
    if (plan.memory > 0) {
      TF_RETURN_IF_ERROR(
          context->allocate_temp(tensorflow::DT_INT8, TensorShape({plan.memory}), &memory));
    }
    for (std::size_t i = 0; i < plan.values.size(); ++i) {
      if (plan.values[i].place != Place::kMemory) continue;
      data[i] = static_cast<char*>(memory.data()) + plan.values[i].slot;
    }
    Run run(plan, std::move(data));
    run.Begin();
    const auto operations = plan.elements * static_cast<std::int64_t>(plan.actions.size());
    const std::int64_t threads =
        operations < kSharedOperations
            ? 1
            : context->device()->tensorflow_cpu_worker_threads()->num_threads;
    if (!plan.actions.empty()) {
      ShareParts(context, threads, run.parts(),
                 [&](std::int64_t first, std::int64_t last) { run.Over(first, last); });
    }
    run.Finish();
    events::chain_runs.Add();
    verification_.Count();
    return absl::OkStatus();
  }

  // Allocates the outputs and sets the addresses of their values. Outputs with the same elements
  // share a buffer, also with an input. An output overwrites an input that nothing else uses.
  absl::Status AllocateOutputs(OpKernelContext* context, const Plan& plan,
                               std::vector<char*>* data) const {
    std::vector<bool> overwritten(context->num_inputs(), false);
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const Value& value = plan.values[outputs_[i]];
      const Value& base = plan.values[value.base];
      const auto output = static_cast<int>(i);
      const TensorShape shape(value.dimensions);
      if (base.place == Place::kInput || base.slot != output) {
        const Tensor& from = base.place == Place::kInput
                                 ? context->input(static_cast<int>(base.slot))
                                 : *context->mutable_output(static_cast<int>(base.slot));
        Tensor shared;
        if (!shared.CopyFrom(from, shape)) {
          return tensorflow::errors::Internal(name(), ": shapes differ");
        }
        context->set_output(output, shared);
        continue;
      }
      Tensor* tensor = nullptr;
      for (const int input : base.overwrites) {
        if (overwritten[input] ||
            !context->forward_input_to_output_with_shape(input, output, shape, &tensor)) {
          continue;
        }
        overwritten[input] = true;
        break;
      }
      if (tensor == nullptr) {
        TF_RETURN_IF_ERROR(context->allocate_output(output, shape, &tensor));
      }
      (*data)[value.base] = static_cast<char*>(tensor->data());
      if (base.domain == Domain::kKnown) SetKnown(value, tensor);
    }
    return absl::OkStatus();
  }

  // Sets the integers of a shape, or a float scalar to zero.
  static void SetKnown(const Value& value, Tensor* tensor) {
    if (value.type == tensorflow::DT_INT32) {
      std::copy(value.integers.begin(), value.integers.end(), tensor->flat<std::int32_t>().data());
    } else if (value.type == tensorflow::DT_INT64) {
      std::copy(value.integers.begin(), value.integers.end(), tensor->flat<std::int64_t>().data());
    } else {
      std::memset(tensor->data(), 0, tensor->TotalBytes());
    }
  }

  std::vector<Step> steps_;
  std::vector<std::int64_t> outputs_;
  Original original_;
  Verification verification_;
  tensorflow::mutex mutex_;
  // By the shapes and integers of the inputs; nullptr if there is no plan.
  std::map<std::vector<std::int64_t>, std::shared_ptr<const Plan>> plans_ TF_GUARDED_BY(mutex_);
};

}  // namespace
}  // namespace tensorwright::chains

#endif  // TENSORWRIGHT_OPS_CHAINS_CHAIN_OP_H_
