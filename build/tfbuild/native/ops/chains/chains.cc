// Registers the op, kernel and pass of fused/chains. It is one source file, because most of the time
// of a compilation is spent on TensorFlow's headers.

#define EIGEN_USE_THREADS

#include "tensorwright/ops/chains/chain_op.h"
#include "tensorwright/ops/chains/events.h"
#include "tensorwright/ops/chains/fuse_chains.h"

namespace tensorwright::chains {
namespace {

using tensorflow::DEVICE_CPU;  // Unqualified for the macros of native/registration.h.

REGISTER_OP("_TensorwrightChain")
    .Input("args: Tin")
    .Output("results: Tout")
    .Attr("Tin: list({float, bool, int32, int64}) >= 1")
    .Attr("Tout: list({float, bool, int32, int64}) >= 1")
    .Attr("program: list(int)")
    .Attr("outputs: list(int)")
    .Attr("original: func")
    .Attr("in_function: bool = false")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      for (int i = 0; i < context->num_outputs(); ++i) {
        context->set_output(i, context->UnknownShape());
      }
      return absl::OkStatus();
    });

REGISTER_KERNEL_BUILDER(Name("_TensorwrightChain").Device(DEVICE_CPU), ChainOp);

// Runs after the pass of fused/updates (phase 100), which takes the ops of updates.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_REWRITE_FOR_EXEC, 110, FuseChains);

}  // namespace
}  // namespace tensorwright::chains
