// Finds the nodes of a graph that update variables and can be fused.

#ifndef TENSORWRIGHT_OPS_UPDATES_FIND_UPDATES_H_
#define TENSORWRIGHT_OPS_UPDATES_FIND_UPDATES_H_

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorwright/graph/paths.h"
#include "tensorwright/graph/shapes.h"
#include "tensorwright/graph/xla.h"
#include "tensorwright/ops/updates/events.h"
#include "tensorwright/ops/updates/nodes.h"

namespace tensorwright {
namespace {

// How the shape of a value compares with that of the variable: equal, another one with a single
// element, any other, or not known.
enum class Shape { kFull, kOneElement, kOther, kUnknown };

// Nodes to fuse into one op, and the type of their values.
struct UpdateGroup {
  DataType type;
  std::vector<Node*> nodes;
};

// Finds the groups of nodes to fuse. Starts at assignments, adds the nodes that compute the
// assigned values, excludes those whose values are used elsewhere, and joins the rest into groups.
class UpdateFinder {
 public:
  explicit UpdateFinder(const tensorflow::GraphOptimizationPassOptions& options)
      : graph_(*options.graph->get()), library_(options.flib_def), devices_(options.device_set) {}

  // Returns the groups. EmitUpdate() replaces each by one op, unless another node must run between
  // its nodes. All nodes of a group have the same kind, except single elements.
  std::vector<UpdateGroup> Find() {
    bool any = false;
    for (const Node* node : graph_.op_nodes()) any = any || IsAssign(node);
    if (!any || library_ == nullptr) return {};
    GetReversePostOrder(graph_, &order_, tensorflow::NodeComparatorName(),
                        [](const Edge& edge) { return !edge.src()->IsNextIteration(); });
    for (std::size_t i = 0; i < order_.size(); ++i) position_[order_[i]] = static_cast<int>(i);
    branches_ = std::make_unique<Branches>(order_);
    FindAssigns();
    if (assigns_.empty()) return {};
    shapes_ = std::make_unique<InferredShapes>(graph_, library_, order_);
    FindOperands();
    ExcludeValuesUsedElsewhere();
    JoinGroups();
    std::map<int, std::vector<Node*>> members;
    for (Node* node : order_) {
      if (kinds_.count(node)) members[GroupOf(node)].push_back(node);
    }
    std::vector<UpdateGroup> groups;
    for (auto& [group, nodes_of] : members) {
      AddSingleElements(nodes_of);
      groups.push_back({kinds_.at(nodes_of[0]).type, std::move(nodes_of)});
    }
    return groups;
  }

 private:
  // Whether a node is placed on a CPU of this process.
  bool IsOnLocalCpu(const Node* node) const {
    if (devices_ == nullptr) return false;
    const auto* device = devices_->FindDeviceByName(node->assigned_device_name());
    return device != nullptr && device->IsLocal() &&
           device->device_type() == tensorflow::DEVICE_CPU;
  }

  // Collects the assignments that can be fused, and counts the others by reason.
  void FindAssigns() {
    for (Node* node : order_) {
      if (!IsAssign(node)) continue;
      const DataType type = TypeOf(node);
      const PartialTensorShape shape = VariableShape(node);
      if (!IsFloating(type)) {
        events::not_floating.Add();
      } else if (IsCompiled(node->attrs())) {
        events::compiled.Add();
      } else if (!IsOnLocalCpu(node)) {
        events::elsewhere.Add();
      } else if (!shape.IsFullyDefined()) {
        events::unknown_shape.Add();
      } else {
        kinds_[node] = {shape.DebugString(), type, node->assigned_device_name(),
                        branches_->of(node)};
        assigns_.push_back(node);
      }
    }
  }

  // Compares the shape of an output with that of the variables of this kind.
  Shape ShapeOf(const Node* node, const Kind& kind, int port = 0) const {
    const PartialTensorShape shape = shapes_->Of(node, port);
    if (!shape.IsFullyDefined()) return Shape::kUnknown;
    if (shape.DebugString() == kind.shape) return Shape::kFull;
    return shape.num_elements() == 1 ? Shape::kOneElement : Shape::kOther;
  }

  // Whether an AddN can be computed: it has two inputs, which are known to have the shape of the
  // variable. The stock kernel adds more inputs in an order that depends on which of their buffers
  // it can reuse. For inputs of different shapes it fails, whereas the program would broadcast.
  bool IsSupportedAddN(const Node* node, const Kind& kind) const {
    if (node->num_inputs() != 2) return false;
    for (int i = 0; i < 2; ++i) {
      const Edge* edge = InputEdge(node, i);
      if (ShapeOf(edge->src(), kind, edge->src_output()) != Shape::kFull) return false;
    }
    return true;
  }

  // Whether a program can compute the node, and the node has the type, device and conditions of
  // this kind. Shapes are checked only for AddN.
  bool CanCompute(const Node* node, const Kind& kind) const {
    const Code* code = CodeOf(node);
    if (code == nullptr || IsAssignment(*code) || !HasStockBits(*code) ||
        TypeOf(node) != kind.type) {
      return false;
    }
    if (node->assigned_device_name() != kind.device || IsCompiled(node->attrs())) return false;
    if (node->type_string() == "AddN" && !IsSupportedAddN(node, kind)) return false;
    // The stock kernels of float16 and bfloat16 round some elements once and others twice,
    // depending on their position.
    if (*code == Code::kRsqrt && kind.type != tensorflow::DT_FLOAT &&
        kind.type != tensorflow::DT_DOUBLE) {
      return false;
    }
    return branches_->of(node) == kind.conditions;
  }

  // Adds the nodes that compute the assigned values, unless they are known to have another shape
  // than the variable.
  void FindOperands() {
    std::vector<Node*> stack = assigns_;
    std::set<const Node*> conflicting;  // Nodes that nodes of two kinds use.
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      if (IsRead(node) || UsesRows(node)) continue;
      const Kind kind = kinds_[node];
      for (const Edge* edge : node->in_edges()) {
        Node* from = edge->src();
        if (edge->IsControlEdge() || (IsAssign(node) && edge->dst_input() == 0)) continue;
        if (!CanCompute(from, kind) || conflicting.count(from)) continue;
        const Shape shape = IsRead(from) && VariableShape(from).DebugString() != kind.shape
                                ? Shape::kOther
                                : ShapeOf(from, kind);
        if (shape == Shape::kOther || shape == Shape::kOneElement) continue;
        // The fused op does not check the number of segments, so the shape must be known here.
        if (IsSegmentSum(from) && shape != Shape::kFull) continue;
        const auto known = kinds_.find(from);
        if (known == kinds_.end()) {
          kinds_[from] = kind;
          stack.push_back(from);
        } else if (!(known->second == kind)) {
          conflicting.insert(from);
          kinds_.erase(known);
        }
      }
    }
  }

  bool HaveSameKind(const Node* one, const Node* other) const {
    const auto first = kinds_.find(one), second = kinds_.find(other);
    return first != kinds_.end() && second != kinds_.end() && first->second == second->second;
  }

  // Excludes nodes whose values are needed as tensors, because a node that cannot
  // be fused with them uses them, or because a node scatters or sums their rows. Repeats this until
  // nothing changes.
  void ExcludeValuesUsedElsewhere() {
    for (bool left = true; left;) {
      left = false;
      for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
        if (!kinds_.count(*at) || IsAssign(*at)) continue;
        bool inside = false, outside = false;
        for (const Edge* edge : (*at)->out_edges()) {
          if (edge->IsControlEdge()) continue;
          const bool is_row = UsesRows(edge->dst());
          (!is_row && HaveSameKind(*at, edge->dst()) ? inside : outside) = true;
        }
        if (outside || !inside) {
          kinds_.erase(*at);
          left = true;
        }
      }
    }
  }

  // Returns the number of a node's group: the position of a node of the group in `order_`.
  int GroupOf(const Node* node) {
    int group = position_[node];
    while (groups_.count(group)) group = groups_[group];
    return group;
  }

  // Joins nodes that use each other's values. Then joins the assignment of a variable with its next
  // use, if no other node must run between the nodes of both groups.
  void JoinGroups() {
    for (Node* node : order_) {
      if (!kinds_.count(node)) continue;
      for (const Edge* edge : node->out_edges()) {
        if (edge->IsControlEdge() || !HaveSameKind(node, edge->dst())) continue;
        const int one = GroupOf(node), other = GroupOf(edge->dst());
        if (one != other) groups_[std::max(one, other)] = std::min(one, other);
      }
    }
    std::map<int, std::vector<Node*>> members;
    for (Node* node : order_) {
      if (kinds_.count(node)) members[GroupOf(node)].push_back(node);
    }
    for (Node* node : order_) {
      if (!IsAssign(node) || !kinds_.count(node)) continue;
      for (const Edge* edge : node->out_edges()) {
        const Node* next = edge->dst();
        if (!edge->IsControlEdge() || !HaveSameKind(node, next) ||
            !(IsRead(next) || IsAssign(next)) || !SameHandle(node, next)) {
          continue;
        }
        const int one = std::min(GroupOf(node), GroupOf(next)),
                  other = std::max(GroupOf(node), GroupOf(next));
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

  // Whether two nodes access a variable through the same handle.
  static bool SameHandle(const Node* one, const Node* other) {
    const Edge *first = HandleOf(one), *second = HandleOf(other);
    return first != nullptr && second != nullptr && first->src() == second->src() &&
           first->src_output() == second->src_output();
  }

  // Adds nodes whose value has one element and that only these nodes use.
  void AddSingleElements(std::vector<Node*>& nodes) const {
    const Kind kind = kinds_.at(nodes[0]);
    std::unordered_set<const Node*> inside(nodes.begin(), nodes.end());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (IsRead(nodes[i]) || UsesRows(nodes[i])) continue;
      for (const Edge* edge : nodes[i]->in_edges()) {
        Node* from = edge->src();
        if (edge->IsControlEdge() || inside.count(from) || IsRead(from) || from->IsIdentity() ||
            UsesRows(from)) {
          continue;
        }
        if (!CanCompute(from, kind) || ShapeOf(from, kind) != Shape::kOneElement) continue;
        bool only = true;
        for (const Edge* out : from->out_edges()) {
          only = only && !out->IsControlEdge() && inside.count(out->dst()) && !UsesRows(out->dst());
        }
        if (!only) continue;
        inside.insert(from);
        nodes.push_back(from);
      }
    }
  }

  Graph& graph_;
  const tensorflow::FunctionLibraryDefinition* const library_;
  const tensorflow::DeviceSet* const devices_;
  std::vector<Node*> order_;
  std::map<const Node*, int> position_;
  std::unique_ptr<Branches> branches_;
  std::unique_ptr<InferredShapes> shapes_;
  std::vector<Node*> assigns_;
  std::map<const Node*, Kind> kinds_;  // The nodes to fuse.
  std::map<int, int> groups_;          // Group → the group that it was joined to.
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_UPDATES_FIND_UPDATES_H_
