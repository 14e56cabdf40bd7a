// Ops that replace others and hold the kernels of those, and how a graph pass inserts them.

#ifndef TENSORWRIGHT_GRAPH_REPLACED_OP_H_
#define TENSORWRIGHT_GRAPH_REPLACED_OP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/node_properties.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorwright/graph/events.h"
#include "tensorwright/graph/original.h"
#include "tensorwright/graph/placed.h"
#include "tensorwright/graph/replace.h"
#include "tensorwright/graph/verification.h"
#include "tensorwright/graph/xla.h"

namespace tensorwright {

constexpr char kOriginal[] = "original";  // Attribute: the replaced op, a serialized NodeDef.

// The base class of these ops. It creates the original kernel, owns it, and runs it if the op does
// not compute its outputs itself.
class ReplacedOp : public tensorflow::OpKernel {
 public:
  // `runs` and `stock` count the executions by this library and by the original kernel.
  ReplacedOp(tensorflow::OpKernelConstruction* context, EventCounter& runs, EventCounter& stock,
             VerifiedGroup& group)
      : OpKernel(context), runs_(runs), stock_runs_(stock), verification_(group) {
    std::string original;
    OP_REQUIRES_OK(context, context->GetAttr(kOriginal, &original));
    OP_REQUIRES(context, original_def_.ParseFromString(original),
                tensorflow::errors::InvalidArgument(kOriginal, " is no NodeDef"));
    std::shared_ptr<const tensorflow::NodeProperties> properties;
    OP_REQUIRES_OK(context, tensorflow::NodeProperties::CreateFromNodeDef(
                                original_def_, tensorflow::OpRegistry::Global(), &properties));
    tensorflow::OpKernel* stock_kernel = nullptr;
    auto* device = context->device();
    OP_REQUIRES_OK(context, tensorflow::CreateOpKernel(
                                context->device_type(), device, device->GetAllocator({}),
                                context->function_library(), context->resource_manager(),
                                properties, context->graph_def_version(), &stock_kernel));
    stock_.reset(stock_kernel);
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    if (verification_.IsOff()) return stock_->Compute(context);
    if (verification_.IsDue()) return Verify(context);
    bool done = false;
    OP_REQUIRES_OK(context, Computes(context, &done));
    (done ? runs_ : stock_runs_).Add();
    done ? verification_.Count() : stock_->Compute(context);
  }

 protected:
  // Computes the outputs and sets `*done`. If the inputs are invalid, or if this would not be
  // faster for their shapes, does nothing and leaves `*done` false.
  virtual absl::Status Computes(tensorflow::OpKernelContext* context, bool* done) const = 0;

  // Returns the definition of the op that was replaced.
  const tensorflow::NodeDef& before() const { return original_def_; }

  static std::int64_t Threads(tensorflow::OpKernelContext* context) {
    return context->device()->tensorflow_cpu_worker_threads()->num_threads;
  }

 private:
  // Runs the original kernel, then this one.
  void Verify(tensorflow::OpKernelContext* context) {
    // No kernel overwrites an input that something else holds.
    const std::vector<tensorflow::Tensor> held = ArgumentsOf(context);
    stock_->Compute(context);
    if (!context->status().ok()) return;
    const std::vector<tensorflow::Tensor> expected = Verification::TakeOutputs(context);
    bool is_done = false;
    const absl::Status status = Computes(context, &is_done);
    const bool done = status.ok() && is_done;
    (done ? runs_ : stock_runs_).Add();
    if (done) verification_.Count();
    // Winograd convolution gives NaN where a direct one gives infinity.
    verification_.Finish(context, expected, done && AreFinite(held));
  }

  tensorflow::NodeDef original_def_;
  std::unique_ptr<tensorflow::OpKernel> stock_;
  EventCounter &runs_, &stock_runs_;
  Verification verification_;
};

// Replaces `node` by a node of `op`, which is a ReplacedOp with the same inputs and outputs. Returns
// false if TensorFlow rejects it.
inline bool ReplaceWith(const char* op, tensorflow::Graph& graph, tensorflow::Node* node) {
  tensorflow::NodeDef original = node->def(), definition;
  original.clear_input();
  for (int i = 0; i < node->num_inputs(); ++i) original.add_input("input" + std::to_string(i));
  definition.set_name(node->name());
  definition.set_op(op);
  definition.set_device(node->def().device());
  *definition.mutable_input() = node->def().input();
  (*definition.mutable_attr())[kOriginal].set_s(original.SerializeAsString());
  if (const auto* inputs = node->attrs().Find("N")) (*definition.mutable_attr())["N"] = *inputs;
  // Errors name the function and the line of the user's program by these.
  *definition.mutable_experimental_debug_info() = node->def().experimental_debug_info();
  absl::Status status;
  tensorflow::Node* ours = graph.AddNode(std::move(definition), &status);
  if (status.ok()) Replace(graph, node, ours);
  return status.ok();
}

// Replaces nodes of a graph, and counts those that it replaces, and those that it leaves by reason.
//
// Args:
//   find: returns the op by which it replaces a node, or nullptr if there is none.
//   leave: returns the counter of the reason to leave a node, or nullptr if there is none.
//   replaced: counts the replaced nodes.
template <typename Find, typename Leave>
void ReplaceNodes(tensorflow::Graph& graph, const Find& find, const Leave& leave,
                  EventCounter& replaced) {
  std::vector<tensorflow::Node*> found;
  for (tensorflow::Node* node : graph.op_nodes()) {
    if (find(*node) != nullptr) found.push_back(node);
  }
  for (tensorflow::Node* node : found) {
    EventCounter* reason = IsCompiled(node->attrs()) ? &events::compiled
                           : !IsOnLocalCpu(node)     ? &events::elsewhere
                                                     : leave(*node);
    if (reason == nullptr) {
      reason = ReplaceWith(find(*node), graph, node) ? &replaced : &events::rejected;
    }
    reason->Add();
  }
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_REPLACED_OP_H_
