// The graph pass that fuses updates of variables. It changes only graphs that TensorFlow is about
// to execute, no saved functions.

#ifndef TENSORWRIGHT_OPS_UPDATES_FUSE_UPDATES_H_
#define TENSORWRIGHT_OPS_UPDATES_FUSE_UPDATES_H_

#include <vector>

#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorwright/graph/switches.h"
#include "tensorwright/ops/updates/emit_update.h"
#include "tensorwright/ops/updates/find_updates.h"

namespace tensorwright {
namespace {

constexpr char kSwitchName[] = "updates";

// Finds groups of nodes, then replaces each by one op. TENSORWRIGHT_FUSE can turn it off.
class FuseUpdates : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr || AreGraphsStored() ||
        !IsFusionEnabled(kSwitchName)) {
      return absl::OkStatus();
    }
    UpdateFinder finder(options);
    const std::vector<UpdateGroup> groups = finder.Find();
    for (const UpdateGroup& group : groups) TF_RETURN_IF_ERROR(EmitUpdate(options, group));
    if (!groups.empty()) FixupSourceAndSinkEdges(options.graph->get());
    return absl::OkStatus();
  }
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_UPDATES_FUSE_UPDATES_H_
