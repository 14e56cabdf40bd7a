// Running what was fused as TensorFlow would have: as a function that a kernel calls in its own place.

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

// A name for what was fused, which nothing else in this process ever has. TensorFlow keeps what it
// instantiates by name and by the address of the graph's library: where a library lies at the address of one
// that is gone, the same name would run what that one had.
inline std::string NameOfOriginal(const std::string& kind,
                                  const tensorflow::FunctionLibraryDefinition& library) {
  static std::atomic<std::int64_t> made{0};
  const std::string own = "__tensorwright_" + kind + "_" + std::to_string(made++) + "_";
  return library.UniqueFunctionName(own);
}

// The function that a kernel runs in its own place, as its node's attributes name it. What was instantiated
// is given back with the kernel, if TensorFlow certainly keeps its functions longer (`in_function`): a
// session keeps the kernels of operations with state until its end, and the functions of a graph until that
// is gone.
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

// The caller's step, and its threads unless they are changed.
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

inline std::vector<tensorflow::Tensor> ArgumentsOf(tensorflow::OpKernelContext* context) {
  std::vector<tensorflow::Tensor> arguments;
  for (int i = 0; i < context->num_inputs(); ++i) arguments.push_back(context->input(i));
  return arguments;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_ORIGINAL_H_
