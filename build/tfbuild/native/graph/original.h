// Runs the original ops of a fused op, as a function that the fused op's kernel calls.

#ifndef TENSORWRIGHT_GRAPH_ORIGINAL_H_
#define TENSORWRIGHT_GRAPH_ORIGINAL_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tensorwright {

// Returns a function name with this prefix that is unique in this process. TensorFlow caches
// instantiated functions by name and by the address of the graph's function library. If a new
// library were at the address of a deleted one, a reused name would run the deleted library's
// function.
inline std::string MakeOriginalName(const std::string& prefix,
                                    const tensorflow::FunctionLibraryDefinition& library) {
  static std::atomic<std::int64_t> made{0};
  return library.UniqueFunctionName(prefix + std::to_string(made++) + "_");
}

// The function with the original ops, which the node's attribute `original` names.
//
// If the attribute `in_function` is true, TensorFlow certainly keeps the function longer than the
// kernel. Then the function is instantiated once for each function library runtime, and released
// with the kernel. Otherwise it is not released: a session keeps the kernels of stateful ops until
// it ends, but the functions of a graph only as long as the graph. Thread-safe.
class Original {
 public:
  using Runtime = tensorflow::FunctionLibraryRuntime;

  explicit Original(tensorflow::OpKernelConstruction* context) {
    OP_REQUIRES_OK(context, context->GetAttr("original", &function_));
    OP_REQUIRES_OK(context, context->GetAttr("in_function", &in_function_));
  }
  ~Original() {
    for (const auto& [library, handle] : handles_) library->ReleaseHandle(handle).IgnoreError();
  }
  Original(const Original&) = delete;
  Original& operator=(const Original&) = delete;

  // Instantiates the function in `library`.
  absl::Status Instantiate(Runtime* library, const Runtime::InstantiateOptions& options,
                           Runtime::Handle* handle) {
    const auto instantiate = [&] {
      return library->Instantiate(function_.name(), tensorflow::AttrSlice(&function_.attr()),
                                  options, handle);
    };
    if (!in_function_) return instantiate();
    tensorflow::mutex_lock lock(mutex_);
    const auto known = handles_.find(library);
    if (known != handles_.end()) {
      *handle = known->second;
      return absl::OkStatus();
    }
    TF_RETURN_IF_ERROR(instantiate());
    handles_.emplace(library, *handle);
    return absl::OkStatus();
  }

 private:
  tensorflow::NameAttrList function_;
  bool in_function_ = false;
  tensorflow::mutex mutex_;
  std::map<Runtime*, Runtime::Handle> handles_ TF_GUARDED_BY(mutex_);
};

// Returns options to run a function in the step of a kernel, on the same threads. Callers may set
// another runner.
inline tensorflow::FunctionLibraryRuntime::Options OptionsOf(tensorflow::OpKernelContext* context) {
  tensorflow::FunctionLibraryRuntime::Options options(context->step_id());
  options.rendezvous = context->rendezvous();
  options.cancellation_manager = context->cancellation_manager();
  options.collective_executor = context->collective_executor();
  options.step_container = context->step_container();
  options.stats_collector = context->stats_collector();
  options.runner = context->runner();
  return options;
}

// Returns all inputs of a kernel.
inline std::vector<tensorflow::Tensor> ArgumentsOf(tensorflow::OpKernelContext* context) {
  std::vector<tensorflow::Tensor> arguments;
  for (int i = 0; i < context->num_inputs(); ++i) arguments.push_back(context->input(i));
  return arguments;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_ORIGINAL_H_
