// Reads a while loop from TensorFlow's functions into the operations that this library supports.

#ifndef TENSORWRIGHT_OPS_LOOPS_LOOP_H_
#define TENSORWRIGHT_OPS_LOOPS_LOOP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/function_body.h"
#include "tensorflow/core/common_runtime/function_def_utils.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorwright/compute/elements.h"
#include "tensorwright/graph/shapes.h"

namespace tensorwright {

// The kinds of operations that a loop may contain.
enum class Do {
  kConst,
  kReadVariable,
  // Elementwise.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kSquaredDifference,
  kSigmoidGrad,
  kTanhGrad,
  kReluGrad,
  kRelu6Grad,
  kNeg,
  kAbs,
  kSign,
  kSquare,
  kTanh,
  kSigmoid,
  kRelu,
  kRelu6,
  kExp,
  kGreater,
  kGreaterEqual,
  kLess,
  kLessEqual,
  kAnd,
  kOr,
  kNot,
  kSelect,
  kAddN,
  kZerosLike,
  kFill,
  // Matrix products and reductions.
  kMatMul,
  kBiasAdd,
  kBiasAddGrad,
  kSum,
  // Shape manipulation.
  kSplit,
  kSplitV,
  kConcat,
  kSlice,
  kSliceGrad,
  kPack,
  kUnpack,
  kTile,
  kReshape,
  kSqueeze,
  kExpandDims,
  kShape,
  kBroadcastArgs,
  // Tensor lists. `what >= kReserve` means that the operation is one of these.
  kReserve,
  kGetItem,
  kSetItem,
  kPushBack,
  kPopBack,
  kLength,
  kElementShape,
};

// Returns the supported operations by the names of TensorFlow's ops.
inline const std::map<std::string, Do>& SupportedOperations() {
  static const auto* known = new std::map<std::string, Do>{
      {"Const", Do::kConst},
      {"ReadVariableOp", Do::kReadVariable},
      {"Add", Do::kAdd},
      {"AddV2", Do::kAdd},
      {"Sub", Do::kSub},
      {"Mul", Do::kMul},
      {"RealDiv", Do::kDiv},
      {"Maximum", Do::kMaximum},
      {"Minimum", Do::kMinimum},
      {"SquaredDifference", Do::kSquaredDifference},
      {"SigmoidGrad", Do::kSigmoidGrad},
      {"TanhGrad", Do::kTanhGrad},
      {"ReluGrad", Do::kReluGrad},
      {"Neg", Do::kNeg},
      {"Abs", Do::kAbs},
      {"Sign", Do::kSign},
      {"Square", Do::kSquare},
      {"Tanh", Do::kTanh},
      {"Sigmoid", Do::kSigmoid},
      {"Relu", Do::kRelu},
      {"Relu6", Do::kRelu6},
      {"Relu6Grad", Do::kRelu6Grad},
      {"Squeeze", Do::kSqueeze},
      {"ExpandDims", Do::kExpandDims},
      {"Exp", Do::kExp},
      {"Greater", Do::kGreater},
      {"GreaterEqual", Do::kGreaterEqual},
      {"Less", Do::kLess},
      {"LessEqual", Do::kLessEqual},
      {"LogicalAnd", Do::kAnd},
      {"LogicalOr", Do::kOr},
      {"LogicalNot", Do::kNot},
      {"SelectV2", Do::kSelect},
      {"AddN", Do::kAddN},
      {"ZerosLike", Do::kZerosLike},
      {"Fill", Do::kFill},
      {"MatMul", Do::kMatMul},
      {"BiasAdd", Do::kBiasAdd},
      {"BiasAddGrad", Do::kBiasAddGrad},
      {"Sum", Do::kSum},
      {"Split", Do::kSplit},
      {"SplitV", Do::kSplitV},
      {"ConcatV2", Do::kConcat},
      {"StridedSlice", Do::kSlice},
      {"StridedSliceGrad", Do::kSliceGrad},
      {"Pack", Do::kPack},
      {"Unpack", Do::kUnpack},
      {"Tile", Do::kTile},
      {"Reshape", Do::kReshape},
      {"Shape", Do::kShape},
      {"BroadcastGradientArgs", Do::kBroadcastArgs},
      {"TensorListReserve", Do::kReserve},
      {"TensorListGetItem", Do::kGetItem},
      {"TensorListSetItem", Do::kSetItem},
      {"TensorListPushBack", Do::kPushBack},
      {"TensorListPopBack", Do::kPopBack},
      {"TensorListLength", Do::kLength},
      {"TensorListElementShape", Do::kElementShape},
  };
  return *known;
}

// An op of a function.
struct Operation {
  Do what;
  std::vector<int> inputs;  // Values.
  int output;               // The value of the first output; the others follow it.
  int outputs;
  tensorflow::DataType type = tensorflow::DT_INVALID;  // Of the first output.
  const RowLoops* loops = nullptr;                     // Of elementwise ops.
  tensorflow::Tensor constant;                         // Of Const.
  // transpose_a and transpose_b: of MatMul. keeps_dimensions: of Sum.
  bool transpose_a = false, transpose_b = false, keeps_dimensions = false;
  std::int64_t axis = 0;                                       // Of Pack and Unpack.
  std::vector<std::int64_t> axes;                              // Of Squeeze.
  tensorflow::DataType element_type = tensorflow::DT_INVALID;  // Of ops on tensor lists.
  // Of StridedSlice and StridedSliceGrad; bit i is for axis i.
  int begin_mask = 0, end_mask = 0, shrink_mask = 0;

  // Whether a StridedSlice selects one index of the first axis, as in x[i].
  bool IsSingleIndex() const { return shrink_mask == 1 && begin_mask == 0 && end_mask == 0; }
};

// The body or the condition of a loop. Values are numbered: first the arguments, then the outputs
// of each operation. Operations are in topological order.
struct Routine {
  std::vector<tensorflow::DataType> arguments;
  std::vector<Operation> operations;
  std::vector<int> results;    // Values.
  std::vector<int> producers;  // The operation that computes each value; -1 for arguments.
  std::vector<int> uses;       // How often operations and results use each value.

  int arity() const { return static_cast<int>(arguments.size()); }
  // Returns the operation that computes a value; null for arguments.
  const Operation* producer(int value) const {
    return producers[value] < 0 ? nullptr : &operations[producers[value]];
  }
};

struct WhileLoop {
  Routine body, condition;
};

// Sets `routine.uses`.
inline void CountUses(Routine& routine) {
  routine.uses.assign(routine.producers.size(), 0);
  for (const Operation& operation : routine.operations) {
    for (const int input : operation.inputs) ++routine.uses[input];
  }
  for (const int result : routine.results) ++routine.uses[result];
}

namespace {

// Converts a function of TensorFlow to a Routine.
class FunctionReader {
 public:
  // Reads a function. Returns an empty string, or the op type or part that is not supported.
  std::string Read(const tensorflow::FunctionDef& function,
                   const tensorflow::FunctionLibraryDefinition* library) {
    std::unique_ptr<tensorflow::FunctionBody> body;
    if (!FunctionDefToBodyHelper(function, tensorflow::AttrSlice(), library, &body).ok()) {
      return "its function";
    }
    for (const tensorflow::Node* node : body->graph->op_nodes()) {
      if (!IsAllowed(node)) return node->type_string();
    }
    for (const tensorflow::DataType type : body->arg_types) {
      routine_.arguments.push_back(type);
      routine_.producers.push_back(-1);
    }
    for (std::size_t i = 0; i < body->arg_nodes.size(); ++i) values_[{body->arg_nodes[i], 0}] = i;
    for (const tensorflow::Node* result : body->ret_nodes) {
      const std::string odd = Visit(result);
      if (!odd.empty()) return odd;
      routine_.results.push_back(Value(result, 0));
    }
    CountUses(routine_);
    return "";
  }

  // Moves the routine to the caller. Call it once, after Read succeeded.
  Routine Take() { return std::move(routine_); }

 private:
  using Node = tensorflow::Node;

  // Whether a node has no side effects. This is required of all nodes of a function, because nodes
  // that no result needs are dropped.
  static bool IsAllowed(const Node* node) {
    return node->IsArg() || node->IsRetval() || node->IsIdentity() ||
           node->type_string() == "NoOp" || node->type_string() == "ReadVariableOp" ||
           !node->op_def().is_stateful();
  }

  // Returns the value of an input, looking through Identity ops.
  int Value(const Node* node, int index) const {
    const tensorflow::Edge* edge = InputEdge(node, index);
    while (edge->src()->IsIdentity()) edge = InputEdge(edge->src(), 0);
    return values_.at({edge->src(), edge->src_output()});
  }

  // Adds the nodes that compute a result to the routine, each after its inputs, depth first. It does
  // not recurse, because an unrolled body may have many thousands of nodes in sequence. Returns an
  // empty string, or the type of an op that is not supported.
  std::string Visit(const Node* result) {
    std::vector<std::pair<const Node*, int>> path;  // With the number of inputs that were entered.
    const auto enter = [&](const Node* node) {
      if (!node->IsArg() && seen_.insert(node).second) path.emplace_back(node, 0);
    };
    enter(result);
    while (!path.empty()) {
      const Node* node = path.back().first;
      if (const int next = path.back().second++; next < node->num_inputs()) {
        enter(InputEdge(node, next)->src());
        continue;
      }
      path.pop_back();
      const std::string odd = Add(node);
      if (!odd.empty()) return odd;
    }
    return "";
  }

  // Adds a node whose inputs were added, as `Visit` does.
  std::string Add(const Node* node) {
    if (node->IsRetval() || node->IsIdentity()) return "";
    const auto known = SupportedOperations().find(node->type_string());
    if (known == SupportedOperations().end()) return node->type_string();
    Operation operation = {known->second};
    if (!ReadAttributes(node, operation)) return node->type_string();
    for (int i = 0; i < node->num_inputs(); ++i) operation.inputs.push_back(Value(node, i));
    operation.loops = FindRowLoops(node->type_string());
    operation.output = static_cast<int>(routine_.producers.size());
    operation.outputs = node->num_outputs();
    for (int i = 0; i < node->num_outputs(); ++i) {
      values_[{node, i}] = operation.output + i;
      routine_.producers.push_back(static_cast<int>(routine_.operations.size()));
    }
    routine_.operations.push_back(std::move(operation));
    return "";
  }

  // Copies the attributes of a node to `operation`. Returns false if a type or an attribute is not
  // supported.
  static bool ReadAttributes(const Node* node, Operation& operation) {
    const auto attributes = node->attrs();
    const auto flag = [&](const char* name) {
      bool value = false;
      return tensorflow::GetNodeAttr(attributes, name, &value).ok() && value;
    };
    const auto number = [&](const char* name) {
      int value = 0;
      return tensorflow::GetNodeAttr(attributes, name, &value).ok() ? value : 0;
    };
    operation.type = node->output_type(0);
    operation.transpose_a = flag("transpose_a");
    operation.transpose_b = flag("transpose_b");
    operation.keeps_dimensions = flag("keep_dims");
    operation.axis = number("axis");
    operation.begin_mask = number("begin_mask");
    operation.end_mask = number("end_mask");
    operation.shrink_mask = number("shrink_axis_mask");
    for (const tensorflow::DataType type : node->output_types()) {
      if (type != tensorflow::DT_FLOAT && type != tensorflow::DT_INT32 &&
          type != tensorflow::DT_INT64 && type != tensorflow::DT_BOOL &&
          type != tensorflow::DT_VARIANT) {
        return false;
      }
    }
    tensorflow::GetNodeAttr(attributes, "squeeze_dims", &operation.axes).IgnoreError();
    tensorflow::GetNodeAttr(attributes, "element_dtype", &operation.element_type).IgnoreError();
    std::string format;
    if (tensorflow::GetNodeAttr(attributes, "data_format", &format).ok() && format != "NHWC") {
      return false;
    }
    if (operation.what == Do::kConst) {
      return tensorflow::GetNodeAttr(attributes, "value", &operation.constant).ok();
    }
    return number("ellipsis_mask") == 0 && number("new_axis_mask") == 0 &&
           !flag("resize_if_index_out_of_bounds");
  }

  Routine routine_;
  std::map<std::pair<const Node*, int>, int> values_;  // By node and output.
  std::set<const Node*> seen_;
};

// Checks what a plan requires: shapes, axes and the like are the same in every iteration, and the
// condition depends only on integers, so that the number of iterations is known before the loop
// runs. Returns an empty string, or what does not hold.
std::string CheckPlannable(const WhileLoop& loop) {
  const Routine& body = loop.body;
  const auto is_number = [](tensorflow::DataType type) {
    return type == tensorflow::DT_INT32 || type == tensorflow::DT_INT64;
  };
  // Integers that depend on an argument that the body changes.
  std::vector<bool> changes(body.producers.size(), false);
  for (int i = 0; i < body.arity(); ++i) {
    changes[i] = is_number(body.arguments[i]) && body.results[i] != i;
  }
  for (const Operation& operation : body.operations) {
    const bool lists = operation.what >= Do::kReserve;
    const bool slices = operation.what == Do::kSlice && operation.IsSingleIndex();
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      if (!changes[operation.inputs[i]] || lists) continue;
      if (operation.type == tensorflow::DT_FLOAT && !slices) return "a shape that changes";
      for (int j = 0; j < operation.outputs && !slices; ++j) changes[operation.output + j] = true;
    }
  }
  for (const Operation& operation : loop.condition.operations) {
    if (!is_number(operation.type) && operation.type != tensorflow::DT_BOOL) {
      return "a condition on values";
    }
    for (const int input : operation.inputs) {
      if (input < loop.condition.arity() && !is_number(loop.condition.arguments[input])) {
        return "a condition on values";
      }
    }
  }
  return "";
}

}  // namespace

// Reads the loop of a While or StatelessWhile node with these attributes. Returns an empty string,
// or what is not supported.
inline std::string ReadLoop(const tensorflow::AttrSlice& attributes,
                            const tensorflow::FunctionLibraryDefinition* library, WhileLoop* loop) {
  for (const auto& [name, routine] :
       {std::make_pair("body", &loop->body), std::make_pair("cond", &loop->condition)}) {
    const auto* value = attributes.Find(name);
    if (value == nullptr || !value->has_func()) return "its function";
    const tensorflow::FunctionDef* definition = library->Find(value->func().name());
    if (definition == nullptr) return "its function";
    FunctionReader reading;
    const std::string odd = reading.Read(*definition, library);
    if (!odd.empty()) return odd;
    *routine = reading.Take();
  }
  return CheckPlannable(*loop);
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_LOOPS_LOOP_H_
