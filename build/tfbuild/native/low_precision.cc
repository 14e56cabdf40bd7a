// A graph pass that keeps TensorFlow from fusing ops of types that oneDNN does not support.
//
// A wheel may turn oneDNN on by default (planning/defaults.toml). In TensorFlow 2.14, oneDNN
// supports bfloat16 only with AVX-512, and float16 on no CPU. TensorFlow checks this for single ops
// (mkl_graph_util.h: IsMklOp) but not for fused ones: Grappler's remapper fuses, for example,
// MatMul and BiasAdd of bfloat16, and then the program aborts. With oneDNN off, as stock has it
// there, the same program runs.
//
// The remapper and oneDNN's layout pass match patterns of ops (remapper.cc, mkl_layout_pass.cc).
// This pass runs before them. After each op that begins a pattern, it inserts a barrier, an op that
// returns its input, so that no pattern matches.
//
// For float32, there are no kernels for two patterns that the remapper fuses with oneDNN on
// ("Fusion is not implemented"):
// - a convolution, FusedBatchNorm and Tanh or Sigmoid;
// - a MatMul that transposes its left matrix, BiasAdd, and Tanh, Sigmoid or Add.
// The pass inserts a barrier before the activation, and between this MatMul and an addition.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/util/util.h"
#include "tensorwright/graph/functions.h"
#include "tensorwright/graph/placed.h"
#include "tensorwright/graph/xla.h"

namespace tensorwright {
namespace {

using tensorflow::DataType;
using tensorflow::Edge;
using tensorflow::FunctionDef;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;

constexpr char kBarrier[] = "_TensorwrightBarrier";

REGISTER_OP(kBarrier)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: {bfloat16, half, float}")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

// Returns its input without a copy.
class BarrierOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    context->set_output(0, context->input(0));
  }
  bool IsExpensive() override { return false; }
};

// Does not use REGISTER_KERNEL_BUILDER, which registers only selected kernels (registration.h):
// this op must always be there.
const tensorflow::kernel_factory::OpKernelRegistrar registrar(
    tensorflow::KernelDefBuilder(kBarrier).Device(tensorflow::DEVICE_CPU).Build(), "BarrierOp",
    [](tensorflow::OpKernelConstruction* context) -> tensorflow::OpKernel* {
      return new BarrierOp(context);
    });

bool IsBatchNorm(const std::string& op) {
  return op == "FusedBatchNorm" || op == "FusedBatchNormV2" || op == "FusedBatchNormV3";
}

// Whether oneDNN supports a type on this CPU.
bool IsSupported(DataType type) {
  static const bool bfloat16 =
      tensorflow::port::TestCPUFeature(tensorflow::port::CPUFeature::AVX512F);
  return type != tensorflow::DT_HALF && (type != tensorflow::DT_BFLOAT16 || bfloat16);
}

// Whether a pattern begins with this op that TensorFlow fuses although oneDNN does not support the
// type. For float16, these are layer and instance normalisation.
bool BeginsPattern(const std::string& op, DataType type) {
  static const auto* others = new std::set<std::string>{
      "BatchMatMul",           "BatchMatMulV2", "BatchMatMulV3", "Conv2D",  "Conv3D",
      "DepthwiseConv2dNative", "MatMul",        "Pad",           "Sigmoid", "Tanh",
  };
  if (IsSupported(type)) return false;
  return IsBatchNorm(op) || op == "Rsqrt" ||
         (type == tensorflow::DT_BFLOAT16 && others->count(op) > 0);
}

// Returns the inputs of an op that may need a barrier before them: that of an activation, those of
// an addition, and the gradient that Conv2DBackpropFilter shares with BiasAddGrad, for which the
// layout pass merges the two (GetConv2DBackpropFilterOrBiasAddGrad).
std::vector<int> SeparatedInputs(const std::string& op, DataType type) {
  if (op == "Tanh" || op == "Sigmoid" || op == "BiasAdd") return {0};
  if (op == "Add" || op == "AddV2") return {0, 1};
  if (op == "Conv2DBackpropFilter" && !IsSupported(type)) return {2};
  return {};
}

// Whether Grappler may remove an op that passes on its input, so that a pattern matches across it.
bool IsPassedThrough(const std::string& op) {
  return op == "Identity" || op == "StopGradient" || op == "PreventGradient" || op == "Snapshot" ||
         op == "Reshape";
}

// Whether an input that SeparatedInputs() returns needs a barrier. `Source` is the node that
// computes a value: it has op(), attr(name) and Input(index). It is false for an argument of a function.
template <typename Source>
bool NeedsBarrier(const std::string& op, Source from) {
  if (op == "Conv2DBackpropFilter") return !from || from.op() != kBarrier;
  while (from && IsPassedThrough(from.op())) from = from.Input(0);
  if (op == "Tanh" || op == "Sigmoid") {
    // After inlining, the value of a function may be that of a normalisation.
    return !from || IsBatchNorm(from.op()) || from.CallsFunction();
  }
  if (!from || from.op() != "MatMul") return false;
  if (from.attr("transpose_a")) return true;
  Source left = from.Input(0);
  while (left && IsPassedThrough(left.op())) left = left.Input(0);
  return left && (left.op() == "Transpose" || left.op() == "ConjugateTranspose");
}

// Returns the attribute T of a node if it is float32, bfloat16 or float16, else DT_INVALID.
template <typename Attributes>
DataType TypeOf(const Attributes& attributes) {
  for (const auto& [name, value] : attributes) {
    const DataType type = value.type();
    const bool known = type == tensorflow::DT_FLOAT || type == tensorflow::DT_HALF ||
                       type == tensorflow::DT_BFLOAT16;
    if (name == "T" && known) return type;
  }
  return tensorflow::DT_INVALID;
}

// Returns the definition of a barrier.
NodeDef MakeBarrier(const std::string& name, const std::string& input, const std::string& device,
                    DataType type) {
  NodeDef definition;
  definition.set_name(name);
  definition.set_op(kBarrier);
  definition.set_device(device);
  definition.add_input(input);
  (*definition.mutable_attr())["T"].set_type(type);
  return definition;
}

// ---- Barriers in a graph ----

// Redirects `edges`, which all come from one output, through a new barrier.
absl::Status Insert(Graph& graph, const std::vector<const Edge*>& edges, DataType type) {
  if (edges.empty()) return absl::OkStatus();
  Node* from = edges[0]->src();
  const int output = edges[0]->src_output();
  absl::Status status;
  Node* barrier = graph.AddNode(
      MakeBarrier(graph.NewName(from->name() + "/barrier"),
                  from->name() + ":" + std::to_string(output), from->requested_device(), type),
      &status);
  TF_RETURN_IF_ERROR(status);
  barrier->set_assigned_device_name(from->assigned_device_name());
  graph.AddEdge(from, output, barrier, 0);
  for (const Edge* edge : edges) {
    TF_RETURN_IF_ERROR(graph.UpdateEdge(barrier, 0, edge->dst(), edge->dst_input()));
  }
  return absl::OkStatus();
}

// The node of a graph that computes a value, as NeedsBarrier() reads it.
class GraphSource {
 public:
  explicit GraphSource(const Node* node) : node_(node) {}

  explicit operator bool() const { return node_ != nullptr; }
  const std::string& op() const { return node_->type_string(); }
  bool attr(const char* name) const {
    bool value = false;
    TryGetNodeAttr(node_->attrs(), name, &value);
    return value;
  }
  bool CallsFunction() const {
    return node_->IsPartitionedCall() || node_->IsFunctionCall() || node_->IsIfNode() ||
           node_->IsWhileNode() || node_->IsCaseNode();
  }
  GraphSource Input(int index) const {
    const Edge* edge = nullptr;
    return GraphSource(node_->input_edge(index, &edge).ok() ? edge->src() : nullptr);
  }

 private:
  const Node* node_;
};

// Inserts barriers into a graph.
absl::Status InsertBarriersIntoGraph(Graph& graph) {
  std::vector<Node*> nodes;
  for (Node* node : graph.op_nodes()) nodes.push_back(node);
  for (Node* node : nodes) {
    const DataType type = TypeOf(node->attrs());
    if (type == tensorflow::DT_INVALID || IsCompiled(node->attrs()) || !IsOnLocalCpu(node))
      continue;
    if (BeginsPattern(node->type_string(), type)) {
      std::vector<const Edge*> edges;
      for (const Edge* edge : node->out_edges()) {
        if (edge->src_output() == 0 && edge->dst()->type_string() != kBarrier)
          edges.push_back(edge);
      }
      TF_RETURN_IF_ERROR(Insert(graph, edges, type));
    }
    for (const int input : SeparatedInputs(node->type_string(), type)) {
      const Edge* edge = nullptr;
      if (node->input_edge(input, &edge).ok() &&
          NeedsBarrier(node->type_string(), GraphSource(edge->src()))) {
        TF_RETURN_IF_ERROR(Insert(graph, {edge}, type));
      }
    }
  }
  return absl::OkStatus();
}

// Whether a function has barriers already.
bool IsChanged(const FunctionDef& function) {
  for (const NodeDef& node : function.node_def()) {
    if (node.op() == kBarrier) return true;
  }
  return false;
}

// ---- Barriers in functions ----

// Returns the first output of a node as other nodes of a function refer to it, `name:output:index`,
// or an empty string if the op is not known or has no output.
std::string FirstOutput(const NodeDef& node) {
  const tensorflow::OpDef* op = nullptr;
  if (!tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &op).ok()) return "";
  if (op->output_arg_size() == 0) return "";
  return node.name() + ":" + op->output_arg(0).name() + ":0";
}

// The node of a function that computes a value, as NeedsBarrier() reads it.
class FunctionSource {
 public:
  using Nodes = std::map<std::string, const NodeDef*>;

  // `output` is a node's input as functions write it: node:output:index, or an argument.
  FunctionSource(const Nodes& nodes, const std::string& output) : nodes_(&nodes) {
    const auto found = nodes.find(output.substr(0, output.find(':')));
    node_ = found == nodes.end() ? nullptr : found->second;
  }

  explicit operator bool() const { return node_ != nullptr; }
  const std::string& op() const { return node_->op(); }
  bool attr(const char* name) const {
    bool value = false;
    TryGetNodeAttr(*node_, name, &value);
    return value;
  }
  bool CallsFunction() const {
    const tensorflow::OpDef* op = nullptr;
    if (!tensorflow::OpRegistry::Global()->LookUpOpDef(node_->op(), &op).ok()) return true;
    for (const auto& [name, value] : node_->attr()) {
      if (value.has_func()) return true;
    }
    return false;
  }
  FunctionSource Input(int index) const {
    return FunctionSource(*nodes_, index < node_->input_size() ? node_->input(index) : "");
  }

 private:
  const Nodes* nodes_;
  const NodeDef* node_;
};

// Inserts barriers into a function. Returns whether it inserted any.
bool InsertBarriersIntoFunction(FunctionDef* function) {
  const FunctionDef before = *function;
  FunctionSource::Nodes nodes;
  for (const NodeDef& node : before.node_def()) nodes.emplace(node.name(), &node);
  std::map<std::string, std::string> renamed;  // Output → output of the barrier after it.
  std::set<std::string> names;
  std::vector<NodeDef> barriers;
  for (const NodeDef& node : before.node_def()) names.insert(node.name());
  const auto insert = [&](const NodeDef& node, const std::string& input, DataType type) {
    std::string name = node.name() + "/barrier";
    while (!names.insert(name).second) name += "_";
    barriers.push_back(MakeBarrier(name, input, node.device(), type));
    return name + ":output:0";
  };
  for (NodeDef& node : *function->mutable_node_def()) {
    const DataType type = TypeOf(node.attr());
    if (type == tensorflow::DT_INVALID || IsCompiled(node.attr())) continue;
    if (BeginsPattern(node.op(), type)) {
      const std::string output = FirstOutput(node);
      if (!output.empty()) renamed[output] = insert(node, output, type);
    }
    for (const int input : SeparatedInputs(node.op(), type)) {
      if (input < node.input_size() &&
          NeedsBarrier(node.op(), FunctionSource(nodes, node.input(input)))) {
        node.set_input(input, insert(node, node.input(input), type));
      }
    }
  }
  if (barriers.empty()) return false;
  const auto rename = [&](std::string* output) {
    const auto found = renamed.find(*output);
    if (found != renamed.end()) *output = found->second;
  };
  for (NodeDef& node : *function->mutable_node_def()) {
    for (std::string& input : *node.mutable_input()) rename(&input);
  }
  for (auto& [name, output] : *function->mutable_ret()) rename(&output);
  for (NodeDef& barrier : barriers) *function->add_node_def() = std::move(barrier);
  return true;
}

// ---- The pass ----

// Inserts barriers into the graph and its function library, if oneDNN is on. Leaves functions that
// XLA compiles unchanged.
class PreventUnsupportedFusion : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr || options.flib_def == nullptr ||
        !tensorflow::IsMKLEnabled()) {
      return absl::OkStatus();
    }
    Graph& graph = **options.graph;
    TF_RETURN_IF_ERROR(InsertBarriersIntoGraph(graph));
    // A function may run on a device of another process, which does not know the barrier.
    if (!HasOnlyLocalDevices(options.device_set)) return absl::OkStatus();
    const std::set<std::string> compiled =
        CompiledFunctions(FunctionsForXla(graph, *options.flib_def), graph, *options.flib_def);
    return ChangeFunctions(options, compiled, [](FunctionDef* function) {
      return !IsChanged(*function) && InsertBarriersIntoFunction(function);
    });
  }

 private:
  static bool HasOnlyLocalDevices(const tensorflow::DeviceSet* devices) {
    if (devices == nullptr) return false;
    for (const auto* device : devices->devices()) {
      if (!device->IsLocal()) return false;
    }
    return true;
  }
};

// Runs before Grappler and oneDNN's layout pass.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_PLACEMENT, 100,
                      PreventUnsupportedFusion);

}  // namespace
}  // namespace tensorwright
