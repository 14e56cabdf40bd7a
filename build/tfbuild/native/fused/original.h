// Running what was fused as TensorFlow would have: as a function that a kernel calls in its own place.

#ifndef TENSORWRIGHT_FUSED_ORIGINAL_H_
#define TENSORWRIGHT_FUSED_ORIGINAL_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "tensorflow/core/framework/function.h"
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

#endif  // TENSORWRIGHT_FUSED_ORIGINAL_H_
