// The operation that takes the place of a while loop: a plan for the shapes that it gets, run without
// TensorFlow's executor; or, where there is no such plan, the loop as it was.

#ifndef TENSORWRIGHT_FUSED_LOOP_OP_H_
#define TENSORWRIGHT_FUSED_LOOP_OP_H_

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
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
#include "tensorwright/fused/loop.h"
#include "tensorwright/fused/loop_needed.h"
#include "tensorwright/fused/loop_plan.h"
#include "tensorwright/fused/loop_planning.h"
#include "tensorwright/fused/original.h"
#include "tensorwright/fused/products.h"
#include "tensorwright/fused/tally.h"
#include "tensorwright/fused/threads.h"

namespace tensorwright {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorList;
using tensorflow::TensorShape;

constexpr std::size_t kMostPlans = 64;
constexpr std::int64_t kAlign = 64;
constexpr std::int64_t kMostRows = 32;  // That are summed up by themselves.
// Threads share what takes as long as so many sums of two elements.
constexpr std::int64_t kSharedWork = 1 << 16;

// Loops that run now. Those of two directions, or of two requests, share the threads.
std::atomic<int> running{0};

class Running {
 public:
  Running() { running.fetch_add(1); }
  ~Running() { running.fetch_sub(1); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

// One execution of a plan.
class LoopRun {
 public:
  LoopRun(const Plan& plan, const Given& given, OpKernelContext* context)
      : plan_(plan), given_(given), context_(context) {
    pool_ = context->device()->tensorflow_cpu_worker_threads();
  }

  absl::Status Run() {
    const Running now;
    TF_RETURN_IF_ERROR(Allocate());
    auto* cancellation = context_->cancellation_manager();
    base_.resize(plan_.memories.size());
    for (std::int64_t t = 0; t < plan_.iterations; ++t) {
      if (cancellation != nullptr && cancellation->IsCancelled()) {
        return tensorflow::errors::Cancelled("the loop was cancelled");
      }
      for (std::size_t memory = 0; memory < base_.size(); ++memory) base_[memory] = At(memory, t);
      if (t == 0) {
        Perform(0, plan_.once);
        PackFixed();
      }
      Perform(plan_.once, plan_.groups.size());
      const std::int64_t turn = t % plan_.chunk;
      if (turn + 1 == plan_.chunk || t + 1 == plan_.iterations) SumUp(turn + 1);
    }
    return absl::OkStatus();
  }

  // What a memory of results of all iterations, or the last one's, holds.
  char* At(int memory, std::int64_t t) const {
    const Memory& of = plan_.memories[memory];
    switch (of.where) {
      case Memory::Where::kFixed: return Data(Source(plan_.fixed[of.source]));
      case Memory::Where::kItems: return Data(Item(plan_.reads[of.source], t));
      case Memory::Where::kSlice: {
        const SliceOf& slice = plan_.slices[of.source];
        return At(slice.memory, t) + plan_.counters.at(slice.index).values[t] * of.size();
      }
      case Memory::Where::kState:
        if (t == 0) return Data(given_.tensors[of.source]);
        return At(plan_.states.at(of.source).memory, t - 1);
      default: break;
    }
    if (of.given) return given_away_[memory].At(t);
    return arena_ + offsets_[memory] + t % of.turns * of.size();
  }

  // A copy of what a memory holds, of results of all iterations or the last one.
  absl::Status Copy(int memory, std::int64_t t, Tensor* copy) const {
    const Memory& of = plan_.memories[memory];
    const auto type = of.bytes ? tensorflow::DT_BOOL : tensorflow::DT_FLOAT;
    TF_RETURN_IF_ERROR(context_->allocate_temp(type, TensorShape(of.dimensions), copy));
    std::memcpy(copy->data(), At(memory, t), copy->TotalBytes());
    return absl::OkStatus();
  }

  // The tensor of a memory that goes into a list in an iteration.
  Tensor TensorAt(int memory, std::int64_t t) const {
    const Memory& of = plan_.memories[memory];
    switch (of.where) {
      case Memory::Where::kFixed: return Source(plan_.fixed[of.source]);
      case Memory::Where::kItems: return Item(plan_.reads[of.source], t);
      case Memory::Where::kState:
        if (t == 0) return given_.tensors[of.source];
        return TensorAt(plan_.states.at(of.source).memory, t - 1);
      default: return given_away_[memory].Item(t);
    }
  }

  const Tensor& sum(int argument) const { return sums_.at(argument); }

 private:
  // A tensor for each iteration, or one for all; parts of one where their sizes let them lie aligned.
  struct GivenAway {
    Tensor all;
    std::vector<Tensor> items;
    char* base = nullptr;
    std::int64_t size = 0;

    char* At(std::int64_t t) const { return items.empty() ? base + t * size : Data(Own(t)); }
    Tensor Item(std::int64_t t) const { return items.empty() ? all.SubSlice(t) : Own(t); }
    const Tensor& Own(std::int64_t t) const { return items[items.size() == 1 ? 0 : t]; }
  };

  static char* Data(const Tensor& tensor) { return static_cast<char*>(tensor.data()); }

  const Tensor& Source(const Fixed& fixed) const {
    switch (fixed.from) {
      case Fixed::From::kArgument: return given_.tensors[fixed.index];
      case Fixed::From::kConstant: return plan_.constants[fixed.index];
      default: return given_.lists[plan_.reads[fixed.index].list]->tensors()[0];
    }
  }

  const Tensor& Item(const ListRead& read, std::int64_t t) const {
    const auto& items = given_.lists[read.list]->tensors();
    if (read.pops) return items[items.size() - 1 - t];
    if (!read.is_other.empty() && read.is_other[t]) {
      return Source(plan_.fixed[plan_.memories[read.other].source]);
    }
    const auto counter = plan_.counters.find(read.index);
    return items[counter == plan_.counters.end() ? plan_.numbers.at(read.index)
                                                 : counter->second.values[t]];
  }

  absl::Status Allocate() {
    given_away_.resize(plan_.memories.size());
    offsets_.resize(plan_.memories.size());
    std::int64_t bytes = kAlign;
    for (std::size_t i = 0; i < plan_.memories.size(); ++i) {
      const Memory& memory = plan_.memories[i];
      if (memory.where != Memory::Where::kOwn) continue;
      if (memory.given) {
        TF_RETURN_IF_ERROR(Allocate(memory, given_away_[i]));
        continue;
      }
      offsets_[i] = bytes;
      bytes += (memory.size() * memory.turns + kAlign - 1) / kAlign * kAlign;
    }
    TF_RETURN_IF_ERROR(
        context_->allocate_temp(tensorflow::DT_INT8, TensorShape({bytes}), &memory_));
    arena_ = Data(memory_) + (-reinterpret_cast<std::uintptr_t>(memory_.data())) % kAlign;
    arena_ -= kAlign;
    for (const SumOf& sum : plan_.sums) {
      const Tensor& before = given_.tensors[sum.argument];
      Tensor& after = sums_[sum.argument];
      TF_RETURN_IF_ERROR(context_->allocate_temp(before.dtype(), before.shape(), &after));
      std::memcpy(after.data(), before.data(), before.TotalBytes());
    }
    rights_.resize(plan_.rights.size());
    return absl::OkStatus();
  }

  absl::Status Allocate(const Memory& memory, GivenAway& away) {
    const auto type = memory.bytes ? tensorflow::DT_BOOL : tensorflow::DT_FLOAT;
    TensorShape shape(memory.dimensions);
    if (!memory.steady && memory.size() % kAlign == 0 && memory.size() > 0) {
      shape.InsertDim(0, plan_.iterations);
      TF_RETURN_IF_ERROR(context_->allocate_temp(type, shape, &away.all));
      away.base = Data(away.all);
      away.size = memory.size();
      return absl::OkStatus();
    }
    away.items.resize(memory.steady ? 1 : plan_.iterations);
    for (Tensor& item : away.items) TF_RETURN_IF_ERROR(context_->allocate_temp(type, shape, &item));
    return absl::OkStatus();
  }

  const float* Floats(const View& view) const {
    return reinterpret_cast<const float*>(base_[view.memory]) + view.offset;
  }

  Matrix MatrixOf(const View& view) const {
    return {Floats(view), view.rows, view.columns, view.row_step, view.column_step};
  }

  void Pack(std::size_t which) {
    const Right& right = plan_.rights[which];
    const Matrix matrix = MatrixOf(right.view);
    rights_[which].Take(right.transposed ? matrix.Transposed() : matrix);
  }

  void PackFixed() {
    for (std::size_t i = 0; i < plan_.rights.size(); ++i) {
      if (plan_.rights[i].fixed) Pack(i);
    }
  }

  void Perform(std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) Perform(plan_.groups[i]);
  }

  void Perform(const Group& group) {
    const Task& task = plan_.tasks[group.first];
    switch (task.what) {
      case Task::What::kElements: return DoElements(group);
      case Task::What::kProduct: return DoProduct(task);
      case Task::What::kColumnSums: return DoColumnSums(task);
      default: return DoRowSums(task);
    }
  }

  // Elements, which threads share by rows, all tasks of the group at once.
  void DoElements(const Group& group) {
    const Task& task = plan_.tasks[group.first];
    if (group.rows == 1 && task.flat) return DoRow(task, group.work);
    ShareBlocks(group.rows, kBlockRows, group.work, [&](std::int64_t row, std::int64_t end) {
      for (std::size_t i = group.first; i < group.last; ++i) DoRows(plan_.tasks[i], row, end);
    });
  }

  // A block begins where vectors do, so that results are the same for any number of threads.
  template <typename Block>
  void ShareBlocks(std::int64_t all, std::int64_t block, std::int64_t work, const Block& done) {
    ShareSome(Eigen::divup(all, block), work, [&](std::int64_t first, std::int64_t last) {
      done(first * block, std::min(last * block, all));
    });
  }

  template <typename Some>
  void ShareSome(std::int64_t count, std::int64_t work, const Some& some) {
    ShareParts(context_, work < kSharedWork ? 1 : pool_->num_threads / running.load(), count, some);
  }

  struct Operand {
    char* data;
    std::int64_t row_step, column_step;  // In bytes.
  };

  Operand OperandOf(const View& view) const {
    const std::int64_t each = plan_.memories[view.memory].bytes ? 1 : sizeof(float);
    return {base_[view.memory] + view.offset * each, view.row_step * each, view.column_step * each};
  }

  // What a task does to elements, from its operands; of fewer than three the first one stands in.
  struct Rows {
    RowLoop loop;
    Operand out, in[3];

    void Do(std::int64_t row, std::int64_t column, std::int64_t count) const {
      const auto at = [&](const Operand& of) {
        return of.data + row * of.row_step + column * of.column_step;
      };
      loop(at(out), at(in[0]), at(in[1]), at(in[2]), count);
    }
  };

  Rows RowsOf(const Task& task) const {
    Rows rows = {task.row, OperandOf(task.out)};
    for (std::size_t i = 0; i < 3; ++i) rows.in[i] = OperandOf(task.in[i < task.in.size() ? i : 0]);
    return rows;
  }

  void DoRows(const Task& task, std::int64_t row, std::int64_t end) {
    const Rows rows = RowsOf(task);
    if (task.flat) return rows.Do(row, 0, (end - row) * task.out.columns);
    for (; row < end; ++row) rows.Do(row, 0, task.out.columns);
  }

  // One long row.
  void DoRow(const Task& task, std::int64_t work) {
    const Rows rows = RowsOf(task);
    ShareBlocks(task.out.columns, kBlock, work, [&](std::int64_t from, std::int64_t end) {
      rows.Do(0, from, end - from);
    });
  }

  void DoProduct(const Task& task) {
    const Packed& right = rights_[task.packed];
    if (!plan_.rights[task.packed].fixed) Pack(task.packed);
    const float* bias = task.in.size() > 1 ? Floats(task.in[1]) : nullptr;
    Share(MatrixOf(task.in[0]), right, bias, const_cast<float*>(Floats(task.out)),
          task.out.row_step, task.adds, kDepth);
  }

  // A product by threads, each with panels of its own.
  void Share(const Matrix& left, const Packed& right, const float* bias, float* out,
             std::int64_t step, bool add, std::int64_t together) {
    const std::int64_t work = left.rows * left.columns * right.columns() / kLanes;
    ShareSome(right.panels(), work, [&](std::int64_t first, std::int64_t last) {
      Multiply(left, right, bias, out, step, add, first, last, together);
    });
  }

  void DoColumnSums(const Task& task) {
    float* out = const_cast<float*>(Floats(task.out));
    std::fill_n(out, task.out.rows * task.out.columns, 0.0f);
    const Matrix from = MatrixOf(task.in[0]);
    AddColumns(from, PartOf(from.rows), out);
  }

  // So many rows are summed up first, then their sums. Errors are least where there are about as many of
  // these as rows of each (Castaldo et al., "Reducing Floating Point Error in Dot Product Using the
  // Superblock Family of Algorithms", SISC 2008).
  static std::int64_t PartOf(std::int64_t rows) {
    return std::min(2 * static_cast<std::int64_t>(std::sqrt(rows)), kMostRows);
  }

  static void AddColumns(const Matrix& from, std::int64_t part, float* out) {
    for (std::int64_t first = 0; first < from.columns; first += kPanel) {
      const std::int64_t width = std::min<std::int64_t>(kPanel, from.columns - first);
      for (std::int64_t top = 0; top < from.rows; top += part) {
        float sums[kPanel] = {};
        for (std::int64_t row = top; row < std::min(from.rows, top + part); ++row) {
          const float* values = from.data + row * from.row_step + first * from.column_step;
          for (std::int64_t i = 0; i < width; ++i) sums[i] += values[i * from.column_step];
        }
        for (std::int64_t i = 0; i < width; ++i) out[first + i] += sums[i];
      }
    }
  }

  void DoRowSums(const Task& task) {
    const Matrix from = MatrixOf(task.in[0]);
    float* out = const_cast<float*>(Floats(task.out));
    for (std::int64_t row = 0; row < from.rows; ++row) {
      float sum = 0;
      for (std::int64_t i = 0; i < from.columns; ++i) {
        sum += from.data[row * from.row_step + i * from.column_step];
      }
      out[row * task.out.row_step] = sum;
    }
  }

  // Adds what the last `count` iterations contribute to sums over all of them.
  void SumUp(std::int64_t count) {
    std::map<int, Packed> rights;
    for (const SumOf& sum : plan_.sums) {
      Tensor& all = sums_[sum.argument];
      float* out = all.flat<float>().data() + sum.column;
      const Matrix right = Together(sum.right, count);
      const std::int64_t part = PartOf(right.rows);
      if (!sum.left) {
        AddColumns(right, part, out);
        continue;
      }
      Packed& packed = rights[sum.right.memory];
      if (packed.depth() == 0) packed.Take(right);
      Share(Together(*sum.left, count).Transposed(), packed, nullptr, out,
            all.dim_size(all.dims() - 1), true, part);
    }
  }

  // The rows of several iterations, which lie one after the other.
  Matrix Together(const View& view, std::int64_t count) const {
    const auto* data = reinterpret_cast<const float*>(arena_ + offsets_[view.memory]);
    return {data, view.rows * count, view.columns, view.columns, 1};
  }

  const Plan& plan_;
  const Given& given_;
  OpKernelContext* const context_;
  const tensorflow::DeviceBase::CpuWorkerThreads* pool_;
  std::vector<GivenAway> given_away_;
  std::vector<std::int64_t> offsets_;
  Tensor memory_;
  char* arena_ = nullptr;
  std::vector<Packed> rights_;
  std::map<int, Tensor> sums_;
  std::vector<char*> base_;
};

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
      Count(Event::kLoopsStock);
      return AsBefore(context, std::move(done));
    }
    LoopRun run(*plan, given, context);
    OP_REQUIRES_OK_ASYNC(context, run.Run(), done);
    OP_REQUIRES_OK_ASYNC(context, SetOutputs(context, needed->loop.body, *plan, given, run), done);
    Count(Event::kLoopRuns);
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
                                 const Given& given, const LoopRun& run) {
    for (int i = 0; i < body.arity(); ++i) {
      const auto type = body.arguments[i];
      const auto state = plan.states.find(i);
      const auto count = plan.finals.find(i);
      if (count != plan.finals.end()) {
        context->set_output(i, TensorOf(count->second, type));
      } else if (state != plan.states.end()) {
        Tensor* out = nullptr;
        TF_RETURN_IF_ERROR(context->allocate_output(i, context->input(i).shape(), &out));
        std::memcpy(out->data(), run.At(state->second.memory, plan.iterations - 1),
                    out->TotalBytes());
      } else if (type == tensorflow::DT_FLOAT && body.results[i] != i) {
        context->set_output(i, run.sum(i));
      } else if (plan.writes.count(i) || plan.popped.count(i)) {
        TF_RETURN_IF_ERROR(SetList(context, i, plan, given, run));
      } else {
        context->set_output(i, context->input(i));
      }
    }
    return absl::OkStatus();
  }

  static absl::Status SetList(OpKernelContext* context, int i, const Plan& plan,
                              const Given& given, const LoopRun& run) {
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
          TF_RETURN_IF_ERROR(run.Copy(write.view.memory, t, &item));
        } else {
          item = run.TensorAt(write.view.memory, t);
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

#endif  // TENSORWRIGHT_FUSED_LOOP_OP_H_
