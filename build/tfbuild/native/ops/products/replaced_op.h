// Ops that replace others and hold the kernels of those. They compute what this library was
// measured to compute faster, and run the original kernel otherwise.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_REPLACED_OP_H_
#define TENSORWRIGHT_OPS_PRODUCTS_REPLACED_OP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorwright/compute/finish.h"
#include "tensorwright/ops/products/events.h"
#include "tensorwright/ops/products/faster.h"

namespace tensorwright {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr char kOriginal[] = "original";  // Attribute: the replaced op, a serialized NodeDef.

// The base class of these ops. It creates the original kernel and owns it.
class ReplacedOp : public tensorflow::OpKernel {
 public:
  explicit ReplacedOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string original;
    OP_REQUIRES_OK(context, context->GetAttr(kOriginal, &original));
    OP_REQUIRES(context, original_def_.ParseFromString(original),
                tensorflow::errors::InvalidArgument(kOriginal, " is no NodeDef"));
    std::shared_ptr<const tensorflow::NodeProperties> properties;
    OP_REQUIRES_OK(context, tensorflow::NodeProperties::CreateFromNodeDef(
                                original_def_, tensorflow::OpRegistry::Global(), &properties));
    tensorflow::OpKernel* stock = nullptr;
    auto* device = context->device();
    OP_REQUIRES_OK(context, tensorflow::CreateOpKernel(
                                context->device_type(), device, device->GetAllocator({}),
                                context->function_library(), context->resource_manager(),
                                properties, context->graph_def_version(), &stock));
    stock_.reset(stock);
    std::vector<std::string> then;
    TryGetNodeAttr(original_def_, "fused_ops", &then);
    relu_ = then.size() > 1;
  }

  void Compute(OpKernelContext* context) override {
    bool done = false;
    OP_REQUIRES_OK(context, Computes(context, &done));
    (done ? events::product_runs : events::stock_product).Add();
    if (!done) stock_->Compute(context);
  }

 protected:
  // Computes the outputs and sets `*done`. If the inputs are invalid, or if this would not be
  // faster for their shapes, does nothing and leaves `*done` false.
  virtual absl::Status Computes(OpKernelContext* context, bool* done) const = 0;

  // Whether the kernel with this prediction is used.
  bool IsUsed(const Prediction& prediction) const { return always_ || prediction.IsFaster(); }

  // Whether all shapes are computed that this library can compute, by Winograd convolution if it can.
  bool always() const { return always_; }

  // Returns the definition of the op that was replaced.
  const tensorflow::NodeDef& before() const { return original_def_; }

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

  static std::int64_t Threads(OpKernelContext* context) {
    return context->device()->tensorflow_cpu_worker_threads()->num_threads;
  }

 private:
  tensorflow::NodeDef original_def_;
  std::unique_ptr<tensorflow::OpKernel> stock_;
  bool relu_ = false;
  const bool always_ = AlwaysReplacesProducts();
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_REPLACED_OP_H_
