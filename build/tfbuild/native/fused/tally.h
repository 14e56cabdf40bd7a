// What was fused, how often it ran, and what was left alone and why.

#ifndef TENSORWRIGHT_FUSED_TALLY_H_
#define TENSORWRIGHT_FUSED_TALLY_H_

#include <atomic>

namespace tensorwright {

// Each is counted per graph that TensorFlow prepares, but for executions and functions.
enum class Event : int {
  kUpdates,       // Fused updates.
  kOps,           // Operations that they took the place of.
  kUpdateRuns,    // Executions of them in one pass.
  kNotFloating,   // Assignments left alone: of integers, strings, …
  kUnknownShape,  // The shape of the variable is not known before it runs.
  kCompiled,      // XLA compiles it.
  kElsewhere,     // On no CPU of this process.
  kAlone,         // Nothing to fuse it with.
  kInterrupted,   // Another operation has to run in between.
  kNotSelected,   // The library has no kernel for the type.
  kIndices,       // Rows are scattered by indices of several types.
  kNotMade,       // TensorFlow refuses the operation or its function.
  kNoVariable,    // Executions as TensorFlow has them: a variable without a value, …
  kOtherShapes,   // … shapes or types are others than foreseen, …
  kOneVariable,   // … two handles are of one variable, …
  kOutOfRange,    // … an index is out of range.
  kLoops,         // Fused loops.
  kLoopRuns,      // Executions of them.
  kLoopsOther,    // Loops with operations that the library does not compute.
  kLoopsStock,    // Executions as TensorFlow has them: what a loop got fits no plan.
  kProducts,      // Products and gradients of filters that are computed here.
  kProductRuns,   // Executions of them.
  kProductsOther,  // Those of other types, layouts and operations behind them.
  kProductsStock,  // Executions by the kernel that was there: it is as fast at these shapes.
  kProductsWider,  // Left to oneDNN, which has wider vectors on this CPU.
  kXlaFunctions,   // Functions that XLA compiles, each once in a process.
};

constexpr const char* kEventNames[] = {
    "updates",
    "update operations",
    "update executions",
    "left: not floating",
    "left: unknown shape",
    "left: compiled",
    "left: elsewhere",
    "left: alone",
    "left: interrupted",
    "left: not selected",
    "left: indices",
    "left: not made",
    "stock: no variable",
    "stock: other shapes",
    "stock: one variable",
    "stock: out of range",
    "loops",
    "loop executions",
    "left: loop",
    "stock: loop",
    "products",
    "product executions",
    "left: product",
    "stock: product",
    "left: wider vectors",
    "left: functions for XLA",
};
constexpr int kEvents = static_cast<int>(Event::kXlaFunctions) + 1;
static_assert(sizeof(kEventNames) / sizeof(kEventNames[0]) == kEvents, "each event has a name");

inline std::atomic<unsigned long long> fused_events[kEvents];

inline void Count(Event event, int times = 1) {
  fused_events[static_cast<int>(event)].fetch_add(times, std::memory_order_relaxed);
}

}  // namespace tensorwright

// Plain C, so that ctypes can read it; weak, as each unit that fuses has it.
#define TENSORWRIGHT_EXPORT extern "C" __attribute__((visibility("default"), weak))

TENSORWRIGHT_EXPORT int tensorwright_fused_events(void) { return tensorwright::kEvents; }

TENSORWRIGHT_EXPORT const char* tensorwright_fused_name(int event) {
  if (event < 0 || event >= tensorwright::kEvents) return nullptr;
  return tensorwright::kEventNames[event];
}

TENSORWRIGHT_EXPORT unsigned long long tensorwright_fused_count(int event) {
  if (event < 0 || event >= tensorwright::kEvents) return 0;
  return tensorwright::fused_events[event].load(std::memory_order_relaxed);
}

#undef TENSORWRIGHT_EXPORT

#endif  // TENSORWRIGHT_FUSED_TALLY_H_
