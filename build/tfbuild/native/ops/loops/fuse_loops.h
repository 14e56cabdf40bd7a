// The graph pass of fused/loops. It replaces each while loop that the library supports by one op
// (loop_op.h) with the same inputs, outputs and attributes, before TensorFlow lowers loops.

#ifndef TENSORWRIGHT_OPS_LOOPS_FUSE_LOOPS_H_
#define TENSORWRIGHT_OPS_LOOPS_FUSE_LOOPS_H_

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/graph/node_builder.h"
#include "tensorflow/core/public/session_options.h"
#include "tensorwright/graph/functions.h"
#include "tensorwright/graph/original.h"
#include "tensorwright/graph/placed.h"
#include "tensorwright/graph/replace.h"
#include "tensorwright/graph/switches.h"
#include "tensorwright/graph/xla.h"
#include "tensorwright/ops/loops/events.h"
#include "tensorwright/ops/loops/loop.h"

namespace tensorwright {
namespace {

constexpr char kLoops[] = "loops";
constexpr char kLoop[] = "_TensorwrightLoop";
constexpr char kOriginalPrefix[] = "__tensorwright_loop_";

// Whether the node is a while loop that may be fused.
bool IsWhile(const tensorflow::NodeDef& node) {
  return (node.op() == "While" || node.op() == "StatelessWhile") &&
         node.attr().count(kOriginalAttr) == 0;
}

// Returns the Python name of a traced function: `name` without the prefix and the numbers that
// tracing adds.
std::string TracedName(std::string name) {
  for (const char* prefix : {"__inference_", "__forward_", "__backward_"}) {
    if (name.rfind(prefix, 0) == 0) name.erase(0, std::string(prefix).size());
  }
  for (;;) {
    const auto end = name.find_last_not_of("0123456789");
    if (end == std::string::npos || end + 1 == name.size() || name[end] != '_') return name;
    name.erase(end);
  }
}

// Counts the functions that XLA compiles, each once per process, and logs each Python name once.
// Thread-safe.
void ReportXlaFunctions(const std::set<std::string>& functions) {
  static std::mutex mutex;
  static auto* counted = new std::set<std::string>;
  static auto* told = new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const std::string& function : functions) {
    if (!counted->insert(function).second) continue;
    events::xla_functions.Add();
    const std::string name = TracedName(function);
    if (told->insert(name).second) {
      LOG(INFO) << "tensorwright: XLA compiles " << name << ", so no tuned kernel runs in it";
    }
  }
}

// Fuses the loops of one graph and of its function library.
class LoopFuser {
 public:
  explicit LoopFuser(const tensorflow::GraphOptimizationPassOptions& options)
      : options_(options),
        graph_(*options.graph->get()),
        library_(options.flib_def),
        devices_(options.device_set),
        session_(options.session_options),
        in_function_(options.is_function_graph) {}

  absl::Status Run() {
    if (library_ == nullptr) return absl::OkStatus();
    const std::set<std::string> marked = FunctionsForXla(graph_, *library_);
    ReportXlaFunctions(FindCalledFunctions(marked, graph_, *library_));
    if (!HasOnlyLocalCpus(devices_)) return absl::OkStatus();
    const std::set<std::string> compiled = CompiledFunctions(marked, graph_, *library_);
    absl::Status fused;
    TF_RETURN_IF_ERROR(ChangeFunctions(options_, compiled, [&](tensorflow::FunctionDef* function) {
      bool changed = false;
      fused.Update(FuseInFunction(function, &changed));
      return changed;
    }));
    TF_RETURN_IF_ERROR(fused);
    std::vector<tensorflow::Node*> loops;
    for (tensorflow::Node* node : graph_.op_nodes()) {
      if (IsWhile(node->def())) loops.push_back(node);
    }
    for (tensorflow::Node* node : loops) {
      if (IsCompiled(node->attrs())) {
        events::compiled.Add();
      } else {
        TF_RETURN_IF_ERROR(FuseInGraph(node));
      }
    }
    return absl::OkStatus();
  }

 private:
  // Returns why the loop cannot be one op in this graph, whatever it computes; empty if it can.
  std::string FindObstacle(const tensorflow::NodeDef& node) const {
    // With this option, each signature of a session has its own functions, but all signatures share
    // the stateful kernels.
    if (session_ != nullptr && session_->config.graph_options().place_pruned_graph()) {
      return "its graph is placed by parts";
    }
    // An op runs on one device, so all variables that it reads must be on that device.
    const auto& types = node.attr().at("T").list().type();
    const auto variables = std::count(types.begin(), types.end(), tensorflow::DT_RESOURCE);
    if (devices_->devices().size() > 1 && variables > 1) {
      return "variables that may be on several devices";
    }
    return "";
  }

  // Whether the library supports the loop. Counts the loops that it does not support.
  bool Serves(const tensorflow::NodeDef& node) const {
    WhileLoop loop;
    std::string odd = FindObstacle(node);
    if (odd.empty()) odd = ReadLoop(tensorflow::AttrSlice(node), library_, &loop);
    if (odd.empty()) return true;
    VLOG(1) << node.name() << " is left as it is: " << odd;
    events::unsupported_loop.Add();
    return false;
  }

  // Fuses the loops in the body of a function.
  absl::Status FuseInFunction(tensorflow::FunctionDef* function, bool* changed) {
    for (tensorflow::NodeDef& node : *function->mutable_node_def()) {
      if (!IsWhile(node) || IsCompiled(node.attr()) || !Serves(node)) continue;
      TF_RETURN_IF_ERROR(ConvertToFusedLoop(node));
      *changed = true;
    }
    return absl::OkStatus();
  }

  // Fuses a loop of the graph, if it is supported.
  absl::Status FuseInGraph(tensorflow::Node* node) {
    tensorflow::NodeDef changed = node->def();
    if (!Serves(changed)) return absl::OkStatus();
    TF_RETURN_IF_ERROR(ConvertToFusedLoop(changed));
    absl::Status status;
    tensorflow::Node* loop = graph_.AddNode(std::move(changed), &status);
    TF_RETURN_IF_ERROR(status);
    Replace(graph_, node, loop);
    return absl::OkStatus();
  }

  // Changes a loop into the fused op and adds the original loop to the function library.
  absl::Status ConvertToFusedLoop(tensorflow::NodeDef& node) {
    const bool is_stateful = node.op() == "While";
    const auto& types = node.attr().at("T").list();
    TF_RETURN_IF_ERROR(ConvertToFusedOp(
        is_stateful ? kLoop : "_TensorwrightStatelessLoop", kOriginalPrefix, in_function_,
        MakeOriginalFunction(node, types, types, is_stateful), library_, &node));
    VLOG(1) << node.name() << " is one operation";
    events::loops.Add();
    return absl::OkStatus();
  }

  const tensorflow::GraphOptimizationPassOptions& options_;
  tensorflow::Graph& graph_;
  tensorflow::FunctionLibraryDefinition* const library_;
  const tensorflow::DeviceSet* const devices_;
  const tensorflow::SessionOptions* const session_;
  const bool in_function_;
};

// The pass that loops.cc registers.
class FuseLoops : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr || AreGraphsStored() ||
        !IsFusionEnabled(kLoops)) {
      return absl::OkStatus();
    }
    return LoopFuser(options).Run();
  }
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_FUSE_LOOPS_H_
