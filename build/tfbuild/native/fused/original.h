// Running what was fused as TensorFlow would have: as a function that a kernel calls in its own place.

#ifndef TENSORWRIGHT_FUSED_ORIGINAL_H_
#define TENSORWRIGHT_FUSED_ORIGINAL_H_

#include <vector>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tensorwright {

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
