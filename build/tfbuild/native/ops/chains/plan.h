// The plan of a chain for the shapes of its inputs: what is computed, and where values are.

#ifndef TENSORWRIGHT_OPS_CHAINS_PLAN_H_
#define TENSORWRIGHT_OPS_CHAINS_PLAN_H_

#include <cstdint>
#include <vector>

#include "tensorflow/core/framework/types.pb.h"
#include "tensorwright/ops/chains/program.h"

namespace tensorwright::chains {

constexpr std::int64_t kBlockElements = 1024;      // About as many elements has a block.
constexpr std::int64_t kMaxRowElements = 8 << 10;  // The longest row that is summed.

using Dimensions = std::vector<std::int64_t>;

inline std::int64_t CountElements(const Dimensions& dimensions) {
  std::int64_t count = 1;
  for (const std::int64_t size : dimensions) count *= size;
  return count;
}

// Over what a value is computed. kFull: the elements of a chain's largest tensors. kRows: one
// element for each row of these. Both are computed block by block. kWhole: computed before the
// blocks, or an input. kTotal: a sum over rows, which is complete after the blocks. kKnown: integers
// of the plan, or zero.
enum class Domain { kFull, kRows, kWhole, kTotal, kKnown };

// Where the elements of a value are: in an input or output tensor, in a register, which has room
// for one block, or in memory for values of Domain::kWhole.
enum class Place { kNowhere, kInput, kOutput, kRegister, kMemory };

struct Value {
  Dimensions dimensions;
  tensorflow::DataType type = tensorflow::DT_FLOAT;
  std::vector<std::int64_t> integers;  // Of an integer tensor: its elements.
  int base = -1;                       // The value that has the same elements; it itself if none.
  // Of a base:
  Domain domain = Domain::kWhole;
  Place place = Place::kNowhere;
  std::int64_t slot = 0;  // The input, output or register, or the offset in memory, in bytes.
  // Of an output: the inputs whose buffers it may overwrite.
  std::vector<int> overwrites;

  std::int64_t count() const { return CountElements(dimensions); }
  std::int64_t element_bytes() const { return type == tensorflow::DT_BOOL ? 1 : 4; }
};

// How an operand is read for element `e` of the result. If it is `lone`, it has one element. If
// `inner` is 0, element e is read. Otherwise the result consists of runs of `inner` elements. The
// axes in `outer`, the last one first, give where the elements of a run begin. If the operand
// `repeats`, it has one element for each run.
struct Operand {
  struct Axis {
    std::int64_t size, step;  // Step in elements of the operand.
  };
  int value = -1;  // A base.
  bool lone = false, repeats = false;
  std::int64_t inner = 0;
  std::vector<Axis> outer;

  // Whether one element serves a whole piece.
  bool IsRepeated() const { return lone || repeats; }
};

// An operation of a program with resolved operands.
struct Action {
  enum class What { kElements, kRowSums, kRowMeans, kRowMaxima, kTotals, kTotalMeans };
  What what = What::kElements;
  Code code = Code::kCopy;
  int out = -1;  // A base.
  std::vector<Operand> operands;
  bool is_combined = false;         // Whether it computes another action, too; see combine.h.
  const RowLoops* loops = nullptr;  // Of kElements.
  float number = 0;                 // The second operand of kAddNumber.
  bool has_number = false;
  std::int64_t piece = 0;   // Elements of a call of `loop`; 0 for all.
  std::int64_t offset = 0;  // Of totals: the offset in the memory of a part, in elements.

  void FindPiece() {
    piece = 0;
    for (const Operand& operand : operands) {
      if (operand.inner > 0 && (piece == 0 || operand.inner < piece)) piece = operand.inner;
    }
  }
};

struct Plan {
  std::int64_t elements = 0;  // Elements of Domain::kFull.
  std::int64_t row = 0;       // Elements of a row; 0 if there are no rows.
  std::int64_t block = 0;     // Elements of a block; whole rows.
  std::int64_t registers = 0;
  std::int64_t copies = 0;  // The most operands that are copied for each block.
  std::int64_t memory = 0;  // Bytes for values with Place::kMemory.
  std::int64_t totals = 0;  // Elements of all totals.
  std::vector<Value> values;
  std::vector<Action> before, actions;

  std::int64_t blocks() const { return (elements + block - 1) / block; }
};

}  // namespace tensorwright::chains

#endif  // TENSORWRIGHT_OPS_CHAINS_PLAN_H_
