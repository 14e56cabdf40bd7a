// Translates ops of TensorFlow into steps of a program.

#ifndef TENSORWRIGHT_OPS_CHAINS_TRANSLATE_H_
#define TENSORWRIGHT_OPS_CHAINS_TRANSLATE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorwright/graph/shapes.h"
#include "tensorwright/ops/chains/program.h"

namespace tensorwright::chains {
namespace {

using tensorflow::DataType;
using tensorflow::Edge;
using tensorflow::Node;
using tensorflow::NodeDef;
using Port = std::pair<Node*, int>;  // An output of a node.

bool IsOp(const Node* node, const char* type) { return node->type_string() == type; }

// Returns the attribute of a node, or a default value.
template <typename T>
T AttributeOf(const Node* node, const char* name, T otherwise) {
  tensorflow::GetNodeAttr(node->attrs(), name, &otherwise).IgnoreError();
  return otherwise;
}

// Returns the unary ops that Grappler has composed, or an empty vector if a program cannot compute
// one of them.
std::vector<Code> ComposedCodes(const Node* node) {
  std::vector<Code> codes;
  for (const std::string& name : AttributeOf(node, "op_names", std::vector<std::string>())) {
    const auto found = OpCodes().find(name);
    if (found == OpCodes().end() || found->second < Code::kNeg || found->second > Code::kRelu6) {
      return {};
    }
    codes.push_back(found->second);
  }
  return codes;
}

// Whether an op only gives its operand another shape.
bool IsAlias(const Node* node) { return IsOp(node, "Reshape") || IsOp(node, "Identity"); }
bool IsReduction(const Node* node) {
  const auto found = OpCodes().find(node->type_string());
  return found != OpCodes().end() && IsReduction(found->second);
}

// Whether each element of the result depends on one element of each operand.
bool IsElementwise(const Node* node) {
  const auto found = OpCodes().find(node->type_string());
  return found == OpCodes().end() ? IsOp(node, "AddN") || IsOp(node, "_UnaryOpsComposition")
                                  : IsElementwise(found->second);
}

// Whether an output of a node has consumers.
bool IsUsed(const Node* node, int output) {
  for (const Edge* edge : node->out_edges()) {
    if (edge->src_output() == output) return true;
  }
  return false;
}

// Whether all elements of an input are known to be `value`.
bool IsFilled(const Node* node, int input, float value) {
  const Node* fill = InputEdge(node, input)->src();
  if (!IsOp(fill, "Fill") || !InputEdge(fill, 1)->src()->IsConstant()) return false;
  tensorflow::Tensor with;
  return GetNodeAttr(InputEdge(fill, 1)->src()->attrs(), "value", &with).ok() &&
         with.dtype() == tensorflow::DT_FLOAT && with.NumElements() == 1 &&
         with.flat<float>()(0) == value;
}

bool IsNormalization(const Node* node) {
  return IsOp(node, "FusedBatchNormV3") || IsOp(node, "FusedBatchNormGradV3");
}

// Whether a batch normalization is that of a layer normalization of Keras: in training, over the
// last axes of NCHW. A plan exists for one image only.
bool IsLayerNormalization(const Node* node) {
  if (AttributeOf<std::string>(node, "data_format", "") != "NCHW" ||
      !AttributeOf(node, "is_training", false) ||
      AttributeOf(node, "U", tensorflow::DT_INVALID) != tensorflow::DT_FLOAT) {
    return false;
  }
  if (IsOp(node, "FusedBatchNormGradV3")) {
    for (int output = 1; output < node->num_outputs(); ++output) {
      if (IsUsed(node, output)) return false;
    }
    return true;
  }
  return !IsUsed(node, 1) && !IsUsed(node, 2) &&
         AttributeOf(node, "exponential_avg_factor", 1.0f) == 1.0f;
}

// Whether a program can compute a node, as far as its op, types and attributes tell.
bool CanTranslate(const Node* node) {
  const std::string& type = node->type_string();
  const bool is_normalization = IsNormalization(node);
  if (!OpCodes().count(type) && type != "AddN" && type != "Softmax" &&
      type != "_UnaryOpsComposition" && !is_normalization) {
    return false;
  }
  if (type == "Cast") {
    return node->input_type(0) == tensorflow::DT_BOOL &&
           node->output_type(0) == tensorflow::DT_FLOAT;
  }
  const bool is_logical = type.rfind("Logical", 0) == 0;
  if (!is_logical && AttributeOf(node, "T", tensorflow::DT_INVALID) != tensorflow::DT_FLOAT) {
    return false;
  }
  if (is_normalization) return IsLayerNormalization(node);
  if (AttributeOf<std::string>(node, "data_format", "NHWC") != "NHWC") return false;
  return type != "_UnaryOpsComposition" || !ComposedCodes(node).empty();
}

// Makes the program of some nodes. Numbers the values: first the inputs, then the steps' results.
class Translation {
 public:
  // `nodes` are in an order in which TensorFlow could execute them.
  explicit Translation(const std::vector<Node*>& nodes) {
    const std::set<const Node*> inside(nodes.begin(), nodes.end());
    for (const Node* node : nodes) {
      for (int i = 0; i < node->num_inputs(); ++i) {
        const Edge* edge = InputEdge(node, i);
        const Port port = {edge->src(), edge->src_output()};
        if (inside.count(port.first)) continue;
        if (values_.emplace(port, inputs_.size()).second) inputs_.push_back(port);
      }
    }
    for (Node* node : nodes) Translate(node);
    for (Node* node : nodes) {
      for (int output = 0; output < node->num_outputs(); ++output) {
        for (const Edge* edge : node->out_edges()) {
          if (edge->src_output() != output || inside.count(edge->dst())) continue;
          outputs_.push_back({node, output});
          break;
        }
      }
    }
  }

  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  // The attribute `program`.
  const std::vector<std::int64_t>& program() const { return program_; }
  // The attribute `outputs`: the values of outputs().
  std::vector<std::int64_t> output_values() const {
    std::vector<std::int64_t> values;
    for (const Port& port : outputs_) values.push_back(values_.at(port));
    return values;
  }

 private:
  using Value = std::int64_t;

  // Adds a step and returns the value of its result. Missing operands are the first.
  Value Add(Code code, std::vector<Value> operands, Value parameter = 0) {
    operands.resize(3, operands[0]);
    program_.push_back(static_cast<std::int64_t>(code));
    program_.insert(program_.end(), operands.begin(), operands.end());
    program_.push_back(parameter);
    return static_cast<Value>(inputs_.size()) + steps_++;
  }

  // Adds a sum, mean or maximum over the last `axes` axes, which stay.
  Value Reduce(Code code, Value of, int axes) { return Add(code, {of}, 1 | axes << 1); }

  void Translate(Node* node) {
    std::vector<Value> in;
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Edge* edge = InputEdge(node, i);
      in.push_back(values_.at({edge->src(), edge->src_output()}));
    }
    Value& out = values_[{node, 0}];
    if (IsOp(node, "AddN")) {
      out = in.size() == 1 ? Add(Code::kCopy, in) : in[0];
      for (std::size_t i = 1; i < in.size(); ++i) out = Add(Code::kAddSame, {out, in[i]});
    } else if (IsOp(node, "_UnaryOpsComposition")) {
      out = in[0];
      for (const Code code : ComposedCodes(node)) out = Add(code, {out});
    } else if (IsOp(node, "Softmax")) {
      const Value largest = Reduce(Code::kMax, in[0], 1);
      const Value powers = Add(Code::kExp, {Add(Code::kSub, {in[0], largest})});
      const Value sums = Reduce(Code::kSum, powers, 1);
      out = Add(Code::kMul, {powers, Add(Code::kReciprocal, {sums})});
    } else if (IsOp(node, "FusedBatchNormV3")) {
      Normalize(node, in);
    } else if (IsOp(node, "FusedBatchNormGradV3")) {
      out = NormalizationGradient(node, in);
    } else {
      out = Add(OpCodes().at(node->type_string()), in, ParameterOf(node));
    }
  }

  static Value ParameterOf(const Node* node) {
    if (IsOp(node, "Shape")) return AttributeOf(node, "out_type", tensorflow::DT_INT32);
    return AttributeOf(node, "keep_dims", false) ? 1 : 0;
  }

  // Returns 1 / sqrt(variance + epsilon).
  Value InverseDeviation(const Node* node, Value variance) {
    const float epsilon = AttributeOf(node, "epsilon", 0.0f);
    return Add(Code::kRsqrt,
               {Add(Code::kAddNumber, {variance}, tensorwright::chains::ParameterOf(epsilon))});
  }

  // Inputs: images, scale, offset. Outputs: result, ..., mean, variance and an unused reserve space.
  void Normalize(Node* node, const std::vector<Value>& in) {
    const Value x = Add(Code::kOneImage, {in[0]});
    const Value mean = Reduce(Code::kMean, x, 2);
    const Value difference = Add(Code::kSub, {x, mean});
    const Value variance = Reduce(Code::kMean, Add(Code::kSquare, {difference}), 2);
    Value scale = InverseDeviation(node, variance);
    if (!IsFilled(node, 1, 1)) scale = Add(Code::kMul, {scale, Add(Code::kOfChannels, {in[1]})});
    Value result = Add(Code::kMul, {difference, scale});
    if (!IsFilled(node, 2, 0)) {
      result = Add(Code::kAdd, {result, Add(Code::kOfChannels, {in[2]})});
    }
    values_[{node, 0}] = result;
    values_[{node, 3}] = Add(Code::kVector, {mean});
    values_[{node, 4}] = Add(Code::kVector, {variance});
    values_[{node, 5}] = Add(Code::kEmptyReserve, {x});
  }

  // Inputs: gradient of the result, images, scale, mean, variance. Returns the gradient of the
  // images.
  Value NormalizationGradient(const Node* node, const std::vector<Value>& in) {
    const Value gradient = Add(Code::kOneImage, {in[0]}), x = Add(Code::kOneImage, {in[1]});
    const Value scale = Add(Code::kOfChannels, {in[2]}), mean = Add(Code::kOfChannels, {in[3]});
    const Value inverse = InverseDeviation(node, Add(Code::kOfChannels, {in[4]}));
    const Value normal = Add(Code::kMul, {Add(Code::kSub, {x, mean}), inverse});
    const Value first = Reduce(Code::kMean, gradient, 2);
    const Value second = Reduce(Code::kMean, Add(Code::kMul, {gradient, normal}), 2);
    const Value centered = Add(Code::kSub, {gradient, first});
    const Value projected = Add(Code::kSub, {centered, Add(Code::kMul, {normal, second})});
    return Add(Code::kMul, {projected, Add(Code::kMul, {inverse, scale})});
  }

  std::vector<Port> inputs_, outputs_;
  std::map<Port, Value> values_;
  std::vector<std::int64_t> program_;
  Value steps_ = 0;
};

}  // namespace
}  // namespace tensorwright::chains

#endif  // TENSORWRIGHT_OPS_CHAINS_TRANSLATE_H_
