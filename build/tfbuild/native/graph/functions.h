// Changes the functions that a graph may call.

#ifndef TENSORWRIGHT_GRAPH_FUNCTIONS_H_
#define TENSORWRIGHT_GRAPH_FUNCTIONS_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/attr_value_util.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"

namespace tensorwright {

// Calls `rename` with the name of each function in `value`. Returns whether it changed any.
template <typename Rename>
bool RenameFunctions(tensorflow::AttrValue* value, const Rename& rename) {
  bool changed = false;
  const auto set = [&](tensorflow::NameAttrList* function) {
    const std::string name = rename(function->name());
    changed = changed || name != function->name();
    function->set_name(name);
  };
  if (value->has_func()) set(value->mutable_func());
  if (value->has_list()) {
    for (auto& function : *value->mutable_list()->mutable_func()) set(&function);
  }
  return changed;
}

// Changes functions of the library of a session's graph, by copies with new names. The functions
// themselves must stay: TensorFlow adds the program's functions again when it extends the session,
// which fails if one differs from that in the library (FunctionLibraryDefinition::AddLibrary).
template <typename Change>
class FunctionCopies {
 public:
  FunctionCopies(tensorflow::FunctionLibraryDefinition* library,
                 const std::set<std::string>& excluded, const Change& change)
      : library_(*library), excluded_(excluded), change_(change) {}

  // Lets the nodes of `graph` call the changed copies.
  absl::Status Run(tensorflow::Graph* graph) {
    for (tensorflow::Node* node : graph->op_nodes()) {
      std::vector<std::pair<std::string, tensorflow::AttrValue>> changed;
      for (const auto& [name, value] : node->attrs()) {
        tensorflow::AttrValue copy = value;
        if (RenameFunctions(&copy, [this](const std::string& of) { return Copy(of); })) {
          changed.emplace_back(name, std::move(copy));
        }
      }
      for (const auto& [name, value] : changed) {
        node->ClearAttr(name);
        node->AddAttr(name, value);
      }
    }
    return status_;
  }

 private:
  // Returns the name of the changed copy of a function, or its own name if nothing in it changes.
  std::string Copy(const std::string& name) {
    const auto known = names_.find(name);
    if (known != names_.end()) return known->second;
    names_[name] = name;  // A function that calls itself calls the original.
    const tensorflow::FunctionDef* function = library_.Find(name);
    if (function == nullptr || excluded_.count(name)) return name;
    tensorflow::FunctionDef copy = *function;
    bool changed = change_(&copy);
    for (tensorflow::NodeDef& node : *copy.mutable_node_def()) {
      for (auto& [attribute, value] : *node.mutable_attr()) {
        const bool renamed =
            RenameFunctions(&value, [this](const std::string& of) { return Copy(of); });
        changed = changed || renamed;
      }
    }
    if (!changed) return name;
    const std::string own = library_.UniqueFunctionName(name + "_tensorwright_");
    copy.mutable_signature()->set_name(own);
    status_.Update(library_.AddFunctionDef(copy));
    return names_[name] = own;
  }

  tensorflow::FunctionLibraryDefinition& library_;
  const std::set<std::string>& excluded_;
  const Change& change_;
  std::map<std::string, std::string> names_;
  absl::Status status_;
};

// Calls `change` with each function that the graph of `options` may call, but those of `excluded`.
// `change` returns whether it changed the function.
template <typename Change>
absl::Status ChangeFunctions(const tensorflow::GraphOptimizationPassOptions& options,
                             const std::set<std::string>& excluded, const Change& change) {
  tensorflow::FunctionLibraryDefinition* library = options.flib_def;
  if (!options.is_function_graph) {
    return FunctionCopies<Change>(library, excluded, change).Run(options.graph->get());
  }
  for (const std::string& name : library->ListFunctionNames()) {
    if (excluded.count(name)) continue;
    tensorflow::FunctionDef changed = *library->Find(name);
    if (change(&changed)) TF_RETURN_IF_ERROR(library->ReplaceFunction(name, changed));
  }
  return absl::OkStatus();
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_FUNCTIONS_H_
