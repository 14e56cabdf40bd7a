// What was fused, how often it ran, and what was left alone and why. updates.cc exports it.

#ifndef TENSORWRIGHT_FUSED_TALLY_H_
#define TENSORWRIGHT_FUSED_TALLY_H_

#include <atomic>

namespace tensorwright {

// Each is counted per graph that TensorFlow prepares, but for those of executions.
enum class Event : int {
  kFused,         // Fused updates.
  kOps,           // Operations that they took the place of.
  kExecutions,    // Executions in one pass.
  kNotFloating,   // Assignments left alone: of integers, strings, …
  kUnknownShape,  // The shape of the variable is not known before it runs.
  kCompiled,      // XLA compiles it.
  kElsewhere,     // On no CPU of this process.
  kAlone,         // Nothing to fuse it with.
  kInterrupted,   // Another operation has to run in between.
  kNotSelected,   // The library has no kernel for the type.
  kIndices,       // Rows are scattered by indices of several types.
  kNotMade,       // TensorFlow refuses the operation or its function.
  kOperations,    // A loop has operations that the library does not compute.
  kNoVariable,    // Executions as TensorFlow has them: a variable without a value, …
  kOtherShapes,   // … shapes or types are others than foreseen, …
  kOneVariable,   // … two handles are of one variable, …
  kOutOfRange,    // … an index is out of range.
};

constexpr const char* kEventNames[] = {
    "fused",
    "ops",
    "executions",
    "left: not floating",
    "left: unknown shape",
    "left: compiled",
    "left: elsewhere",
    "left: alone",
    "left: interrupted",
    "left: not selected",
    "left: indices",
    "left: not made",
    "left: operations",
    "stock: no variable",
    "stock: other shapes",
    "stock: one variable",
    "stock: out of range",
};
constexpr int kEvents = static_cast<int>(Event::kOutOfRange) + 1;
static_assert(sizeof(kEventNames) / sizeof(kEventNames[0]) == kEvents, "each event has a name");

inline std::atomic<unsigned long long> fused_events[kEvents];

inline void Count(Event event, int times = 1) {
  fused_events[static_cast<int>(event)].fetch_add(times, std::memory_order_relaxed);
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_FUSED_TALLY_H_
