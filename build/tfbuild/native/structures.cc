// A table of the sizes and offsets of structures that kernels share with TensorFlow. The build
// compiles this file twice: like a kernel source, and with only the headers of the stock wheel. It
// reads both tables from the library and compares them (tfbuild/kernelbuild/structures.py). No code
// of that library ever runs.

#define EIGEN_USE_THREADS

#include <cstddef>

#include "absl/status/status.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"

#pragma GCC diagnostic ignored "-Winvalid-offsetof"

#define SIZE(type) \
  {"sizeof(" #type ")", sizeof(type)}, { "alignof(" #type ")", alignof(type) }
#define MEMBER(type, member) {"offsetof(" #type ", " #member ")", offsetof(type, member)}

namespace {

struct Row {
  const char* what;
  unsigned long long number;
};

using absl::Status;
using Eigen::bfloat16;
using Eigen::half;
using Eigen::ThreadPoolDevice;
using tensorflow::AllocatorAttributes;
using tensorflow::DeviceBase;
using tensorflow::NodeProperties;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::TensorValue;
using tensorflow::tstring;
using tensorflow::Var;

}  // namespace

// TENSORWRIGHT_STRUCTURES is the name of the table. Parts come before the structures that contain
// them, so the first row that differs is the cause.
extern "C" __attribute__((visibility("default"))) const Row TENSORWRIGHT_STRUCTURES[] = {
    {"EIGEN_MAX_ALIGN_BYTES", EIGEN_MAX_ALIGN_BYTES},
    SIZE(half),
    SIZE(bfloat16),
    SIZE(tstring),
    SIZE(Status),
    SIZE(TensorShape),
    SIZE(Tensor),
    SIZE(TensorValue),
    MEMBER(TensorValue, tensor),
    SIZE(ResourceHandle),
    SIZE(Var),
    MEMBER(Var, is_initialized),
    MEMBER(Var, copy_on_read_mode),
    SIZE(NodeProperties),
    MEMBER(NodeProperties, op_def),
    MEMBER(NodeProperties, node_def),
    MEMBER(NodeProperties, input_types),
    MEMBER(NodeProperties, output_types),
    SIZE(AllocatorAttributes),
    SIZE(ThreadPoolDevice),
    SIZE(DeviceBase),
    SIZE(OpKernel),
    SIZE(OpKernelConstruction),
    SIZE(OpKernelContext),
    SIZE(OpKernelContext::Params),
    MEMBER(OpKernelContext::Params, op_kernel),
    MEMBER(OpKernelContext::Params, device),
    MEMBER(OpKernelContext::Params, output_attr_array),
    MEMBER(OpKernelContext::Params, resource_manager),
    MEMBER(OpKernelContext::Params, inputs),
    MEMBER(OpKernelContext::Params, op_device_context),
    MEMBER(OpKernelContext::Params, function_library),
    MEMBER(OpKernelContext::Params, runner),
    MEMBER(OpKernelContext::Params, forward_from_array),
};
