// The unit fused/loops: one source, as reading TensorFlow's headers takes most of a compile.

#define EIGEN_USE_THREADS

#include "tensorwright/ops/loops/events.h"
#include "tensorwright/ops/loops/fuse_loops.h"
#include "tensorwright/ops/loops/loop_op.h"

namespace tensorwright {
namespace {

using tensorflow::DEVICE_CPU;  // A registration's own words (native/registration.h).

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

// Before TensorFlow makes loops of switches and merges, and inlines functions (10).
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, 5, FuseLoops);

}  // namespace
}  // namespace tensorwright
