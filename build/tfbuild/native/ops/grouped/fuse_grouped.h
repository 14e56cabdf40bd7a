// The graph pass of fused/grouped. TensorFlow has no gradients of grouped convolutions for CPUs, so
// Keras calls a function with jit_compile=True that only convolves, and XLA's gradients are slow.
// The pass replaces such calls by one op each (grouped_op.h), before TensorFlow gives them to XLA.

#ifndef TENSORWRIGHT_OPS_GROUPED_FUSE_GROUPED_H_
#define TENSORWRIGHT_OPS_GROUPED_FUSE_GROUPED_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/public/session_options.h"
#include "tensorwright/graph/functions.h"
#include "tensorwright/graph/original.h"
#include "tensorwright/graph/placed.h"
#include "tensorwright/graph/replace.h"
#include "tensorwright/graph/switches.h"
#include "tensorwright/graph/xla.h"
#include "tensorwright/ops/grouped/call.h"
#include "tensorwright/ops/grouped/events.h"

namespace tensorwright {
namespace {

constexpr char kGrouped[] = "grouped";
constexpr char kGroupedPrefix[] = "__tensorwright_grouped_";

// Replaces the calls of one graph and of its function library.
class GroupedFuser {
 public:
  explicit GroupedFuser(const tensorflow::GraphOptimizationPassOptions& options)
      : options_(options),
        graph_(*options.graph->get()),
        library_(options.flib_def),
        in_function_(options.is_function_graph) {}

  absl::Status Run() {
    const std::set<std::string> compiled =
        CompiledFunctions(FunctionsForXla(graph_, *library_), graph_, *library_);
    absl::Status status;
    TF_RETURN_IF_ERROR(ChangeFunctions(options_, compiled, [&](tensorflow::FunctionDef* function) {
      bool changed = false;
      for (tensorflow::NodeDef& node : *function->mutable_node_def()) {
        if (!Serves(node)) continue;
        status.Update(Convert(&node));
        changed = true;
      }
      return changed;
    }));
    TF_RETURN_IF_ERROR(status);
    std::vector<tensorflow::Node*> calls;
    for (tensorflow::Node* node : graph_.op_nodes()) {
      if (Serves(node->def())) calls.push_back(node);
    }
    for (tensorflow::Node* node : calls) {
      tensorflow::NodeDef changed = node->def();
      TF_RETURN_IF_ERROR(Convert(&changed));
      tensorflow::Node* ours = graph_.AddNode(std::move(changed), &status);
      TF_RETURN_IF_ERROR(status);
      Replace(graph_, node, ours);
    }
    return absl::OkStatus();
  }

 private:
  // Whether the node calls a function for XLA that the library supports. Counts those that convolve
  // but are not supported.
  bool Serves(const tensorflow::NodeDef& node) const {
    if (node.op() != "PartitionedCall" && node.op() != "StatefulPartitionedCall") return false;
    if (node.attr().count(kOriginalAttr)) return false;
    const tensorflow::FunctionDef* function = library_->Find(node.attr().at("f").func().name());
    if (function == nullptr || !(IsCompiled(node.attr()) || IsCompiled(function->attr()))) {
      return false;
    }
    ConvolvingCall call;
    bool convolves = false;
    if (CallReader(*function, &call).Read(&convolves)) return true;
    if (convolves) events::unsupported_grouped.Add();
    return false;
  }

  // Changes a call into the fused op and adds the original call to the function library.
  absl::Status Convert(tensorflow::NodeDef* node) {
    const bool is_stateful = node->op() == "StatefulPartitionedCall";
    tensorflow::FunctionDef original = MakeOriginalFunction(
        *node, node->attr().at("Tin").list(), node->attr().at("Tout").list(), is_stateful);
    std::vector<std::string> dropped;
    for (const auto& [name, value] : node->attr()) {
      if (name != "Tin" && name != "Tout" && name != "f" && name != "_class" &&
          name != "_output_shapes") {
        dropped.push_back(name);
      }
    }
    for (const std::string& name : dropped) node->mutable_attr()->erase(name);
    events::grouped.Add();
    return ConvertToFusedOp(
        is_stateful ? "_TensorwrightStatefulGroupedCall" : "_TensorwrightGroupedCall",
        kGroupedPrefix, in_function_, std::move(original), library_, node);
  }

  const tensorflow::GraphOptimizationPassOptions& options_;
  tensorflow::Graph& graph_;
  tensorflow::FunctionLibraryDefinition* const library_;
  const bool in_function_;
};

// The pass that grouped.cc registers.
class FuseGrouped : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    // With place_pruned_graph, all signatures of a session share the stateful kernels, but each has
    // its own functions.
    const auto* session = options.session_options;
    if (options.graph == nullptr || *options.graph == nullptr || options.flib_def == nullptr ||
        (session != nullptr && session->config.graph_options().place_pruned_graph()) ||
        !HasOnlyLocalCpus(options.device_set) || AreGraphsStored() || !IsFusionEnabled(kGrouped)) {
      return absl::OkStatus();
    }
    return GroupedFuser(options).Run();
  }
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_GROUPED_FUSE_GROUPED_H_
