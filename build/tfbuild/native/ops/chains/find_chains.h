// Finds the nodes of a graph that can be computed as chains.

#ifndef TENSORWRIGHT_OPS_CHAINS_FIND_CHAINS_H_
#define TENSORWRIGHT_OPS_CHAINS_FIND_CHAINS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/algorithm.h"
#include "tensorwright/graph/branches.h"
#include "tensorwright/graph/original.h"
#include "tensorwright/graph/paths.h"
#include "tensorwright/graph/placed.h"
#include "tensorwright/graph/shapes.h"
#include "tensorwright/graph/xla.h"
#include "tensorwright/ops/chains/events.h"
#include "tensorwright/ops/chains/plan.h"
#include "tensorwright/ops/chains/translate.h"

namespace tensorwright::chains {
namespace {

// The most elements of a tensor that is known to be too small to be worth a chain.
constexpr std::int64_t kMaxSmall = 16;

// A set of chains, by number.
class ChainSet {
 public:
  void Add(int chain) {
    const std::size_t word = chain / 64;
    if (word >= words_.size()) words_.resize(word + 1);
    words_[word] |= std::uint64_t{1} << chain % 64;
  }
  // Returns whether the set has changed.
  bool Add(const ChainSet& other) {
    bool changed = false;
    if (other.words_.size() > words_.size()) words_.resize(other.words_.size());
    for (std::size_t i = 0; i < other.words_.size(); ++i) {
      changed = changed || (other.words_[i] & ~words_[i]) != 0;
      words_[i] |= other.words_[i];
    }
    return changed;
  }
  // Calls take(chain) for each chain of the set.
  template <typename Take>
  void ForEach(const Take& take) const {
    for (std::size_t word = 0; word < words_.size(); ++word) {
      for (std::uint64_t left = words_[word]; left != 0; left &= left - 1) {
        take(static_cast<int>(64 * word) + __builtin_ctzll(left));
      }
    }
  }

 private:
  std::vector<std::uint64_t> words_;
};

// Finds chains: sets of nodes that use each other's values, or sum the same tensor, and between
// which no other node must run. Nodes come in the order of execution. Each joins the chains of its
// inputs if these do not reach it through other nodes, too.
class ChainFinder {
 public:
  explicit ChainFinder(const tensorflow::GraphOptimizationPassOptions& options)
      : graph_(*options.graph->get()), library_(options.flib_def) {}

  // Returns the chains, each in the order of execution.
  std::vector<std::vector<Node*>> Find() {
    bool any = false;
    for (const Node* node : graph_.op_nodes()) any = any || IsCandidate(node);
    if (!any || library_ == nullptr) return {};
    GetReversePostOrder(graph_, &order_, tensorflow::NodeComparatorName(),
                        [](const Edge& edge) { return !edge.src()->IsNextIteration(); });
    for (std::size_t i = 0; i < order_.size(); ++i) positions_[order_[i]] = i;
    branches_ = std::make_unique<Branches>(order_);
    shapes_ = std::make_unique<InferredShapes>(graph_, library_, order_);
    for (Node* node : order_) Place(node);
    std::map<int, std::vector<Node*>> members;
    for (Node* node : order_) {
      const auto found = chains_.find(node);
      if (found != chains_.end()) members[Current(found->second)].push_back(node);
    }
    std::vector<std::vector<Node*>> chains;
    chains_.clear();
    for (auto& [number, nodes] : members) {
      Trim(&nodes);
      if (!IsWorthwhile(nodes)) continue;
      if (IsInterrupted(nodes)) {
        events::interrupted_chain.Add();
        continue;
      }
      for (const Node* node : nodes) chains_[node] = static_cast<int>(chains.size());
      chains.push_back(std::move(nodes));
    }
    for (auto& nodes : chains) Recompute(&nodes);
    const auto end = std::remove_if(chains.begin(), chains.end(),
                                    [&](const auto& nodes) { return !SavesPasses(nodes); });
    chains.erase(end, chains.end());
    return chains;
  }

 private:
  static bool IsCandidate(const Node* node) {
    return node->IsOp() && CanTranslate(node) && IsOnLocalCpu(node) && !IsCompiled(node->attrs()) &&
           !node->attrs().Find(kOriginalAttr);
  }

  // Returns the shape of the first operand.
  tensorflow::PartialTensorShape OperandShape(const Node* node) const {
    const Edge* edge = InputEdge(node, 0);
    return shapes_->Of(edge->src(), edge->src_output());
  }

  // Returns the shape to which the result of a sum is reshaped, as that of a gradient is; of unknown
  // rank if it is not known or not reshaped.
  tensorflow::PartialTensorShape ReshapedShape(const Node* node) const {
    for (const Edge* edge : node->out_edges()) {
      if (!edge->IsControlEdge() && IsOp(edge->dst(), "Reshape"))
        return shapes_->Of(edge->dst(), 0);
    }
    return {};
  }

  // Whether a node is known to compute few elements.
  bool IsSmall(const Node* node) const {
    const auto shape = IsOp(node, "Shape") ? OperandShape(node) : shapes_->Of(node, 0);
    const std::int64_t count = shape.num_elements();  // -1 if it is not known.
    return shape.dims() == 0 || (count >= 0 && count <= kMaxSmall);
  }

  // Returns the axes over which a node sums if they are constants, as numbers from 0 if the rank is
  // known.
  std::optional<std::set<std::int64_t>> ConstantAxes(const Node* node) const {
    tensorflow::Tensor value;
    const Node* axes = InputEdge(node, 1)->src();
    if (!axes->IsConstant() || !GetNodeAttr(axes->attrs(), "value", &value).ok()) return {};
    const int rank = OperandShape(node).dims();
    std::set<std::int64_t> numbers;
    for (std::int64_t i = 0; i < value.NumElements(); ++i) {
      const std::int64_t axis = value.dtype() == tensorflow::DT_INT32
                                    ? value.flat<std::int32_t>()(i)
                                    : value.flat<std::int64_t>()(i);
      numbers.insert(axis < 0 && rank > 0 ? axis + rank : axis);
    }
    return numbers;
  }

  // Whether oneDNN sums with the gradient of a filter (mkl_layout_pass.cc): Conv2DBackpropFilter and
  // BiasAddGrad of the same tensor become one op.
  static bool IsSummedByConvolution(const Node* node) {
    for (const Edge* edge : InputEdge(node, 0)->src()->out_edges()) {
      if (IsOp(edge->dst(), "Conv2DBackpropFilter")) return true;
    }
    return false;
  }

  // Whether a plan may exist for a sum or maximum: its axes are the last or the first ones, as far as
  // they are known. There are no plans for maxima over the first axes.
  bool CanSum(const Node* node) const {
    if (IsOp(node, "BiasAddGrad")) return !IsSummedByConvolution(node);
    const auto axes = ConstantAxes(node);
    const bool is_maximum = IsOp(node, "Max");
    if (!axes) return !is_maximum && HasPlannableResult(node);
    if (axes->empty()) return true;
    const int rank = OperandShape(node).dims();
    if (rank < 1) return *axes == std::set<std::int64_t>{-1};
    const std::int64_t first = *axes->begin(), last = *axes->rbegin();
    const bool keeps = first > 0 || AttributeOf(node, "keep_dims", false);
    return last - first + 1 == static_cast<std::int64_t>(axes->size()) &&
           (last == rank - 1 ? keeps || !is_maximum : first == 0 && !is_maximum);
  }

  // Whether the axes over which a gradient sums are the first or the last ones, as far as the shapes
  // of the operand and of the reshaped result tell. Axes of unknown size count as kept.
  bool HasPlannableResult(const Node* node) const {
    const auto operand = OperandShape(node), result = ReshapedShape(node);
    if (operand.unknown_rank() || result.unknown_rank()) return true;
    const int missing = operand.dims() - result.dims();
    int runs = 0;
    bool before = false;
    for (int axis = 0; axis < operand.dims(); ++axis) {
      if (operand.dim_size(axis) == 1) continue;
      const bool summed =
          axis < missing || (result.dim_size(axis - missing) == 1 && operand.dim_size(axis) > 1);
      if (runs == 0 || before != summed) ++runs;
      before = summed;
    }
    return runs <= 2;
  }

  // Whether a sum is complete only after all blocks, so that no other op of the chain can use it. A
  // sum over the last axes is not, if these stay. Gradients of ops that broadcast sum over axes that
  // are not known here; such a sum mostly does nothing if the result has the operand's shape.
  bool IsTotal(const Node* node) const {
    if (IsOp(node, "BiasAddGrad")) return true;
    const auto operand = OperandShape(node);
    if (const auto axes = ConstantAxes(node)) {
      const std::int64_t last = operand.dims() < 1 ? -1 : operand.dims() - 1;
      return !AttributeOf(node, "keep_dims", false) || axes->count(last) == 0;
    }
    return operand.unknown_rank() || !ReshapedShape(node).IsIdenticalTo(operand);
  }

  // Returns the number of the chain that a chain has been merged into.
  int Current(int chain) const {
    while (merged_[chain] != chain) chain = merged_[chain];
    return chain;
  }

  // Adds all chains on which those of `set` depend.
  void Close(ChainSet* set) const {
    for (bool grows = true; grows;) {
      const ChainSet known = *set;
      grows = false;
      known.ForEach([&](int chain) { grows = set->Add(before_[Current(chain)]) || grows; });
    }
  }

  // Whether a set has a chain or one that was merged into it.
  bool HasChain(const ChainSet& set, int chain) const {
    bool has = false;
    set.ForEach([&](int each) { has = has || Current(each) == chain; });
    return has;
  }

  // Returns the chains on which a node depends, other than by using values of `chain` or `other`
  // directly.
  ChainSet Dependencies(const Node* node, int chain, int other = -1) const {
    ChainSet all;
    for (const Edge* edge : node->in_edges()) {
      const Node* from = edge->src();
      if (from->IsNextIteration()) continue;
      const auto reached = depends_.find(from);
      if (reached != depends_.end()) all.Add(reached->second);
      const auto found = chains_.find(from);
      if (found == chains_.end()) continue;
      const int before = Current(found->second);
      const bool direct = (before == chain || before == other) && CanFollow(from, node);
      if (!direct) all.Add(before);
    }
    return all;
  }

  // Whether a chain may compute `node` from a value of `from`.
  bool CanFollow(const Node* from, const Node* node) const {
    return !totals_.count(from) || IsAlias(node) || IsOp(node, "Shape");
  }

  // Returns the chains that a node may join: those of its inputs, those of nodes for which it waits
  // and, if it sums or the other node does, those of other nodes with the same input.
  std::vector<int> Neighbours(const Node* node) const {
    std::vector<int> neighbours;
    const auto add = [&](const Node* other) {
      const auto found = chains_.find(other);
      if (found == chains_.end() || !HasSameKind(node, other)) return;
      const int chain = Current(found->second);
      if (std::find(neighbours.begin(), neighbours.end(), chain) == neighbours.end()) {
        neighbours.push_back(chain);
      }
    };
    for (const Edge* edge : node->in_edges()) {
      if (!edge->IsControlEdge() && CanFollow(edge->src(), node)) add(edge->src());
    }
    // An op that waits for another can be in its chain: in programs of gradients there are many.
    for (const Edge* edge : node->in_edges()) {
      if (edge->IsControlEdge()) add(edge->src());
    }
    for (const Edge* edge : node->in_edges()) {
      if (edge->IsControlEdge() || edge->src()->IsConstant()) continue;
      for (const Edge* sibling : edge->src()->out_edges()) {
        const Node* other = sibling->dst();
        if (sibling->src_output() != edge->src_output() || sibling->IsControlEdge()) continue;
        if (other == node || !CanTranslate(other)) continue;
        const bool sums = (IsReduction(node) && edge->dst_input() == 0) ||
                          (IsReduction(other) && sibling->dst_input() == 0);
        if (sums && !IsAlias(node) && !IsOp(node, "Shape")) add(other);
      }
    }
    return neighbours;
  }

  bool HasSameKind(const Node* one, const Node* other) const {
    return one->assigned_device_name() == other->assigned_device_name() &&
           branches_->of(one) == branches_->of(other) && waits_.at(one) == waits_.at(other);
  }

  // Whether the value of an op may come when another op of the same step has run, without an edge
  // between them: through a queue, from another process, or fed to a part of the step.
  static bool WaitsForOthers(const Node* node) {
    const std::string& type = node->type_string();
    for (const char* word : {"Dequeue", "Unstage", "Recv", "Collective", "BarrierTake"}) {
      if (type.find(word) != std::string::npos) return true;
    }
    return false;
  }

  // Records for which such ops a node waits.
  void FindWaits(const Node* node) {
    std::set<const Node*>& waits = waits_[node];
    if (WaitsForOthers(node)) waits.insert(node);
    for (const Edge* edge : node->in_edges()) {
      const auto before = waits_.find(edge->src());
      if (before == waits_.end() || edge->src()->IsNextIteration()) continue;
      waits.insert(before->second.begin(), before->second.end());
    }
  }

  // Adds a node to a chain if possible, and records on which chains it depends.
  void Place(Node* node) {
    FindWaits(node);
    if (IsCandidate(node) && !IsSmall(node) && (!IsReduction(node) || CanSum(node))) Join(node);
    const auto found = chains_.find(node);
    const int own = found == chains_.end() ? -1 : Current(found->second);
    ChainSet& depends = depends_[node];
    depends = Dependencies(node, own);
    if (own < 0) return;
    before_[own].Add(depends);
    const bool after_total = IsAlias(node) && totals_.count(InputEdge(node, 0)->src()) &&
                             chains_.count(InputEdge(node, 0)->src());
    if (after_total || (IsReduction(node) && IsTotal(node))) totals_.insert(node);
  }

  // Adds a node to a chain of its neighbours, and merges the other ones into it. Begins a chain if
  // there is none.
  void Join(Node* node) {
    int own = -1;
    for (const int chain : Neighbours(node)) {
      ChainSet before = Dependencies(node, chain, own);
      if (own >= 0) {
        before.Add(before_[own]);
        before.Add(before_[chain]);
      }
      Close(&before);
      if (HasChain(before, chain) || HasChain(before, own)) continue;
      if (own >= 0) {
        merged_[chain] = own;
        before_[own].Add(before_[chain]);
      }
      own = own < 0 ? chain : own;
    }
    if (own < 0) {
      if (IsAlias(node) || IsOp(node, "Shape")) return;
      own = static_cast<int>(merged_.size());
      merged_.push_back(own);
      before_.emplace_back();
    }
    chains_[node] = own;
  }

  // Removes identities, reshapes and shapes at the ends that would save nothing: those of values
  // that the chain does not compute, and of values that must be written anyway.
  void Trim(std::vector<Node*>* nodes) const {
    for (bool trimmed = true; trimmed;) {
      trimmed = false;
      const std::set<const Node*> inside(nodes->begin(), nodes->end());
      const auto is_superfluous = [&](const Node* node) {
        const bool shape = IsOp(node, "Shape");
        if (!IsAlias(node) && !shape) return false;
        const Node* from = InputEdge(node, 0)->src();
        if (!inside.count(from)) return true;
        if (shape) return false;
        for (const Edge* edge : node->out_edges()) {
          if (inside.count(edge->dst())) return false;
        }
        for (const Edge* edge : from->out_edges()) {
          if (!edge->IsControlEdge() && !inside.count(edge->dst())) return true;
        }
        return false;
      };
      const auto end = std::remove_if(nodes->begin(), nodes->end(), is_superfluous);
      trimmed = end != nodes->end();
      nodes->erase(end, nodes->end());
    }
  }

  // Whether a value is a tensor that takes time to write and to read again.
  bool IsLarge(const Node* node, int output) const {
    if (node->IsConstant() || IsOp(node, "ReadVariableOp")) return false;
    const auto type = node->output_type(output);
    const std::int64_t count = shapes_->Of(node, output).num_elements();
    return type == tensorflow::DT_FLOAT && (count < 0 || count > kBlockElements);
  }

  // Whether a value of another chain may be computed again: elementwise, and only chains use it.
  bool CanRecompute(const Node* node, int chain) const {
    const auto found = chains_.find(node);
    if (found == chains_.end() || found->second == chain || IsOp(node, "Shape")) return false;
    if (node->output_type(0) != tensorflow::DT_FLOAT) return false;
    if (!IsAlias(node) && !IsElementwise(node)) return false;
    for (const Edge* edge : node->out_edges()) {
      if (edge->IsControlEdge() || !chains_.count(edge->dst())) return false;
    }
    for (const Edge* edge : node->in_edges()) {
      if (edge->IsControlEdge() && !edge->src()->IsSource()) return false;
    }
    return true;
  }

  // Computes values of other chains again, if the chain then reads no more large tensors than
  // before. So gradients need fewer tensors of the forward pass, which need not be written.
  void Recompute(std::vector<Node*>* nodes) {
    const int chain = chains_.at(nodes->front());
    std::map<Node*, Node*> copies;
    std::set<Port> inputs;
    for (const Node* node : *nodes) AddInputs(node, chain, &inputs);
    for (bool changed = true; changed;) {
      changed = false;
      for (const Port& port : inputs) {
        if (!CanRecompute(port.first, chain)) continue;
        std::set<Port> instead = inputs;
        instead.erase(port);
        AddInputs(port.first, chain, &instead);
        if (CountLarge(instead) > CountLarge(inputs)) continue;
        const auto [copy, is_new] = copies.emplace(port.first, nullptr);
        if (is_new) nodes->push_back(copy->second = Copy(port.first, chain));
        UseInstead(port.first, copy->second, chain);
        inputs = std::move(instead);
        changed = true;
        break;
      }
    }
    std::sort(nodes->begin(), nodes->end(), [&](const Node* one, const Node* other) {
      return positions_.at(one) < positions_.at(other);
    });
  }

  void AddInputs(const Node* node, int chain, std::set<Port>* inputs) const {
    for (const Edge* edge : node->in_edges()) {
      if (edge->IsControlEdge()) continue;
      const auto found = chains_.find(edge->src());
      if (found != chains_.end() && found->second == chain) continue;
      inputs->insert({edge->src(), edge->src_output()});
    }
  }

  std::int64_t CountLarge(const std::set<Port>& inputs) const {
    return std::count_if(inputs.begin(), inputs.end(),
                         [&](const Port& port) { return IsLarge(port.first, port.second); });
  }

  // Adds a copy of a node to this chain.
  Node* Copy(Node* node, int chain) {
    Node* copy = graph_.CopyNode(node);
    copy->set_name(graph_.NewName(node->name() + "/tensorwright_again"));
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Edge* edge = InputEdge(node, i);
      graph_.AddEdge(edge->src(), edge->src_output(), copy, i);
    }
    chains_[copy] = chain;
    positions_[copy] = positions_.at(node);
    return copy;
  }

  // Lets the nodes of a chain use the values of `copy` instead of those of `node`.
  void UseInstead(Node* node, Node* copy, int chain) {
    const std::vector<const Edge*> edges(node->out_edges().begin(), node->out_edges().end());
    for (const Edge* edge : edges) {
      const auto found = chains_.find(edge->dst());
      if (edge->IsControlEdge() || found == chains_.end() || found->second != chain) continue;
      Node* to = edge->dst();
      const int output = edge->src_output(), input = edge->dst_input();
      graph_.RemoveEdge(edge);
      graph_.AddEdge(copy, output, to, input);
    }
  }

  // Whether a chain computes several ops, so that fewer passes over memory remain.
  static bool IsWorthwhile(const std::vector<Node*>& nodes) {
    return std::count_if(nodes.begin(), nodes.end(), [](const Node* node) {
             return !IsAlias(node) && !IsOp(node, "Shape") && !IsOp(node, "Cast");
           }) > 1;
  }

  // Whether a chain replaces at least two passes over memory for each large output. With many outputs
  // that other ops need, a chain takes longer than one op after the other. Softmax and normalizations
  // are several passes.
  bool SavesPasses(const std::vector<Node*>& nodes) const {
    const int chain = chains_.at(nodes.front());
    std::int64_t passes = 0, outputs = 0;
    for (const Node* node : nodes) {
      if (IsAlias(node) || IsOp(node, "Shape")) continue;
      passes += IsOp(node, "Softmax") || IsNormalization(node) ? 3 : 1;
      outputs +=
          IsLarge(node, 0) &&
          std::any_of(node->out_edges().begin(), node->out_edges().end(), [&](const Edge* edge) {
            const auto found = chains_.find(edge->dst());
            return !edge->IsControlEdge() && (found == chains_.end() || found->second != chain);
          });
    }
    return 2 * outputs <= passes;
  }

  tensorflow::Graph& graph_;
  const tensorflow::FunctionLibraryDefinition* const library_;
  std::vector<Node*> order_;
  std::map<const Node*, std::size_t> positions_;  // In `order_`; a copy has that of its original.
  std::unique_ptr<Branches> branches_;
  std::unique_ptr<InferredShapes> shapes_;
  std::map<const Node*, int> chains_;                   // The chain of a node; see Current().
  std::map<const Node*, std::set<const Node*>> waits_;  // See FindWaits().
  std::map<const Node*, ChainSet> depends_;             // The chains before a node.
  std::set<const Node*> totals_;  // Nodes whose values no other op of the chain may use.
  std::vector<int> merged_;       // By chain: the chain it was merged into, or itself.
  std::vector<ChainSet> before_;  // By chain: the chains before its nodes.
};

}  // namespace
}  // namespace tensorwright::chains

#endif  // TENSORWRIGHT_OPS_CHAINS_FIND_CHAINS_H_
