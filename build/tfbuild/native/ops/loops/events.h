// The counters of the group fused/loops.

#ifndef TENSORWRIGHT_OPS_LOOPS_EVENTS_H_
#define TENSORWRIGHT_OPS_LOOPS_EVENTS_H_

#include "tensorwright/graph/events.h"

namespace tensorwright::events {

inline EventCounter loops("loops");                  // Fused loops.
inline EventCounter loop_runs("loop executions");    // Executions by the fused op.
inline EventCounter unsupported_loop("left: loop");  // The loop has ops that are not supported.
inline EventCounter stock_loop("stock: loop");       // The loop's inputs fit no plan.
inline EventCounter xla_functions(
    "left: functions for XLA");  // Functions that XLA compiles, each counted once.

}  // namespace tensorwright::events

#endif  // TENSORWRIGHT_OPS_LOOPS_EVENTS_H_
