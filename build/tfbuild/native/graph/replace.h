// Replaces a node of a graph by another.

#ifndef TENSORWRIGHT_GRAPH_REPLACE_H_
#define TENSORWRIGHT_GRAPH_REPLACE_H_

#include <vector>

#include "tensorflow/core/graph/graph.h"

namespace tensorwright {

// Replaces `node` by `ours`, which must have the same inputs and outputs: assigns it the device and
// all data and control edges of `node`, then removes `node` from the graph.
inline void Replace(tensorflow::Graph& graph, tensorflow::Node* node, tensorflow::Node* ours) {
  ours->set_assigned_device_name(node->assigned_device_name());
  ours->SetStackTrace(node->GetStackTrace());
  for (const tensorflow::Edge* edge : node->in_edges()) {
    graph.AddEdge(edge->src(), edge->src_output(), ours, edge->dst_input());
  }
  std::vector<const tensorflow::Edge*> out(node->out_edges().begin(), node->out_edges().end());
  for (const tensorflow::Edge* edge : out) {
    tensorflow::Node* to = edge->dst();
    const int from = edge->src_output(), input = edge->dst_input();
    graph.RemoveEdge(edge);
    graph.AddEdge(ours, from, to, input);
  }
  graph.RemoveNode(node);
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_REPLACE_H_
