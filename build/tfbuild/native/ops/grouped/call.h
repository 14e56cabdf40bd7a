// Reads the functions in which Keras has XLA compile grouped convolutions and their gradients.

#ifndef TENSORWRIGHT_OPS_GROUPED_CALL_H_
#define TENSORWRIGHT_OPS_GROUPED_CALL_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorwright {

// What computes a value. All but the convolution and its gradients move no data.
enum class ValueKind {
  kArgument,
  kReadVariable,
  kPass,
  kConstant,
  kExpandDims,
  kSqueeze,
  kReshape,
  kShape,
  kOutputs,
  kInputGradient,
  kFilterGradient
};

// A value of a function.
struct Value {
  ValueKind kind;
  std::vector<int> inputs;                       // Indices of values.
  int argument = 0;                              // Its number.
  int axis = 0;                                  // That is inserted or removed.
  tensorflow::Tensor constant;                   // int32.
  std::vector<std::int32_t> strides, dilations;  // Of a convolution.
  bool same = false;                             // Whether its padding is SAME, otherwise VALID.
};

// A function that convolves. Each value follows its inputs.
struct ConvolvingCall {
  std::vector<Value> values;
  std::vector<int> results;  // Indices of values.
};

// Sets the strides, the dilations and the padding of `value` to those of a convolution. Returns
// false if they, or the layout, are not supported.
inline bool ReadConvolution(const tensorflow::AttrSlice& attributes, Value* value) {
  std::string layout, padding;
  // TryGetNodeAttr appends to a vector.
  if (!TryGetNodeAttr(attributes, "dilations", &value->dilations) ||
      !TryGetNodeAttr(attributes, "strides", &value->strides) ||
      !TryGetNodeAttr(attributes, "padding", &padding) ||
      !TryGetNodeAttr(attributes, "data_format", &layout)) {
    return false;
  }
  value->same = padding == "SAME";
  for (const auto& steps : {value->strides, value->dilations}) {
    if (steps.size() != 4 || steps[0] != 1 || steps[3] != 1) return false;
    if (steps[1] < 1 || steps[2] < 1) return false;
  }
  return layout == "NHWC" && (padding == "SAME" || padding == "VALID");
}

// Reads a function into a ConvolvingCall.
class CallReader {
 public:
  CallReader(const tensorflow::FunctionDef& function, ConvolvingCall* call)
      : function_(function), call_(*call) {}

  // Returns false if the function does not convolve, or does something that is not supported. Sets
  // `*convolves` to whether it has a convolution or a gradient of one.
  bool Read(bool* convolves) {
    *convolves = false;
    bool known = true;
    for (const tensorflow::NodeDef& node : function_.node_def()) {
      if (node.op() == "NoOp") continue;  // Only has control edges.
      const auto found = Supported().find(node.op());
      known = known && found != Supported().end();
      *convolves = *convolves || (found != Supported().end() && IsConvolution(found->second));
      nodes_[node.name()] = &node;
    }
    if (!known || !*convolves) return false;
    for (int i = 0; i < function_.signature().input_arg_size(); ++i) {
      Value value = {ValueKind::kArgument};
      value.argument = i;
      indices_[function_.signature().input_arg(i).name()] = Append(std::move(value));
    }
    for (const auto& result : function_.signature().output_arg()) {
      const int index = ValueOf(function_.ret().at(result.name()));
      if (index < 0) return false;
      call_.results.push_back(index);
    }
    return true;
  }

 private:
  static const std::map<std::string, ValueKind>& Supported() {
    static const auto* supported = new std::map<std::string, ValueKind>{
        {"ReadVariableOp", ValueKind::kReadVariable},
        {"Identity", ValueKind::kPass},
        {"Const", ValueKind::kConstant},
        {"ExpandDims", ValueKind::kExpandDims},
        {"Squeeze", ValueKind::kSqueeze},
        {"Reshape", ValueKind::kReshape},
        {"Shape", ValueKind::kShape},
        {"ShapeN", ValueKind::kShape},
        {"Conv2D", ValueKind::kOutputs},
        {"Conv2DBackpropInput", ValueKind::kInputGradient},
        {"Conv2DBackpropFilter", ValueKind::kFilterGradient},
    };
    return *supported;
  }
  static bool IsConvolution(ValueKind kind) {
    return kind == ValueKind::kOutputs || kind == ValueKind::kInputGradient ||
           kind == ValueKind::kFilterGradient;
  }

  int Append(Value value) {
    call_.values.push_back(std::move(value));
    return static_cast<int>(call_.values.size()) - 1;
  }

  // Returns the index of the value with a name, such as "argument" or "node:output:0", and reads the
  // values that it needs. Returns -1 if one is not supported.
  int ValueOf(const std::string& name) {
    const auto [known, is_new] = indices_.emplace(name, -1);
    if (!is_new) return known->second;
    const std::size_t end = name.find(':'), last = name.rfind(':');
    const auto node = nodes_.find(name.substr(0, end));
    if (end == last || node == nodes_.end()) return -1;
    Value value = {Supported().at(node->second->op())};
    if (!ReadNode(*node->second, std::stoi(name.substr(last + 1)), &value)) return -1;
    return indices_[name] = Append(std::move(value));
  }

  // Sets `value` to an output of a node. Returns false if it is not supported.
  bool ReadNode(const tensorflow::NodeDef& node, int output, Value* value) {
    std::vector<std::string> names;
    for (const std::string& input : node.input()) {
      if (input[0] != '^') names.push_back(input);
    }
    if (node.op() == "ShapeN") {
      if (output < 0 || output >= static_cast<int>(names.size())) return false;
      names = {names[output]};
    }
    for (const std::string& name : names) {
      const int index = ValueOf(name);
      if (index < 0) return false;
      value->inputs.push_back(index);
    }
    const tensorflow::AttrSlice attributes(node);
    const auto has_type = [&](const char* name, tensorflow::DataType expected) {
      tensorflow::DataType type;
      return TryGetNodeAttr(attributes, name, &type) && type == expected;
    };
    const auto kind_of = [&](int input) { return call_.values[value->inputs[input]].kind; };
    switch (value->kind) {
      case ValueKind::kReadVariable:
        return has_type("dtype", tensorflow::DT_FLOAT) && kind_of(0) == ValueKind::kArgument;
      case ValueKind::kPass: return has_type("T", tensorflow::DT_FLOAT);
      case ValueKind::kConstant:
        return has_type("dtype", tensorflow::DT_INT32) &&
               value->constant.FromProto(node.attr().at("value").tensor());
      case ValueKind::kExpandDims: {
        if (!has_type("T", tensorflow::DT_FLOAT) || kind_of(1) != ValueKind::kConstant)
          return false;
        const tensorflow::Tensor& axis = call_.values[value->inputs[1]].constant;
        if (axis.NumElements() == 1) value->axis = axis.flat<std::int32_t>()(0);
        return axis.NumElements() == 1;
      }
      case ValueKind::kSqueeze: {
        std::vector<std::int32_t> axes;
        if (!has_type("T", tensorflow::DT_FLOAT) ||
            !TryGetNodeAttr(attributes, "squeeze_dims", &axes) || axes.size() != 1) {
          return false;
        }
        value->axis = axes[0];
        return true;
      }
      case ValueKind::kReshape:
        return has_type("T", tensorflow::DT_FLOAT) && has_type("Tshape", tensorflow::DT_INT32);
      case ValueKind::kShape: return has_type("out_type", tensorflow::DT_INT32);
      default: return has_type("T", tensorflow::DT_FLOAT) && ReadConvolution(attributes, value);
    }
  }

  const tensorflow::FunctionDef& function_;
  ConvolvingCall& call_;
  std::map<std::string, const tensorflow::NodeDef*> nodes_;
  std::map<std::string, int> indices_;  // Of values by name; -1 while one is read.
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_GROUPED_CALL_H_
