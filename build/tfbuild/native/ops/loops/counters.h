// Numbers that change from iteration to iteration, followed before the loop runs: so it is known how
// often it does.

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

class Counters {
 public:
  explicit Counters(Draft& draft) : draft_(draft) {}

  bool Add(const Operation& operation, bool counts) {
    if (counts) {
      draft_.counting.push_back(&operation);
      for (int i = 0; i < operation.outputs; ++i) draft_.Out(operation, i).is = Is::kCounter;
      return true;
    }
    std::vector<const Numbers*> inputs;
    for (const int input : operation.inputs) inputs.push_back(&draft_.facts[input].numbers);
    std::vector<Numbers> results;
    if (operation.what == Do::kZerosLike) {
      results.push_back(*inputs[0]);
      std::fill(results[0].values.begin(), results[0].values.end(), 0);
    } else if (operation.what == Do::kReshape) {
      results.push_back({inputs[1]->values, inputs[0]->values});
      if (!Fits(results[0].dimensions, inputs[0]->values.size())) return false;
    } else if (!Compute(operation, inputs, &results)) {
      return false;
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      draft_.Out(operation, i).is = Is::kNumbers;
      draft_.Out(operation, i).numbers = std::move(results[i]);
    }
    return true;
  }

  // Follows the numbers through all iterations.
  bool Follow() {
    std::map<int, Numbers> state;
    for (int i = 0; i < draft_.body.arity(); ++i) {
      if (draft_.facts[i].is == Is::kCounter) state[i] = draft_.facts[i].numbers;
    }
    for (;;) {
      bool goes_on = false;
      if (!Holds(state, &goes_on)) return false;
      if (!goes_on) break;
      if (++draft_.plan.iterations > kMostIterations) return false;
      std::map<int, Numbers> now = state;
      for (const Operation* operation : draft_.counting) {
        if (!Count(*operation, now)) return false;
      }
      for (const auto& [value, number] : now) {
        Followed& counter = draft_.plan.counters[value];
        if (draft_.plan.iterations == 1) counter.dimensions = number.dimensions;
        if (counter.dimensions != number.dimensions) return false;
        if (number.values.size() == 1) counter.values.push_back(number.values[0]);
      }
      for (auto& [argument, number] : state) {
        const Numbers* next = Number(draft_.body.results[argument], now);
        if (next == nullptr) return false;
        number = *next;
      }
    }
    for (auto each = draft_.plan.counters.begin(); each != draft_.plan.counters.end();) {
      each = each->second.values.empty() ? draft_.plan.counters.erase(each) : std::next(each);
    }
    draft_.plan.finals = state;
    return draft_.plan.iterations > 0;
  }

 private:
  using Is = Fact::Is;

  const Numbers* Number(int value, const std::map<int, Numbers>& now) const {
    if (draft_.facts[value].is == Is::kNumbers) return &draft_.facts[value].numbers;
    const auto found = now.find(value);
    return found == now.end() ? nullptr : &found->second;
  }

  bool Count(const Operation& operation, std::map<int, Numbers>& now) const {
    if (operation.what == Do::kPopBack) {
      const auto& items = draft_.given.lists[draft_.facts[operation.inputs[0]].list]->tensors();
      if (draft_.plan.iterations > static_cast<std::int64_t>(items.size())) return false;
      now[operation.output + 1] = NumbersOf(items[items.size() - draft_.plan.iterations]);
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

  // Whether the loop goes on. False if its condition depends on more than numbers.
  bool Holds(const std::map<int, Numbers>& state, bool* goes_on) const {
    const Routine& condition = draft_.loop.condition;
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

  Draft& draft_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_COUNTERS_H_
