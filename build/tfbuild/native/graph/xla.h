// Finds the nodes and functions that XLA compiles, by their attributes.

#ifndef TENSORWRIGHT_GRAPH_XLA_H_
#define TENSORWRIGHT_GRAPH_XLA_H_

#include <set>
#include <string>
#include <vector>

#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tensorwright {

// Whether XLA compiles a node or function. One of several attributes, whose names begin with _Xla
// or _xla, marks it. What XLA does not compile may have these attributes too, with the value false
// or "".
//
// Args:
//   attributes: pairs of a name and an AttrValue.
template <typename Attributes>
bool IsCompiled(const Attributes& attributes) {
  for (const auto& [name, value] : attributes) {
    if (name.compare(0, 4, "_Xla") != 0 && name.compare(0, 4, "_xla") != 0) continue;
    // jit_scope sets these, also with compile_ops=False.
    if (name == "_XlaScope" || name == "_XlaInternalScope" ||
        name == "_XlaSeparateCompiledGradients") {
      continue;
    }
    const bool no = (value.value_case() == tensorflow::AttrValue::kB && !value.b()) ||
                    (value.value_case() == tensorflow::AttrValue::kS && value.s().empty());
    if (!no) return true;
  }
  return false;
}

// Adds the names of all functions that `node` calls to `names`: those in its attributes, and its op
// if that is a function of the library.
inline void AddFunctions(const tensorflow::NodeDef& node,
                         const tensorflow::FunctionLibraryDefinition& library,
                         std::vector<std::string>* names) {
  if (library.Find(node.op()) != nullptr) names->push_back(node.op());
  for (const auto& [name, value] : node.attr()) {
    if (value.has_func()) names->push_back(value.func().name());
    for (const auto& function : value.list().func()) names->push_back(function.name());
  }
}

// Returns the functions that are marked for XLA, by their own attributes or by those of a calling
// node.
inline std::set<std::string> FunctionsForXla(const tensorflow::Graph& graph,
                                             const tensorflow::FunctionLibraryDefinition& library) {
  std::vector<std::string> marked;
  const auto look = [&](const tensorflow::NodeDef& node) {
    if (IsCompiled(node.attr())) AddFunctions(node, library, &marked);
  };
  for (const tensorflow::Node* node : graph.op_nodes()) look(node->def());
  for (const std::string& name : library.ListFunctionNames()) {
    const tensorflow::FunctionDef* function = library.Find(name);
    if (IsCompiled(function->attr())) marked.push_back(name);
    for (const tensorflow::NodeDef& node : function->node_def()) look(node);
  }
  return {marked.begin(), marked.end()};
}

// Returns the functions that must keep TensorFlow's ops: those that are `marked` for XLA, those
// that TensorFlow differentiates at run time (SymbolicGradient), and all functions that these call.
inline std::set<std::string> CompiledFunctions(
    const std::set<std::string>& marked, const tensorflow::Graph& graph,
    const tensorflow::FunctionLibraryDefinition& library) {
  std::vector<std::string> open(marked.begin(), marked.end());
  const auto look = [&](const tensorflow::NodeDef& node) {
    if (node.op() == "SymbolicGradient") AddFunctions(node, library, &open);
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
    for (const tensorflow::NodeDef& node : function->node_def()) AddFunctions(node, library, &open);
  }
  return compiled;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_XLA_H_
