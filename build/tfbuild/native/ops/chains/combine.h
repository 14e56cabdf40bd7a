// Combines the actions of a plan, so that fewer loops go over each block: two additions,
// subtractions or multiplications, an exponential of a difference, and sums of products.

#ifndef TENSORWRIGHT_OPS_CHAINS_COMBINE_H_
#define TENSORWRIGHT_OPS_CHAINS_COMBINE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tensorwright/ops/chains/plan.h"

namespace tensorwright::chains {

// Subtracts the first operand from the second.
struct SubtractFrom {
  float operator()(float a, float b) const { return b - a; }
};

// Computes Second(First(a, b), c), and rounds after each. `lone_a` and so on: whether that operand
// is one element.
template <typename First, typename Second, bool lone_a, bool lone_b, bool lone_c>
void EachOfTwo(void* out, const void* a, const void* b, const void* c, std::int64_t count) {
  auto* to = static_cast<float*>(out);
  const auto *left = static_cast<const float*>(a), *right = static_cast<const float*>(b),
             *other = static_cast<const float*>(c);
  const float one_left = lone_a ? *left : 0.0f, one_right = lone_b ? *right : 0.0f,
              one_other = lone_c ? *other : 0.0f;
  TENSORWRIGHT_ELEMENTS
  for (std::int64_t i = 0; i < count; ++i) {
    const float first = First()(lone_a ? one_left : left[i], lone_b ? one_right : right[i]);
    to[i] = Second()(first, lone_c ? one_other : other[i]);
  }
}

template <typename First, typename Second>
constexpr RowLoops MakeLoopsOfTwo() {
  return {
      EachOfTwo<First, Second, false, false, false>, EachOfTwo<First, Second, true, false, false>,
      EachOfTwo<First, Second, false, true, false>,  EachOfTwo<First, Second, true, true, false>,
      EachOfTwo<First, Second, false, false, true>,  EachOfTwo<First, Second, true, false, true>,
      EachOfTwo<First, Second, false, true, true>,   EachOfTwo<First, Second, true, true, true>};
}

// Computes exp(a - b). `lone`: whether b is one element.
template <bool lone>
void ExpOfDifference(void* out, const void* a, const void* b, const void*, std::int64_t count) {
  using Array = Eigen::Array<float, Eigen::Dynamic, 1>;
  const auto *left = static_cast<const float*>(a), *right = static_cast<const float*>(b);
  Eigen::Map<Array> to(static_cast<float*>(out), count);
  const Eigen::Map<const Array> from(left, count);
  if constexpr (lone) {
    to = (from - *right).exp();
  } else {
    to = (from - Eigen::Map<const Array>(right, count)).exp();
  }
}

// Returns the loops of two operations; null if there are none. `from`: whether the result of the
// first is the second operand of the second.
inline const RowLoops* LoopsOfTwo(Code first, Code second, bool from) {
  using A = Add<float>;
  using S = Sub<float>;
  using M = Mul<float>;
  using F = SubtractFrom;
  enum Kind { kNone = -1, kAdds, kSubtracts, kMultiplies, kSubtractsFrom };
  static const RowLoops loops[3][4] = {{MakeLoopsOfTwo<A, A>(), MakeLoopsOfTwo<A, S>(),
                                        MakeLoopsOfTwo<A, M>(), MakeLoopsOfTwo<A, F>()},
                                       {MakeLoopsOfTwo<S, A>(), MakeLoopsOfTwo<S, S>(),
                                        MakeLoopsOfTwo<S, M>(), MakeLoopsOfTwo<S, F>()},
                                       {MakeLoopsOfTwo<M, A>(), MakeLoopsOfTwo<M, S>(),
                                        MakeLoopsOfTwo<M, M>(), MakeLoopsOfTwo<M, F>()}};
  const auto kind = [](Code code) {
    switch (code) {
      case Code::kAdd:
      case Code::kAddSame:
      case Code::kBiasAdd: return kAdds;
      case Code::kSub: return kSubtracts;
      case Code::kMul:
      case Code::kSquare: return kMultiplies;
      default: return kNone;
    }
  };
  const Kind one = kind(first);
  Kind two = second == Code::kSquare ? kNone : kind(second);
  if (one == kNone || two == kNone) return nullptr;
  if (two == kSubtracts && from) two = kSubtractsFrom;
  return &loops[one][two];
}

// Combines pairs of actions where the second is the only one that uses the result of the first.
class Combination {
 public:
  Combination(const std::vector<std::int64_t>& outputs, Plan* plan) : plan_(*plan) {
    uses_.resize(plan_.values.size());
    for (const std::int64_t output : outputs) uses_[plan_.values[output].base] += 2;
    for (const Action& action : plan_.actions) {
      for (const Operand& operand : action.operands) ++uses_[operand.value];
    }
  }

  void Make() {
    std::map<int, std::size_t> writers;
    std::vector<bool> gone(plan_.actions.size(), false);
    for (std::size_t i = 0; i < plan_.actions.size(); ++i) {
      Action& action = plan_.actions[i];
      const std::size_t operands = action.operands.size();
      for (std::size_t j = 0; j < operands; ++j) {
        const auto writer = writers.find(action.operands[j].value);
        if (writer == writers.end() || uses_[writer->first] != 1) continue;
        if (!Combine(plan_.actions[writer->second], j, &action)) continue;
        gone[writer->second] = true;
        break;
      }
      writers[action.out] = i;
    }
    std::vector<Action> actions;
    for (std::size_t i = 0; i < gone.size(); ++i) {
      if (!gone[i]) actions.push_back(std::move(plan_.actions[i]));
    }
    plan_.actions = std::move(actions);
  }

 private:
  static bool IsPlain(const Operand& operand) { return !operand.lone && operand.inner == 0; }

  // Makes `second` compute `first`, too, whose result is its operand of this index. Returns false
  // if there is no loop for both.
  bool Combine(const Action& first, std::size_t index, Action* second) const {
    if (first.what != Action::What::kElements || first.has_number || first.is_combined ||
        second->is_combined || !IsPlain(second->operands[index])) {
      return false;
    }
    std::vector<Operand> operands = first.operands;
    if (first.code == Code::kSquare) operands.push_back(operands[0]);
    if (second->what != Action::What::kElements) {
      const bool is_product = first.code == Code::kMul || first.code == Code::kSquare;
      if (!is_product || second->what == Action::What::kRowMaxima || !IsPlain(operands[0]) ||
          !IsPlain(operands[1])) {
        return false;
      }
      second->operands = std::move(operands);
      second->is_combined = true;
      return true;
    }
    if (plan_.values[first.out].domain != plan_.values[second->out].domain) return false;
    if (second->code == Code::kExp && first.code == Code::kSub && IsPlain(operands[0])) {
      static const RowLoops loops = {ExpOfDifference<false>, nullptr, ExpOfDifference<true>};
      second->loops = &loops;
    } else if (const RowLoops* loops = LoopsOfTwo(first.code, second->code, index == 1)) {
      second->loops = loops;
      operands.push_back(second->operands[1 - index]);
    } else {
      return false;
    }
    second->operands = std::move(operands);
    second->is_combined = true;
    second->FindPiece();
    return true;
  }

  Plan& plan_;
  std::vector<int> uses_;  // By base: how many operands use it; two more for each output.
};

}  // namespace tensorwright::chains

#endif  // TENSORWRIGHT_OPS_CHAINS_COMBINE_H_
