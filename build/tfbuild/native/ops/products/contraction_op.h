// Kernels of matrix products, batches of them and einsums, for shapes for which they are faster than
// oneDNN's.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_CONTRACTION_OP_H_
#define TENSORWRIGHT_OPS_PRODUCTS_CONTRACTION_OP_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tensorwright/compute/threads.h"
#include "tensorwright/ops/products/contraction.h"
#include "tensorwright/ops/products/contraction_run.h"
#include "tensorwright/ops/products/faster.h"
#include "tensorwright/ops/products/replaced_product.h"

namespace tensorwright {
namespace {

// The base class of ops that contract two tensors. A third input is a bias.
class ContractionOp : public ReplacedProduct {
 public:
  using ReplacedProduct::ReplacedProduct;

 protected:
  // Sets the contraction and the shape of the result. Returns false if the shapes of the operands do
  // not match, or if the library does not support the contraction.
  virtual bool GetContraction(const TensorShape& left, const TensorShape& right, Contraction* of,
                              TensorShape* out) const = 0;

  virtual KernelId kernel() const = 0;

  absl::Status Computes(OpKernelContext* context, bool* done) const override {
    const Tensor &first = context->input(0), &second = context->input(1);
    if (first.NumElements() == 0 || second.NumElements() == 0) return absl::OkStatus();
    Contraction of;
    TensorShape shape;
    Finish finish;
    if (!GetContraction(first.shape(), second.shape(), &of, &shape) ||
        !GetFinish(context, shape.dim_size(shape.dims() - 1), &finish)) {
      return absl::OkStatus();
    }
    const bool finishes = finish.bias != nullptr || finish.relu;
    if (finishes && (of.is_swapped || of.count() > 1)) return absl::OkStatus();
    if (!IsUsed(Predict(kernel(), CountContractionWork(of, kernel())))) return absl::OkStatus();
    Tensor* out = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &out));
    *done = true;
    const float *a = first.flat<float>().data(), *b = second.flat<float>().data();
    const std::int64_t work = of.count() * of.rows.size * of.depth.size * of.columns.size,
                       threads = std::min(Threads(context), 1 + work / kLeastWork);
    const ContractionRun run(of, threads, of.is_swapped ? b : a, of.is_swapped ? a : b, finish,
                             out->flat<float>().data());
    ShareParts(context, threads, run.parts(),
               [&](std::int64_t begin, std::int64_t end) { run.Compute(begin, end); });
    return absl::OkStatus();
  }

  // Multiplications that take about as long as waking a thread.
  static constexpr std::int64_t kLeastWork = 1 << 20;

  static Sizes SizesOf(const TensorShape& shape) {
    const auto sizes = shape.dim_sizes();
    return {sizes.begin(), sizes.end()};
  }
};

// MatMul, _FusedMatMul with a bias and optionally ReLU, and BatchMatMulV2.
class ProductOp : public ContractionOp {
 public:
  explicit ProductOp(OpKernelConstruction* context) : ContractionOp(context) {
    is_batch_ = before().attr().count("adj_x") > 0;
    OP_REQUIRES_OK(context,
                   GetNodeAttr(before(), is_batch_ ? "adj_x" : "transpose_a", &transposes_left_));
    OP_REQUIRES_OK(context,
                   GetNodeAttr(before(), is_batch_ ? "adj_y" : "transpose_b", &transposes_right_));
  }

 protected:
  bool GetContraction(const TensorShape& left, const TensorShape& right, Contraction* of,
                      TensorShape* out) const override {
    if (is_batch_) {
      std::vector<ContractionAxis> axes;
      Sizes sizes;
      return GetProductAxes(SizesOf(left), SizesOf(right), transposes_left_, transposes_right_,
                            &axes, &sizes) &&
             MakeContraction(axes, of) && TensorShape::BuildTensorShape(sizes, out).ok();
    }
    if (left.dims() != 2 || right.dims() != 2) return false;
    const std::int64_t rows = left.dim_size(transposes_left_),
                       depth = left.dim_size(!transposes_left_),
                       columns = right.dim_size(!transposes_right_);
    *of = MakeProduct(rows, depth, columns, transposes_left_, transposes_right_);
    return right.dim_size(transposes_right_) == depth &&
           TensorShape::BuildTensorShape({rows, columns}, out).ok();
  }

  KernelId kernel() const override {
    return GetProductKernel(is_batch_, transposes_left_, transposes_right_);
  }

 private:
  bool is_batch_ = false, transposes_left_ = false, transposes_right_ = false;
};

// Einsum with two operands.
class EinsumOp : public ContractionOp {
 public:
  explicit EinsumOp(OpKernelConstruction* context) : ContractionOp(context) {
    std::string equation;
    OP_REQUIRES_OK(context, GetNodeAttr(before(), "equation", &equation));
    is_supported_ = labels_.Parse(equation);
  }

 protected:
  bool GetContraction(const TensorShape& left, const TensorShape& right, Contraction* of,
                      TensorShape* out) const override {
    std::vector<ContractionAxis> axes;
    Sizes sizes;
    return is_supported_ && labels_.GetAxes(SizesOf(left), SizesOf(right), &axes, &sizes) &&
           MakeContraction(axes, of) && TensorShape::BuildTensorShape(sizes, out).ok();
  }

  KernelId kernel() const override { return KernelId::einsum; }

 private:
  EinsumLabels labels_;
  bool is_supported_ = false;
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_CONTRACTION_OP_H_
