// Finds the conditions under which the nodes of a graph run: the branches of conditionals and the
// loops that contain them. In a graph that is ready for execution, TensorFlow represents both by
// Switch, Merge, Enter, Exit and NextIteration nodes.

#ifndef TENSORWRIGHT_GRAPH_BRANCHES_H_
#define TENSORWRIGHT_GRAPH_BRANCHES_H_

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/graph.h"

namespace tensorwright {

// The numbers of the branches and loops around a node. Nodes with equal conditions are dead or
// alive together, in each iteration of the same loops.
using Conditions = std::set<int>;

// Computes the conditions of all nodes of a graph in one pass over it. A branch is identified by
// its predicate and by the output of the Switch nodes that leads to it. A Merge of all outputs of
// one predicate removes it; an Exit removes the innermost loop.
class Branches {
 public:
  // `order` is a reverse postorder of the graph without the edges out of NextIteration nodes.
  explicit Branches(const std::vector<tensorflow::Node*>& order) {
    for (const tensorflow::Node* node : order) of_[node] = Of(node);
  }

  // Returns the conditions of a node, or none if it was not in `order`.
  const Conditions& of(const tensorflow::Node* node) const {
    const auto known = of_.find(node);
    return known == of_.end() ? none_ : known->second;
  }

 private:
  // Identifies a condition: (node and output of the predicate, output of the Switch), a loop (frame
  // name, -1, -1), or a Merge that does not end a conditional (node, -2, -2).
  using Key = std::tuple<const void*, int, int>;

  // Returns the number of a condition. Numbers a new one.
  int Number(const Key& key) { return numbers_.emplace(key, numbers_.size()).first->second; }

  // Returns the conditions under which an edge carries a live value.
  Conditions Along(const tensorflow::Edge* edge) {
    const tensorflow::Node* from = edge->src();
    const auto known = of_.find(from);
    Conditions conditions = known == of_.end() ? Conditions() : known->second;
    if (!from->IsSwitch() || edge->IsControlEdge()) return conditions;
    const tensorflow::Edge* decides = nullptr;
    if (!from->input_edge(1, &decides).ok()) return conditions;
    const int number = Number({decides->src(), decides->src_output(), edge->src_output()});
    // Merged() needs the predicate and its number of outputs.
    ports_[number] = {decides->src(), decides->src_output(), from->num_outputs()};
    conditions.insert(number);
    return conditions;
  }

  // Computes the conditions of a node from those of its inputs.
  Conditions Of(const tensorflow::Node* node) {
    std::vector<Conditions> incoming;
    bool loops = false;
    for (const tensorflow::Edge* edge : node->in_edges()) {
      if (edge->src()->IsNextIteration()) {
        loops = true;
      } else if (!node->IsMerge() || !edge->IsControlEdge()) {
        incoming.push_back(Along(edge));
      }
    }
    if (node->IsMerge() && !loops) return ConditionsAfterMerge(node, incoming);
    Conditions all;
    for (const Conditions& each : incoming) all.insert(each.begin(), each.end());
    if (node->IsEnter()) {
      std::string frame;
      tensorflow::GetNodeAttr(node->attrs(), "frame_name", &frame).IgnoreError();
      const int number = Number({&*frames_.insert(frame).first, -1, -1});
      conditions_outside_[number].insert(all.begin(), all.end());
      all.insert(number);
    }
    return node->IsExit() ? Left(all) : all;
  }

  // Returns the conditions after an Exit: those outside of the innermost loop of `inside`.
  Conditions Left(const Conditions& inside) const {
    const Conditions* innermost = nullptr;
    for (const int number : inside) {
      const auto loop = conditions_outside_.find(number);
      if (loop == conditions_outside_.end()) continue;
      if (innermost == nullptr || innermost->size() <= loop->second.size())
        innermost = &loop->second;
    }
    return innermost == nullptr ? inside : *innermost;
  }

  // Returns the conditions after a Merge: those that all inputs have in common. If the Merge does
  // not join all outputs of one predicate, it is a condition of its own.
  Conditions ConditionsAfterMerge(const tensorflow::Node* node,
                                  const std::vector<Conditions>& incoming) {
    Conditions common = incoming.empty() ? Conditions() : incoming[0];
    for (const Conditions& each : incoming) {
      Conditions both;
      std::set_intersection(common.begin(), common.end(), each.begin(), each.end(),
                            std::inserter(both, both.end()));
      common = std::move(both);
    }
    std::set<int> ports;
    std::set<Key> switches;
    for (const Conditions& each : incoming) {
      for (const int number : each) {
        if (common.count(number)) continue;
        const auto port = ports_.find(number);
        if (each.size() != common.size() + 1 || port == ports_.end())
          ports.insert(-1);
        else
          switches.insert(port->second);
        ports.insert(number);
      }
    }
    const bool ends = switches.size() == 1 && ports.count(-1) == 0 &&
                      static_cast<int>(ports.size()) == std::get<2>(*switches.begin());
    if (!ends && !ports.empty()) common.insert(Number({node, -2, -2}));
    return common;
  }

  const Conditions none_;
  std::map<const tensorflow::Node*, Conditions> of_;
  std::map<Key, int> numbers_;
  std::map<int, Key> ports_;  // Branch → (predicate's node and output, outputs of Switch).
  std::map<int, Conditions> conditions_outside_;  // Loop → conditions of its Enter nodes.
  std::set<std::string> frames_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_BRANCHES_H_
