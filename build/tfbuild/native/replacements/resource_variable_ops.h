// Replaces kernels that update variables by kernels that do so in place. TensorFlow puts a variable
// into copy-on-read mode at its first sparse access (EnsureSparseVariableAccess,
// tensorflow/core/kernels/training_op_helpers.h). From then on, every read, AssignAdd and AssignSub
// copies the whole variable.
//
// Here, ops that update a variable under its exclusive lock copy it only if a reader still holds
// the old value. ResourceScatter* do not turn the mode on; AssignAdd and AssignSub ignore it. This
// is safe, because code that uses the buffer without a reference of its own holds the shared lock:
// none runs under the exclusive lock. There are never more copies than values that readers still
// hold. The mode still applies to reads and to the ops that turn it on, ResourceGather and
// ResourceSparseApply*. Those that write do not check the reference count.

#ifndef TENSORWRIGHT_REPLACEMENTS_RESOURCE_VARIABLE_OPS_H_
#define TENSORWRIGHT_REPLACEMENTS_RESOURCE_VARIABLE_OPS_H_

#define EIGEN_USE_THREADS

#include <cstdint>
#include <limits>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/kernels/dense_update_functor.h"
#include "tensorflow/core/kernels/resource_variable_util.h"
#include "tensorflow/core/kernels/scatter_functor.h"
#include "tensorflow/core/kernels/training_op_helpers.h"
#include "tensorflow/core/util/util.h"

namespace tensorflow {

// The kernel source defines these after it includes this header.
namespace {
template <typename T>
bool ValidateInput(const Tensor& updates);
template <typename Device, typename T, typename Index, scatter_op::UpdateOp op>
Status DoScatter(OpKernelContext* c, Tensor* params, const Tensor& indices, const Tensor& updates,
                 Index num_indices);
}  // namespace
template <typename Device, typename T, typename Index, scatter_op::UpdateOp op>
class ResourceScatterUpdateOp;
template <typename Device, typename T, DenseUpdateType Op>
class AssignUpdateVariableOp;

// ResourceScatterAdd, ResourceScatterSub and the like. Checks and messages are those of the stock
// kernel, which also holds the exclusive lock.
template <typename T, typename Index, scatter_op::UpdateOp op>
class ResourceScatterUpdateOp<CPUDevice, T, Index, op> : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    core::RefCountPtr<Var> variable;
    OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, 0), &variable));
    mutex_lock lock(*variable->mu());
    Tensor* params = variable->tensor();
    const Tensor& indices = context->input(1);
    const Tensor& updates = context->input(2);
    OP_REQUIRES(
        context, updates.dims() == 0 || updates.dims() == indices.dims() + params->dims() - 1,
        errors::InvalidArgument("Must have updates.shape = indices.shape + params.shape[1:] or "
                                "updates.shape = [], got updates.shape ",
                                updates.shape().DebugString(), ", indices.shape ",
                                indices.shape().DebugString(), ", params.shape ",
                                params->shape().DebugString()));
    const int64_t count = indices.NumElements();
    constexpr int64_t kMost = std::numeric_limits<Index>::max();
    OP_REQUIRES(context, count <= kMost,
                errors::InvalidArgument("indices has too many elements for ",
                                        DataTypeString(DataTypeToEnum<Index>::v()),
                                        " indexing: ", count, " > ", kMost));
    OP_REQUIRES(context, params->dim_size(0) <= kMost,
                errors::InvalidArgument("params.shape[0] too large for ",
                                        DataTypeString(DataTypeToEnum<Index>::v()),
                                        " indexing: ", params->dim_size(0), " > ", kMost));
    if constexpr (op == scatter_op::UpdateOp::DIV) {
      OP_REQUIRES(context, ValidateInput<T>(updates),
                  errors::InvalidArgument("updates must not contain 0"));
    }
    if (count == 0) return;
    OP_REQUIRES_OK(context, PrepareToUpdateVariable<CPUDevice, T>(context, params,
                                                                  /*copy_on_read_mode=*/false));
    OP_REQUIRES_OK(context, DoScatter<CPUDevice, T, Index, op>(context, params, indices, updates,
                                                               static_cast<Index>(count)));
  }
};

// AssignAddVariableOp and AssignSubVariableOp.
template <typename T, DenseUpdateType Op>
class AssignUpdateVariableOp<CPUDevice, T, Op> : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    core::RefCountPtr<Var> variable;
    OP_REQUIRES_OK(context, LookupResource(context, HandleFromInput(context, 0), &variable));
    const Tensor& value = context->input(1);
    mutex_lock lock(*variable->mu());
    Tensor* tensor = variable->tensor();
    OP_REQUIRES_OK(context, ValidateAssignUpdateVariableOpShapes(tensor->shape(), value.shape()));
    OP_REQUIRES(context, tensor->dtype() == value.dtype(),
                errors::InvalidArgument("DType of variable handle and value does not match."));
    OP_REQUIRES_OK(context, PrepareToUpdateVariable<CPUDevice, T>(context, tensor,
                                                                  /*copy_on_read_mode=*/false));
    functor::DenseUpdate<CPUDevice, T, Op>()(context->eigen_device<CPUDevice>(), tensor->flat<T>(),
                                             value.flat<T>());
  }
};

}  // namespace tensorflow

#endif  // TENSORWRIGHT_REPLACEMENTS_RESOURCE_VARIABLE_OPS_H_
