// Operations that take the place of others, whose kernels they hold: they compute what this library was
// measured to compute in less time, and hand the rest to the kernel that was there.

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
#include "tensorwright/compute/product.h"
#include "tensorwright/ops/products/events.h"

namespace tensorwright {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr char kOriginal[] = "original";  // The operation that was there, as bytes of a NodeDef.

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
    std::vector<std::string> then;
    TryGetNodeAttr(before_, "fused_ops", &then);
    relu_ = then.size() > 1;
  }

  void Compute(OpKernelContext* context) override {
    bool done = false;
    OP_REQUIRES_OK(context, Computes(context, &done));
    (done ? events::product_runs : events::stock_product).Add();
    if (!done) stock_->Compute(context);
  }

 protected:
  // Whether it computed the outputs. It does not what is in error, or no faster here.
  virtual absl::Status Computes(OpKernelContext* context, bool* done) const = 0;

  const tensorflow::NodeDef& before() const { return before_; }

  // What is done to the outputs, of so many columns: of three inputs the last is a bias. False where
  // that does not fit.
  bool FinishOf(OpKernelContext* context, std::int64_t columns, Finish* finish) const {
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
  tensorflow::NodeDef before_;
  std::unique_ptr<tensorflow::OpKernel> stock_;
  bool relu_ = false;
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_REPLACED_OP_H_
