// Gives the values of a plan their places.

#ifndef TENSORWRIGHT_OPS_CHAINS_PLACEMENT_H_
#define TENSORWRIGHT_OPS_CHAINS_PLACEMENT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensorwright/ops/chains/plan.h"

namespace tensorwright::chains {

// Places the values of a plan and finds which inputs outputs may overwrite. Use an object once.
class Placement {
 public:
  // `outputs` are values. The first `inputs` values are inputs.
  Placement(const std::vector<std::int64_t>& outputs, int inputs, Plan* plan)
      : outputs_(outputs), inputs_(inputs), plan_(*plan), last_(plan->values.size(), 0) {}

  void Make() {
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      Value& base = plan_.values[plan_.values[outputs_[i]].base];
      if (base.place != Place::kNowhere) continue;
      base.place = Place::kOutput;
      base.slot = static_cast<std::int64_t>(i);
    }
    for (std::size_t i = 0; i < plan_.actions.size(); ++i) {
      last_[plan_.actions[i].out] = i;
      for (const Operand& operand : plan_.actions[i].operands) {
        last_[operand.value] = i;
        if (operand.inner > 0) ++plan_.copies;
      }
    }
    AllocateMemory();
    AllocateRegisters();
    FindOverwritten();
  }

 private:
  void AllocateMemory() {
    constexpr std::int64_t kAlign = 64;  // Bytes.
    for (const Action& action : plan_.before) {
      Value& value = plan_.values[action.out];
      if (value.place != Place::kNowhere) continue;
      value.place = Place::kMemory;
      value.slot = plan_.memory;
      plan_.memory += (value.count() * value.element_bytes() + kAlign - 1) / kAlign * kAlign;
    }
  }

  // A register is free after the last action that uses its value. No action writes to a register
  // that it reads.
  void AllocateRegisters() {
    std::vector<std::size_t> busy;  // Register → the last action that uses it.
    for (std::size_t i = 0; i < plan_.actions.size(); ++i) {
      Value& value = plan_.values[plan_.actions[i].out];
      if (value.place != Place::kNowhere || value.domain == Domain::kTotal) continue;
      std::size_t free = 0;
      while (free < busy.size() && busy[free] >= i) ++free;
      if (free == busy.size()) busy.push_back(0);
      busy[free] = last_[plan_.actions[i].out];
      value.place = Place::kRegister;
      value.slot = static_cast<std::int64_t>(free);
    }
    plan_.registers = static_cast<std::int64_t>(busy.size());
  }

  // Finds the inputs that each output may overwrite: block by block, each element is read for the
  // last time before or when that of the output is written.
  void FindOverwritten() {
    std::vector<bool> excluded(inputs_, false);
    for (const Action& action : plan_.before) {
      for (const Operand& operand : action.operands) Exclude(operand, &excluded);
    }
    for (const Action& action : plan_.actions) {
      for (const Operand& operand : action.operands) {
        if (operand.lone || operand.inner > 0) Exclude(operand, &excluded);
      }
    }
    for (const std::int64_t output : outputs_) {
      const int base = plan_.values[output].base;
      if (base < inputs_) excluded[base] = true;
    }
    for (std::size_t i = 0; i < plan_.actions.size(); ++i) {
      Value& value = plan_.values[plan_.actions[i].out];
      if (value.place != Place::kOutput || value.domain != Domain::kFull) continue;
      for (int input = 0; input < inputs_; ++input) {
        const Value& from = plan_.values[input];
        if (!excluded[input] && from.type == value.type && from.count() == plan_.elements &&
            last_[input] <= i) {
          value.overwrites.push_back(input);
        }
      }
    }
  }

  void Exclude(const Operand& operand, std::vector<bool>* excluded) const {
    if (operand.value < inputs_) (*excluded)[operand.value] = true;
  }

  const std::vector<std::int64_t>& outputs_;
  const int inputs_;
  Plan& plan_;
  std::vector<std::size_t> last_;  // By base: the last action that uses it.
};

}  // namespace tensorwright::chains

#endif  // TENSORWRIGHT_OPS_CHAINS_PLACEMENT_H_
