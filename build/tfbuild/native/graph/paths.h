// Paths between the nodes of a graph.

#ifndef TENSORWRIGHT_GRAPH_PATHS_H_
#define TENSORWRIGHT_GRAPH_PATHS_H_

#include <unordered_set>
#include <vector>

#include "tensorflow/core/graph/graph.h"

namespace tensorwright {

// Whether a path leaves `nodes` and returns to them, so that another node must run in between.
inline bool IsInterrupted(const std::vector<tensorflow::Node*>& nodes) {
  const std::unordered_set<const tensorflow::Node*> inside(nodes.begin(), nodes.end());
  std::unordered_set<const tensorflow::Node*> seen;
  std::vector<const tensorflow::Node*> stack;
  auto follow = [&](const tensorflow::Node* node) {
    if (node->IsNextIteration()) return false;
    for (const tensorflow::Edge* edge : node->out_edges()) {
      const tensorflow::Node* to = edge->dst();
      const bool back = inside.count(to) != 0;
      if (back && !inside.count(node)) return true;
      if (!back && !to->IsSink() && seen.insert(to).second) stack.push_back(to);
    }
    return false;
  };
  for (const tensorflow::Node* node : nodes) follow(node);
  while (!stack.empty()) {
    const tensorflow::Node* node = stack.back();
    stack.pop_back();
    if (follow(node)) return true;
  }
  return false;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_PATHS_H_
