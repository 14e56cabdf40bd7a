// The operations that take the place of products of matrices and of gradients of filters: they compute
// those of which this library was measured to be faster than oneDNN, and hand the others to the kernel
// that was there.

#ifndef TENSORWRIGHT_FUSED_PRODUCT_OP_H_
#define TENSORWRIGHT_FUSED_PRODUCT_OP_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorwright/fused/filter_gradient.h"
#include "tensorwright/fused/product.h"
#include "tensorwright/fused/tally.h"
#include "tensorwright/fused/threads.h"

namespace tensorwright {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr char kOriginal[] = "original";  // The operation that was there, as bytes of a NodeDef.

// What is faster than TensorFlow 2.14.1's oneDNN with code for AVX2, by what was measured on a Zen 3
// (docs/fused.md). Tiles want channels; nothing was measured of taps that stand apart.
inline bool IsFasterGradient(const Convolution& of) {
  return of.channels >= 2 * kTileRows && of.filters >= kPanel && of.rows.dilation == 1 &&
         of.columns.dilation == 1;
}
// Of a dense layer: the transposed inputs by what comes back.
inline bool IsFasterTransposed(const Convolution& of) {
  return IsFasterGradient(of) && of.images >= 64 && of.filters >= 128 &&
         of.channels * of.filters >= 1 << 16;
}
inline bool IsFasterProduct(const Matrix& a, const Matrix& b) {
  return a.rows >= 64 && a.rows <= 512 && a.columns >= 256 && b.columns >= 256;
}

// Whether oneDNN computes here with wider vectors than those of this code and of what it was measured
// against: a library for AVX2 on a CPU with AVX-512.
inline bool HasWiderVectors() {
#ifdef __AVX512F__
  return false;
#else
  return tensorflow::port::TestCPUFeature(tensorflow::port::AVX512F);
#endif
}

// Holds the kernel that was there.
class ReplacedOp : public tensorflow::OpKernel {
 public:
  explicit ReplacedOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string original;
    OP_REQUIRES_OK(context, context->GetAttr(kOriginal, &original));
    OP_REQUIRES(context, before_.ParseFromString(original),
                tensorflow::errors::InvalidArgument(kOriginal, " is no NodeDef"));
    std::shared_ptr<const tensorflow::NodeProperties> properties;
    OP_REQUIRES_OK(context, tensorflow::NodeProperties::CreateFromNodeDef(
                                before_, tensorflow::OpRegistry::Global(), &properties));
    tensorflow::OpKernel* stock = nullptr;
    auto* device = context->device();
    OP_REQUIRES_OK(context, tensorflow::CreateOpKernel(
                                context->device_type(), device, device->GetAllocator({}),
                                context->function_library(), context->resource_manager(),
                                properties, context->graph_def_version(), &stock));
    stock_.reset(stock);
  }

  void Compute(OpKernelContext* context) override {
    bool done = false;
    OP_REQUIRES_OK(context, Computes(context, &done));
    Count(done ? Event::kProductRuns : Event::kProductsStock);
    if (!done) stock_->Compute(context);
  }

 protected:
  // Whether it computed the outputs. It does not what is in error, or no faster here.
  virtual absl::Status Computes(OpKernelContext* context, bool* done) const = 0;

  const tensorflow::NodeDef& before() const { return before_; }

  static std::int64_t Threads(OpKernelContext* context) {
    return context->device()->tensorflow_cpu_worker_threads()->num_threads;
  }

  static void Share(OpKernelContext* context, const FilterGradient& gradient) {
    const std::vector<Part> parts = PartsOf(gradient.of(), Threads(context));
    ShareParts(context, Threads(context), parts.size(), [&](std::int64_t first, std::int64_t last) {
      for (; first < last; ++first) gradient.Compute(parts[first]);
    });
  }

 private:
  tensorflow::NodeDef before_;
  std::unique_ptr<tensorflow::OpKernel> stock_;
};

// MatMul, and _FusedMatMul with a bias.
class ProductOp : public ReplacedOp {
 public:
  explicit ProductOp(OpKernelConstruction* context) : ReplacedOp(context) {
    OP_REQUIRES_OK(context, GetNodeAttr(before(), "transpose_a", &transposed_));
    std::vector<std::string> then;
    TryGetNodeAttr(before(), "fused_ops", &then);
    relu_ = then.size() > 1;
  }

 protected:
  absl::Status Computes(OpKernelContext* context, bool* done) const override {
    const Tensor &left = context->input(0), &right = context->input(1);
    if (left.dims() != 2 || right.dims() != 2) return absl::OkStatus();
    const Matrix a = MatrixOf(left, transposed_), b = MatrixOf(right, false);
    if (a.columns != b.rows) return absl::OkStatus();
    Finish finish = {nullptr, relu_};
    if (context->num_inputs() > 2) {
      const Tensor& bias = context->input(2);
      if (bias.dims() != 1 || bias.dim_size(0) != b.columns) return absl::OkStatus();
      finish.bias = bias.flat<float>().data();
    }
    const Convolution sums = {a.columns, a.rows, b.columns, {1, 1, 1}, {1, 1, 1}};
    if (!(transposed_ ? IsFasterTransposed(sums) : IsFasterProduct(a, b))) return absl::OkStatus();
    Tensor* out = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({a.rows, b.columns}), &out));
    *done = true;
    float* to = out->flat<float>().data();
    if (transposed_) {
      Share(context, FilterGradient(sums, a.data, b.data, to, nullptr));
    } else {
      const Product product(a, b, finish, to);
      ShareParts(context, Threads(context), product.panels(),
                 [&](std::int64_t first, std::int64_t last) { product.Compute(first, last); });
    }
    return absl::OkStatus();
  }

 private:
  static Matrix MatrixOf(const Tensor& tensor, bool transposed) {
    const Matrix matrix = {tensor.flat<float>().data(), tensor.dim_size(0), tensor.dim_size(1),
                           tensor.dim_size(1), 1};
    return transposed ? matrix.Transposed() : matrix;
  }

  bool transposed_ = false;  // The left matrix.
  bool relu_ = false;
};

// Conv2DBackpropFilter of NHWC images, and the same with the gradient of a bias.
class FilterGradientOp : public ReplacedOp {
 public:
  explicit FilterGradientOp(OpKernelConstruction* context) : ReplacedOp(context) {
    std::string padding;
    OP_REQUIRES_OK(context, GetNodeAttr(before(), "strides", &strides_));
    OP_REQUIRES_OK(context, GetNodeAttr(before(), "dilations", &dilations_));
    OP_REQUIRES_OK(context, GetNodeAttr(before(), "padding", &padding));
    same_ = padding == "SAME";
  }

 protected:
  absl::Status Computes(OpKernelContext* context, bool* done) const override {
    const Tensor &input = context->input(0), &sizes = context->input(1), &back = context->input(2);
    if (input.dims() != 4 || back.dims() != 4 || sizes.dims() != 1 || sizes.NumElements() != 4) {
      return absl::OkStatus();
    }
    const auto size = sizes.flat<std::int32_t>();
    const Convolution of = {input.dim_size(0), input.dim_size(3), back.dim_size(3),
                            AxisOf(input, back, 1, size(0)), AxisOf(input, back, 2, size(1))};
    if (back.dim_size(0) != of.images || size(2) != of.channels || size(3) != of.filters ||
        of.images == 0 || !IsFasterGradient(of) || !Fits(of.rows) || !Fits(of.columns)) {
      return absl::OkStatus();
    }
    Tensor *filter = nullptr, *bias = nullptr;
    const TensorShape shape({size(0), size(1), size(2), size(3)});
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &filter));
    if (context->num_outputs() > 1) {
      TF_RETURN_IF_ERROR(context->allocate_output(1, TensorShape({of.filters}), &bias));
    }
    *done = true;
    Share(context, FilterGradient(of, input.flat<float>().data(), back.flat<float>().data(),
                                  filter->flat<float>().data(),
                                  bias == nullptr ? nullptr : bias->flat<float>().data()));
    return absl::OkStatus();
  }

 private:
  Convolution::Axis AxisOf(const Tensor& input, const Tensor& back, int axis, int taps) const {
    Convolution::Axis of = {input.dim_size(axis), back.dim_size(axis), taps, strides_[axis],
                            dilations_[axis]};
    if (same_) of.before = std::max<std::int64_t>(of.Reached(of.out) - of.in, 0) / 2;
    return of;
  }

  // Whether as much comes back as the convolution has of outputs.
  bool Fits(const Convolution::Axis& of) const {
    const std::int64_t lost = same_ ? 0 : (of.taps - 1) * of.dilation;
    return of.taps > 0 && of.in > lost && of.out == (of.in - lost + of.stride - 1) / of.stride;
  }

  std::vector<std::int32_t> strides_, dilations_;
  bool same_ = false;  // Or nothing is padded.
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_FUSED_PRODUCT_OP_H_
