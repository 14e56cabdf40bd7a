// The kernel of matrix products, for shapes for which it is faster than oneDNN's.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_PRODUCT_OP_H_
#define TENSORWRIGHT_OPS_PRODUCTS_PRODUCT_OP_H_

#include <cstdint>

#include "tensorwright/compute/product.h"
#include "tensorwright/compute/threads.h"
#include "tensorwright/ops/products/convolution_op.h"
#include "tensorwright/ops/products/faster.h"
#include "tensorwright/ops/products/replaced_op.h"

namespace tensorwright {
namespace {

// MatMul, and _FusedMatMul with a bias and optionally ReLU.
class ProductOp : public ReplacedOp {
 public:
  explicit ProductOp(OpKernelConstruction* context) : ReplacedOp(context) {
    OP_REQUIRES_OK(context, GetNodeAttr(before(), "transpose_a", &transposed_));
  }

 protected:
  absl::Status Computes(OpKernelContext* context, bool* done) const override {
    const Tensor &left = context->input(0), &right = context->input(1);
    if (left.dims() != 2 || right.dims() != 2) return absl::OkStatus();
    const Matrix a = MatrixOf(left, transposed_), b = MatrixOf(right, false);
    if (a.columns != b.rows || left.NumElements() == 0 || right.NumElements() == 0) {
      return absl::OkStatus();
    }
    Finish finish;
    if (!GetFinish(context, b.columns, &finish)) return absl::OkStatus();
    const Prediction prediction =
        transposed_ ? Predict(KernelId::transposed_product,
                              CountTransposedProductWork(a.rows, a.columns, b.columns))
                    : Predict(KernelId::product, CountProductWork(a.rows, a.columns, b.columns));
    if (!IsUsed(prediction)) return absl::OkStatus();
    Tensor* out = nullptr;
    TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({a.rows, b.columns}), &out));
    *done = true;
    float* to = out->flat<float>().data();
    if (transposed_) {
      const Convolution sums = ConvolutionOfTransposed(a.rows, a.columns, b.columns);
      ShareGradient(context, Threads(context), FilterGradient(sums, a.data, b.data, to, nullptr));
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

  bool transposed_ = false;  // Whether the left matrix is transposed.
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_PRODUCT_OP_H_
