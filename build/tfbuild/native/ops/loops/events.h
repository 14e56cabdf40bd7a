// The counters of fused/loops.

#ifndef TENSORWRIGHT_OPS_LOOPS_EVENTS_H_
#define TENSORWRIGHT_OPS_LOOPS_EVENTS_H_

#include "tensorwright/graph/events.h"
#include "tensorwright/graph/verification.h"

namespace tensorwright {

inline VerifiedGroup loops_group("loops", kNearOne);

namespace events {

inline EventCounter loops("loops");                  // Fused loops.
inline EventCounter loop_runs("loop executions");    // Executions of a plan.
inline EventCounter unsupported_loop("left: loop");  // The loop is not supported.
inline EventCounter stock_loop("stock: loop");       // No plan fits the inputs.
inline EventCounter xla_functions(
    "left: functions for XLA");  // Functions that XLA compiles, each counted once.

}  // namespace events
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_EVENTS_H_
