// The op that replaces a while loop. It makes a plan for the shapes of its inputs and runs the plan
// without TensorFlow's executor. If there is no plan for the inputs, it runs the original loop.

#ifndef TENSORWRIGHT_OPS_LOOPS_LOOP_OP_H_
#define TENSORWRIGHT_OPS_LOOPS_LOOP_OP_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_encode_decode.h"
#include "tensorflow/core/kernels/tensor_list.h"
#include "tensorwright/graph/original.h"
#include "tensorwright/graph/variables.h"
#include "tensorwright/ops/loops/events.h"
#include "tensorwright/ops/loops/loop.h"
#include "tensorwright/ops/loops/memory.h"
#include "tensorwright/ops/loops/needed.h"
#include "tensorwright/ops/loops/plan.h"
#include "tensorwright/ops/loops/planning.h"
#include "tensorwright/ops/loops/run.h"

namespace tensorwright {
namespace {

// Plans kept for each set of required outputs. When there are as many, all are dropped.
constexpr std::size_t kMaxPlans = 64;

// The kernel of _TensorwrightLoop and _TensorwrightStatelessLoop.
//
// It caches plans by required outputs and by what the plan depends on (MakePlanKey). Executions may
// run at the same time; the mutex guards the caches.
class LoopOp : public tensorflow::AsyncOpKernel {
 public:
  explicit LoopOp(tensorflow::OpKernelConstruction* context)
      : AsyncOpKernel(context), original_(context), verification_(loops_group) {
    OP_REQUIRES(context, context->function_library() != nullptr,
                tensorflow::errors::Internal(name(), " has no functions"));
    const auto* library = context->function_library()->GetFunctionLibraryDefinition();
    unsupported_reason_ = ReadLoop(tensorflow::AttrSlice(context->def()), library, &loop_);
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    if (verification_.IsOff()) return original_.Run(context, std::move(done));
    if (verification_.IsDue()) {
      const auto verify = [this, context](const Original::Results& expected) {
        bool is_computed = false;
        const absl::Status status = Computes(context, &is_computed);
        const bool agree = status.ok() && is_computed &&
                           verification_.Agree(*this, ItemsOf(expected),
                                               ItemsOf(Verification::OutputsOr(context, expected)));
        if (!agree) Verification::ReplaceOutputs(context, expected);
      };
      return original_.Call(context, std::move(done), verify);
    }
    bool is_computed = false;
    OP_REQUIRES_OK_ASYNC(context, Computes(context, &is_computed), done);
    if (!is_computed) return original_.Run(context, std::move(done));
    done();
  }

 private:
  using Plans = std::map<std::vector<std::int64_t>, std::shared_ptr<const Plan>>;

  // Computes the outputs and sets `*is_computed`, or leaves it false if no plan fits the inputs.
  absl::Status Computes(OpKernelContext* context, bool* is_computed) {
    LoopInputs given;
    ReducedLoop* needed = unsupported_reason_.empty() ? GetReducedLoop(context) : nullptr;
    const std::shared_ptr<const Plan> plan = needed != nullptr && Collect(context, *needed, &given)
                                                 ? GetOrMakePlan(*needed, given)
                                                 : nullptr;
    if (plan == nullptr || !HasMatchingItems(*plan, given)) {
      events::stock_loop.Add();
      return absl::OkStatus();
    }
    LoopRun run(*plan, given, context);
    TF_RETURN_IF_ERROR(run.Run());
    TF_RETURN_IF_ERROR(SetOutputs(context, needed->loop.body, *plan, given, run.memory()));
    events::loop_runs.Add();
    verification_.Count();
    *is_computed = true;
    return absl::OkStatus();
  }

  // The loop reduced to the ops that some of its outputs need, and its plans.
  struct ReducedLoop {
    explicit ReducedLoop(WhileLoop of) : loop(std::move(of)) {
      for (const Operation& operation : loop.body.operations) {
        if (operation.inputs.empty() || operation.inputs[0] >= loop.body.arity()) continue;
        const bool reads = operation.what == Do::kGetItem || operation.what == Do::kPopBack;
        if (reads) read.insert(operation.inputs[0]);
        if (operation.what == Do::kReadVariable) variables.insert(operation.inputs[0]);
      }
    }

    const WhileLoop loop;
    std::set<int> read;       // Arguments: lists from which the loop reads items.
    std::set<int> variables;  // Arguments: variables that the loop reads.
    Plans plans;              // By MakePlanKey; nullptr if none exists. Guarded by mutex_.
  };

  // Returns the loop reduced to what this execution's required outputs need. Several executors may
  // share a kernel and require different outputs. The kernel owns the result.
  ReducedLoop* GetReducedLoop(OpKernelContext* context) {
    std::vector<bool> outputs;
    for (int i = 0; i < loop_.body.arity(); ++i) outputs.push_back(context->output_required(i));
    tensorflow::mutex_lock lock(mutex_);
    std::unique_ptr<ReducedLoop>& needed = reduced_loops_[outputs];
    if (needed == nullptr)
      needed = std::make_unique<ReducedLoop>(RemoveUnneededOps(loop_, outputs));
    return needed.get();
  }

  // Collects the input tensors, the values of variables and the lists. Returns false if no plan can
  // exist for them: an integer tensor is too large (HasFewIntegers), a variable cannot be read, or
  // a variant is not one TensorList.
  bool Collect(OpKernelContext* context, const ReducedLoop& needed, LoopInputs* given) const {
    const Routine& body = needed.loop.body;
    given->tensors.resize(body.arity());
    given->lists.resize(body.arity());
    for (int i = 0; i < body.arity(); ++i) {
      given->tensors[i] = context->input(i);
      if (needed.variables.count(i) && !ReadVariable(context, i, &given->tensors[i])) return false;
      if (!HasFewIntegers(given->tensors[i])) return false;
      if (body.arguments[i] == tensorflow::DT_VARIANT) {
        if (given->tensors[i].NumElements() != 1) return false;
        given->lists[i] = given->tensors[i].scalar<tensorflow::Variant>()().get<TensorList>();
        if (given->lists[i] == nullptr) return false;
      }
    }
    return true;
  }

  // Returns everything in `given` that a plan depends on: data types, shapes and integers, and for
  // each list its size, limit and element shape. For a list from which the loop reads: also whether
  // all items share one buffer, whether they have the same type and shape, that shape, and the
  // integers of the items.
  static std::vector<std::int64_t> MakePlanKey(const ReducedLoop& needed, const LoopInputs& given) {
    std::vector<std::int64_t> key;
    const auto add = [&](const Tensor& tensor) {
      key.push_back(tensor.dims());
      for (int i = 0; i < tensor.dims(); ++i) key.push_back(tensor.dim_size(i));
      if (tensor.dtype() == tensorflow::DT_INT32 || tensor.dtype() == tensorflow::DT_INT64) {
        const Numbers numbers = NumbersOf(tensor);
        key.insert(key.end(), numbers.values.begin(), numbers.values.end());
      }
    };
    for (int i = 0; i < needed.loop.body.arity(); ++i) {
      key.push_back(given.tensors[i].dtype());
      if (given.lists[i] == nullptr) {
        add(given.tensors[i]);
        continue;
      }
      const auto& items = given.lists[i]->tensors();
      const auto& shape = given.lists[i]->element_shape;
      key.push_back(given.lists[i]->element_dtype);
      key.push_back(items.size());
      key.push_back(given.lists[i]->max_num_elements);
      key.push_back(shape.dims());
      for (int axis = 0; axis < shape.dims(); ++axis) key.push_back(shape.dim_size(axis));
      if (!needed.read.count(i) || items.empty()) continue;
      bool same = true, alike = true;
      for (const Tensor& item : items) {
        same = same && item.data() == items[0].data();
        alike = alike && item.dtype() == items[0].dtype() && item.shape() == items[0].shape();
      }
      key.insert(key.end(), {items[0].dtype(), same, alike});
      if (!alike || !HasFewIntegers(items[0])) continue;
      add(items[0]);
      const bool numbers = IsNumber(items[0].dtype()) && items[0].dtype() != tensorflow::DT_BOOL;
      for (std::size_t j = 1; numbers && !same && j < items.size(); ++j) add(items[j]);
    }
    return key;
  }

  // Returns the plan for `given`, or nullptr if there is none. Makes it at first use and caches the
  // result. Tries a plan whose sums consist of parts first (Sums), then one without.
  std::shared_ptr<const Plan> GetOrMakePlan(ReducedLoop& needed, const LoopInputs& given) {
    const std::vector<std::int64_t> key = MakePlanKey(needed, given);
    tensorflow::mutex_lock lock(mutex_);
    const auto known = needed.plans.find(key);
    if (known != needed.plans.end()) return known->second;
    auto plan = std::make_shared<Plan>();
    std::string why = LoopPlanner(needed.loop, given, true, *plan).Make();
    if (!why.empty()) {
      *plan = Plan();
      why = LoopPlanner(needed.loop, given, false, *plan).Make();
    }
    if (!why.empty()) {
      VLOG(1) << name() << " runs as it was: " << why;
      plan = nullptr;
    }
    if (needed.plans.size() >= kMaxPlans) needed.plans.clear();
    needed.plans[key] = plan;
    return plan;
  }

  // Whether each item of a list to which the loop adds is uninitialized, or a float32 tensor with
  // the shape of the added value.
  static bool HasMatchingItems(const Plan& plan, const LoopInputs& given) {
    for (const auto& [list, write] : plan.writes) {
      if (write.how != ListWrite::How::kAdd) continue;
      const TensorShape wanted(plan.memories[write.view.memory].dimensions);
      for (const Tensor& item : given.lists[list]->tensors()) {
        if (item.dtype() == tensorflow::DT_INVALID) continue;
        if (item.dtype() != tensorflow::DT_FLOAT || item.shape() != wanted) return false;
      }
    }
    return true;
  }

  // Sets all outputs. Those that the loop does not change are its inputs.
  static absl::Status SetOutputs(OpKernelContext* context, const Routine& body, const Plan& plan,
                                 const LoopInputs& given, const LoopMemory& memory) {
    for (int i = 0; i < body.arity(); ++i) {
      const auto type = body.arguments[i];
      const auto state = plan.states.find(i);
      const auto count = plan.final_counters.find(i);
      if (count != plan.final_counters.end()) {
        context->set_output(i, TensorOf(count->second, type));
      } else if (state != plan.states.end()) {
        Tensor* out = nullptr;
        TF_RETURN_IF_ERROR(context->allocate_output(i, context->input(i).shape(), &out));
        std::memcpy(out->data(), memory.At(state->second.memory, plan.iterations - 1),
                    out->TotalBytes());
      } else if (type == tensorflow::DT_FLOAT && body.results[i] != i) {
        context->set_output(i, memory.sum(i));
      } else if (plan.writes.count(i) || plan.popped.count(i)) {
        TF_RETURN_IF_ERROR(SetList(context, i, plan, given, memory));
      } else {
        context->set_output(i, context->input(i));
      }
    }
    return absl::OkStatus();
  }

  // Sets output `i` to a copy of its input list to which the loop's pops and writes are applied.
  // The sum of an item and an added value replaces the added value in memory, if nothing else uses
  // that memory.
  static absl::Status SetList(OpKernelContext* context, int i, const Plan& plan,
                              const LoopInputs& given, const LoopMemory& memory) {
    TensorList list = given.lists[i]->Copy();
    auto& items = list.tensors();
    if (plan.popped.count(i)) items.resize(items.size() - plan.iterations);
    const auto found = plan.writes.find(i);
    if (found != plan.writes.end()) {
      const ListWrite& write = found->second;
      if (write.how == ListWrite::How::kAdd) {  // As AddN of two lists does.
        TF_RETURN_IF_ERROR(
            given.lists[i]->element_shape.MergeWith(write.element_shape, &list.element_shape));
        list.max_num_elements = -1;
      }
      for (std::int64_t t = write.is_last ? plan.iterations - 1 : 0; t < plan.iterations; ++t) {
        Tensor item;
        if (write.is_number) {
          item = NumberAt(plan, write, t);
        } else if (write.is_last) {
          TF_RETURN_IF_ERROR(memory.Copy(write.view.memory, t, &item));
        } else {
          item = memory.TensorAt(write.view.memory, t);
        }
        if (write.how == ListWrite::How::kPush) {
          items.push_back(std::move(item));
          continue;
        }
        Tensor& old = items[plan.IndexAt(write.index, t)];
        if (write.how == ListWrite::How::kAdd && old.dtype() == item.dtype()) {
          Tensor sum = item;
          if (!write.has_own_memory) {
            TF_RETURN_IF_ERROR(context->allocate_temp(item.dtype(), item.shape(), &sum));
          }
          const float *left = old.flat<float>().data(), *right = item.flat<float>().data();
          float* to = sum.flat<float>().data();
          for (std::int64_t j = 0; j < sum.NumElements(); ++j) to[j] = left[j] + right[j];
          item = std::move(sum);
        }
        old = std::move(item);
      }
    }
    Tensor* out = nullptr;
    tensorflow::AllocatorAttributes attributes;
    attributes.set_on_host(true);
    TF_RETURN_IF_ERROR(context->allocate_output(i, TensorShape({}), &out, attributes));
    out->scalar<tensorflow::Variant>()() = std::move(list);
    return absl::OkStatus();
  }

  // Returns the tensors with the items of lists in their place.
  static std::vector<Tensor> ItemsOf(const std::vector<Tensor>& tensors) {
    std::vector<Tensor> items;
    for (const Tensor& tensor : tensors) {
      const auto* list = tensor.dtype() == tensorflow::DT_VARIANT && tensor.NumElements() == 1
                             ? tensor.scalar<tensorflow::Variant>()().get<TensorList>()
                             : nullptr;
      if (list == nullptr) {
        items.push_back(tensor);
      } else {
        items.insert(items.end(), list->tensors().begin(), list->tensors().end());
      }
    }
    return items;
  }

  // Returns the integers or booleans that iteration `t` writes to a list.
  static Tensor NumberAt(const Plan& plan, const ListWrite& write, std::int64_t t) {
    if (write.constant >= 0) return plan.constants[write.constant];
    const CounterValues& counter = plan.counters.at(write.value);
    return TensorOf({counter.dimensions, {counter.values[t]}}, write.type);
  }

  WhileLoop loop_;
  std::string unsupported_reason_;  // Why the loop is not supported; empty if it is.
  Original original_;
  Verification verification_;
  tensorflow::mutex mutex_;
  // Key: for each output, whether it is required.
  std::map<std::vector<bool>, std::unique_ptr<ReducedLoop>> reduced_loops_ TF_GUARDED_BY(mutex_);
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_LOOP_OP_H_
