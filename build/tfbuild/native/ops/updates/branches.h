// Under which conditions the nodes of a graph run: which branches of conditionals and which loops
// they are in. TensorFlow has both as Switch, Merge, Enter, Exit and NextIteration when a graph is
// about to be executed.

#ifndef TENSORWRIGHT_OPS_UPDATES_BRANCHES_H_
#define TENSORWRIGHT_OPS_UPDATES_BRANCHES_H_

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

// Nodes of the same conditions are dead or alive together, in each iteration of the same loops.
using Conditions = std::set<int>;

class Branches {
 public:
  // `order` is a reverse post order that follows no edge out of a NextIteration.
  explicit Branches(const std::vector<tensorflow::Node*>& order) {
    for (const tensorflow::Node* node : order) of_[node] = Of(node);
  }

  const Conditions& of(const tensorflow::Node* node) const {
    const auto known = of_.find(node);
    return known == of_.end() ? none_ : known->second;
  }

 private:
  // A port of the switches that one tensor decides, a loop, or a merge that is not understood.
  using Key = std::tuple<const void*, int, int>;

  int Number(const Key& key) { return numbers_.emplace(key, numbers_.size()).first->second; }

  Conditions Along(const tensorflow::Edge* edge) {
    const tensorflow::Node* from = edge->src();
    const auto known = of_.find(from);
    Conditions conditions = known == of_.end() ? Conditions() : known->second;
    if (!from->IsSwitch() || edge->IsControlEdge()) return conditions;
    const tensorflow::Edge* decides = nullptr;
    if (!from->input_edge(1, &decides).ok()) return conditions;
    const int number = Number({decides->src(), decides->src_output(), edge->src_output()});
    // Which switch it is counts for the merge that ends it.
    ports_[number] = {decides->src(), decides->src_output(), from->num_outputs()};
    conditions.insert(number);
    return conditions;
  }

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
    if (node->IsMerge() && !loops) return Merged(node, incoming);
    Conditions all;
    for (const Conditions& each : incoming) all.insert(each.begin(), each.end());
    if (node->IsEnter()) {
      std::string frame;
      tensorflow::GetNodeAttr(node->attrs(), "frame_name", &frame).IgnoreError();
      const int number = Number({&*frames_.insert(frame).first, -1, -1});
      outside_[number].insert(all.begin(), all.end());
      all.insert(number);
    }
    return node->IsExit() ? Left(all) : all;
  }

  // What holds behind a loop: what held before the innermost one.
  Conditions Left(const Conditions& inside) const {
    const Conditions* innermost = nullptr;
    for (const int number : inside) {
      const auto loop = outside_.find(number);
      if (loop == outside_.end()) continue;
      if (innermost == nullptr || innermost->size() <= loop->second.size())
        innermost = &loop->second;
    }
    return innermost == nullptr ? inside : *innermost;
  }

  // A merge of all ports of one switch is where the conditional ends.
  Conditions Merged(const tensorflow::Node* node, const std::vector<Conditions>& incoming) {
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
  std::map<int, Key> ports_;           // Condition → (what decides, its output, ports in all).
  std::map<int, Conditions> outside_;  // Loop → what holds where it is entered.
  std::set<std::string> frames_;
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_UPDATES_BRANCHES_H_
