// Registers the op, kernels and pass of fused/updates. It is a single source file, because parsing
// TensorFlow's headers takes most of the compile time.

#define EIGEN_USE_THREADS

#include "tensorwright/ops/updates/events.h"
#include "tensorwright/ops/updates/fuse_updates.h"
#include "tensorwright/ops/updates/update_op.h"

namespace tensorwright {
namespace {

// Registrations must use the unqualified name, which registration.h redefines.
using tensorflow::DEVICE_CPU;

REGISTER_OP("_TensorwrightUpdate")
    .Input("variables: V * resource")
    .Input("tensors: N * T")
    .Input("indices: I * Tidx")
    .Attr("V: int >= 1")
    .Attr("N: int >= 0")
    .Attr("I: int >= 0")
    .Attr("T: {float, double, half, bfloat16}")
    .Attr("Tidx: {int32, int64} = DT_INT32")
    .Attr("program: list(int)")
    .Attr("original: func")
    .Attr("in_function: bool = false")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext*) { return absl::OkStatus(); });

#define TENSORWRIGHT_UPDATE(T, Index)                         \
  REGISTER_KERNEL_BUILDER(Name("_TensorwrightUpdate")         \
                              .Device(DEVICE_CPU)             \
                              .TypeConstraint<T>("T")         \
                              .TypeConstraint<Index>("Tidx"), \
                          UpdateOp<T, Index>)
#define TENSORWRIGHT_UPDATES(T)         \
  TENSORWRIGHT_UPDATE(T, std::int32_t); \
  TENSORWRIGHT_UPDATE(T, std::int64_t)

TENSORWRIGHT_UPDATES(float);
TENSORWRIGHT_UPDATES(double);
TENSORWRIGHT_UPDATES(Eigen::half);
TENSORWRIGHT_UPDATES(tensorflow::bfloat16);

// Runs after XLA's passes of this phase (10 to 60), which have taken the nodes that XLA compiles.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_REWRITE_FOR_EXEC, 100,
                      FuseUpdates);

}  // namespace
}  // namespace tensorwright
