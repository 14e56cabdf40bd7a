// Executes a plan over blocks that stay in the L1 cache, so that each tensor is read once and
// written once.

#ifndef TENSORWRIGHT_OPS_CHAINS_RUN_H_
#define TENSORWRIGHT_OPS_CHAINS_RUN_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tensorwright/compute/scratch.h"
#include "tensorwright/ops/chains/plan.h"
#include "tensorwright/simd/lanes.h"

namespace tensorwright::chains {

// The most parts of a chain with totals, and the most elements of the totals of all parts. Each part
// has totals of its own, which are added up in the end, so that the result does not depend on the
// number of threads.
constexpr std::int64_t kMaxParts = 16, kMaxTotals = 1 << 20;

// The elements of a row: those of one tensor, or products of those of two.
struct Elements {
  const float* from;
  Lanes At(std::int64_t i) const { return LoadLanes(from + i); }
  float operator[](std::int64_t i) const { return from[i]; }
  Elements From(std::int64_t i) const { return {from + i}; }
};
struct Products {
  const float *left, *right;
  Lanes At(std::int64_t i) const { return LoadLanes(left + i) * LoadLanes(right + i); }
  float operator[](std::int64_t i) const { return left[i] * right[i]; }
  Products From(std::int64_t i) const { return {left + i, right + i}; }
};

// Reduces `count` elements to four vectors of partial results, and these in pairs. `op` reduces two
// vectors or two floats.
template <typename Row, typename Op>
float ReduceRow(const Row& row, std::int64_t count, float start, const Op& op) {
  constexpr int kSums = 4;
  Lanes sums[kSums];
  std::fill_n(sums, kSums, Broadcast(start));
  std::int64_t i = 0;
  for (; i + kSums * kLanes <= count; i += kSums * kLanes) {
    for (int j = 0; j < kSums; ++j) sums[j] = op(sums[j], row.At(i + j * kLanes));
  }
  for (; i + kLanes <= count; i += kLanes) sums[0] = op(sums[0], row.At(i));
  float parts[kLanes];
  StoreLanes(parts, op(op(sums[0], sums[1]), op(sums[2], sums[3])));
  for (int part = 0; i < count; ++i, ++part) parts[part] = op(parts[part], row[i]);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int part = 0; part < width; ++part) parts[part] = op(parts[part], parts[part + width]);
  }
  return parts[0];
}

template <typename Row>
float SumRow(const Row& row, std::int64_t count) {
  return ReduceRow(row, count, 0.0f, [](auto a, auto b) { return a + b; });
}

// Returns the maximum, or NaN if an element is NaN.
inline float MaxRow(const float* from, std::int64_t count) {
  return ReduceRow(Elements{from}, count, from[0],
                   [](auto a, auto b) { return (a != a) | (a > b) ? a : b; });
}

// Adds the elements [first, first + count) of a row to `to`.
template <typename Row>
void AddTo(float* to, const Row& row, std::int64_t first, std::int64_t count) {
  TENSORWRIGHT_ELEMENTS
  for (std::int64_t i = 0; i < count; ++i) to[i] += row[first + i];
}

// One execution of a plan. `data` has the address of each base that is not in a register.
class Run {
 public:
  Run(const Plan& plan, std::vector<char*> data) : plan_(plan), data_(std::move(data)) {
    parts_ = plan.blocks();
    if (plan.totals == 0) return;
    parts_ = std::min({parts_, kMaxParts, std::max<std::int64_t>(1, kMaxTotals / plan.totals)});
    totals_.assign(parts_ * plan.totals, 0.0f);
  }

  std::int64_t parts() const { return parts_; }

  // Computes the values of Domain::kWhole. Call it before Over().
  void Begin() const {
    for (const Action& action : plan_.before) {
      const std::int64_t count = plan_.values[action.out].count(),
                         bytes = plan_.values[action.out].element_bytes(),
                         piece = action.piece == 0 ? count : action.piece;
      for (std::int64_t at = 0; at < count; at += piece) {
        const char* in[3];
        int form = action.has_number ? 2 : 0;
        for (std::size_t i = 0; i < 3; ++i) {
          in[i] = i < action.operands.size() ? AddressOf(action.operands[i], at) : in[0];
          if (i < action.operands.size() && action.operands[i].IsRepeated()) form |= 1 << i;
        }
        if (action.has_number) in[1] = reinterpret_cast<const char*>(&action.number);
        (*action.loops)[form](data_[action.out] + at * bytes, in[0], in[1], in[2],
                              std::min(piece, count - at));
      }
    }
  }

  // Computes the parts [first, last). Parts are independent, so threads may compute disjoint ranges
  // at the same time.
  void Over(std::int64_t first, std::int64_t last) {
    const std::vector<Call> calls = MakeCalls();
    for (std::int64_t part = first; part < last; ++part) {
      const std::int64_t begin = part * plan_.blocks() / parts_,
                         end = (part + 1) * plan_.blocks() / parts_;
      for (std::int64_t block = begin; block < end; ++block) DoBlock(calls, block, part);
    }
  }

  // Adds up the totals of all parts. Call it after Over().
  void Finish() const {
    for (const Action& action : plan_.actions) {
      if (plan_.values[action.out].domain != Domain::kTotal) continue;
      const std::int64_t count = plan_.values[action.out].count();
      auto* out = reinterpret_cast<float*>(data_[action.out]);
      std::fill_n(out, count, 0.0f);
      for (std::int64_t part = 0; part < parts_; ++part) {
        AddTo(out, Elements{&totals_[part * plan_.totals + action.offset]}, 0, count);
      }
      if (action.what != Action::What::kTotalMeans) continue;
      const auto rows = static_cast<float>(plan_.elements / count);
      for (std::int64_t i = 0; i < count; ++i) out[i] /= rows;
    }
  }

 private:
  // An action with the addresses of its operands. In block b they move by b * block_step bytes, from
  // one piece to the next by piece_step.
  struct Call {
    struct At {
      char* data = nullptr;
      std::int64_t block_step = 0, piece_step = 0;
      // An operand of which each piece finds its part by AddressOf() or, if `copied`, each block by
      // Copy().
      const Operand* found = nullptr;
      bool copied = false;
      char* In(std::int64_t block) const { return data + block * block_step; }
    };
    const Action* action;
    At out, in[3];
    RowLoop loop = nullptr;
    std::int64_t count = 0;  // Elements of the result in a block.
    std::int64_t piece = 0;  // Elements of a piece; `count` if there is one.
  };

  // Resolves the addresses of all actions. The scratch memory of the calling thread has the
  // registers, copies of operands, and the totals of a block.
  std::vector<Call> MakeCalls() const {
    const std::int64_t row = std::max<std::int64_t>(plan_.row, 1);
    float* scratch = GetScratch((plan_.registers + plan_.copies + 1) * RegisterSize());
    float* copies = scratch + (plan_.registers + 1) * RegisterSize();
    std::vector<Call> calls;
    calls.reserve(plan_.actions.size());
    for (const Action& action : plan_.actions) {
      Call call = {&action};
      call.count =
          plan_.values[action.out].domain == Domain::kRows ? plan_.block / row : plan_.block;
      call.piece = action.piece == 0 || call.count % action.piece != 0 ? call.count : action.piece;
      call.out = AddressIn(action.out, scratch);
      int form = action.has_number ? 2 : 0;
      for (std::size_t i = 0; i < action.operands.size(); ++i) {
        call.in[i] = AddressIn(action.operands[i].value, scratch);
        const Operand& operand = action.operands[i];
        if (!SetSteps(operand, call, &call.in[i])) {
          call.in[i] = {reinterpret_cast<char*>(copies), 0,
                        call.piece * plan_.values[operand.value].element_bytes(), &operand,
                        operand.inner % call.piece != 0};
          if (call.in[i].copied) copies += RegisterSize();
        }
        if (operand.IsRepeated() && !call.in[i].copied) form |= 1 << i;
      }
      if (action.loops != nullptr) call.loop = (*action.loops)[form];
      for (std::size_t i = std::max<std::size_t>(action.operands.size(), 1); i < 3; ++i) {
        call.in[i].data = call.in[0].data;
      }
      if (action.has_number) {
        call.in[1].data = const_cast<char*>(reinterpret_cast<const char*>(&action.number));
      }
      calls.push_back(call);
    }
    return calls;
  }

  // Returns the elements of a register: a block, in whole cache lines.
  std::int64_t RegisterSize() const { return (plan_.block + 15) / 16 * 16; }

  // Sets the steps of an operand. Returns false if its parts for the pieces of a block are not
  // equally far apart.
  bool SetSteps(const Operand& operand, const Call& call, Call::At* at) const {
    const std::int64_t bytes = plan_.values[operand.value].element_bytes();
    if (operand.lone) {
      at->block_step = 0;
    } else if (operand.inner == 0) {
      at->piece_step = call.piece * bytes;
    } else if (operand.outer.size() > 1 || operand.inner != call.piece) {
      return false;
    } else {
      if (!operand.outer.empty()) at->piece_step = operand.outer[0].step * bytes;
      if (plan_.values[operand.value].place != Place::kRegister) {
        at->block_step = call.count / call.piece * at->piece_step;
      }
    }
    return true;
  }

  // Returns the address of element 0 of a base in block 0.
  Call::At AddressIn(int number, float* scratch) const {
    const Value& value = plan_.values[number];
    if (value.place == Place::kRegister) {
      return {reinterpret_cast<char*>(scratch + value.slot * RegisterSize()), 0, 0};
    }
    if (value.domain == Domain::kTotal) {  // The totals of a block.
      return {reinterpret_cast<char*>(scratch + plan_.registers * RegisterSize()), 0, 0};
    }
    std::int64_t count = plan_.block;
    if (value.count() != plan_.elements) count /= std::max<std::int64_t>(plan_.row, 1);
    return {data_[number], count * value.element_bytes(), 0};
  }

  void DoBlock(const std::vector<Call>& calls, std::int64_t block, std::int64_t part) {
    const std::int64_t first = block * plan_.block;
    const bool is_whole = first + plan_.block <= plan_.elements;
    for (const Call& call : calls) {
      std::int64_t count = call.count;
      if (!is_whole) count = count * (plan_.elements - first) / plan_.block;
      switch (call.action->what) {
        case Action::What::kElements: Apply(call, block, count); break;
        case Action::What::kTotals:
        case Action::What::kTotalMeans: AddTotal(call, block, count, part); break;
        default: ReduceRows(call, block, count);
      }
    }
  }

  // Computes the first `count` elements of an elementwise action in a block.
  void Apply(const Call& call, std::int64_t block, std::int64_t count) const {
    const char* in[3];
    bool finds = false;
    for (int i = 0; i < 3; ++i) {
      const Call::At& at = call.in[i];
      in[i] = at.In(block);
      finds = finds || (at.found != nullptr && !at.copied);
      if (at.copied) Copy(at, block * call.count, count);
    }
    char* out = call.out.In(block);
    const std::int64_t step = call.piece * plan_.values[call.action->out].element_bytes();
    for (std::int64_t at = 0; at < count; at += call.piece, out += step) {
      for (int i = 0; finds && i < 3; ++i) {
        if (call.in[i].found == nullptr || call.in[i].copied) continue;
        in[i] = AddressOf(*call.in[i].found, block * call.count + at);
      }
      call.loop(out, in[0], in[1], in[2], std::min(call.piece, count - at));
      for (int i = 0; i < 3; ++i) in[i] += call.in[i].piece_step;
    }
  }

  // Copies what elements [first, first + count) of a result need of an operand.
  void Copy(const Call::At& to, std::int64_t first, std::int64_t count) const {
    const Operand& operand = *to.found;
    const std::int64_t bytes = plan_.values[operand.value].element_bytes();
    const RowLoop copy = (*Copies(bytes == 1))[operand.repeats ? 1 : 0];
    for (std::int64_t at = first; at < first + count;) {
      const std::int64_t length = std::min(operand.inner - at % operand.inner, first + count - at);
      const char* from = AddressOf(operand, at);
      copy(to.data + (at - first) * bytes, from, from, from, length);
      at += length;
    }
  }

  // Returns the address of the element of an operand that element `at` of the result needs.
  const char* AddressOf(const Operand& operand, std::int64_t at) const {
    const char* base = data_[operand.value];
    if (operand.lone) return base;
    const std::int64_t bytes = plan_.values[operand.value].element_bytes();
    if (operand.inner == 0) return base + at * bytes;
    std::int64_t run = at / operand.inner, element = operand.repeats ? 0 : at % operand.inner;
    for (const Operand::Axis& axis : operand.outer) {
      element += run % axis.size * axis.step;
      run /= axis.size;
    }
    return base + element * bytes;
  }

  // Calls take(row) with the elements that a sum adds up in a block.
  template <typename Take>
  static void WithRow(const Call& call, std::int64_t block, const Take& take) {
    const auto* from = reinterpret_cast<const float*>(call.in[0].In(block));
    if (call.action->operands.size() == 1) return take(Elements{from});
    take(Products{from, reinterpret_cast<const float*>(call.in[1].In(block))});
  }

  // Sums each of `count` rows, or finds its mean or maximum.
  void ReduceRows(const Call& call, std::int64_t block, std::int64_t count) const {
    auto* out = reinterpret_cast<float*>(call.out.In(block));
    if (call.action->what == Action::What::kRowMaxima) {
      const auto* from = reinterpret_cast<const float*>(call.in[0].In(block));
      for (std::int64_t i = 0; i < count; ++i) out[i] = MaxRow(from + i * plan_.row, plan_.row);
      return;
    }
    const bool is_mean = call.action->what == Action::What::kRowMeans;
    WithRow(call, block, [&](auto row) {
      for (std::int64_t i = 0; i < count; ++i) {
        const float sum = SumRow(row.From(i * plan_.row), plan_.row);
        out[i] = is_mean ? sum / static_cast<float>(plan_.row) : sum;
      }
    });
  }

  // Adds `count` elements to the totals of a part. Rows of a block are added up first if there are
  // several, because a long sum of many small terms would lose precision.
  void AddTotal(const Call& call, std::int64_t block, std::int64_t count, std::int64_t part) {
    const std::int64_t columns = plan_.values[call.action->out].count();
    float* totals = &totals_[part * plan_.totals + call.action->offset];
    WithRow(call, block, [&](auto row) {
      if (columns == 1) {
        *totals += SumRow(row, count);
        return;
      }
      const bool several = 4 * columns <= count;
      float* to = several ? reinterpret_cast<float*>(call.out.data) : totals;
      if (several) std::fill_n(to, columns, 0.0f);
      std::int64_t column = block * plan_.block % columns;
      for (std::int64_t at = 0; at < count;) {
        const std::int64_t length = std::min(columns - column, count - at);
        AddTo(to + column, row, at, length);
        at += length;
        column = 0;
      }
      if (several) AddTo(totals, Elements{to}, 0, columns);
    });
  }

  const Plan& plan_;
  const std::vector<char*> data_;  // By value.
  std::int64_t parts_;
  std::vector<float> totals_;  // By part.
};

}  // namespace tensorwright::chains

#endif  // TENSORWRIGHT_OPS_CHAINS_RUN_H_
