// The program of an update (program.h), from the nodes of a group.

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

// The program of a group, and the variables, tensors and indices that it uses.
class UpdatePlan {
 public:
  // The steps are in an order that the edges allow; each value is computed just before its first use.
  explicit UpdatePlan(const std::vector<Node*>& nodes) : inside_(nodes.begin(), nodes.end()) {
    for (Node* node : nodes) {
      if (IsAssign(node)) AddInOrder(node);
    }
    for (const Node* node : sequence_) CollectInputs(node);
    for (std::size_t i = 0; i < sequence_.size(); ++i) RecordUses(sequence_[i], i);
    for (std::size_t i = 0; i < sequence_.size(); ++i) WriteInstructions(sequence_[i], i);
  }

  const std::vector<Port>& handles() const { return handles_; }
  const std::vector<Port>& tensors() const { return tensors_; }
  const std::vector<Port>& indices() const { return indices_; }
  const std::vector<Node*>& sequence() const { return sequence_; }
  const std::vector<std::int64_t>& program() const { return program_; }
  int assigned() const { return assigned_; }
  int computed() const { return computed_; }

  // The number of the handle that a node reads or writes by; the number of handles if there is none yet.
  int VariableOf(const Node* node) const {
    const Edge* root = HandleOf(node);
    const auto found = std::find(handle_sources_.begin(), handle_sources_.end(),
                                 Port(root->src(), root->src_output()));
    return static_cast<int>(found - handle_sources_.begin());
  }

 private:
  void AddInOrder(Node* node) {
    if (!seen_.insert(node).second) return;
    std::vector<Node*> before;
    for (int i = 0; i < node->num_inputs(); ++i) before.push_back(Input(node, i)->src());
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

  static int FindOrAdd(std::vector<Port>& ports, const Edge* edge) {
    const Port port(edge->src(), edge->src_output());
    const auto found = std::find(ports.begin(), ports.end(), port);
    if (found != ports.end()) return static_cast<int>(found - ports.begin());
    ports.push_back(port);
    return static_cast<int>(ports.size()) - 1;
  }

  void CollectInputs(const Node* node) {
    const bool holds = IsRead(node) || IsAssign(node);
    if (holds && VariableOf(node) == static_cast<int>(handle_sources_.size())) {
      const Edge *root = HandleOf(node), *handle_edge = Input(node, 0);
      handle_sources_.emplace_back(root->src(), root->src_output());
      handles_.emplace_back(handle_edge->src(), handle_edge->src_output());
    }
    if (UsesRows(node)) {
      FindOrAdd(indices_, Input(node, 1));
      FindOrAdd(tensors_, Input(node, RowsInput(node)));
      return;
    }
    for (int i = holds ? 1 : 0; i < node->num_inputs(); ++i) {
      if (!inside_.count(Input(node, i)->src())) FindOrAdd(tensors_, Input(node, i));
    }
  }

  // The edge that an Identity of the group passes on.
  const Edge* SkipIdentities(const Edge* edge) const {
    while (inside_.count(edge->src()) && edge->src()->IsIdentity()) edge = Input(edge->src(), 0);
    return edge;
  }

  void RecordUses(Node* node, std::size_t at) {
    if (IsAssign(node)) {
      writes_.emplace_back(at, VariableOf(node));
    }
    if (node->IsIdentity() || UsesRows(node)) return;
    for (int i = IsAssign(node) ? 1 : 0; i < node->num_inputs(); ++i) {
      last_use_[SkipIdentities(Input(node, i))->src()] = at;
    }
  }

  // The number of the value of an operand.
  std::int64_t ValueOf(const Edge* edge) {
    edge = SkipIdentities(edge);
    if (!inside_.count(edge->src())) return handles_.size() + FindOrAdd(tensors_, edge);
    return values_.at(edge->src());
  }

  std::int64_t Append(Code code, std::int64_t out, std::int64_t a, std::int64_t b) {
    const std::int64_t handle_edge =
        handles_.size() + tensors_.size() + program_.size() / Program::kWidth;
    for (const std::int64_t number :
         {static_cast<std::int64_t>(code), Assigns(code) ? out : handle_edge, a, b}) {
      program_.push_back(number);
    }
    return handle_edge;
  }

  void WriteInstructions(Node* node, std::size_t at) {
    const Code code = *CodeOf(node);
    if (IsRead(node)) {
      const int variable = VariableOf(node);
      bool written = false;
      for (const auto& [when, which] : writes_) {
        written = written || (which == variable && when > at && when < last_use_[node]);
      }
      values_[node] = written ? Append(code, 0, variable, variable) : variable;
    } else if (TakesRows(code)) {
      ++(Scatters(code) ? assigned_ : computed_);
      const int variable = Scatters(code) ? VariableOf(node) : 0;
      values_[node] = Append(code, variable,
                             handles_.size() + FindOrAdd(tensors_, Input(node, RowsInput(node))),
                             FindOrAdd(indices_, Input(node, 1)));
    } else if (Assigns(code)) {
      ++assigned_;
      const std::int64_t value = ValueOf(Input(node, 1));
      Append(code, VariableOf(node), value, value);
    } else if (!node->IsIdentity()) {
      ++computed_;
      std::int64_t value = ValueOf(Input(node, 0));
      if (node->num_inputs() == 1) {
        value = node->type_string() == "AddN" ? value : Append(code, 0, value, value);
      }
      for (int i = 1; i < node->num_inputs(); ++i) {
        value = Append(code, 0, value, ValueOf(Input(node, i)));
      }
      values_[node] = value;
    }
  }

  const std::unordered_set<const Node*> inside_;
  std::unordered_set<const Node*> seen_;
  std::vector<Node*> sequence_;
  std::vector<Port> handle_sources_;  // The outputs that created the handles.
  std::vector<Port> handles_, tensors_, indices_;
  std::vector<std::pair<std::size_t, int>> writes_;  // The step that writes a variable, and which.
  std::map<const Node*, std::size_t> last_use_;      // The last step that uses a value.
  std::map<const Node*, std::int64_t> values_;
  std::vector<std::int64_t> program_;
  int assigned_ = 0, computed_ = 0;
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_UPDATES_PLAN_UPDATE_H_
