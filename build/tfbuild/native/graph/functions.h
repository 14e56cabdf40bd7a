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

// Returns a function of the library that equals `function` but for its name, which begins with
// `prefix`; empty if there is none. Each time that a session is extended, its graph is prepared
// anew with the same library, which would otherwise get the same functions again.
inline std::string FindEqualFunction(const tensorflow::FunctionLibraryDefinition& library,
                                     const std::string& prefix, tensorflow::FunctionDef function) {
  for (const std::string& name : library.ListFunctionNames()) {
    if (name.rfind(prefix, 0) != 0) continue;
    function.mutable_signature()->set_name(name);
    if (FunctionDefsEqual(*library.Find(name), function)) return name;
  }
  return "";
}

// Changes functions of the library of a session's graph, by copies with new names. The functions
// themselves must stay: TensorFlow adds the program's functions again when it extends the session,
// which fails if one differs from that in the library (FunctionLibraryDefinition::AddLibrary).
template <typename Change>
class FunctionCopies {
 public:
  FunctionCopies(tensorflow::Graph* graph, tensorflow::FunctionLibraryDefinition* library,
                 const std::set<std::string>& excluded, const Change& change)
      : graph_(*graph), library_(*library), excluded_(excluded), change_(change) {}

  // Lets the nodes of the graph call the changed copies.
  absl::Status Run() {
    for (tensorflow::Node* node : graph_.op_nodes()) {
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
    const std::string prefix = name + "_tensorwright_";
    std::string own = FindEqualFunction(library_, prefix, copy);
    if (own.empty()) own = library_.UniqueFunctionName(prefix);
    copy.mutable_signature()->set_name(own);
    status_.Update(library_.AddFunctionDef(copy));
    // In an extended session, the graph looks functions up in the library, as ops.
    const tensorflow::OpDef* registered = nullptr;
    if (!graph_.flib_def().default_registry()->LookUpOpDef(own, &registered).ok()) {
      status_.Update(graph_.mutable_flib_def()->AddFunctionDef(copy));
    }
    return names_[name] = own;
  }

  tensorflow::Graph& graph_;  // Has a copy of the library, or looks functions up in it.
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
    return FunctionCopies<Change>(options.graph->get(), library, excluded, change).Run();
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
