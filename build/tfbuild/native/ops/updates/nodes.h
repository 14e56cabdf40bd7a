// Properties of the nodes of an update: code, type, shape and handle of their variable.

#ifndef TENSORWRIGHT_OPS_UPDATES_NODES_H_
#define TENSORWRIGHT_OPS_UPDATES_NODES_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorwright/graph/branches.h"
#include "tensorwright/ops/updates/program.h"

namespace tensorwright {
namespace {

using tensorflow::DataType;
using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeDef;
using tensorflow::PartialTensorShape;

// Returns the codes of the ops that a program can compute, by type of op.
const std::map<std::string, Code>& Codes() {
  static const auto* codes = new std::map<std::string, Code>{
      {"Add", Code::kAdd},
      {"AddV2", Code::kAdd},
      {"AddN", Code::kAdd},
      {"Sub", Code::kSub},
      {"Mul", Code::kMul},
      {"RealDiv", Code::kDiv},
      {"Maximum", Code::kMaximum},
      {"Minimum", Code::kMinimum},
      {"SquaredDifference", Code::kSquaredDifference},
      {"Neg", Code::kNeg},
      {"Abs", Code::kAbs},
      {"Square", Code::kSquare},
      {"Sqrt", Code::kSqrt},
      {"Rsqrt", Code::kRsqrt},
      {"UnsortedSegmentSum", Code::kSegmentSum},
      {"Identity", Code::kCopy},
      {"ReadVariableOp", Code::kCopy},
      {"AssignVariableOp", Code::kAssign},
      {"AssignAddVariableOp", Code::kAssignAdd},
      {"AssignSubVariableOp", Code::kAssignSub},
      {"ResourceScatterAdd", Code::kScatterAdd},
      {"ResourceScatterSub", Code::kScatterSub},
  };
  return *codes;
}

// Returns the code of a node, or nullptr if no program can compute it.
const Code* CodeOf(const Node* node) {
  const auto found = Codes().find(node->type_string());
  return found == Codes().end() ? nullptr : &found->second;
}

bool IsRead(const Node* node) { return node->type_string() == "ReadVariableOp"; }
bool IsAssign(const Node* node) {
  const Code* code = CodeOf(node);
  return code != nullptr && IsAssignment(*code);
}
bool IsSegmentSum(const Node* node) { return node->type_string() == "UnsortedSegmentSum"; }
// Whether a node scatters or sums rows: its inputs include indices and a tensor of rows.
bool UsesRows(const Node* node) {
  const Code* code = CodeOf(node);
  return code != nullptr && HasRowOperand(*code);
}
// Returns the index of the input that has the rows.
int RowsInput(const Node* node) { return IsSegmentSum(node) ? 0 : 2; }

// Returns the edge into an input, or nullptr.
const Edge* Input(const Node* node, int index) {
  const Edge* edge = nullptr;
  return node->input_edge(index, &edge).ok() ? edge : nullptr;
}

// Whether a node is the Merge with which a loop begins.
bool IsLoopMerge(const Node* node) {
  return node->IsMerge() && node->num_inputs() == 2 && Input(node, 1)->src()->IsNextIteration();
}

// Whether the value of a loop's Merge is loop-invariant: each iteration passes it on unchanged.
bool IsLoopInvariant(const Node* merge) {
  const Node* at = Input(merge, 1)->src();
  while (at != merge) {
    const bool inner = IsLoopMerge(at) && IsLoopInvariant(at);
    if (!inner && !at->IsIdentity() && !at->IsSwitch() && !at->IsEnter() && !at->IsExit() &&
        !at->IsNextIteration()) {
      return false;
    }
    at = Input(at, 0)->src();
  }
  return true;
}

// Returns the edge from the node that created the handle of the variable. Follows the handle back
// through Identity, Switch and Enter nodes and through loops that do not change it.
const Edge* HandleOf(const Node* node) {
  const Edge* edge = Input(node, 0);
  while (edge != nullptr) {
    const Node* from = edge->src();
    const bool loops = IsLoopMerge(from) && IsLoopInvariant(from);
    if (!loops && !from->IsIdentity() && !from->IsSwitch() && !from->IsEnter()) break;
    edge = Input(from, 0);
  }
  return edge;
}

// Returns the shape of the variable that a node accesses, or an unknown one.
PartialTensorShape VariableShape(const Node* node) {
  const Edge* handle = HandleOf(node);
  if (handle == nullptr) return PartialTensorShape();
  std::vector<PartialTensorShape> shapes;
  if (GetNodeAttr(handle->src()->attrs(), "_handle_shapes", &shapes).ok() && shapes.size() == 1) {
    return shapes[0];
  }
  PartialTensorShape shape;
  if (handle->src()->type_string() == "VarHandleOp" &&
      GetNodeAttr(handle->src()->attrs(), "shape", &shape).ok()) {
    return shape;
  }
  return PartialTensorShape();
}

// Returns the type of a node's values, or DT_INVALID.
DataType TypeOf(const Node* node) {
  DataType type = tensorflow::DT_INVALID;
  if (!GetNodeAttr(node->attrs(), IsRead(node) || IsAssign(node) ? "dtype" : "T", &type).ok()) {
    return tensorflow::DT_INVALID;
  }
  return type;
}

bool IsFloating(DataType type) {
  return type == tensorflow::DT_FLOAT || type == tensorflow::DT_DOUBLE ||
         type == tensorflow::DT_HALF || type == tensorflow::DT_BFLOAT16;
}

// What all nodes of a fused op have in common: shape and type of the variables, device, conditions.
struct Kind {
  std::string shape;
  DataType type;
  std::string device;
  Conditions conditions;

  bool operator==(const Kind& other) const {
    return std::tie(shape, type, device, conditions) ==
           std::tie(other.shape, other.type, other.device, other.conditions);
  }
};

// An output of a node.
using Port = std::pair<Node*, int>;

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_UPDATES_NODES_H_
