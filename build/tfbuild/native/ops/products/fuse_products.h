// The graph pass that replaces matrix products, convolutions and their gradients with ops of this
// library (replaced_op.h), which have the same inputs and outputs.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_FUSE_PRODUCTS_H_
#define TENSORWRIGHT_OPS_PRODUCTS_FUSE_PRODUCTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorwright/graph/placed.h"
#include "tensorwright/graph/replace.h"
#include "tensorwright/graph/switches.h"
#include "tensorwright/graph/xla.h"
#include "tensorwright/ops/products/contraction_op.h"
#include "tensorwright/ops/products/convolution_op.h"
#include "tensorwright/ops/products/events.h"
#include "tensorwright/ops/products/faster.h"
#include "tensorwright/ops/products/wider.h"

namespace tensorwright {
namespace {

constexpr char kProducts[] = "products";

// Returns the op that replaces `node`, or nullptr if there is none. The keys of the map are ops of
// TensorFlow and the ops by which oneDNN's rewriting (common_runtime/mkl_layout_pass.cc) replaces
// them.
const char* FindReplacementOp(const tensorflow::Node& node) {
  static const auto* known = new std::map<std::string, const char*>{
      {"MatMul", "_TensorwrightProduct"},
      {"_MklMatMul", "_TensorwrightProduct"},
      {"_FusedMatMul", "_TensorwrightFusedProduct"},
      {"_MklNativeFusedMatMul", "_TensorwrightFusedProduct"},
      {"BatchMatMulV2", "_TensorwrightProduct"},
      {"_MklBatchMatMulV2", "_TensorwrightProduct"},
      {"Einsum", "_TensorwrightEinsum"},
      {"_MklEinsum", "_TensorwrightEinsum"},
      {"Conv2D", "_TensorwrightConvolution"},
      {"_MklNativeConv2D", "_TensorwrightConvolution"},
      {"_FusedConv2D", "_TensorwrightFusedConvolution"},
      {"_MklNativeFusedConv2D", "_TensorwrightFusedConvolution"},
      {"_MklNativeConv2DWithBias", "_TensorwrightFusedConvolution"},
      {"Conv2DBackpropInput", "_TensorwrightInputGradient"},
      {"_MklNativeConv2DBackpropInput", "_TensorwrightInputGradient"},
      {"Conv2DBackpropFilter", "_TensorwrightFilterGradient"},
      {"_MklNativeConv2DBackpropFilter", "_TensorwrightFilterGradient"},
      {"_MklNativeConv2DBackpropFilterWithBias", "_TensorwrightFilterGradientWithBias"},
  };
  const auto found = known->find(node.type_string());
  if (found == known->end()) return nullptr;
  return node.num_inputs() == kNormalisedInputs ? "_TensorwrightNormalisedConvolution"
                                                : found->second;
}

// Replaces the products of one graph, and counts those that it leaves by reason.
class ProductReplacer {
 public:
  ProductReplacer(tensorflow::Graph* graph, bool wider) : graph_(*graph), onednn_is_wider_(wider) {}

  void Run() {
    std::vector<tensorflow::Node*> found;
    for (tensorflow::Node* node : graph_.op_nodes()) {
      if (FindReplacementOp(*node) != nullptr) found.push_back(node);
    }
    for (tensorflow::Node* node : found) {
      if (IsCompiled(node->attrs())) {
        events::compiled.Add();
      } else if (!IsOnLocalCpu(node)) {
        events::elsewhere.Add();
      } else if (!Serves(node)) {
        events::unsupported_product.Add();
      } else if (onednn_is_wider_) {
        events::wider_vectors.Add();
      } else {
        Take(node);
      }
    }
  }

 private:
  // Whether the attributes of `node` are supported: float32, NHWC, no explicit padding, not both
  // matrices transposed, the right one not constant, an einsum of two operands, and followed by nothing
  // but a bias or, in a convolution, batch normalisation, and ReLU.
  static bool Serves(const tensorflow::Node* node) {
    tensorflow::DataType type = tensorflow::DT_INVALID;
    std::string layout = "NHWC", padding = "VALID";
    std::vector<std::string> then;
    std::vector<std::int32_t> strides;  // Only convolutions have strides.
    bool left = false, right = false;
    bool constant = false;  // If the right matrix is constant, oneDNN packs it only once.
    const auto read = [&](const char* name, auto* value) {
      TryGetNodeAttr(node->attrs(), name, value);
    };
    read("T", &type);
    read("transpose_a", &left);
    read("transpose_b", &right);
    read("adj_x", &left);
    read("adj_y", &right);
    read("data_format", &layout);
    read("padding", &padding);
    read("fused_ops", &then);
    read("is_filter_const", &constant);
    read("strides", &strides);
    const auto begins = [&](const char* with, int inputs) {
      return then[0] == with && node->num_inputs() == inputs;
    };
    const bool convolves = !strides.empty();
    const bool finished =
        then.empty() ||
        ((begins("BiasAdd", 3) || (convolves && begins("FusedBatchNorm", kNormalisedInputs))) &&
         (then.size() == 1 || (then.size() == 2 && then[1] == "Relu")));
    const bool is_complete = convolves || node->num_inputs() == (then.empty() ? 2 : 3);
    return (IsAnyContractionFaster() || convolves || AlwaysReplacesProducts()) &&
           type == tensorflow::DT_FLOAT && !(left && right) && layout == "NHWC" &&
           padding != "EXPLICIT" && finished && is_complete && !constant;
  }

  // Replaces `node` with an op that holds its definition as an attribute.
  void Take(tensorflow::Node* node) {
    tensorflow::NodeDef original = node->def(), definition;
    original.clear_input();
    for (int i = 0; i < node->num_inputs(); ++i) original.add_input("input" + std::to_string(i));
    definition.set_name(node->name());
    definition.set_op(FindReplacementOp(*node));
    definition.set_device(node->def().device());
    *definition.mutable_input() = node->def().input();
    (*definition.mutable_attr())[kOriginal].set_s(original.SerializeAsString());
    if (const auto* inputs = node->attrs().Find("N")) (*definition.mutable_attr())["N"] = *inputs;
    // Errors name the function and the line of the user's program by these.
    *definition.mutable_experimental_debug_info() = node->def().experimental_debug_info();
    absl::Status status;
    tensorflow::Node* ours = graph_.AddNode(std::move(definition), &status);
    if (!status.ok()) {
      events::rejected.Add();
      return;
    }
    Replace(graph_, node, ours);
    events::products.Add();
  }

  tensorflow::Graph& graph_;
  const bool
      onednn_is_wider_;  // Whether oneDNN uses wider vectors, so that all products are left to it.
};

// Runs on the graphs of all partitions. If TENSORWRIGHT_FUSE names `products`, replaces them even
// if oneDNN uses wider vectors.
class FuseProducts : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.partition_graphs == nullptr || !IsFusionEnabled(kProducts)) return absl::OkStatus();
    const bool wider = !IsFusionEnabled(kProducts, !HasWiderVectors());
    for (auto& [device, graph] : *options.partition_graphs) {
      ProductReplacer(graph.get(), wider).Run();
    }
    return absl::OkStatus();
  }
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_FUSE_PRODUCTS_H_
