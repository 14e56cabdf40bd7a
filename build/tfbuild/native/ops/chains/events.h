// The counters of fused/chains.

#ifndef TENSORWRIGHT_OPS_CHAINS_EVENTS_H_
#define TENSORWRIGHT_OPS_CHAINS_EVENTS_H_

#include "tensorwright/graph/events.h"
#include "tensorwright/graph/verification.h"

namespace tensorwright {

inline VerifiedGroup chains_group("chains", kNearOne);

namespace events {

inline EventCounter chains("chains");                              // Fused ops that were inserted.
inline EventCounter chain_ops("chain operations");                 // The ops that they replace.
inline EventCounter chain_runs("chain executions");                // Executions of the fused code.
inline EventCounter interrupted_chain("left: chain interrupted");  // Another op must run between.
inline EventCounter stock_chain("stock: chain");  // Executions of the original ops.

}  // namespace events
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_CHAINS_EVENTS_H_
