// The graph pass of fused/chains. It replaces each chain by one _TensorwrightChain op. It changes
// only graphs that TensorFlow is about to execute, no saved functions.

#ifndef TENSORWRIGHT_OPS_CHAINS_FUSE_CHAINS_H_
#define TENSORWRIGHT_OPS_CHAINS_FUSE_CHAINS_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/graph_to_functiondef.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/graph/node_builder.h"
#include "tensorwright/graph/original.h"
#include "tensorwright/graph/paths.h"
#include "tensorwright/graph/switches.h"
#include "tensorwright/ops/chains/events.h"
#include "tensorwright/ops/chains/find_chains.h"
#include "tensorwright/ops/chains/translate.h"

namespace tensorwright::chains {
namespace {

using tensorflow::NodeBuilder;

constexpr char kSwitch[] = "chains";
constexpr char kChain[] = "_TensorwrightChain";

// Adds the nodes to the library as a function with the inputs and outputs of the fused op.
absl::Status AddOriginalFunction(const std::vector<Node*>& nodes, const Translation& translation,
                                 const std::string& name,
                                 tensorflow::FunctionLibraryDefinition* library) {
  tensorflow::Graph graph(library);
  std::map<Port, Port> values;
  int index = 0;
  for (const Port& port : translation.inputs()) {
    Node* argument = nullptr;
    TF_RETURN_IF_ERROR(NodeBuilder("tensorwright_input_" + std::to_string(index), "_Arg")
                           .Attr("T", port.first->output_type(port.second))
                           .Attr("index", index)
                           .Finalize(&graph, &argument));
    values[port] = {argument, 0};
    ++index;
  }
  for (Node* node : nodes) {
    NodeDef definition = node->def();
    definition.clear_input();
    definition.clear_device();
    definition.mutable_attr()->erase("_class");
    tensorflow::AddNodeAttr(kOriginalAttr, true, &definition);
    absl::Status status;
    Node* copy = graph.AddNode(std::move(definition), &status);
    TF_RETURN_IF_ERROR(status);
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Edge* edge = InputEdge(node, i);
      const auto& [from, output] = values.at({edge->src(), edge->src_output()});
      graph.AddEdge(from, output, copy, i);
    }
    for (int i = 0; i < node->num_outputs(); ++i) values[{node, i}] = {copy, i};
  }
  index = 0;
  for (const Port& port : translation.outputs()) {
    const auto& [from, output] = values.at(port);
    Node* result = nullptr;
    TF_RETURN_IF_ERROR(NodeBuilder("tensorwright_output_" + std::to_string(index), "_Retval")
                           .Input(from, output)
                           .Attr("index", index)
                           .Finalize(&graph, &result));
    ++index;
  }
  FixupSourceAndSinkEdges(&graph);
  tensorflow::FunctionDef definition;
  TF_RETURN_IF_ERROR(GraphToFunctionDef(graph, name, &definition));
  return library->AddFunctionDef(definition);
}

// Replaces the nodes of a chain by one op, or leaves the graph unchanged and counts the reason.
absl::Status EmitChain(const tensorflow::GraphOptimizationPassOptions& options,
                       const std::vector<Node*>& nodes) {
  tensorflow::Graph& graph = *options.graph->get();
  // Other chains of this graph have become ops since it was found.
  if (IsInterrupted(nodes)) {
    events::interrupted_chain.Add();
    return absl::OkStatus();
  }
  const Translation translation(nodes);
  const std::string original = MakeOriginalName("__tensorwright_chain_", *options.flib_def);
  std::vector<NodeBuilder::NodeOut> inputs;
  for (const auto& [node, output] : translation.inputs()) inputs.emplace_back(node, output);
  std::vector<DataType> types;
  for (const auto& [node, output] : translation.outputs()) {
    types.push_back(node->output_type(output));
  }
  const std::set<const Node*> inside(nodes.begin(), nodes.end());
  std::set<Node*, tensorflow::NodeComparatorName> before, after;
  for (const Node* node : nodes) {
    for (const Edge* edge : node->in_edges()) {
      Node* from = edge->src();
      if (edge->IsControlEdge() && !from->IsSource() && !inside.count(from)) before.insert(from);
    }
    for (const Edge* edge : node->out_edges()) {
      Node* to = edge->dst();
      if (edge->IsControlEdge() && !to->IsSink() && !inside.count(to)) after.insert(to);
    }
  }
  if (translation.outputs().empty() && after.empty()) {  // Other chains compute its values again.
    for (Node* node : nodes) graph.RemoveNode(node);
    return absl::OkStatus();
  }
  Node* last = nodes.back();
  tensorflow::NameAttrList function;
  function.set_name(original);
  Node* fused = nullptr;
  const absl::Status made =
      AddOriginalFunction(nodes, translation, original, options.flib_def).ok()
          ? NodeBuilder(graph.NewName(last->name() + "/tensorwright_chain"), kChain,
                        options.flib_def)
                .Input(inputs)
                .ControlInputs(std::vector<Node*>(before.begin(), before.end()))
                .Attr("Tout", types)
                .Attr("program", translation.program())
                .Attr("outputs", translation.output_values())
                .Attr("original", function)
                .Attr("in_function", true)
                .Attr("_scoped_allocator", std::vector<int>())
                .Device(last->requested_device())
                .AssignedDevice(last->assigned_device_name())
                .Finalize(&graph, &fused)
          : tensorflow::errors::Internal("no function");
  if (!made.ok()) {
    VLOG(1) << last->name() << " is left as it is: " << made;
    events::rejected.Add();
    return absl::OkStatus();
  }
  for (std::size_t i = 0; i < translation.outputs().size(); ++i) {
    const auto& [node, output] = translation.outputs()[i];
    const std::vector<const Edge*> edges(node->out_edges().begin(), node->out_edges().end());
    for (const Edge* edge : edges) {
      if (edge->src_output() != output || inside.count(edge->dst())) continue;
      Node* to = edge->dst();
      const int input = edge->dst_input();
      graph.RemoveEdge(edge);
      graph.AddEdge(fused, static_cast<int>(i), to, input);
    }
  }
  for (Node* to : after) graph.AddControlEdge(fused, to);
  for (Node* node : nodes) graph.RemoveNode(node);
  events::chains.Add();
  events::chain_ops.Add(static_cast<int>(nodes.size()));
  return absl::OkStatus();
}

class FuseChains : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr || AreGraphsStored() ||
        !IsFusionEnabled(kSwitch)) {
      return absl::OkStatus();
    }
    const std::vector<std::vector<Node*>> chains = ChainFinder(options).Find();
    for (const auto& nodes : chains) TF_RETURN_IF_ERROR(EmitChain(options, nodes));
    if (!chains.empty()) FixupSourceAndSinkEdges(options.graph->get());
    return absl::OkStatus();
  }
};

}  // namespace
}  // namespace tensorwright::chains

#endif  // TENSORWRIGHT_OPS_CHAINS_FUSE_CHAINS_H_
