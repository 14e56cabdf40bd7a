// Replaces the nodes of an update by one _TensorwrightUpdate op (update_op.h).

#ifndef TENSORWRIGHT_OPS_UPDATES_EMIT_UPDATE_H_
#define TENSORWRIGHT_OPS_UPDATES_EMIT_UPDATE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/graph_to_functiondef.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/graph/node_builder.h"
#include "tensorwright/graph/original.h"
#include "tensorwright/ops/updates/events.h"
#include "tensorwright/ops/updates/find_updates.h"
#include "tensorwright/ops/updates/nodes.h"
#include "tensorwright/ops/updates/plan_update.h"

namespace tensorwright {
namespace {

using tensorflow::NodeBuilder;

constexpr char kUpdate[] = "_TensorwrightUpdate";

// Adds a constant with the number of segments of an UnsortedSegmentSum: the variable's `rows`.
absl::Status AddSegmentCount(const Node* node, std::int64_t rows, Graph* graph, Node** segments) {
  tensorflow::Tensor value(node->input_type(2), tensorflow::TensorShape());
  if (value.dtype() == tensorflow::DT_INT64) {
    value.scalar<std::int64_t>()() = rows;
  } else {
    value.scalar<std::int32_t>()() = static_cast<std::int32_t>(rows);
  }
  return NodeBuilder(node->name() + "/tensorwright_segments", "Const")
      .Attr("dtype", value.dtype())
      .Attr("value", value)
      .Finalize(graph, segments);
}

// Adds the original nodes to the library as a function, which the fused op runs if it cannot run
// the program. The arguments are the handles, tensors and indices, in this order. The variables
// have `rows` rows.
absl::Status AddOriginalFunction(const UpdatePlan& plan, std::int64_t rows, const std::string& name,
                                 tensorflow::FunctionLibraryDefinition* library) {
  Graph graph(library);
  std::vector<Node*> handles;
  std::map<Port, Node*> arguments;
  std::map<const Node*, Node*> copies;
  int number = 0;
  for (const auto* ports : {&plan.handles(), &plan.tensors(), &plan.indices()}) {
    for (const Port& port : *ports) {
      Node* argument = nullptr;
      TF_RETURN_IF_ERROR(NodeBuilder("tensorwright_input_" + std::to_string(number), "_Arg")
                             .Attr("T", port.first->output_type(port.second))
                             .Attr("index", number)
                             .Finalize(&graph, &argument));
      if (ports == &plan.handles()) handles.push_back(argument);
      arguments.emplace(port, argument);
      ++number;
    }
  }
  for (const Node* node : plan.sequence()) {
    NodeDef definition = node->def();
    definition.clear_input();
    definition.clear_device();
    definition.mutable_attr()->erase("_class");
    absl::Status status;
    copies[node] = graph.AddNode(std::move(definition), &status);
    TF_RETURN_IF_ERROR(status);
  }
  for (const Node* node : plan.sequence()) {
    for (const Edge* edge : node->in_edges()) {
      const auto from = copies.find(edge->src());
      if (edge->IsControlEdge()) {
        if (from != copies.end()) graph.AddControlEdge(from->second, copies[node]);
      } else if (edge->dst_input() == 0 && (IsRead(node) || IsAssign(node))) {
        graph.AddEdge(handles[plan.VariableOf(node)], 0, copies[node], 0);
      } else if (from != copies.end()) {
        graph.AddEdge(from->second, edge->src_output(), copies[node], edge->dst_input());
      } else if (IsSegmentSum(node) && edge->dst_input() == 2) {
        Node* segments = nullptr;
        TF_RETURN_IF_ERROR(AddSegmentCount(node, rows, &graph, &segments));
        graph.AddEdge(segments, 0, copies[node], 2);
      } else {
        graph.AddEdge(arguments.at({edge->src(), edge->src_output()}), 0, copies[node],
                      edge->dst_input());
      }
    }
  }
  FixupSourceAndSinkEdges(&graph);
  tensorflow::FunctionDef definition;
  TF_RETURN_IF_ERROR(GraphToFunctionDef(
      graph, name,
      [](const Node* node) {
        return IsAssign(node) ? absl::make_optional(node->name()) : absl::nullopt;
      },
      &definition));
  definition.mutable_signature()->set_is_stateful(true);
  return library->AddFunctionDef(definition);
}

// Whether the library has a kernel for these types. A selection may exclude types.
bool IsRegistered(DataType type, DataType index) {
  NodeDef node;
  node.set_op(kUpdate);
  tensorflow::AddNodeAttr("T", type, &node);
  tensorflow::AddNodeAttr("Tidx", index, &node);
  return tensorflow::KernelDefAvailable(tensorflow::DeviceType(tensorflow::DEVICE_CPU), node);
}

// Replaces the nodes of a group by one op, or counts the reason and leaves the graph unchanged.
absl::Status EmitUpdate(const tensorflow::GraphOptimizationPassOptions& options,
                        const UpdateGroup& group) {
  Graph& graph = *options.graph->get();
  tensorflow::FunctionLibraryDefinition* library = options.flib_def;
  const UpdatePlan plan(group.nodes);
  if (plan.assigned() == 0) return absl::OkStatus();
  if (plan.assigned() + plan.computed() < 2) {
    events::alone.Add(plan.assigned());
    return absl::OkStatus();
  }
  std::set<DataType> index_types;
  for (const Port& port : plan.indices()) {
    index_types.insert(port.first->output_type(port.second));
  }
  if (index_types.size() > 1) {
    events::mixed_indices.Add(plan.assigned());
    return absl::OkStatus();
  }
  if (IsInterrupted(group.nodes)) {
    events::interrupted.Add(plan.assigned());
    return absl::OkStatus();
  }
  const DataType index = index_types.empty() ? tensorflow::DT_INT32 : *index_types.begin();
  if (!IsRegistered(group.type, index)) {
    events::not_selected.Add(plan.assigned());
    return absl::OkStatus();
  }
  const std::vector<Node*>& sequence = plan.sequence();
  Node* last = sequence.back();
  const std::string original = MakeOriginalName("__tensorwright_update_", *library);
  // The name must be unique: a session caches kernels of stateful ops by name for all its graphs.
  const std::string name = graph.NewName(last->name() + "/" + original);
  const PartialTensorShape shape =
      VariableShape(*std::find_if(sequence.begin(), sequence.end(), IsAssign));
  const std::int64_t rows = shape.dims() > 0 ? shape.dim_size(0) : 1;
  const auto reject = [&] {
    events::rejected.Add(plan.assigned());
    return absl::OkStatus();
  };
  if (!AddOriginalFunction(plan, rows, original, library).ok()) return reject();

  auto outputs = [](const std::vector<Port>& ports) {
    std::vector<NodeBuilder::NodeOut> out;
    for (const auto& [node, port] : ports) out.emplace_back(node, port);
    return out;
  };
  const std::unordered_set<const Node*> inside(sequence.begin(), sequence.end());
  std::set<Node*, tensorflow::NodeComparatorName> before;
  for (const Node* node : sequence) {
    for (const Edge* edge : node->in_edges()) {
      Node* from = edge->src();
      if (edge->IsControlEdge() && !from->IsSource() && !inside.count(from)) before.insert(from);
    }
  }
  tensorflow::NameAttrList function;
  function.set_name(original);
  Node* fused = nullptr;
  const absl::Status made = NodeBuilder(name, kUpdate, library)
                                .Input(outputs(plan.handles()))
                                .Input(outputs(plan.tensors()))
                                .Input(outputs(plan.indices()))
                                .ControlInputs(std::vector<Node*>(before.begin(), before.end()))
                                .Attr("T", group.type)
                                .Attr("Tidx", index)
                                .Attr("program", plan.program())
                                .Attr("original", function)
                                .Attr("in_function", options.is_function_graph)
                                .Device(last->requested_device())
                                .AssignedDevice(last->assigned_device_name())
                                .Finalize(&graph, &fused);
  if (!made.ok()) return reject();

  // Other code may refer to a node with side effects by its name, and other nodes may wait for any
  // node through a control edge. A NoOp takes over the name and these edges.
  for (Node* node : sequence) {
    std::vector<Node*> after;
    for (const Edge* edge : node->out_edges()) {
      Node* to = edge->dst();
      if (edge->IsControlEdge() && !to->IsSink() && !inside.count(to)) after.push_back(to);
    }
    const bool stays = IsRead(node) || IsAssign(node) || !after.empty();
    NodeDef done;
    done.set_name(node->name());
    done.set_op("NoOp");
    done.set_device(node->requested_device());
    const std::string device = node->assigned_device_name();
    graph.RemoveNode(node);
    if (!stays) continue;
    absl::Status status;
    Node* nothing = graph.AddNode(std::move(done), &status);
    TF_RETURN_IF_ERROR(status);
    nothing->set_assigned_device_name(device);
    graph.AddControlEdge(fused, nothing);
    for (Node* to : after) graph.AddControlEdge(nothing, to);
  }
  events::updates.Add();
  events::ops.Add(static_cast<int>(sequence.size()));
  return absl::OkStatus();
}

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_UPDATES_EMIT_UPDATE_H_
