// The fused op that updates variables. It runs a program in one pass over memory. If shapes or
// types are not those that it was planned for, it runs the original ops, which it holds as a
// function.

#ifndef TENSORWRIGHT_OPS_UPDATES_UPDATE_OP_H_
#define TENSORWRIGHT_OPS_UPDATES_UPDATE_OP_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorwright/graph/original.h"
#include "tensorwright/ops/updates/blocks.h"
#include "tensorwright/ops/updates/events.h"
#include "tensorwright/ops/updates/program.h"

namespace tensorwright {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::Var;

// Holds the locks of variables: exclusive for those that are written, shared for the others. Takes
// them in the order of the addresses of the mutexes, as TensorFlow's kernels do. The destructor
// releases them.
class Locks {
 public:
  void Add(tensorflow::mutex* mutex, bool alone) { held_[mutex] |= alone; }
  void Take() {
    for (const auto& [mutex, alone] : held_) alone ? mutex->lock() : mutex->lock_shared();
    taken_ = true;
  }
  ~Locks() {
    if (!taken_) return;
    for (auto at = held_.rbegin(); at != held_.rend(); ++at) {
      at->second ? at->first->unlock() : at->first->unlock_shared();
    }
  }

 private:
  std::map<tensorflow::mutex*, bool> held_;
  bool taken_ = false;
};

using Variables = std::vector<tensorflow::core::RefCountPtr<Var>>;

// Returns the tensors of variables, which share their buffers.
std::vector<Tensor> ValuesOf(const Variables& variables) {
  std::vector<Tensor> values;
  for (const auto& variable : variables) values.push_back(*variable->tensor());
  return values;
}

// Variables of one execution with the values of others. The destructor deletes them.
//
// They are in the resource manager: the kernel of AssignVariableOp finds no others.
class VariableCopies {
 public:
  explicit VariableCopies(OpKernelContext* context) : context_(context) {}
  VariableCopies(const VariableCopies&) = delete;
  VariableCopies& operator=(const VariableCopies&) = delete;
  ~VariableCopies() {
    for (const auto& handle : handles_) DeleteResource<Var>(context_, handle).IgnoreError();
  }

  // Adds a variable that shares the buffer of `value`, and sets `*handle` to its handle. Kernels
  // that write to variables do not write to a shared buffer.
  absl::Status Add(const Tensor& value, Tensor* handle) {
    static std::atomic<std::int64_t> made{0};
    constexpr char kContainer[] = "tensorwright";
    const std::string name = std::to_string(made++);
    tensorflow::core::RefCountPtr<Var> copy(new Var(value.dtype()));
    *copy->tensor() = value;
    copy->is_initialized = true;
    copy->Ref();  // Owned by the resource manager.
    TF_RETURN_IF_ERROR(context_->resource_manager()->Create(kContainer, name, copy.get()));
    handles_.push_back(tensorflow::MakeResourceHandle<Var>(context_, kContainer, name));
    *handle = Tensor(tensorflow::DT_RESOURCE, TensorShape({}));
    handle->scalar<tensorflow::ResourceHandle>()() = handles_.back();
    copies_.push_back(std::move(copy));
    return absl::OkStatus();
  }

  std::vector<Tensor> Values() const { return ValuesOf(copies_); }

 private:
  OpKernelContext* const context_;
  std::vector<tensorflow::ResourceHandle> handles_;
  Variables copies_;
};

// The kernel. T is the type of the variables, Index that of the indices of rows. Its inputs are
// handles of variables, tensors, and indices.
template <typename T, typename Index>
class UpdateOp : public tensorflow::OpKernel {
 public:
  explicit UpdateOp(tensorflow::OpKernelConstruction* context)
      : OpKernel(context), original_(context), verification_(updates_group) {
    std::vector<std::int64_t> numbers;
    OP_REQUIRES_OK(context, context->GetAttr("V", &variables_));
    OP_REQUIRES_OK(context, context->GetAttr("N", &tensors_));
    OP_REQUIRES_OK(context, context->GetAttr("I", &indices_));
    OP_REQUIRES_OK(context, context->GetAttr("program", &numbers));
    program_ = std::make_unique<Program>(numbers, variables_ + tensors_);
    written_.assign(variables_, false);
    is_rows_.assign(tensors_, false);
    is_elementwise_.assign(tensors_, false);
    may_skip_negative_.assign(indices_, true);
    const auto has_elements = [&](std::int64_t value) {
      if (value >= variables_ && value < variables_ + tensors_)
        is_elementwise_[value - variables_] = true;
    };
    for (const Step& step : program_->steps) {
      if (IsAssignment(step.code)) written_[step.out] = true;
      if (IsScatter(step.code)) may_skip_negative_[step.b] = false;
      if (HasRowOperand(step.code)) {
        is_rows_[step.a - variables_] = true;
      } else {
        has_elements(step.a);
        has_elements(step.b);
      }
    }
  }

  void Compute(OpKernelContext* context) override {
    bool is_updated = false;
    if (!verification_.IsOff()) {
      EventCounter& outcome = UpdateInOnePass(context);
      outcome.Add();
      is_updated = &outcome == &events::update_runs;
    }
    if (!is_updated) OP_REQUIRES_OK(context, original_.RunInline(context));
  }

 private:
  // Updates the variables and returns the counter `update_runs`, or changes nothing and returns the
  // counter of the reason.
  EventCounter& UpdateInOnePass(OpKernelContext* context) {
    Variables variables(variables_);
    Locks locks;
    for (int i = 0; i < variables_; ++i) {
      if (!LookupResource(context, HandleFromInput(context, i), &variables[i]).ok()) {
        return events::no_variable;
      }
      for (int j = 0; j < i; ++j) {
        if (variables[j].get() == variables[i].get()) return events::one_variable;
      }
      locks.Add(variables[i]->mu(), written_[i]);
    }
    locks.Take();

    const TensorShape* shape = nullptr;
    for (int i = 0; i < variables_; ++i) {
      const Tensor& held = *variables[i]->tensor();
      if (!variables[i]->is_initialized || !held.IsInitialized()) return events::no_variable;
      if (held.dtype() != tensorflow::DataTypeToEnum<T>::v()) return events::other_shapes;
      if (!written_[i]) continue;
      if (shape == nullptr) shape = &held.shape();
      if (held.shape() != *shape) return events::other_shapes;
    }
    const std::int64_t count = shape->num_elements();
    if (count == 0) return events::other_shapes;

    std::int64_t width = count;
    if (shape->dims() > 0) width = count / shape->dim_size(0);
    Execution<T> execution(*program_, count, width);
    execution.rows.resize(indices_);
    auto fits = [&](const Tensor& tensor, bool& lone) {
      lone = tensor.shape() != *shape;
      return !lone || (tensor.NumElements() == 1 && tensor.dims() <= shape->dims());
    };
    auto add = [&](const Tensor& tensor, bool lone) {
      execution.places.push_back({static_cast<T*>(tensor.data()), lone});
    };
    bool lone = false;
    for (int i = 0; i < variables_; ++i) {
      if (!fits(*variables[i]->tensor(), lone)) return events::other_shapes;
      add(*variables[i]->tensor(), lone);
    }
    for (int i = 0; i < tensors_; ++i) {
      const Tensor& tensor = context->input(variables_ + i);
      lone = false;
      if (is_elementwise_[i] && !fits(tensor, lone)) return events::other_shapes;
      if (is_rows_[i] && lone) return events::other_shapes;
      add(tensor, lone);
    }
    for (int i = 0; i < indices_; ++i) {
      if (shape->dims() == 0) return events::other_shapes;
      if (!ReadRows(IndicesOf(context, i), shape->dim_size(0), may_skip_negative_[i],
                    execution.rows[i])) {
        return events::out_of_range;
      }
    }
    for (const Step& step : program_->steps) {
      if (!HasRowOperand(step.code)) continue;
      if (!HasRowPerIndex(context->input(step.a), IndicesOf(context, step.b), *shape)) {
        return events::other_shapes;
      }
    }
    if (!execution.Prepare()) return events::other_shapes;

    std::vector<Tensor> expected, before;
    const bool is_due = verification_.IsDue() && UpdateCopies(context, variables, &expected);
    if (is_due) before = CopyTensors(ValuesOf(variables));

    // If a reader still holds the old value, the variable gets new memory.
    std::vector<Tensor> fresh(variables_);
    for (int i = 0; i < variables_; ++i) {
      Tensor* held = variables[i]->tensor();
      if (!written_[i] || held->RefCountIsOne()) continue;
      tensorflow::AllocatorAttributes attributes;
      attributes.set_gpu_compatible(true);
      attributes.set_nic_compatible(true);
      if (!context->allocate_temp(held->dtype(), held->shape(), &fresh[i], attributes).ok()) {
        return events::no_variable;
      }
      T* to = static_cast<T*>(fresh[i].data());
      execution.moved.emplace_back(to, execution.places[i].data);
      execution.places[i].data = to;
    }

    const std::int64_t cost = kBlock * static_cast<std::int64_t>(program_->steps.size());
    auto over = [&](std::int64_t first, std::int64_t last) { execution.Over(first, last); };
    const auto* pool = context->device()->tensorflow_cpu_worker_threads();
    if (execution.blocks() == 1 || pool->num_threads == 1) {
      over(0, execution.blocks());
    } else {
      pool->workers->ParallelFor(execution.blocks(), cost, over);
    }
    for (int i = 0; i < variables_; ++i) {
      if (fresh[i].NumElements() > 0) *variables[i]->tensor() = fresh[i];
    }
    verification_.Count();
    if (is_due) Verify(variables, before, expected);
    return events::update_runs;
  }

  // Runs the original ops on copies of the variables. Sets `*expected` to the values after it.
  // Returns false if they fail.
  bool UpdateCopies(OpKernelContext* context, const Variables& variables,
                    std::vector<Tensor>* expected) {
    std::vector<Tensor> arguments = ArgumentsOf(context), results;
    VariableCopies copies(context);
    for (int i = 0; i < variables_; ++i) {
      if (!copies.Add(*variables[i]->tensor(), &arguments[i]).ok()) return false;
    }
    if (!original_.CallInline(context, arguments, &results).ok()) return false;
    *expected = copies.Values();
    return true;
  }

  // Compares the variables with what the original ops made of them. Sets them to that if they
  // differ.
  void Verify(const Variables& variables, const std::vector<Tensor>& before,
              const std::vector<Tensor>& expected) {
    if (verification_.Agree(*this, expected, ValuesOf(variables), before)) return;
    // A variable in copy-on-read mode shares its buffer with nothing (resource_var.h).
    const std::vector<Tensor> copies = CopyTensors(expected);
    for (int i = 0; i < variables_; ++i) {
      if (written_[i]) *variables[i]->tensor() = copies[i];
    }
  }

  const Tensor& IndicesOf(OpKernelContext* context, std::int64_t which) const {
    return context->input(variables_ + tensors_ + static_cast<int>(which));
  }

  // Reads indices into `rows` and sorts them. Returns false if one is not in [0, limit). With
  // `skip_negative`, it skips negative indices, as segment sums do.
  static bool ReadRows(const Tensor& indices, std::int64_t limit, bool skip_negative, Rows& rows) {
    const auto flat = indices.flat<Index>();
    rows.reserve(flat.size());
    bool sorted = true;
    for (std::int64_t i = 0; i < flat.size(); ++i) {
      const std::int64_t row = flat(i);
      if (skip_negative && row < 0) continue;
      if (row < 0 || row >= limit) return false;
      sorted = sorted && (rows.empty() || rows.back().first <= row);
      rows.emplace_back(row, i);
    }
    if (!sorted) std::sort(rows.begin(), rows.end());
    return true;
  }

  // Whether a tensor has one row for each index, of the shape of a row of the variables.
  static bool HasRowPerIndex(const Tensor& tensor, const Tensor& indices,
                             const TensorShape& shape) {
    TensorShape expected = indices.shape();
    for (int i = 1; i < shape.dims(); ++i) expected.AddDim(shape.dim_size(i));
    return tensor.shape() == expected;
  }

  int variables_, tensors_, indices_;
  std::vector<char> written_;                   // Whether each variable is assigned.
  std::vector<char> is_rows_, is_elementwise_;  // Whether each tensor is used by rows, by elements.
  std::vector<char> may_skip_negative_;  // Whether to skip negative values of each indices tensor.
  std::unique_ptr<Program> program_;
  Original original_;
  Verification verification_;
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_UPDATES_UPDATE_OP_H_
