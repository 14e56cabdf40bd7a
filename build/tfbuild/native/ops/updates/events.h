// Counters of fused/updates. docs/fused.md explains them.

#ifndef TENSORWRIGHT_OPS_UPDATES_EVENTS_H_
#define TENSORWRIGHT_OPS_UPDATES_EVENTS_H_

#include "tensorwright/graph/events.h"
#include "tensorwright/graph/verification.h"

namespace tensorwright {

inline VerifiedGroup updates_group("updates");

namespace events {

inline EventCounter updates("updates");                  // Fused updates.
inline EventCounter ops("update operations");            // Ops that fused updates replace.
inline EventCounter update_runs("update executions");    // Executions of the program.
inline EventCounter not_floating("left: not floating");  // Assignments of integers, strings, ...
inline EventCounter unknown_shape(
    "left: unknown shape");                // The variable's shape is not known in the graph.
inline EventCounter alone("left: alone");  // No other op to fuse with.
inline EventCounter interrupted("left: interrupted");    // Another op must run in between.
inline EventCounter not_selected("left: not selected");  // The library has no kernel for the type.
inline EventCounter mixed_indices("left: indices");      // Indices of both int32 and int64.
inline EventCounter no_variable("stock: no variable");   // A variable has no value.
inline EventCounter other_shapes(
    "stock: other shapes");  // Shapes or types differ from those in the graph.
inline EventCounter one_variable("stock: one variable");  // Two handles refer to one variable.
inline EventCounter out_of_range("stock: out of range");  // An index is out of range.

}  // namespace events
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_UPDATES_EVENTS_H_
