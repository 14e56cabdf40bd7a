// Finds updates of variables in the graph that TensorFlow is about to execute, and makes each one
// operation (update_op.h). Functions that are saved are never touched.

#ifndef TENSORWRIGHT_FUSED_FUSE_UPDATES_H_
#define TENSORWRIGHT_FUSED_FUSE_UPDATES_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/common_runtime/shape_refiner.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/graph_to_functiondef.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/graph/node_builder.h"
#include "tensorwright/fused/branches.h"
#include "tensorwright/fused/original.h"
#include "tensorwright/fused/program.h"
#include "tensorwright/fused/switches.h"
#include "tensorwright/fused/tally.h"
#include "tensorwright/fused/xla.h"

namespace tensorwright {
namespace {

using tensorflow::DataType;
using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::NodeBuilder;
using tensorflow::NodeDef;
using tensorflow::PartialTensorShape;

constexpr char kPart[] = "updates";
constexpr char kUpdate[] = "_TensorwrightUpdate";
constexpr int kMostOperands = 8;  // Of AddN, which stock kernels add up to here in one expression.

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

const Code* CodeOf(const Node* node) {
  const auto found = Codes().find(node->type_string());
  return found == Codes().end() ? nullptr : &found->second;
}

bool IsRead(const Node* node) { return node->type_string() == "ReadVariableOp"; }
bool IsAssign(const Node* node) {
  const Code* code = CodeOf(node);
  return code != nullptr && Assigns(*code);
}
bool IsSegmentSum(const Node* node) { return node->type_string() == "UnsortedSegmentSum"; }
// What has the rows of a tensor, and which they are, for inputs.
bool IsOfRows(const Node* node) {
  const Code* code = CodeOf(node);
  return code != nullptr && TakesRows(*code);
}
int RowsOf(const Node* node) { return IsSegmentSum(node) ? 0 : 2; }

const Edge* Input(const Node* node, int index) {
  const Edge* edge = nullptr;
  return node->input_edge(index, &edge).ok() ? edge : nullptr;
}

bool BeginsLoop(const Node* node) {
  return node->IsMerge() && node->num_inputs() == 2 && Input(node, 1)->src()->IsNextIteration();
}

// Whether each iteration of the loop that begins with this Merge hands on what it got.
bool StaysThroughLoop(const Node* merge) {
  const Node* at = Input(merge, 1)->src();
  while (at != merge) {
    const bool inner = BeginsLoop(at) && StaysThroughLoop(at);
    if (!inner && !at->IsIdentity() && !at->IsSwitch() && !at->IsEnter() && !at->IsExit() &&
        !at->IsNextIteration()) {
      return false;
    }
    at = Input(at, 0)->src();
  }
  return true;
}

// Where a variable's handle comes from, through all that hands it on.
const Edge* HandleOf(const Node* node) {
  const Edge* edge = Input(node, 0);
  while (edge != nullptr) {
    const Node* from = edge->src();
    const bool loops = BeginsLoop(from) && StaysThroughLoop(from);
    if (!loops && !from->IsIdentity() && !from->IsSwitch() && !from->IsEnter()) break;
    edge = Input(from, 0);
  }
  return edge;
}

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

// What nodes must have in common to be one operation.
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

enum class Shape { kFull, kLone, kOther, kUnknown };

class Fusing {
 public:
  explicit Fusing(const tensorflow::GraphOptimizationPassOptions& options)
      : graph_(*options.graph->get()),
        library_(options.flib_def),
        devices_(options.device_set),
        in_function_(options.is_function_graph) {}

  absl::Status Run() {
    bool any = false;
    for (const Node* node : graph_.op_nodes()) any = any || IsAssign(node);
    if (!any || library_ == nullptr) return absl::OkStatus();
    GetReversePostOrder(graph_, &order_, tensorflow::NodeComparatorName(),
                        [](const Edge& edge) { return !edge.src()->IsNextIteration(); });
    for (std::size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = static_cast<int>(i);
    branches_ = std::make_unique<Branches>(order_);
    FindAssigns();
    if (assigns_.empty()) return absl::OkStatus();
    InferShapes();
    FindOperands();
    LeaveWhatOthersUse();
    Join();
    std::map<int, std::vector<Node*>> groups;
    for (Node* node : order_) {
      if (kinds_.count(node)) groups[Group(node)].push_back(node);
    }
    for (auto& [group, nodes] : groups) {
      AddLone(nodes);
      TF_RETURN_IF_ERROR(Replace(nodes));
    }
    FixupSourceAndSinkEdges(&graph_);
    return absl::OkStatus();
  }

 private:
  bool IsHere(const Node* node) const {
    if (devices_ == nullptr) return false;
    const auto* device = devices_->FindDeviceByName(node->assigned_device_name());
    return device != nullptr && device->IsLocal() &&
           device->device_type() == tensorflow::DEVICE_CPU;
  }

  void FindAssigns() {
    for (Node* node : order_) {
      if (!IsAssign(node)) continue;
      const DataType type = TypeOf(node);
      const PartialTensorShape shape = VariableShape(node);
      if (!IsFloating(type)) {
        Count(Event::kNotFloating);
      } else if (IsCompiled(node->attrs())) {
        Count(Event::kCompiled);
      } else if (!IsHere(node)) {
        Count(Event::kElsewhere);
      } else if (!shape.IsFullyDefined()) {
        Count(Event::kUnknownShape);
      } else {
        kinds_[node] = {shape.DebugString(), type, node->assigned_device_name(),
                        branches_->of(node)};
        assigns_.push_back(node);
      }
    }
  }

  void InferShapes() {
    refiner_ = std::make_unique<tensorflow::ShapeRefiner>(graph_.versions(), library_);
    refiner_->set_require_shape_inference_fns(false);
    for (const Node* node : order_) {
      if (node->IsSource() || node->IsSink() || !refiner_->AddNode(node).ok() || !IsRead(node)) {
        continue;
      }
      auto* context = refiner_->GetContext(node);
      tensorflow::shape_inference::ShapeHandle shape;
      if (context->MakeShapeFromPartialTensorShape(VariableShape(node), &shape).ok()) {
        refiner_->SetShape(node, 0, shape).IgnoreError();
      }
    }
  }

  Shape ShapeOf(const Node* node, const Kind& kind, int port = 0) const {
    auto* context = refiner_->GetContext(node);
    if (context == nullptr) return Shape::kUnknown;
    const auto output = context->output(port);
    if (!context->FullyDefined(output)) return Shape::kUnknown;
    tensorflow::TensorShapeProto proto;
    context->ShapeHandleToProto(output, &proto);
    const PartialTensorShape shape(proto);
    if (shape.DebugString() == kind.shape) return Shape::kFull;
    return shape.num_elements() == 1 ? Shape::kLone : Shape::kOther;
  }

  // Whether all inputs are known to have one shape. Of others AddN is an error, and Add is not.
  bool AreAlike(const Node* node, const Kind& kind) const {
    const auto of = [&](int i) {
      const Edge* edge = Input(node, i);
      return ShapeOf(edge->src(), kind, edge->src_output());
    };
    const Shape first = of(0);
    if (first != Shape::kFull && first != Shape::kLone) return false;
    for (int i = 1; i < node->num_inputs(); ++i) {
      if (of(i) != first) return false;
    }
    return true;
  }

  // Whether a node computes elements, or reads a variable, on the conditions of this kind.
  bool Computes(const Node* node, const Kind& kind) const {
    const Code* code = CodeOf(node);
    if (code == nullptr || Assigns(*code) || !LikeStock(*code) || TypeOf(node) != kind.type) {
      return false;
    }
    if (node->assigned_device_name() != kind.device || IsCompiled(node->attrs())) return false;
    if (node->type_string() == "AddN" &&
        (node->num_inputs() > kMostOperands || !AreAlike(node, kind))) {
      return false;
    }
    // Stock kernels round once or twice, by where in the tensor an element is.
    if (*code == Code::kRsqrt && kind.type != tensorflow::DT_FLOAT &&
        kind.type != tensorflow::DT_DOUBLE) {
      return false;
    }
    return branches_->of(node) == kind.conditions;
  }

  // Takes in whatever the assigned values are computed from, as far as it has their shape.
  void FindOperands() {
    std::vector<Node*> stack = assigns_;
    std::set<const Node*> torn;  // Of the shapes of two.
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      if (IsRead(node) || IsOfRows(node)) continue;
      const Kind kind = kinds_[node];
      for (const Edge* edge : node->in_edges()) {
        Node* from = edge->src();
        if (edge->IsControlEdge() || (IsAssign(node) && edge->dst_input() == 0)) continue;
        if (!Computes(from, kind) || torn.count(from)) continue;
        const Shape shape = IsRead(from) && VariableShape(from).DebugString() != kind.shape
                                ? Shape::kOther
                                : ShapeOf(from, kind);
        if (shape == Shape::kOther || shape == Shape::kLone) continue;
        // How many segments there are is not looked at again.
        if (IsSegmentSum(from) && shape != Shape::kFull) continue;
        const auto known = kinds_.find(from);
        if (known == kinds_.end()) {
          kinds_[from] = kind;
          stack.push_back(from);
        } else if (!(known->second == kind)) {
          torn.insert(from);
          kinds_.erase(known);
        }
      }
    }
  }

  bool Together(const Node* one, const Node* other) const {
    const auto first = kinds_.find(one), second = kinds_.find(other);
    return first != kinds_.end() && second != kinds_.end() && first->second == second->second;
  }

  // A value that leaves has to be a tensor, and so has all that only it needs.
  void LeaveWhatOthersUse() {
    for (bool left = true; left;) {
      left = false;
      for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
        if (!kinds_.count(*at) || IsAssign(*at)) continue;
        bool inside = false, outside = false;
        for (const Edge* edge : (*at)->out_edges()) {
          if (edge->IsControlEdge()) continue;
          const bool is_row = IsOfRows(edge->dst());
          (!is_row && Together(*at, edge->dst()) ? inside : outside) = true;
        }
        if (outside || !inside) {
          kinds_.erase(*at);
          left = true;
        }
      }
    }
  }

  int Group(const Node* node) {
    int group = place_[node];
    while (groups_.count(group)) group = groups_[group];
    return group;
  }

  // Groups what belongs together: by its values, then a variable's assignment and its next use,
  // where nothing stands between.
  void Join() {
    for (Node* node : order_) {
      if (!kinds_.count(node)) continue;
      for (const Edge* edge : node->out_edges()) {
        if (edge->IsControlEdge() || !Together(node, edge->dst())) continue;
        const int one = Group(node), other = Group(edge->dst());
        if (one != other) groups_[std::max(one, other)] = std::min(one, other);
      }
    }
    std::map<int, std::vector<Node*>> members;
    for (Node* node : order_) {
      if (kinds_.count(node)) members[Group(node)].push_back(node);
    }
    for (Node* node : order_) {
      if (!IsAssign(node) || !kinds_.count(node)) continue;
      for (const Edge* edge : node->out_edges()) {
        const Node* next = edge->dst();
        if (!edge->IsControlEdge() || !Together(node, next) || !(IsRead(next) || IsAssign(next)) ||
            !SameHandle(node, next)) {
          continue;
        }
        const int one = std::min(Group(node), Group(next)), other = std::max(Group(node), Group(next));
        if (one == other) continue;
        std::vector<Node*> both = members[one];
        both.insert(both.end(), members[other].begin(), members[other].end());
        if (IsInterrupted(both)) continue;
        groups_[other] = one;
        members[one] = std::move(both);
        members.erase(other);
      }
    }
  }

  static bool SameHandle(const Node* one, const Node* other) {
    const Edge *first = HandleOf(one), *second = HandleOf(other);
    return first != nullptr && second != nullptr && first->src() == second->src() &&
           first->src_output() == second->src_output();
  }

  // Whether a path leads out of the nodes and back into them.
  static bool IsInterrupted(const std::vector<Node*>& nodes) {
    const std::unordered_set<const Node*> inside(nodes.begin(), nodes.end());
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> stack;
    auto follow = [&](const Node* node) {
      if (node->IsNextIteration()) return false;
      for (const Edge* edge : node->out_edges()) {
        const Node* to = edge->dst();
        const bool back = inside.count(to) != 0;
        if (back && !inside.count(node)) return true;
        if (!back && !to->IsSink() && seen.insert(to).second) stack.push_back(to);
      }
      return false;
    };
    for (const Node* node : nodes) follow(node);
    while (!stack.empty()) {
      const Node* node = stack.back();
      stack.pop_back();
      if (follow(node)) return true;
    }
    return false;
  }

  // Takes in what has one element and only these nodes use.
  void AddLone(std::vector<Node*>& nodes) const {
    const Kind kind = kinds_.at(nodes[0]);
    std::unordered_set<const Node*> inside(nodes.begin(), nodes.end());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (IsRead(nodes[i]) || IsOfRows(nodes[i])) continue;
      for (const Edge* edge : nodes[i]->in_edges()) {
        Node* from = edge->src();
        if (edge->IsControlEdge() || inside.count(from) || IsRead(from) || from->IsIdentity() ||
            IsOfRows(from)) {
          continue;
        }
        if (!Computes(from, kind) || ShapeOf(from, kind) != Shape::kLone) continue;
        bool only = true;
        for (const Edge* out : from->out_edges()) {
          only = only && !out->IsControlEdge() && inside.count(out->dst()) && !IsOfRows(out->dst());
        }
        if (!only) continue;
        inside.insert(from);
        nodes.push_back(from);
      }
    }
  }

  absl::Status Replace(const std::vector<Node*>& nodes);

  Graph& graph_;
  tensorflow::FunctionLibraryDefinition* const library_;
  const tensorflow::DeviceSet* const devices_;
  const bool in_function_;
  std::vector<Node*> order_;
  std::map<const Node*, int> place_;
  std::unique_ptr<Branches> branches_;
  std::unique_ptr<tensorflow::ShapeRefiner> refiner_;
  std::vector<Node*> assigns_;
  std::map<const Node*, Kind> kinds_;  // Of the nodes that are to be fused.
  std::map<int, int> groups_;
};

using Port = std::pair<Node*, int>;

// The nodes of a group as a program and what it works on.
class Writing {
 public:
  // The steps are in an order that the edges allow, each value just before what needs it.
  explicit Writing(const std::vector<Node*>& nodes) : inside_(nodes.begin(), nodes.end()) {
    for (Node* node : nodes) {
      if (IsAssign(node)) Visit(node);
    }
    for (const Node* node : sequence_) CollectInputs(node);
    for (std::size_t i = 0; i < sequence_.size(); ++i) Note(sequence_[i], i);
    for (std::size_t i = 0; i < sequence_.size(); ++i) Write(sequence_[i], i);
  }

  const std::vector<Port>& handles() const { return handles_; }
  const std::vector<Port>& tensors() const { return tensors_; }
  const std::vector<Port>& indices() const { return indices_; }
  const std::vector<Node*>& sequence() const { return sequence_; }
  const std::vector<std::int64_t>& program() const { return program_; }
  int assigned() const { return assigned_; }
  int computed() const { return computed_; }

  // Which of the handles a node reads or writes by; behind the last one if by none.
  int Variable(const Node* node) const {
    const Edge* root = HandleOf(node);
    const auto found = std::find(roots_.begin(), roots_.end(), Port(root->src(), root->src_output()));
    return static_cast<int>(found - roots_.begin());
  }

 private:
  void Visit(Node* node) {
    if (!seen_.insert(node).second) return;
    std::vector<Node*> before;
    for (int i = 0; i < node->num_inputs(); ++i) before.push_back(Input(node, i)->src());
    std::vector<Node*> waited;
    for (const Edge* edge : node->in_edges()) {
      if (edge->IsControlEdge()) waited.push_back(edge->src());
    }
    std::sort(waited.begin(), waited.end(), tensorflow::NodeComparatorName());
    before.insert(before.begin(), waited.begin(), waited.end());
    for (Node* each : before) {
      if (inside_.count(each)) Visit(each);
    }
    sequence_.push_back(node);
  }

  static int Index(std::vector<Port>& ports, const Edge* edge) {
    const Port port(edge->src(), edge->src_output());
    const auto found = std::find(ports.begin(), ports.end(), port);
    if (found != ports.end()) return static_cast<int>(found - ports.begin());
    ports.push_back(port);
    return static_cast<int>(ports.size()) - 1;
  }

  void CollectInputs(const Node* node) {
    const bool holds = IsRead(node) || IsAssign(node);
    if (holds && Variable(node) == static_cast<int>(roots_.size())) {
      const Edge *root = HandleOf(node), *own = Input(node, 0);
      roots_.emplace_back(root->src(), root->src_output());
      handles_.emplace_back(own->src(), own->src_output());
    }
    if (IsOfRows(node)) {
      Index(indices_, Input(node, 1));
      Index(tensors_, Input(node, RowsOf(node)));
      return;
    }
    for (int i = holds ? 1 : 0; i < node->num_inputs(); ++i) {
      if (!inside_.count(Input(node, i)->src())) Index(tensors_, Input(node, i));
    }
  }

  // Behind identities.
  const Edge* Source(const Edge* edge) const {
    while (inside_.count(edge->src()) && edge->src()->IsIdentity()) edge = Input(edge->src(), 0);
    return edge;
  }

  void Note(Node* node, std::size_t at) {
    if (IsAssign(node)) {
      writes_.emplace_back(at, Variable(node));
    }
    if (node->IsIdentity() || IsOfRows(node)) return;
    for (int i = IsAssign(node) ? 1 : 0; i < node->num_inputs(); ++i) {
      last_[Source(Input(node, i))->src()] = at;
    }
  }

  // The number of an operand's value.
  std::int64_t Value(const Edge* edge) {
    edge = Source(edge);
    if (!inside_.count(edge->src())) return handles_.size() + Index(tensors_, edge);
    return values_.at(edge->src());
  }

  std::int64_t Put(Code code, std::int64_t out, std::int64_t a, std::int64_t b) {
    const std::int64_t own =
        handles_.size() + tensors_.size() + program_.size() / Program::kWidth;
    for (const std::int64_t number :
         {static_cast<std::int64_t>(code), Assigns(code) ? out : own, a, b}) {
      program_.push_back(number);
    }
    return own;
  }

  void Write(Node* node, std::size_t at) {
    const Code code = *CodeOf(node);
    if (IsRead(node)) {
      const int variable = Variable(node);
      bool written = false;
      for (const auto& [when, which] : writes_) {
        written = written || (which == variable && when > at && when < last_[node]);
      }
      values_[node] = written ? Put(code, 0, variable, variable) : variable;
    } else if (TakesRows(code)) {
      ++(Scatters(code) ? assigned_ : computed_);
      const int variable = Scatters(code) ? Variable(node) : 0;
      values_[node] = Put(code, variable, handles_.size() + Index(tensors_, Input(node, RowsOf(node))),
                          Index(indices_, Input(node, 1)));
    } else if (Assigns(code)) {
      ++assigned_;
      const std::int64_t value = Value(Input(node, 1));
      Put(code, Variable(node), value, value);
    } else if (!node->IsIdentity()) {
      ++computed_;
      std::int64_t value = Value(Input(node, 0));
      if (node->num_inputs() == 1) {
        value = node->type_string() == "AddN" ? value : Put(code, 0, value, value);
      }
      for (int i = 1; i < node->num_inputs(); ++i) {
        value = Put(code, 0, value, Value(Input(node, i)));
      }
      values_[node] = value;
    }
  }

  const std::unordered_set<const Node*> inside_;
  std::unordered_set<const Node*> seen_;
  std::vector<Node*> sequence_;
  std::vector<Port> roots_;  // Where the handles come from.
  std::vector<Port> handles_, tensors_, indices_;
  std::vector<std::pair<std::size_t, int>> writes_;  // When each variable is written.
  std::map<const Node*, std::size_t> last_;          // When a value is used last.
  std::map<const Node*, std::int64_t> values_;
  std::vector<std::int64_t> program_;
  int assigned_ = 0, computed_ = 0;
};

// How many segments are summed: as many as the variables have rows.
absl::Status SegmentsOf(const Node* node, std::int64_t rows, Graph* graph, Node** segments) {
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

// The nodes as a function of what the program works on, for executions that are none for it. `rows` are
// those of the variables.
absl::Status OriginalOf(const Writing& writing, std::int64_t rows, const std::string& name,
                        tensorflow::FunctionLibraryDefinition* library) {
  Graph graph(library);
  std::vector<Node*> handles;
  std::map<Port, Node*> arguments;
  std::map<const Node*, Node*> copies;
  int number = 0;
  for (const auto* ports : {&writing.handles(), &writing.tensors(), &writing.indices()}) {
    for (const Port& port : *ports) {
      Node* argument = nullptr;
      TF_RETURN_IF_ERROR(NodeBuilder("tensorwright_input_" + std::to_string(number), "_Arg")
                             .Attr("T", port.first->output_type(port.second))
                             .Attr("index", number)
                             .Finalize(&graph, &argument));
      if (ports == &writing.handles()) handles.push_back(argument);
      arguments.emplace(port, argument);
      ++number;
    }
  }
  for (const Node* node : writing.sequence()) {
    NodeDef definition = node->def();
    definition.clear_input();
    definition.clear_device();
    definition.mutable_attr()->erase("_class");
    absl::Status status;
    copies[node] = graph.AddNode(std::move(definition), &status);
    TF_RETURN_IF_ERROR(status);
  }
  for (const Node* node : writing.sequence()) {
    for (const Edge* edge : node->in_edges()) {
      const auto from = copies.find(edge->src());
      if (edge->IsControlEdge()) {
        if (from != copies.end()) graph.AddControlEdge(from->second, copies[node]);
      } else if (edge->dst_input() == 0 && (IsRead(node) || IsAssign(node))) {
        graph.AddEdge(handles[writing.Variable(node)], 0, copies[node], 0);
      } else if (from != copies.end()) {
        graph.AddEdge(from->second, edge->src_output(), copies[node], edge->dst_input());
      } else if (IsSegmentSum(node) && edge->dst_input() == 2) {
        Node* segments = nullptr;
        TF_RETURN_IF_ERROR(SegmentsOf(node, rows, &graph, &segments));
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

// Up to here the graph is as it was, and may stay so.
absl::Status NotMade(const Writing& writing) {
  Count(Event::kNotMade, writing.assigned());
  return absl::OkStatus();
}

// A library may be made without the kernels of some types.
bool IsRegistered(DataType type, DataType index) {
  NodeDef node;
  node.set_op(kUpdate);
  tensorflow::AddNodeAttr("T", type, &node);
  tensorflow::AddNodeAttr("Tidx", index, &node);
  return tensorflow::KernelDefAvailable(tensorflow::DeviceType(tensorflow::DEVICE_CPU), node);
}

absl::Status Fusing::Replace(const std::vector<Node*>& nodes) {
  const Writing writing(nodes);
  if (writing.assigned() == 0) return absl::OkStatus();
  if (writing.assigned() + writing.computed() < 2) {
    Count(Event::kAlone, writing.assigned());
    return absl::OkStatus();
  }
  std::set<DataType> index_types;
  for (const Port& port : writing.indices()) {
    index_types.insert(port.first->output_type(port.second));
  }
  if (index_types.size() > 1) {
    Count(Event::kIndices, writing.assigned());
    return absl::OkStatus();
  }
  if (IsInterrupted(nodes)) {
    Count(Event::kInterrupted, writing.assigned());
    return absl::OkStatus();
  }
  const DataType type = kinds_.at(nodes[0]).type;
  const DataType index = index_types.empty() ? tensorflow::DT_INT32 : *index_types.begin();
  if (!IsRegistered(type, index)) {
    Count(Event::kNotSelected, writing.assigned());
    return absl::OkStatus();
  }
  const std::vector<Node*>& sequence = writing.sequence();
  Node* last = sequence.back();
  const std::string original = NameOfOriginal("update", *library_);
  // A session keeps the kernels of operations with state by their names, for all its graphs.
  const std::string name = graph_.NewName(last->name() + "/" + original);
  const PartialTensorShape shape =
      VariableShape(*std::find_if(sequence.begin(), sequence.end(), IsAssign));
  const std::int64_t rows = shape.dims() > 0 ? shape.dim_size(0) : 1;
  if (!OriginalOf(writing, rows, original, library_).ok()) return NotMade(writing);

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
  const absl::Status made =
      NodeBuilder(name, kUpdate, library_)
          .Input(outputs(writing.handles()))
          .Input(outputs(writing.tensors()))
          .Input(outputs(writing.indices()))
          .ControlInputs(std::vector<Node*>(before.begin(), before.end()))
          .Attr("T", type)
          .Attr("Tidx", index)
          .Attr("program", writing.program())
          .Attr("original", function)
          .Attr("in_function", in_function_)
          .Device(last->requested_device())
          .AssignedDevice(last->assigned_device_name())
          .Finalize(&graph_, &fused);
  if (!made.ok()) return NotMade(writing);

  // A node that has effects may be waited for by its name, and others by an edge.
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
    graph_.RemoveNode(node);
    if (!stays) continue;
    absl::Status status;
    Node* nothing = graph_.AddNode(std::move(done), &status);
    TF_RETURN_IF_ERROR(status);
    nothing->set_assigned_device_name(device);
    graph_.AddControlEdge(fused, nothing);
    for (Node* to : after) graph_.AddControlEdge(nothing, to);
  }
  Count(Event::kUpdates);
  Count(Event::kOps, static_cast<int>(sequence.size()));
  return absl::OkStatus();
}

class FuseUpdates : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || *options.graph == nullptr || !Wanted(kPart)) {
      return absl::OkStatus();
    }
    return Fusing(options).Run();
  }
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_FUSED_FUSE_UPDATES_H_
