// Registers the ops, the kernel and the graph pass of fused/grouped. It is one source file, because
// most of the time of a compilation is spent on TensorFlow's headers.

#define EIGEN_USE_THREADS

#include "tensorwright/ops/grouped/events.h"
#include "tensorwright/ops/grouped/fuse_grouped.h"
#include "tensorwright/ops/grouped/grouped_op.h"

namespace tensorwright {
namespace {

using tensorflow::DEVICE_CPU;  // Unqualified for the macros of native/registration.h.

#define TENSORWRIGHT_GROUPED(name)                                             \
  REGISTER_OP(name)                                                            \
      .Input("args: Tin")                                                      \
      .Output("output: Tout")                                                  \
      .Attr("Tin: list(type) >= 0")                                            \
      .Attr("Tout: list(type) >= 0")                                           \
      .Attr("f: func")                                                         \
      .Attr("original: func")                                                  \
      .Attr("in_function: bool = false")                                       \
      .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) { \
        for (int i = 0; i < context->num_outputs(); ++i) {                     \
          context->set_output(i, context->UnknownShape());                     \
        }                                                                      \
        return absl::OkStatus();                                               \
      })

TENSORWRIGHT_GROUPED("_TensorwrightStatefulGroupedCall").SetIsStateful();
TENSORWRIGHT_GROUPED("_TensorwrightGroupedCall");

REGISTER_KERNEL_BUILDER(Name("_TensorwrightStatefulGroupedCall").Device(DEVICE_CPU), GroupedOp);
REGISTER_KERNEL_BUILDER(Name("_TensorwrightGroupedCall").Device(DEVICE_CPU), GroupedOp);

// Runs before the pass of fused/loops (phase 5), and before TensorFlow inlines functions.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, 4, FuseGrouped);

}  // namespace
}  // namespace tensorwright
