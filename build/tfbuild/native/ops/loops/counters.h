// Computes the integers and booleans of a loop before it runs: constants, counters, and the
// condition, which gives the number of iterations.

#ifndef TENSORWRIGHT_OPS_LOOPS_COUNTERS_H_
#define TENSORWRIGHT_OPS_LOOPS_COUNTERS_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "tensorwright/ops/loops/draft.h"

namespace tensorwright {

// A counter is a value that may change from iteration to iteration; all others are constants.
// Functions return false if something is not supported.
class Counters {
 public:
  explicit Counters(PlanBuilder& draft) : builder_(draft) {}

  // Plans an op whose inputs are all integers or booleans. If one of them is a counter (`counts`),
  // the outputs are counters, and Follow() computes them. Otherwise computes the outputs now.
  bool Add(const Operation& operation, bool counts) {
    if (counts) {
      builder_.counter_operations.push_back(&operation);
      for (int i = 0; i < operation.outputs; ++i)
        builder_.Out(operation, i).is = ValueKind::kCounter;
      return true;
    }
    std::vector<const Numbers*> inputs;
    for (const int input : operation.inputs) inputs.push_back(&builder_.facts[input].numbers);
    std::vector<Numbers> results;
    if (operation.what == Do::kZerosLike) {
      results.push_back(*inputs[0]);
      std::fill(results[0].values.begin(), results[0].values.end(), 0);
    } else if (operation.what == Do::kReshape) {
      if (inputs[1]->dimensions.size() != 1) return false;
      results.push_back({inputs[1]->values, inputs[0]->values});
      if (!ResolveShape(results[0].dimensions, inputs[0]->values.size())) return false;
    } else if (!Compute(operation, inputs, &results)) {
      return false;
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      builder_.Out(operation, i).is = ValueKind::kNumbers;
      builder_.Out(operation, i).numbers = std::move(results[i]);
    }
    return true;
  }

  // Computes the counters of all iterations, and the plan's number of iterations, which must be 1
  // to kMostIterations. Keeps the values of counters of one element, and the final values of
  // arguments.
  bool EvaluateIterations() {
    std::map<int, Numbers> state;
    for (int i = 0; i < builder_.body.arity(); ++i) {
      if (builder_.facts[i].is == ValueKind::kCounter) state[i] = builder_.facts[i].numbers;
    }
    for (;;) {
      bool goes_on = false;
      if (!Holds(state, &goes_on)) return false;
      if (!goes_on) break;
      if (++builder_.plan.iterations > kMostIterations) return false;
      std::map<int, Numbers> now = state;
      for (const Operation* operation : builder_.counter_operations) {
        if (!Count(*operation, now)) return false;
      }
      for (const auto& [value, number] : now) {
        CounterValues& counter = builder_.plan.counters[value];
        if (builder_.plan.iterations == 1) counter.dimensions = number.dimensions;
        if (counter.dimensions != number.dimensions) return false;
        if (number.values.size() == 1) counter.values.push_back(number.values[0]);
      }
      for (auto& [argument, number] : state) {
        const Numbers* next = Number(builder_.body.results[argument], now);
        if (next == nullptr) return false;
        number = *next;
      }
    }
    for (auto each = builder_.plan.counters.begin(); each != builder_.plan.counters.end();) {
      each = each->second.values.empty() ? builder_.plan.counters.erase(each) : std::next(each);
    }
    builder_.plan.final_counters = state;
    return builder_.plan.iterations > 0;
  }

 private:
  using ValueKind = ValueInfo::ValueKind;

  // Returns the value in the current iteration, whose counters are `now`, or nullptr if it is not
  // known.
  const Numbers* Number(int value, const std::map<int, Numbers>& now) const {
    if (builder_.facts[value].is == ValueKind::kNumbers) return &builder_.facts[value].numbers;
    const auto found = now.find(value);
    return found == now.end() ? nullptr : &found->second;
  }

  // Computes an op on counters in the current iteration, and adds its outputs to `now`.
  bool Count(const Operation& operation, std::map<int, Numbers>& now) const {
    if (operation.what == Do::kPopBack) {
      const auto& items = builder_.given.lists[builder_.facts[operation.inputs[0]].list]->tensors();
      if (builder_.plan.iterations > static_cast<std::int64_t>(items.size())) return false;
      now[operation.output + 1] = NumbersOf(items[items.size() - builder_.plan.iterations]);
      return true;
    }
    std::vector<const Numbers*> inputs;
    for (const int input : operation.inputs) {
      inputs.push_back(Number(input, now));
      if (inputs.back() == nullptr) return false;
    }
    std::vector<Numbers> results;
    if (!Compute(operation, inputs, &results)) return false;
    for (std::size_t i = 0; i < results.size(); ++i) now[operation.output + i] = results[i];
    return true;
  }

  // Computes the condition of the loop. Returns false if it depends on more than integers and
  // booleans.
  bool Holds(const std::map<int, Numbers>& state, bool* goes_on) const {
    const Routine& condition = builder_.loop.condition;
    std::map<int, Numbers> known;
    const auto value = [&](int number) -> const Numbers* {
      if (number < condition.arity()) return Number(number, state);
      const auto found = known.find(number);
      return found == known.end() ? nullptr : &found->second;
    };
    for (const Operation& operation : condition.operations) {
      if (operation.what == Do::kConst) {
        if (!IsNumber(operation.constant.dtype())) return false;
        known[operation.output] = NumbersOf(operation.constant);
        continue;
      }
      std::vector<const Numbers*> inputs;
      for (const int input : operation.inputs) {
        inputs.push_back(value(input));
        if (inputs.back() == nullptr) return false;
      }
      std::vector<Numbers> results;
      if (!Compute(operation, inputs, &results)) return false;
      for (std::size_t i = 0; i < results.size(); ++i) known[operation.output + i] = results[i];
    }
    const Numbers* result = value(condition.results[0]);
    if (result == nullptr || result->values.size() != 1) return false;
    *goes_on = result->values[0] != 0;
    return true;
  }

  PlanBuilder& builder_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_COUNTERS_H_
