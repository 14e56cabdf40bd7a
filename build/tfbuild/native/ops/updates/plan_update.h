// Translates the nodes of a group into the program of an update (program.h).

#ifndef TENSORWRIGHT_OPS_UPDATES_PLAN_UPDATE_H_
#define TENSORWRIGHT_OPS_UPDATES_PLAN_UPDATE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tensorwright/ops/updates/nodes.h"
#include "tensorwright/ops/updates/program.h"

namespace tensorwright {
namespace {

// The program of a group, and the inputs of the fused op: the handles, tensors and indices that the
// program uses. Values are numbered as in program.h.
class UpdatePlan {
 public:
  // The order of the steps respects all edges between the nodes. Each value is computed just before
  // its first use.
  explicit UpdatePlan(const std::vector<Node*>& nodes) : inside_(nodes.begin(), nodes.end()) {
    for (Node* node : nodes) {
      if (IsAssign(node)) AddInOrder(node);
    }
    for (const Node* node : sequence_) CollectInputs(node);
    for (std::size_t i = 0; i < sequence_.size(); ++i) RecordUses(sequence_[i], i);
    for (std::size_t i = 0; i < sequence_.size(); ++i) WriteInstructions(sequence_[i], i);
  }

  // The inputs of the fused op: outputs of nodes outside the group.
  const std::vector<Port>& handles() const { return handles_; }
  const std::vector<Port>& tensors() const { return tensors_; }
  const std::vector<Port>& indices() const { return indices_; }
  // The nodes in the order of execution.
  const std::vector<Node*>& sequence() const { return sequence_; }
  // The steps, as the attribute `program` has them.
  const std::vector<std::int64_t>& program() const { return program_; }
  // The numbers of nodes that assign a variable, and of nodes that compute a value.
  int assigned() const { return assigned_; }
  int computed() const { return computed_; }

  // Returns the index of the variable that a node reads or writes, or the number of variables if
  // this one is not recorded yet.
  int VariableOf(const Node* node) const {
    const Edge* root = HandleOf(node);
    const auto found = std::find(handle_sources_.begin(), handle_sources_.end(),
                                 Port(root->src(), root->src_output()));
    return static_cast<int>(found - handle_sources_.begin());
  }

 private:
  // Appends a node to the sequence, after the nodes of the group that must run before it.
  void AddInOrder(Node* node) {
    if (!seen_.insert(node).second) return;
    std::vector<Node*> before;
    for (int i = 0; i < node->num_inputs(); ++i) before.push_back(InputEdge(node, i)->src());
    std::vector<Node*> control_inputs;
    for (const Edge* edge : node->in_edges()) {
      if (edge->IsControlEdge()) control_inputs.push_back(edge->src());
    }
    std::sort(control_inputs.begin(), control_inputs.end(), tensorflow::NodeComparatorName());
    before.insert(before.begin(), control_inputs.begin(), control_inputs.end());
    for (Node* each : before) {
      if (inside_.count(each)) AddInOrder(each);
    }
    sequence_.push_back(node);
  }

  // Returns the index of the output that `edge` comes from in `ports`. Appends it if it is missing.
  static int FindOrAdd(std::vector<Port>& ports, const Edge* edge) {
    const Port port(edge->src(), edge->src_output());
    const auto found = std::find(ports.begin(), ports.end(), port);
    if (found != ports.end()) return static_cast<int>(found - ports.begin());
    ports.push_back(port);
    return static_cast<int>(ports.size()) - 1;
  }

  // Records the handle, tensors and indices that a node uses from outside the group.
  void CollectInputs(const Node* node) {
    const bool holds = IsRead(node) || IsAssign(node);
    if (holds && VariableOf(node) == static_cast<int>(handle_sources_.size())) {
      const Edge *root = HandleOf(node), *handle_edge = InputEdge(node, 0);
      handle_sources_.emplace_back(root->src(), root->src_output());
      handles_.emplace_back(handle_edge->src(), handle_edge->src_output());
    }
    if (UsesRows(node)) {
      FindOrAdd(indices_, InputEdge(node, 1));
      FindOrAdd(tensors_, InputEdge(node, RowsInput(node)));
      return;
    }
    for (int i = holds ? 1 : 0; i < node->num_inputs(); ++i) {
      if (!inside_.count(InputEdge(node, i)->src())) FindOrAdd(tensors_, InputEdge(node, i));
    }
  }

  // Returns the edge whose value reaches `edge` through Identity nodes of the group.
  const Edge* SkipIdentities(const Edge* edge) const {
    while (inside_.count(edge->src()) && edge->src()->IsIdentity())
      edge = InputEdge(edge->src(), 0);
    return edge;
  }

  // Records which variable a node writes and which values it uses. `at` is its place in the
  // sequence.
  void RecordUses(Node* node, std::size_t at) {
    if (IsAssign(node)) {
      writes_.emplace_back(at, VariableOf(node));
    }
    if (node->IsIdentity() || UsesRows(node)) return;
    for (int i = IsAssign(node) ? 1 : 0; i < node->num_inputs(); ++i) {
      last_use_[SkipIdentities(InputEdge(node, i))->src()] = at;
    }
  }

  // Returns the number of the value that an edge carries.
  std::int64_t ValueOf(const Edge* edge) {
    edge = SkipIdentities(edge);
    if (!inside_.count(edge->src())) return handles_.size() + FindOrAdd(tensors_, edge);
    return values_.at(edge->src());
  }

  // Appends a step to the program. Returns the number of its value. `out` counts only for
  // assignments.
  std::int64_t Append(Code code, std::int64_t out, std::int64_t a, std::int64_t b) {
    const std::int64_t value =
        handles_.size() + tensors_.size() + program_.size() / Program::kWidth;
    for (const std::int64_t number :
         {static_cast<std::int64_t>(code), IsAssignment(code) ? out : value, a, b}) {
      program_.push_back(number);
    }
    return value;
  }

  // Appends the steps of a node. A read is a copy only if the variable is written before the
  // value's last use; otherwise its value is the variable itself.
  void WriteInstructions(Node* node, std::size_t at) {
    const Code code = *CodeOf(node);
    if (IsRead(node)) {
      const int variable = VariableOf(node);
      bool written = false;
      for (const auto& [when, which] : writes_) {
        written = written || (which == variable && when > at && when < last_use_[node]);
      }
      values_[node] = written ? Append(code, 0, variable, variable) : variable;
    } else if (HasRowOperand(code)) {
      ++(IsScatter(code) ? assigned_ : computed_);
      const int variable = IsScatter(code) ? VariableOf(node) : 0;
      values_[node] = Append(
          code, variable, handles_.size() + FindOrAdd(tensors_, InputEdge(node, RowsInput(node))),
          FindOrAdd(indices_, InputEdge(node, 1)));
    } else if (IsAssignment(code)) {
      ++assigned_;
      const std::int64_t value = ValueOf(InputEdge(node, 1));
      Append(code, VariableOf(node), value, value);
    } else if (!node->IsIdentity()) {
      ++computed_;
      std::int64_t value = ValueOf(InputEdge(node, 0));
      if (node->num_inputs() == 1) value = Append(code, 0, value, value);
      for (int i = 1; i < node->num_inputs(); ++i) {
        value = Append(code, 0, value, ValueOf(InputEdge(node, i)));
      }
      values_[node] = value;
    }
  }

  const std::unordered_set<const Node*> inside_;
  std::unordered_set<const Node*> seen_;
  std::vector<Node*> sequence_;
  std::vector<Port> handle_sources_;  // The outputs that created the handles.
  std::vector<Port> handles_, tensors_, indices_;
  std::vector<std::pair<std::size_t, int>> writes_;  // (Place in the sequence, variable written).
  std::map<const Node*, std::size_t> last_use_;      // Place in the sequence of a value's last use.
  std::map<const Node*, std::int64_t> values_;
  std::vector<std::int64_t> program_;
  int assigned_ = 0, computed_ = 0;
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_UPDATES_PLAN_UPDATE_H_
