// The memory of one execution of a loop: where each value is stored in each iteration.

#ifndef TENSORWRIGHT_OPS_LOOPS_MEMORY_H_
#define TENSORWRIGHT_OPS_LOOPS_MEMORY_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/kernels/tensor_list.h"
#include "tensorwright/compute/matrix.h"
#include "tensorwright/ops/loops/plan.h"

namespace tensorwright {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorList;
using tensorflow::TensorShape;

constexpr std::int64_t kAlign = 64;  // Bytes.
// The size in bytes from which items of lists have a tensor each. Small items share one, because an
// allocation takes long compared with their computation.
constexpr std::int64_t kLargeItem = 64 << 10;

// Allocates the memories of a plan that the loop writes, and finds the data of all memories.
//
// - Memories whose values go into lists (`Memory::given`) have tensors of their own, one for each
//   iteration (ListTensors).
// - The others share one tensor, the arena. There each has `turns` slots, which iterations use in
//   turn. A memory begins at a multiple of kAlign bytes, and its slots follow each other without
//   gaps.
// - Each sum over all iterations has a tensor of its own, which begins as a copy of the argument.
//
// `plan`, `given` and `context` must outlive the object.
class LoopMemory {
 public:
  LoopMemory(const Plan& plan, const LoopInputs& given, OpKernelContext* context)
      : plan_(plan), given_(given), context_(context) {}

  absl::Status Allocate() {
    list_tensors_.resize(plan_.memories.size());
    offsets_.resize(plan_.memories.size());
    std::int64_t bytes = kAlign;  // Room to align the arena.
    for (std::size_t i = 0; i < plan_.memories.size(); ++i) {
      const Memory& memory = plan_.memories[i];
      if (memory.where != Memory::Where::kOwn) continue;
      if (memory.given) {
        TF_RETURN_IF_ERROR(Allocate(memory, list_tensors_[i]));
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
    return absl::OkStatus();
  }

  // Returns the data of `memory` in iteration `t`. The arena keeps only the last `turns`
  // iterations.
  char* At(int memory, std::int64_t t) const {
    const Memory& of = plan_.memories[memory];
    switch (of.where) {
      case Memory::Where::kFixed: return Data(Source(plan_.fixed[of.source]));
      case Memory::Where::kItems: return Data(Item(plan_.reads[of.source], t));
      case Memory::Where::kSlice: {
        const CounterSlice& slice = plan_.slices[of.source];
        return At(slice.memory, t) + plan_.counters.at(slice.index).values[t] * of.size();
      }
      case Memory::Where::kState:
        if (t == 0) return Data(given_.tensors[of.source]);
        return At(plan_.states.at(of.source).memory, t - 1);
      default: break;
    }
    if (of.given) return list_tensors_[memory].At(t);
    return arena_ + offsets_[memory] + t % of.turns * of.size();
  }

  // Copies the data of `memory` in iteration `t`, as At() finds it, to a new tensor.
  absl::Status Copy(int memory, std::int64_t t, Tensor* copy) const {
    const Memory& of = plan_.memories[memory];
    const auto type = of.bytes ? tensorflow::DT_BOOL : tensorflow::DT_FLOAT;
    TF_RETURN_IF_ERROR(context_->allocate_temp(type, TensorShape(of.dimensions), copy));
    std::memcpy(copy->data(), At(memory, t), copy->TotalBytes());
    return absl::OkStatus();
  }

  // Returns the tensor that iteration `t` puts into a list. It shares the buffer of `memory`, which
  // must be an input, a constant, or `given`.
  Tensor TensorAt(int memory, std::int64_t t) const {
    const Memory& of = plan_.memories[memory];
    switch (of.where) {
      case Memory::Where::kFixed: return Source(plan_.fixed[of.source]);
      case Memory::Where::kItems: return Item(plan_.reads[of.source], t);
      case Memory::Where::kState:
        if (t == 0) return given_.tensors[of.source];
        return TensorAt(plan_.states.at(of.source).memory, t - 1);
      default: return list_tensors_[memory].Item(t);
    }
  }

  // Returns the argument plus the sum over the iterations computed so far.
  Tensor& sum(int argument) { return sums_.at(argument); }
  const Tensor& sum(int argument) const { return sums_.at(argument); }

  // Returns the rows of `count` iterations as one matrix: slots 0 to `count` - 1 of the view's
  // memory. The view must be all of a memory in the arena.
  Matrix StackedRows(const View& view, std::int64_t count) const {
    const auto* data = reinterpret_cast<const float*>(arena_ + offsets_[view.memory]);
    return {data, view.rows * count, view.columns, view.columns, 1};
  }

 private:
  // Tensors that go into lists. If items are small and multiples of kAlign bytes: slices of one
  // tensor, `all`, with one item for each iteration, which stays as long as one of them. Otherwise,
  // or if all iterations share one value: `items`, one tensor for each iteration, or a single one.
  struct ListTensors {
    Tensor all;
    std::vector<Tensor> items;
    char* base = nullptr;   // Of `all`.
    std::int64_t size = 0;  // Bytes of one item of `all`.

    char* At(std::int64_t t) const { return items.empty() ? base + t * size : Data(Own(t)); }
    Tensor Item(std::int64_t t) const { return items.empty() ? all.SubSlice(t) : Own(t); }
    const Tensor& Own(std::int64_t t) const { return items[items.size() == 1 ? 0 : t]; }
  };

  static char* Data(const Tensor& tensor) { return static_cast<char*>(tensor.data()); }

  // Returns the tensor of a memory that is the same in every iteration.
  const Tensor& Source(const Fixed& fixed) const {
    switch (fixed.from) {
      case Fixed::From::kArgument: return given_.tensors[fixed.index];
      case Fixed::From::kConstant: return plan_.constants[fixed.index];
      default: return given_.lists[plan_.reads[fixed.index].list]->tensors()[0];
    }
  }

  // Returns the list item that iteration `t` reads.
  const Tensor& Item(const ListRead& read, std::int64_t t) const {
    const auto& items = given_.lists[read.list]->tensors();
    if (read.pops) return items[items.size() - 1 - t];
    if (!read.reads_other.empty() && read.reads_other[t]) {
      return Source(plan_.fixed[plan_.memories[read.other].source]);
    }
    return items[plan_.IndexAt(read.index, t)];
  }

  // Allocates the tensors of a memory whose values go into lists.
  absl::Status Allocate(const Memory& memory, ListTensors& away) {
    const auto type = memory.bytes ? tensorflow::DT_BOOL : tensorflow::DT_FLOAT;
    TensorShape shape(memory.dimensions);
    if (!memory.loop_invariant && memory.size() % kAlign == 0 && memory.size() > 0 &&
        memory.size() < kLargeItem) {
      shape.InsertDim(0, plan_.iterations);
      TF_RETURN_IF_ERROR(context_->allocate_temp(type, shape, &away.all));
      away.base = Data(away.all);
      away.size = memory.size();
      return absl::OkStatus();
    }
    away.items.resize(memory.loop_invariant ? 1 : plan_.iterations);
    for (Tensor& item : away.items) TF_RETURN_IF_ERROR(context_->allocate_temp(type, shape, &item));
    return absl::OkStatus();
  }

  const Plan& plan_;
  const LoopInputs& given_;
  OpKernelContext* const context_;
  std::vector<ListTensors> list_tensors_;  // By memory.
  std::vector<std::int64_t> offsets_;      // By memory: bytes from `arena_`, at least kAlign.
  Tensor memory_;                          // The arena's buffer.
  char* arena_ = nullptr;
  std::map<int, Tensor> sums_;  // By argument.
};

// The addresses of all memories in one iteration.
class Addresses {
 public:
  // An operand of an elementwise task.
  struct Operand {
    char* data;
    std::int64_t row_step, column_step;  // In bytes.
  };

  Addresses(const Plan& plan, const LoopMemory& memory, std::int64_t t) : plan_(plan) {
    base_.reserve(plan.memories.size());
    for (std::size_t i = 0; i < plan.memories.size(); ++i) base_.push_back(memory.At(i, t));
  }

  float* Floats(const View& view) const {
    return reinterpret_cast<float*>(base_[view.memory]) + view.offset;
  }

  Matrix MatrixOf(const View& view) const {
    return {Floats(view), view.rows, view.columns, view.row_step, view.column_step};
  }

  Operand OperandOf(const View& view) const {
    const std::int64_t each = plan_.memories[view.memory].bytes ? 1 : sizeof(float);
    return {base_[view.memory] + view.offset * each, view.row_step * each, view.column_step * each};
  }

 private:
  const Plan& plan_;
  std::vector<char*> base_;
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_MEMORY_H_
