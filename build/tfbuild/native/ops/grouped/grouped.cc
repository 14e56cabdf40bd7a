// Registers the ops, the kernels and the graph passes of fused/grouped. It is one source file, because
// most of the time of a compilation is spent on TensorFlow's headers.

#define EIGEN_USE_THREADS

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorwright/ops/grouped/depthwise_op.h"
#include "tensorwright/ops/grouped/fuse_depthwise.h"
#include "tensorwright/ops/grouped/fuse_grouped.h"
#include "tensorwright/ops/grouped/grouped_op.h"

namespace tensorwright {
namespace {

using tensorflow::DEVICE_CPU;  // Unqualified for the macros of native/registration.h.
using tensorflow::shape_inference::UnknownShape;

#define TENSORWRIGHT_GROUPED(name)       \
  REGISTER_OP(name)                      \
      .Input("args: Tin")                \
      .Output("output: Tout")            \
      .Attr("Tin: list(type) >= 0")      \
      .Attr("Tout: list(type) >= 0")     \
      .Attr("f: func")                   \
      .Attr("original: func")            \
      .Attr("in_function: bool = false") \
      .SetShapeFn(UnknownShape)

TENSORWRIGHT_GROUPED("_TensorwrightStatefulGroupedCall").SetIsStateful();
TENSORWRIGHT_GROUPED("_TensorwrightGroupedCall");

#define TENSORWRIGHT_DEPTHWISE(name) \
  REGISTER_OP(name)                  \
      .Input("input: float")         \
      .Input("filter: float")        \
      .Output("output: float")       \
      .Attr("original: string")      \
      .SetShapeFn(UnknownShape)

TENSORWRIGHT_DEPTHWISE("_TensorwrightDepthwise");
TENSORWRIGHT_DEPTHWISE("_TensorwrightFusedDepthwise").Input("bias: float");

REGISTER_OP("_TensorwrightDepthwiseInputGradient")
    .Input("input_sizes: int32")
    .Input("filter: float")
    .Input("out_backprop: float")
    .Output("output: float")
    .Attr("original: string")
    .SetShapeFn(UnknownShape);

REGISTER_OP("_TensorwrightDepthwiseFilterGradient")
    .Input("input: float")
    .Input("filter_sizes: int32")
    .Input("out_backprop: float")
    .Output("output: float")
    .Attr("original: string")
    .SetShapeFn(UnknownShape);

#define TENSORWRIGHT_KERNEL(name, Kernel) \
  REGISTER_KERNEL_BUILDER(Name(name).Device(DEVICE_CPU), Kernel)

TENSORWRIGHT_KERNEL("_TensorwrightStatefulGroupedCall", GroupedOp);
TENSORWRIGHT_KERNEL("_TensorwrightGroupedCall", GroupedOp);
TENSORWRIGHT_KERNEL("_TensorwrightDepthwise", DepthwiseOutputsOp);
TENSORWRIGHT_KERNEL("_TensorwrightFusedDepthwise", DepthwiseOutputsOp);
TENSORWRIGHT_KERNEL("_TensorwrightDepthwiseInputGradient", DepthwiseInputGradientOp);
TENSORWRIGHT_KERNEL("_TensorwrightDepthwiseFilterGradient", DepthwiseFilterGradientOp);

// Runs before the pass of fused/loops (phase 5), and before TensorFlow inlines functions.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, 4, FuseGrouped);

// Runs after the pass that rewrites nodes for oneDNN, as the pass of fused/products does.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_PARTITIONING, 100, FuseDepthwise);

}  // namespace
}  // namespace tensorwright
