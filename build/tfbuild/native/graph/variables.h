// Reads variables.

#ifndef TENSORWRIGHT_GRAPH_VARIABLES_H_
#define TENSORWRIGHT_GRAPH_VARIABLES_H_

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace tensorwright {

// Reads the variable of an input under a shared lock. `value` shares the variable's buffer. Returns
// false if the variable has no value, or is in copy-on-read mode, in which no tensor may share its
// buffer (resource_var.h).
inline bool ReadVariable(tensorflow::OpKernelContext* context, int input,
                         tensorflow::Tensor* value) {
  tensorflow::core::RefCountPtr<tensorflow::Var> variable;
  if (!LookupResource(context, HandleFromInput(context, input), &variable).ok()) return false;
  tensorflow::tf_shared_lock lock(*variable->mu());
  if (!variable->is_initialized || !variable->tensor()->IsInitialized() ||
      variable->copy_on_read_mode.load()) {
    return false;
  }
  *value = *variable->tensor();
  return true;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_VARIABLES_H_
