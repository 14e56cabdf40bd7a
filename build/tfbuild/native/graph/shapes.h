// Edges and shapes of the nodes of a graph, as far as they are known before it runs.

#ifndef TENSORWRIGHT_GRAPH_SHAPES_H_
#define TENSORWRIGHT_GRAPH_SHAPES_H_

#include <vector>

#include "tensorflow/core/common_runtime/shape_refiner.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/graph/graph.h"

namespace tensorwright {

// Returns the edge into an input, or nullptr.
inline const tensorflow::Edge* InputEdge(const tensorflow::Node* node, int index) {
  const tensorflow::Edge* edge = nullptr;
  return node->input_edge(index, &edge).ok() ? edge : nullptr;
}

// Whether a node is the Merge with which a loop begins.
inline bool IsLoopMerge(const tensorflow::Node* node) {
  return node->IsMerge() && node->num_inputs() == 2 && InputEdge(node, 1)->src()->IsNextIteration();
}

// Whether the value of a loop's Merge is loop-invariant: each iteration passes it on unchanged.
inline bool IsLoopInvariant(const tensorflow::Node* merge) {
  const tensorflow::Node* at = InputEdge(merge, 1)->src();
  while (at != merge) {
    const bool inner = IsLoopMerge(at) && IsLoopInvariant(at);
    if (!inner && !at->IsIdentity() && !at->IsSwitch() && !at->IsEnter() && !at->IsExit() &&
        !at->IsNextIteration()) {
      return false;
    }
    at = InputEdge(at, 0)->src();
  }
  return true;
}

// Returns the edge from the node that created the handle of the variable. Follows the handle back
// through Identity, Switch and Enter nodes and through loops that do not change it.
inline const tensorflow::Edge* HandleOf(const tensorflow::Node* node) {
  const tensorflow::Edge* edge = InputEdge(node, 0);
  while (edge != nullptr) {
    const tensorflow::Node* from = edge->src();
    const bool loops = IsLoopMerge(from) && IsLoopInvariant(from);
    if (!loops && !from->IsIdentity() && !from->IsSwitch() && !from->IsEnter()) break;
    edge = InputEdge(from, 0);
  }
  return edge;
}

// Returns the shape of the variable that a node accesses, or an unknown one.
inline tensorflow::PartialTensorShape VariableShape(const tensorflow::Node* node) {
  const tensorflow::Edge* handle = HandleOf(node);
  if (handle == nullptr) return tensorflow::PartialTensorShape();
  std::vector<tensorflow::PartialTensorShape> shapes;
  if (GetNodeAttr(handle->src()->attrs(), "_handle_shapes", &shapes).ok() && shapes.size() == 1) {
    return shapes[0];
  }
  tensorflow::PartialTensorShape shape;
  if (handle->src()->type_string() == "VarHandleOp" &&
      GetNodeAttr(handle->src()->attrs(), "shape", &shape).ok()) {
    return shape;
  }
  return tensorflow::PartialTensorShape();
}

// The shapes of the outputs of all nodes, as far as TensorFlow infers them. Reads of variables have
// the shape of their handle.
class InferredShapes {
 public:
  // `order` is a reverse postorder of the graph without the edges out of NextIteration nodes.
  InferredShapes(const tensorflow::Graph& graph,
                 const tensorflow::FunctionLibraryDefinition* library,
                 const std::vector<tensorflow::Node*>& order)
      : refiner_(graph.versions(), library) {
    refiner_.set_require_shape_inference_fns(false);
    for (const tensorflow::Node* node : order) {
      if (node->IsSource() || node->IsSink() || !refiner_.AddNode(node).ok() ||
          node->type_string() != "ReadVariableOp") {
        continue;
      }
      auto* context = refiner_.GetContext(node);
      tensorflow::shape_inference::ShapeHandle shape;
      if (context->MakeShapeFromPartialTensorShape(VariableShape(node), &shape).ok()) {
        refiner_.SetShape(node, 0, shape).IgnoreError();
      }
    }
  }

  // Returns the shape of an output; of unknown rank if nothing is known.
  tensorflow::PartialTensorShape Of(const tensorflow::Node* node, int output) const {
    auto* context = refiner_.GetContext(node);
    if (context == nullptr) return {};
    tensorflow::TensorShapeProto proto;
    context->ShapeHandleToProto(context->output(output), &proto);
    return tensorflow::PartialTensorShape(proto);
  }

 private:
  tensorflow::ShapeRefiner refiner_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_SHAPES_H_
