// Registers the ops, the kernel and the graph pass of fused/loops. It is one source file, because
// most of the time of a compilation is spent on TensorFlow's headers.

#define EIGEN_USE_THREADS

#include "tensorwright/ops/loops/events.h"
#include "tensorwright/ops/loops/fuse_loops.h"
#include "tensorwright/ops/loops/loop_op.h"

namespace tensorwright {
namespace {

using tensorflow::DEVICE_CPU;  // Unqualified for the macros of native/registration.h.

#define TENSORWRIGHT_LOOP(name)                                                \
  REGISTER_OP(name)                                                            \
      .Input("input: T")                                                       \
      .Output("output: T")                                                     \
      .Attr("T: list(type) >= 0")                                              \
      .Attr("cond: func")                                                      \
      .Attr("body: func")                                                      \
      .Attr("original: func")                                                  \
      .Attr("in_function: bool = false")                                       \
      .Attr("output_shapes: list(shape) = []")                                 \
      .Attr("parallel_iterations: int = 10")                                   \
      .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) { \
        for (int i = 0; i < context->num_outputs(); ++i) {                     \
          context->set_output(i, context->UnknownShape());                     \
        }                                                                      \
        return absl::OkStatus();                                               \
      })

TENSORWRIGHT_LOOP("_TensorwrightLoop").SetIsStateful();
TENSORWRIGHT_LOOP("_TensorwrightStatelessLoop");

REGISTER_KERNEL_BUILDER(Name("_TensorwrightLoop").Device(DEVICE_CPU), LoopOp);
REGISTER_KERNEL_BUILDER(Name("_TensorwrightStatelessLoop").Device(DEVICE_CPU), LoopOp);

// Runs before TensorFlow lowers loops to Switch and Merge ops and inlines functions (phase 10).
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, 5, FuseLoops);

}  // namespace
}  // namespace tensorwright
