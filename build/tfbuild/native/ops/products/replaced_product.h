// Ops that replace products. They compute what this library was measured to compute faster.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_REPLACED_PRODUCT_H_
#define TENSORWRIGHT_OPS_PRODUCTS_REPLACED_PRODUCT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorwright/compute/finish.h"
#include "tensorwright/graph/replaced_op.h"
#include "tensorwright/ops/products/events.h"
#include "tensorwright/ops/products/faster.h"

namespace tensorwright {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// The base class of these ops.
class ReplacedProduct : public ReplacedOp {
 public:
  explicit ReplacedProduct(OpKernelConstruction* context)
      : ReplacedOp(context, events::product_runs, events::stock_product, products_group) {
    std::vector<std::string> then;
    TryGetNodeAttr(before(), "fused_ops", &then);
    relu_ = then.size() > 1;
  }

 protected:
  // Whether the kernel with this prediction is used.
  bool IsUsed(const Prediction& prediction) const { return always_ || prediction.IsFaster(); }

  // Whether all shapes are computed that this library can compute, by Winograd convolution if it can.
  bool always() const { return always_; }

  // Sets `*finish` for outputs with `columns` columns. The last of three inputs is a bias. Returns
  // false if its shape does not match.
  bool GetFinish(OpKernelContext* context, std::int64_t columns, Finish* finish) const {
    *finish = {nullptr, relu_};
    if (context->num_inputs() != 3) return true;
    const Tensor& bias = context->input(2);
    if (bias.dims() != 1 || bias.dim_size(0) != columns) return false;
    finish->bias = bias.flat<float>().data();
    return true;
  }

 private:
  bool relu_ = false;
  const bool always_ = AlwaysReplacesProducts();
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_REPLACED_PRODUCT_H_
