// The counters of fused/grouped.

#ifndef TENSORWRIGHT_OPS_GROUPED_EVENTS_H_
#define TENSORWRIGHT_OPS_GROUPED_EVENTS_H_

#include "tensorwright/graph/events.h"

namespace tensorwright::events {

inline EventCounter grouped("grouped");                    // Calls that were replaced.
inline EventCounter grouped_runs("grouped executions");    // Executions by this library.
inline EventCounter unsupported_grouped("left: grouped");  // Calls of functions that convolve.
inline EventCounter stock_grouped("stock: grouped");       // Executions by XLA.

}  // namespace tensorwright::events

#endif  // TENSORWRIGHT_OPS_GROUPED_EVENTS_H_
