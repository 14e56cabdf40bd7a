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
#include "tensorwright/graph/shapes.h"
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
