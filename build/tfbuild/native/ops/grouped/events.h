// The counters of fused/grouped.

#ifndef TENSORWRIGHT_OPS_GROUPED_EVENTS_H_
#define TENSORWRIGHT_OPS_GROUPED_EVENTS_H_

#include "tensorwright/graph/events.h"
#include "tensorwright/graph/verification.h"

namespace tensorwright {

inline VerifiedGroup grouped_group("grouped");

namespace events {

inline EventCounter grouped("grouped");                    // Calls that were replaced.
inline EventCounter grouped_runs("grouped executions");    // Executions by this library.
inline EventCounter unsupported_grouped("left: grouped");  // Calls of functions that convolve.
inline EventCounter stock_grouped("stock: grouped");       // Executions by XLA.

// Depthwise convolutions and gradients that were replaced. `grouped executions` counts the
// executions by this library.
inline EventCounter depthwise("depthwise");
inline EventCounter unsupported_depthwise(
    "left: depthwise");  // An attribute, such as type or layout, is not supported.
inline EventCounter stock_depthwise(
    "stock: depthwise");  // Executions by the stock kernel, because of the shapes.

}  // namespace events
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_GROUPED_EVENTS_H_
