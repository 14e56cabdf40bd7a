// The operation that takes the place of a while loop: a plan for the shapes that it gets, run without
// TensorFlow's executor; or, where there is no such plan, the loop as it was.

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
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_encode_decode.h"
#include "tensorflow/core/kernels/tensor_list.h"
#include "tensorwright/graph/original.h"
#include "tensorwright/ops/loops/events.h"
#include "tensorwright/ops/loops/loop.h"
#include "tensorwright/ops/loops/memory.h"
#include "tensorwright/ops/loops/needed.h"
#include "tensorwright/ops/loops/plan.h"
#include "tensorwright/ops/loops/planning.h"
#include "tensorwright/ops/loops/run.h"

namespace tensorwright {
namespace {

constexpr std::size_t kMostPlans = 64;

class LoopOp : public tensorflow::AsyncOpKernel {
 public:
  explicit LoopOp(tensorflow::OpKernelConstruction* context)
      : AsyncOpKernel(context), original_(context) {
    OP_REQUIRES(context, context->function_library() != nullptr,
                tensorflow::errors::Internal(name(), " has no functions"));
    const auto* library = context->function_library()->GetFunctionLibraryDefinition();
    why_ = ReadLoop(tensorflow::AttrSlice(context->def()), library, &loop_);
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    Given given;
    Needed* needed = why_.empty() ? NeededFor(context) : nullptr;
    const std::shared_ptr<const Plan> plan =
        needed != nullptr && Collect(context, *needed, &given) ? PlanFor(*needed, given) : nullptr;
    if (plan == nullptr || !AddsAlike(*plan, given)) {
      events::stock_loop.Add();
      return AsBefore(context, std::move(done));
    }
    LoopRun run(*plan, given, context);
    OP_REQUIRES_OK_ASYNC(context, run.Run(), done);
    const LoopMemory& memory = run.memory();
    OP_REQUIRES_OK_ASYNC(context, SetOutputs(context, needed->loop.body, *plan, given, memory),
                         done);
    events::loop_runs.Add();
    done();
  }

 private:
  using Plans = std::map<std::vector<std::int64_t>, std::shared_ptr<const Plan>>;

  // The loop for some of its outputs.
  struct Needed {
    explicit Needed(WhileLoop of) : loop(std::move(of)) {
      for (const Operation& operation : loop.body.operations) {
        if (operation.inputs.empty() || operation.inputs[0] >= loop.body.arity()) continue;
        const bool reads = operation.what == Do::kGetItem || operation.what == Do::kPopBack;
        if (reads) read.insert(operation.inputs[0]);
        if (operation.what == Do::kReadVariable) variables.insert(operation.inputs[0]);
      }
    }

    const WhileLoop loop;
    std::set<int> read;       // Arguments that are lists of which items are read.
    std::set<int> variables;  // Arguments that are variables which are read.
    Plans plans;              // Guarded by the kernel's mutex.
  };

  // A kernel may serve several executors, which use different outputs.
  Needed* NeededFor(OpKernelContext* context) {
    std::vector<bool> outputs;
    for (int i = 0; i < loop_.body.arity(); ++i) outputs.push_back(context->output_required(i));
    tensorflow::mutex_lock lock(mutex_);
    std::unique_ptr<Needed>& needed = needed_[outputs];
    if (needed == nullptr) needed = std::make_unique<Needed>(NeededOf(loop_, outputs));
    return needed.get();
  }

  // False where there is something that no plan is for.
  bool Collect(OpKernelContext* context, const Needed& needed, Given* given) const {
    const Routine& body = needed.loop.body;
    given->tensors.resize(body.arity());
    given->lists.resize(body.arity());
    for (int i = 0; i < body.arity(); ++i) {
      given->tensors[i] = context->input(i);
      if (!IsFew(given->tensors[i])) return false;
      if (needed.variables.count(i)) {
        if (!ReadVariable(context, i, &given->tensors[i])) return false;
      } else if (body.arguments[i] == tensorflow::DT_VARIANT) {
        if (given->tensors[i].NumElements() != 1) return false;
        given->lists[i] = given->tensors[i].scalar<tensorflow::Variant>()().get<TensorList>();
        if (given->lists[i] == nullptr) return false;
      }
    }
    return true;
  }

  static bool ReadVariable(OpKernelContext* context, int input, Tensor* value) {
    tensorflow::core::RefCountPtr<tensorflow::Var> variable;
    if (!LookupResource(context, HandleFromInput(context, input), &variable).ok()) return false;
    tensorflow::tf_shared_lock lock(*variable->mu());
    if (!variable->is_initialized || !variable->tensor()->IsInitialized() ||
        variable->copy_on_read_mode.load()) {
      return false;
    }
    *value = *variable->tensor();
    return true;
  }

  // All of what is given that a plan depends on.
  static std::vector<std::int64_t> KeyOf(const Needed& needed, const Given& given) {
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
      if (!alike || !IsFew(items[0])) continue;
      add(items[0]);
      const bool numbers = IsNumber(items[0].dtype()) && items[0].dtype() != tensorflow::DT_BOOL;
      for (std::size_t j = 1; numbers && !same && j < items.size(); ++j) add(items[j]);
    }
    return key;
  }

  // None if there is none. A plan that was made is kept for the next execution.
  std::shared_ptr<const Plan> PlanFor(Needed& needed, const Given& given) {
    const std::vector<std::int64_t> key = KeyOf(needed, given);
    tensorflow::mutex_lock lock(mutex_);
    const auto known = needed.plans.find(key);
    if (known != needed.plans.end()) return known->second;
    auto plan = std::make_shared<Plan>();
    std::string why = Planning(needed.loop, given, true, *plan).Make();
    if (!why.empty()) {
      *plan = Plan();
      why = Planning(needed.loop, given, false, *plan).Make();
    }
    if (!why.empty()) {
      VLOG(1) << name() << " runs as it was: " << why;
      plan = nullptr;
    }
    if (needed.plans.size() >= kMostPlans) needed.plans.clear();
    needed.plans[key] = plan;
    return plan;
  }

  // Whether all items that something is added to have the dimensions of that, or none yet.
  static bool AddsAlike(const Plan& plan, const Given& given) {
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

  static absl::Status SetOutputs(OpKernelContext* context, const Routine& body, const Plan& plan,
                                 const Given& given, const LoopMemory& memory) {
    for (int i = 0; i < body.arity(); ++i) {
      const auto type = body.arguments[i];
      const auto state = plan.states.find(i);
      const auto count = plan.finals.find(i);
      if (count != plan.finals.end()) {
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

  static absl::Status SetList(OpKernelContext* context, int i, const Plan& plan, const Given& given,
                              const LoopMemory& memory) {
    TensorList list = given.lists[i]->Copy();
    auto& items = list.tensors();
    if (plan.popped.count(i)) items.resize(items.size() - plan.iterations);
    const auto found = plan.writes.find(i);
    if (found != plan.writes.end()) {
      const ListWrite& write = found->second;
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
        Tensor& old = items[IndexAt(plan, write.index, t)];
        if (write.how == ListWrite::How::kAdd && old.dtype() == item.dtype()) {
          Tensor sum = item;
          if (!write.is_alone) {
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

  static std::int64_t IndexAt(const Plan& plan, int value, std::int64_t t) {
    const auto counter = plan.counters.find(value);
    return counter == plan.counters.end() ? plan.numbers.at(value) : counter->second.values[t];
  }

  static Tensor NumberAt(const Plan& plan, const ListWrite& write, std::int64_t t) {
    if (write.constant >= 0) return plan.constants[write.constant];
    const Followed& counter = plan.counters.at(write.value);
    return TensorOf({counter.dimensions, {counter.values[t]}}, write.type);
  }

  void AsBefore(OpKernelContext* context, DoneCallback done) {
    auto* library = context->function_library();
    tensorflow::FunctionLibraryRuntime::Handle handle;
    // As a function of devices, so that TensorFlow takes the loop apart as it would have.
    tensorflow::FunctionLibraryRuntime::InstantiateOptions making;
    making.target = context->device()->name();
    making.is_multi_device_function = true;
    making.input_devices.assign(context->num_inputs(), making.target);
    making.output_devices.assign(context->num_outputs(), making.target);
    if (library->config_proto() != nullptr) making.config_proto = *library->config_proto();
    OP_REQUIRES_OK_ASYNC(context, original_.Instantiate(library, making, &handle), done);
    auto* results = new std::vector<Tensor>;
    library->Run(OptionsOf(context), handle, ArgumentsOf(context), results,
                 [context, results, done = std::move(done)](const absl::Status& status) {
                   std::unique_ptr<std::vector<Tensor>> owned(results);
                   if (!status.ok()) context->SetStatus(status);
                   for (std::size_t i = 0; status.ok() && i < owned->size(); ++i) {
                     context->set_output(i, (*owned)[i]);
                   }
                   done();
                 });
  }

  WhileLoop loop_;
  std::string why_;
  Original original_;
  tensorflow::mutex mutex_;
  // By which outputs are used.
  std::map<std::vector<bool>, std::unique_ptr<Needed>> needed_ TF_GUARDED_BY(mutex_);
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_LOOP_OP_H_
