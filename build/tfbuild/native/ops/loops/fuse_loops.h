// Finds while loops that this library computes by itself, before TensorFlow takes them apart, and lets
// an operation of ours (loop_op.h) take their place: with the same inputs, outputs and attributes.

#ifndef TENSORWRIGHT_OPS_LOOPS_FUSE_LOOPS_H_
#define TENSORWRIGHT_OPS_LOOPS_FUSE_LOOPS_H_

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/graph/node_builder.h"
#include "tensorflow/core/public/session_options.h"
#include "tensorwright/graph/original.h"
#include "tensorwright/graph/replace.h"
#include "tensorwright/graph/switches.h"
#include "tensorwright/graph/xla.h"
#include "tensorwright/ops/loops/events.h"
#include "tensorwright/ops/loops/loop.h"

namespace tensorwright {
namespace {

constexpr char kLoops[] = "loops";
constexpr char kLoop[] = "_TensorwrightLoop";
constexpr char kLeft[] = "_tensorwright_left";  // An attribute of loops that are as they were.

bool IsWhile(const tensorflow::NodeDef& node) {
  return (node.op() == "While" || node.op() == "StatelessWhile") && node.attr().count(kLeft) == 0;
}

// The name of a Python function that TensorFlow traced, without what tracing adds.
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

// Counts what XLA compiles, and says of each function once why no tuned kernel runs in it.
void TellForXla(const std::set<std::string>& functions) {
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

class FusingLoops {
 public:
  explicit FusingLoops(const tensorflow::GraphOptimizationPassOptions& options)
      : graph_(*options.graph->get()),
        library_(options.flib_def),
        devices_(options.device_set),
        session_(options.session_options),
        in_function_(options.is_function_graph) {}

  absl::Status Run() {
    if (library_ == nullptr) return absl::OkStatus();
    const std::set<std::string> marked = FunctionsForXla(graph_, *library_);
    TellForXla(marked);
    if (!OnlyHere()) return absl::OkStatus();
    const std::set<std::string> compiled = CompiledFunctions(marked, graph_, *library_);
    for (const std::string& name : library_->ListFunctionNames()) {
      if (!compiled.count(name)) TF_RETURN_IF_ERROR(InFunction(name));
    }
    std::vector<tensorflow::Node*> loops;
    for (tensorflow::Node* node : graph_.op_nodes()) {
      if (IsWhile(node->def())) loops.push_back(node);
    }
    for (tensorflow::Node* node : loops) {
      if (IsCompiled(node->attrs())) {
        events::compiled.Add();
      } else {
        TF_RETURN_IF_ERROR(InGraph(node));
      }
    }
    return absl::OkStatus();
  }

 private:
  // Loops have no device yet; where there are others than CPUs, one of those may be meant.
  bool OnlyHere() const {
    if (devices_ == nullptr) return false;
    for (const auto* device : devices_->devices()) {
      if (!device->IsLocal() || device->device_type() != tensorflow::DEVICE_CPU) return false;
    }
    return true;
  }

  // Why the loop cannot be one operation here, whatever it computes.
  std::string Hindrance(const tensorflow::NodeDef& node) const {
    // Each signature of a session has functions of its own then, but stateful kernels serve all.
    if (session_ != nullptr && session_->config.graph_options().place_pruned_graph()) {
      return "its graph is placed by parts";
    }
    // One operation is on one device, as all variables that it reads have to be.
    const auto& types = node.attr().at("T").list().type();
    const auto variables = std::count(types.begin(), types.end(), tensorflow::DT_RESOURCE);
    if (devices_->devices().size() > 1 && variables > 1) {
      return "variables that may be on several devices";
    }
    return "";
  }

  // Whether the loop is one for this library. Counts what is left alone.
  bool Serves(const tensorflow::NodeDef& node) const {
    WhileLoop loop;
    std::string odd = Hindrance(node);
    if (odd.empty()) odd = ReadLoop(tensorflow::AttrSlice(node), library_, &loop);
    if (odd.empty()) return true;
    VLOG(1) << node.name() << " is left as it is: " << odd;
    events::unsupported_loop.Add();
    return false;
  }

  absl::Status InFunction(const std::string& name) {
    const tensorflow::FunctionDef* function = library_->Find(name);
    std::vector<int> loops;
    for (int i = 0; i < function->node_def_size(); ++i) {
      const tensorflow::NodeDef& node = function->node_def(i);
      if (IsWhile(node) && !IsCompiled(node.attr()) && Serves(node)) loops.push_back(i);
    }
    if (loops.empty()) return absl::OkStatus();
    tensorflow::FunctionDef changed = *function;
    for (const int i : loops) TF_RETURN_IF_ERROR(Change(*changed.mutable_node_def(i)));
    return library_->ReplaceFunction(name, changed);
  }

  absl::Status InGraph(tensorflow::Node* node) {
    tensorflow::NodeDef changed = node->def();
    if (!Serves(changed)) return absl::OkStatus();
    TF_RETURN_IF_ERROR(Change(changed));
    absl::Status status;
    tensorflow::Node* loop = graph_.AddNode(std::move(changed), &status);
    TF_RETURN_IF_ERROR(status);
    Replace(graph_, node, loop);
    return absl::OkStatus();
  }

  absl::Status Change(tensorflow::NodeDef& node) {
    const std::string original = NameOfOriginal("loop", *library_);
    TF_RETURN_IF_ERROR(library_->AddFunctionDef(OriginalOf(node, original)));
    node.set_op(node.op() == "While" ? kLoop : "_TensorwrightStatelessLoop");
    tensorflow::NameAttrList function;
    function.set_name(original);
    tensorflow::AddNodeAttr("original", function, &node);
    // Kernels without state are no session's.
    tensorflow::AddNodeAttr("in_function", in_function_ || node.op() != kLoop, &node);
    VLOG(1) << node.name() << " is one operation";
    events::loops.Add();
    return absl::OkStatus();
  }

  // The loop as it was, as a function.
  static tensorflow::FunctionDef OriginalOf(const tensorflow::NodeDef& node,
                                            const std::string& name) {
    tensorflow::FunctionDef function;
    function.mutable_signature()->set_name(name);
    function.mutable_signature()->set_is_stateful(node.op() == "While");
    tensorflow::NodeDef* loop = function.add_node_def();
    *loop = node;
    loop->set_name("loop");
    loop->clear_input();
    tensorflow::AddNodeAttr(kLeft, true, loop);
    const auto& types = node.attr().at("T").list();
    for (int i = 0; i < types.type_size(); ++i) {
      const std::string number = std::to_string(i);
      for (const bool into : {true, false}) {
        auto* argument = into ? function.mutable_signature()->add_input_arg()
                              : function.mutable_signature()->add_output_arg();
        argument->set_name((into ? "in_" : "out_") + number);
        argument->set_type(types.type(i));
      }
      loop->add_input("in_" + number);
      (*function.mutable_ret())["out_" + number] = "loop:output:" + number;
    }
    return function;
  }

  tensorflow::Graph& graph_;
  tensorflow::FunctionLibraryDefinition* const library_;
  const tensorflow::DeviceSet* const devices_;
  const tensorflow::SessionOptions* const session_;
  const bool in_function_;
};

class FuseLoops : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr || !Wanted(kLoops)) {
      return absl::OkStatus();
    }
    return FusingLoops(options).Run();
  }
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_FUSE_LOOPS_H_
