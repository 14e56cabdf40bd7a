// Plans the execution of a chain for the shapes of its inputs.

#ifndef TENSORWRIGHT_OPS_CHAINS_PLANNER_H_
#define TENSORWRIGHT_OPS_CHAINS_PLANNER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/tensor.h"
#include "tensorwright/ops/chains/combine.h"
#include "tensorwright/ops/chains/placement.h"
#include "tensorwright/ops/chains/plan.h"
#include "tensorwright/ops/chains/program.h"

namespace tensorwright::chains {

// Finds out what a chain computes for the shapes of its inputs. Use an object once.
class Planner {
 public:
  // `outputs` are values. The inputs must outlive the object.
  Planner(const std::vector<Step>& steps, const std::vector<std::int64_t>& outputs,
          const std::vector<tensorflow::Tensor>& inputs)
      : steps_(steps), outputs_(outputs), inputs_(inputs), plan_(std::make_unique<Plan>()) {}

  // Returns null if the chain cannot be computed for these inputs. This includes all inputs for
  // which the original ops raise an error.
  std::unique_ptr<Plan> Make() {
    for (const tensorflow::Tensor& input : inputs_) AddInput(input);
    for (const Step& step : steps_) {
      if (!InferShape(step)) return nullptr;
    }
    if (plan_->elements == 0 || !FindRow()) return nullptr;
    FindNeeded();
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (!AddAction(i)) return nullptr;
    }
    ChooseBlock();
    Combination(outputs_, plan_.get()).Make();
    Placement(outputs_, static_cast<int>(inputs_.size()), plan_.get()).Make();
    return std::move(plan_);
  }

 private:
  // What a sum does: nothing if it is over axes of size 1.
  enum class Reduction { kNone, kIdentity, kRows, kTotal };

  Value& ValueOf(std::size_t step) { return plan_->values[inputs_.size() + step]; }
  Value& BaseOf(std::int64_t value) { return plan_->values[plan_->values[value].base]; }

  void AddInput(const tensorflow::Tensor& tensor) {
    Value value;
    value.type = tensor.dtype();
    for (int i = 0; i < tensor.dims(); ++i) value.dimensions.push_back(tensor.dim_size(i));
    if (value.type == tensorflow::DT_INT32) {
      const auto flat = tensor.flat<std::int32_t>();
      value.integers.assign(flat.data(), flat.data() + flat.size());
    } else if (value.type == tensorflow::DT_INT64) {
      const auto flat = tensor.flat<std::int64_t>();
      value.integers.assign(flat.data(), flat.data() + flat.size());
    }
    value.base = static_cast<int>(plan_->values.size());
    value.place = Place::kInput;
    value.slot = value.base;
    plan_->values.push_back(std::move(value));
  }

  static bool IsInteger(tensorflow::DataType type) {
    return type == tensorflow::DT_INT32 || type == tensorflow::DT_INT64;
  }

  // Adds the value of a step with its shape, type and integers, and whether it has the elements of
  // its operand. Returns false if shapes do not match.
  bool InferShape(const Step& step) {
    Value value;
    const Value& a = plan_->values[step.operands[0]];
    value.type = IsBool(step.code) ? tensorflow::DT_BOOL : tensorflow::DT_FLOAT;
    bool is_alias = false;
    Reduction reduction = Reduction::kNone;
    if (IsElementwise(step.code)) {
      if (!BroadcastShape(step, &value.dimensions)) return false;
      plan_->elements = std::max(plan_->elements, value.count());
    } else if (IsReduction(step.code)) {
      if (!ReducedShape(step, &value.dimensions, &reduction)) return false;
      is_alias = reduction == Reduction::kIdentity;
      plan_->elements = std::max(plan_->elements, a.count());
    } else {
      if (!NewShape(step, &value)) return false;
      is_alias = step.code != Code::kShape && step.code != Code::kEmptyReserve;
      if (!is_alias) value.domain = Domain::kKnown;
    }
    if (is_alias) value.type = a.type;
    value.base = is_alias ? a.base : static_cast<int>(plan_->values.size());
    plan_->values.push_back(std::move(value));
    reductions_.push_back(reduction);
    return true;
  }

  bool BroadcastShape(const Step& step, Dimensions* shape) {
    *shape = plan_->values[step.operands[0]].dimensions;
    if (step.code == Code::kBiasAdd) {
      const Dimensions& bias = plan_->values[step.operands[1]].dimensions;
      return shape->size() >= 2 && bias.size() == 1 && bias[0] == shape->back();
    }
    for (int i = 1; i < CountOperands(step.code); ++i) {
      const Dimensions& other = plan_->values[step.operands[i]].dimensions;
      if (NeedsSameShapes(step.code) && other != *shape) return false;
      if (shape->size() < other.size())
        shape->insert(shape->begin(), other.size() - shape->size(), 1);
      for (std::size_t axis = 0; axis < other.size(); ++axis) {
        std::int64_t& size = (*shape)[shape->size() - other.size() + axis];
        if (size != other[axis] && size != 1 && other[axis] != 1) return false;
        if (size == 1) size = other[axis];
      }
    }
    return true;
  }

  // Computes the shape of a sum, mean or maximum, and which kind of sum it is. Returns false if the
  // axes are neither the first nor the last ones.
  bool ReducedShape(const Step& step, Dimensions* shape, Reduction* reduction) {
    const Dimensions& from = plan_->values[step.operands[0]].dimensions;
    const auto rank = static_cast<std::int64_t>(from.size());
    std::vector<bool> summed(rank, false);
    bool keeps = (step.parameter & 1) != 0;
    if (step.code == Code::kBiasAddGrad) {
      if (rank < 2) return false;
      std::fill(summed.begin(), summed.end() - 1, true);
      keeps = false;
    } else if (const std::int64_t last = step.parameter >> 1; last > 0) {
      if (rank < last) return false;
      std::fill(summed.end() - last, summed.end(), true);
    } else {
      const Value& axes = plan_->values[step.operands[1]];
      if (!IsInteger(axes.type) || axes.dimensions.size() > 1) return false;
      for (std::int64_t axis : axes.integers) {
        if (axis < 0) axis += rank;
        if (axis < 0 || axis >= rank || summed[axis]) return false;
        summed[axis] = true;
      }
    }
    bool any = false, any_stays = false, before = false, first_is_summed = false;
    int runs = 0;  // Runs of axes that are summed, or stay, without those of size 1.
    for (std::int64_t axis = 0; axis < rank; ++axis) {
      if (!summed[axis] || keeps) shape->push_back(summed[axis] ? 1 : from[axis]);
      if (from[axis] == 1) continue;
      (summed[axis] ? any : any_stays) = true;
      if (runs == 0) first_is_summed = summed[axis];
      if (runs == 0 || before != summed[axis]) ++runs;
      before = summed[axis];
    }
    if (runs > 2) return false;
    const bool is_total = any_stays ? first_is_summed : !keeps;
    *reduction = !any ? Reduction::kIdentity : is_total ? Reduction::kTotal : Reduction::kRows;
    return *reduction != Reduction::kTotal || step.code != Code::kMax;
  }

  bool NewShape(const Step& step, Value* value) {
    const Value& a = plan_->values[step.operands[0]];
    value->dimensions = a.dimensions;
    switch (step.code) {
      case Code::kReshape: return Reshape(a, plan_->values[step.operands[1]], &value->dimensions);
      case Code::kShape:
        value->type = static_cast<tensorflow::DataType>(step.parameter);
        value->integers = a.dimensions;
        value->dimensions = {static_cast<std::int64_t>(a.dimensions.size())};
        return true;
      case Code::kVector: value->dimensions = {a.count()}; return true;
      case Code::kOfChannels: value->dimensions = {1, a.count(), 1, 1}; return true;
      case Code::kOneImage: return a.dimensions.size() == 4 && a.dimensions[0] == 1;
      case Code::kEmptyReserve: value->dimensions = {}; return true;
      default: return true;
    }
  }

  static bool Reshape(const Value& from, const Value& to, Dimensions* shape) {
    if (!IsInteger(to.type) || to.dimensions.size() != 1) return false;
    *shape = to.integers;
    std::int64_t left = from.count(), *open = nullptr;  // Elements for the axes that follow.
    if (left == 0) return false;
    for (std::int64_t& size : *shape) {
      if (size == -1 && open == nullptr) {
        open = &size;
      } else if (size > 0 && left % size == 0) {
        left /= size;
      } else {
        return false;
      }
    }
    if (open == nullptr) return left == 1;
    *open = left;
    return true;
  }

  // Finds the length of rows. All sums over rows must have the same.
  bool FindRow() {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (reductions_[i] != Reduction::kRows) continue;
      if (ValueOf(i).count() == 0) return false;
      const std::int64_t row = plan_->values[steps_[i].operands[0]].count() / ValueOf(i).count();
      if (plan_->row != 0 && plan_->row != row) return false;
      plan_->row = row;
    }
    return plan_->row <= kMaxRowElements;
  }

  // Chooses the size of blocks: whole rows or, without rows, so that each block needs whole copies of
  // the operands that are shorter than it, and a part of one copy of the longer ones.
  void ChooseBlock() {
    std::int64_t run = plan_->row;
    for (const Action& action : plan_->actions) {
      if (run == 0) run = action.piece;
    }
    if (plan_->row == 0 && run > kBlockElements) {
      for (std::int64_t parts = 2; run / parts >= kBlockElements / 4; ++parts) {
        if (run % parts != 0 || run / parts > kBlockElements) continue;
        plan_->block = run / parts;
        return;
      }
      run = 0;
    }
    run = std::max<std::int64_t>(run, 1);
    plan_->block = std::max<std::int64_t>(1, kBlockElements / run) * run;
  }

  // Marks the values that outputs need. The others, such as those of which only the shape is used,
  // are not computed.
  void FindNeeded() {
    needed_.assign(plan_->values.size(), false);
    for (const std::int64_t output : outputs_) needed_[plan_->values[output].base] = true;
    for (std::size_t i = steps_.size(); i-- > 0;) {
      const auto value = inputs_.size() + i;
      if (!needed_[value] || plan_->values[value].base != static_cast<int>(value)) continue;
      if (steps_[i].code == Code::kShape) continue;
      for (const std::int64_t operand : steps_[i].operands) {
        needed_[plan_->values[operand].base] = true;
      }
    }
  }

  // Adds the action that computes the value of a step, if it is needed.
  bool AddAction(std::size_t i) {
    const Step& step = steps_[i];
    const auto number = static_cast<int>(inputs_.size() + i);
    Value& value = plan_->values[number];
    if (value.base != number || !needed_[number] || step.code == Code::kShape) return true;
    if (step.code == Code::kEmptyReserve) return true;
    Action action;
    action.out = number;
    action.code = step.code;
    if (IsReduction(step.code)) {
      const Value& from = plan_->values[step.operands[0]];
      const Domain domain = BaseOf(step.operands[0]).domain;
      if (from.count() != plan_->elements || domain == Domain::kTotal) return false;
      const bool is_total = reductions_[i] == Reduction::kTotal, mean = step.code == Code::kMean;
      value.domain = is_total ? Domain::kTotal : Domain::kRows;
      action.what = is_total ? mean ? Action::What::kTotalMeans : Action::What::kTotals
                    : step.code == Code::kMax ? Action::What::kRowMaxima
                    : mean                    ? Action::What::kRowMeans
                                              : Action::What::kRowSums;
      Operand operand;
      operand.value = from.base;
      action.operands.push_back(std::move(operand));
      if (is_total) {
        action.offset = plan_->totals;
        plan_->totals += value.count();
      }
      plan_->actions.push_back(std::move(action));
      return true;
    }
    if (!FindDomain(step, &value)) return false;
    for (int j = 0; j < CountOperands(step.code); ++j) {
      Operand operand;
      if (!ResolveOperand(step.operands[j], value, &operand)) return false;
      action.operands.push_back(std::move(operand));
    }
    action.FindPiece();
    if (step.code == Code::kAddNumber) {
      action.has_number = true;
      action.number = NumberOf(step.parameter);
    }
    action.loops = &LoopsOf(step.code);
    (value.domain == Domain::kWhole ? plan_->before : plan_->actions).push_back(std::move(action));
    return true;
  }

  // Finds the domain of an elementwise step. Returns false if it mixes values that cannot be
  // computed in the same block.
  bool FindDomain(const Step& step, Value* value) {
    const std::int64_t count = value->count();
    bool has_rows = false, has_full = false;
    for (int j = 0; j < CountOperands(step.code); ++j) {
      const Value& base = BaseOf(step.operands[j]);
      if (base.domain == Domain::kTotal) return false;
      has_rows = has_rows || base.domain == Domain::kRows;
      has_full = has_full || base.domain == Domain::kFull;
    }
    if (count == plan_->elements) {
      value->domain = Domain::kFull;
      return true;
    }
    if (has_full) return false;
    value->domain = has_rows ? Domain::kRows : Domain::kWhole;
    return !has_rows || count * plan_->row == plan_->elements;
  }

  // Finds how an operand of an elementwise step is read. Returns false if it would be read from
  // another block.
  bool ResolveOperand(std::int64_t number, const Value& out, Operand* operand) {
    const Value& value = plan_->values[number];
    const Value& base = plan_->values[value.base];
    operand->value = value.base;
    if (value.count() == out.count()) return true;
    if (value.count() == 1) {
      operand->lone = true;
      return base.domain == Domain::kWhole || base.domain == Domain::kRows;
    }
    const Dimensions& to = out.dimensions;
    Dimensions from = value.dimensions;
    from.insert(from.begin(), to.size() - from.size(), 1);
    std::size_t axis = to.size();
    operand->inner = 1;
    std::int64_t step = 1;
    bool decided = false;
    for (; axis > 0; --axis) {
      const std::int64_t size = to[axis - 1];
      if (size == 1) continue;
      const bool repeats = from[axis - 1] == 1;
      if (decided && repeats != operand->repeats) break;
      operand->repeats = repeats;
      decided = true;
      operand->inner *= size;
      if (!repeats) step *= size;
    }
    for (; axis > 0; --axis) {
      const std::int64_t size = to[axis - 1];
      if (size == 1) continue;
      const bool repeats = from[axis - 1] == 1;
      auto& outer = operand->outer;
      if (!outer.empty() && (outer.back().step == 0) == repeats) {
        outer.back().size *= size;
      } else {
        outer.push_back({size, repeats ? 0 : step});
      }
      if (!repeats) step *= size;
    }
    if (base.domain == Domain::kWhole) return true;
    // A value of a block's rows.
    return base.domain == Domain::kRows && operand->repeats && operand->inner == plan_->row &&
           operand->outer.size() == 1 && operand->outer[0].step == 1;
  }

  const std::vector<Step>& steps_;
  const std::vector<std::int64_t>& outputs_;
  const std::vector<tensorflow::Tensor>& inputs_;
  std::unique_ptr<Plan> plan_;
  std::vector<Reduction> reductions_;  // By step.
  std::vector<bool> needed_;           // By value: whether a base's elements are needed.
};

}  // namespace tensorwright::chains

#endif  // TENSORWRIGHT_OPS_CHAINS_PLANNER_H_
