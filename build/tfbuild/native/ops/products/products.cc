// The ops, kernels and graph pass of fused/products. They are one source because most of the time
// to compile a source goes into TensorFlow's headers.

#define EIGEN_USE_THREADS

#include "tensorwright/ops/products/contraction_op.h"
#include "tensorwright/ops/products/convolution_op.h"
#include "tensorwright/ops/products/events.h"
#include "tensorwright/ops/products/fuse_products.h"

namespace tensorwright {
namespace {

using tensorflow::DEVICE_CPU;  // native/registration.h needs the unqualified name.
using tensorflow::shape_inference::UnknownShape;

#define TENSORWRIGHT_PRODUCT(name) \
  REGISTER_OP(name)                \
      .Input("a: float")           \
      .Input("b: float")           \
      .Output("product: float")    \
      .Attr("original: string")    \
      .SetShapeFn(UnknownShape)

TENSORWRIGHT_PRODUCT("_TensorwrightProduct");
TENSORWRIGHT_PRODUCT("_TensorwrightFusedProduct").Input("bias: float");

// The inputs have the name that the original kernel uses to get them.
REGISTER_OP("_TensorwrightEinsum")
    .Input("inputs: N * float")
    .Output("product: float")
    .Attr("N: int")
    .Attr("original: string")
    .SetShapeFn(UnknownShape);

#define TENSORWRIGHT_CONVOLUTION(name) \
  REGISTER_OP(name)                    \
      .Input("input: float")           \
      .Input("filter: float")          \
      .Output("output: float")         \
      .Attr("original: string")        \
      .SetShapeFn(UnknownShape)

TENSORWRIGHT_CONVOLUTION("_TensorwrightConvolution");
TENSORWRIGHT_CONVOLUTION("_TensorwrightFusedConvolution").Input("bias: float");
TENSORWRIGHT_CONVOLUTION("_TensorwrightNormalisedConvolution")
    .Input("scale: float")
    .Input("offset: float")
    .Input("mean: float")
    .Input("variance: float");

REGISTER_OP("_TensorwrightInputGradient")
    .Input("input_sizes: int32")
    .Input("filter: float")
    .Input("out_backprop: float")
    .Output("output: float")
    .Attr("original: string")
    .SetShapeFn(UnknownShape);

#define TENSORWRIGHT_FILTER_GRADIENT(name) \
  REGISTER_OP(name)                        \
      .Input("input: float")               \
      .Input("filter_sizes: int32")        \
      .Input("out_backprop: float")        \
      .Output("output: float")             \
      .Attr("original: string")            \
      .SetShapeFn(UnknownShape)

TENSORWRIGHT_FILTER_GRADIENT("_TensorwrightFilterGradient");
TENSORWRIGHT_FILTER_GRADIENT("_TensorwrightFilterGradientWithBias").Output("bias_grad: float");

#define TENSORWRIGHT_REPLACED(name, Kernel) \
  REGISTER_KERNEL_BUILDER(Name(name).Device(DEVICE_CPU), Kernel)

TENSORWRIGHT_REPLACED("_TensorwrightProduct", ProductOp);
TENSORWRIGHT_REPLACED("_TensorwrightFusedProduct", ProductOp);
TENSORWRIGHT_REPLACED("_TensorwrightEinsum", EinsumOp);
TENSORWRIGHT_REPLACED("_TensorwrightConvolution", ConvolutionOp);
TENSORWRIGHT_REPLACED("_TensorwrightFusedConvolution", ConvolutionOp);
TENSORWRIGHT_REPLACED("_TensorwrightNormalisedConvolution", ConvolutionOp);
TENSORWRIGHT_REPLACED("_TensorwrightInputGradient", InputGradientOp);
TENSORWRIGHT_REPLACED("_TensorwrightFilterGradient", FilterGradientOp);
TENSORWRIGHT_REPLACED("_TensorwrightFilterGradientWithBias", FilterGradientOp);

// Runs after the passes that rewrite nodes for oneDNN and ZenDNN, which have the phases 1 and 0
// (mkl_layout_pass.cc and zen_layout_pass.cc in tensorflow/core/common_runtime).
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_PARTITIONING, 100, FuseProducts);

}  // namespace
}  // namespace tensorwright
