// What XLA compiles, as the attributes of nodes and functions say it.

#ifndef TENSORWRIGHT_GRAPH_XLA_H_
#define TENSORWRIGHT_GRAPH_XLA_H_

#include <set>
#include <string>
#include <vector>

#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tensorwright {

// XLA marks what it compiles by one of several attributes; what it does not has them too, false or
// empty. `attributes` are pairs of a name and an AttrValue.
template <typename Attributes>
bool IsCompiled(const Attributes& attributes) {
  for (const auto& [name, value] : attributes) {
    if (name.compare(0, 4, "_Xla") != 0 && name.compare(0, 4, "_xla") != 0) continue;
    const bool no = (value.value_case() == tensorflow::AttrValue::kB && !value.b()) ||
                    (value.value_case() == tensorflow::AttrValue::kS && value.s().empty());
    if (!no) return true;
  }
  return false;
}

inline void AddFunctions(const tensorflow::NodeDef& node, std::vector<std::string>* names) {
  for (const auto& [name, value] : node.attr()) {
    if (value.has_func()) names->push_back(value.func().name());
    for (const auto& function : value.list().func()) names->push_back(function.name());
  }
}

// The functions that are marked for XLA, by themselves or by what calls them.
inline std::set<std::string> FunctionsForXla(const tensorflow::Graph& graph,
                                             const tensorflow::FunctionLibraryDefinition& library) {
  std::vector<std::string> marked;
  const auto look = [&](const tensorflow::NodeDef& node) {
    if (IsCompiled(node.attr())) AddFunctions(node, &marked);
  };
  for (const tensorflow::Node* node : graph.op_nodes()) look(node->def());
  for (const std::string& name : library.ListFunctionNames()) {
    const tensorflow::FunctionDef* function = library.Find(name);
    if (IsCompiled(function->attr())) marked.push_back(name);
    for (const tensorflow::NodeDef& node : function->node_def()) look(node);
  }
  return {marked.begin(), marked.end()};
}

// Those functions, which are `marked`, others that are differentiated when they run, and all that
// these call.
inline std::set<std::string> CompiledFunctions(
    const std::set<std::string>& marked, const tensorflow::Graph& graph,
    const tensorflow::FunctionLibraryDefinition& library) {
  std::vector<std::string> open(marked.begin(), marked.end());
  const auto look = [&](const tensorflow::NodeDef& node) {
    if (node.op() == "SymbolicGradient") AddFunctions(node, &open);
  };
  for (const tensorflow::Node* node : graph.op_nodes()) look(node->def());
  for (const std::string& name : library.ListFunctionNames()) {
    for (const tensorflow::NodeDef& node : library.Find(name)->node_def()) look(node);
  }
  std::set<std::string> compiled;
  while (!open.empty()) {
    const std::string name = open.back();
    open.pop_back();
    const tensorflow::FunctionDef* function = library.Find(name);
    if (function == nullptr || !compiled.insert(name).second) continue;
    for (const tensorflow::NodeDef& node : function->node_def()) AddFunctions(node, &open);
  }
  return compiled;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_XLA_H_
