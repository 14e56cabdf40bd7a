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
// For float32, the remapper fuses a convolution, FusedBatchNorm and Tanh or Sigmoid, for which
// there is no kernel ("Fusion is not implemented"). The pass inserts a barrier between
// normalisation and activation, and does not change other float32 ops.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/util/util.h"
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

// Returns the input of an op that may need a barrier before it, or -1. This is the input of an
// activation, or the gradient that Conv2DBackpropFilter shares with BiasAddGrad, for which the
// layout pass merges the two (GetConv2DBackpropFilterOrBiasAddGrad).
int SeparatedInput(const std::string& op, DataType type) {
  if (op == "Tanh" || op == "Sigmoid") return 0;
  return op == "Conv2DBackpropFilter" && !IsSupported(type) ? 2 : -1;
}

// Whether the input that SeparatedInput() returns needs a barrier. `producer` is the op that
// computes this input.
bool NeedsBarrier(const std::string& op, const std::string& producer) {
  return op == "Conv2DBackpropFilter" ? producer != kBarrier : IsBatchNorm(producer);
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

// Inserts barriers into a graph.
absl::Status InsertBarriersIntoGraph(Graph& graph) {
  std::vector<Node*> nodes;
  for (Node* node : graph.op_nodes()) nodes.push_back(node);
  for (Node* node : nodes) {
    const DataType type = TypeOf(node->attrs());
    if (type == tensorflow::DT_INVALID || IsCompiled(node->attrs()) || !IsOnLocalCpu(node))
      continue;
    std::vector<const Edge*> edges;
    if (BeginsPattern(node->type_string(), type)) {
      for (const Edge* edge : node->out_edges()) {
        if (edge->src_output() == 0 && edge->dst()->type_string() != kBarrier)
          edges.push_back(edge);
      }
      TF_RETURN_IF_ERROR(Insert(graph, edges, type));
    }
    edges.clear();
    const int separated = SeparatedInput(node->type_string(), type);
    for (const Edge* edge : node->in_edges()) {
      if (!edge->IsControlEdge() && edge->dst_input() == separated &&
          NeedsBarrier(node->type_string(), edge->src()->type_string())) {
        edges.push_back(edge);
      }
    }
    TF_RETURN_IF_ERROR(Insert(graph, edges, type));
  }
  return absl::OkStatus();
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

// Inserts barriers into a function. Returns whether it inserted any.
bool InsertBarriersIntoFunction(FunctionDef* function) {
  std::map<std::string, std::string> renamed;  // Output → output of the barrier after it.
  std::map<std::string, std::string> ops;      // Name of a node → its op.
  std::vector<NodeDef> barriers;
  for (const NodeDef& node : function->node_def()) ops[node.name()] = node.op();
  const auto insert = [&](const NodeDef& node, const std::string& input, DataType type) {
    std::string name = node.name() + "/barrier";
    while (!ops.emplace(name, kBarrier).second) name += "_";
    barriers.push_back(MakeBarrier(name, input, node.device(), type));
    return name + ":output:0";
  };
  for (NodeDef& node : *function->mutable_node_def()) {
    const DataType type = TypeOf(node.attr());
    if (type == tensorflow::DT_INVALID || IsCompiled(node.attr())) continue;
    const std::string output = FirstOutput(node);
    if (BeginsPattern(node.op(), type) && !output.empty()) {
      renamed[output] = insert(node, output, type);
    }
    const int separated = SeparatedInput(node.op(), type);
    if (separated < 0) continue;
    const std::string input = node.input(separated);
    const auto producer = ops.find(input.substr(0, input.find(':')));
    if (NeedsBarrier(node.op(), producer == ops.end() ? "" : producer->second)) {
      node.set_input(separated, insert(node, input, type));
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

// Whether a function has barriers already.
bool IsChanged(const FunctionDef& function) {
  for (const NodeDef& node : function.node_def()) {
    if (node.op() == kBarrier) return true;
  }
  return false;
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
    const std::set<std::string> compiled =
        CompiledFunctions(FunctionsForXla(graph, *options.flib_def), graph, *options.flib_def);
    for (const std::string& name : options.flib_def->ListFunctionNames()) {
      const FunctionDef* function = options.flib_def->Find(name);
      if (compiled.count(name) || IsChanged(*function)) continue;
      FunctionDef changed = *function;
      if (InsertBarriersIntoFunction(&changed)) {
        TF_RETURN_IF_ERROR(options.flib_def->ReplaceFunction(name, changed));
      }
    }
    return absl::OkStatus();
  }
};

// Runs before Grappler and oneDNN's layout pass.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_PLACEMENT, 100,
                      PreventUnsupportedFusion);

}  // namespace
}  // namespace tensorwright
