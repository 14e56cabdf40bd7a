// Finds products of matrices, convolutions and their gradients in the graphs that TensorFlow is about to
// execute, and lets operations of ours (replaced_op.h) take their place: with the same inputs and
// outputs.

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
#include "tensorwright/ops/products/events.h"
#include "tensorwright/ops/products/faster.h"
#include "tensorwright/ops/products/product_op.h"

namespace tensorwright {
namespace {

constexpr char kProducts[] = "products";

// What takes a node's place, if there is one. The types are TensorFlow's own, and what oneDNN's rewriting
// makes of them (common_runtime/mkl_layout_pass.cc).
const char* ProductOpOf(const tensorflow::Node& node) {
  static const auto* known = new std::map<std::string, const char*>{
      {"MatMul", "_TensorwrightProduct"},
      {"_MklMatMul", "_TensorwrightProduct"},
      {"_FusedMatMul", "_TensorwrightFusedProduct"},
      {"_MklNativeFusedMatMul", "_TensorwrightFusedProduct"},
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

class FusingProducts {
 public:
  FusingProducts(tensorflow::Graph* graph, bool wider) : graph_(*graph), wider_(wider) {}

  void Run() {
    std::vector<tensorflow::Node*> found;
    for (tensorflow::Node* node : graph_.op_nodes()) {
      if (ProductOpOf(*node) != nullptr) found.push_back(node);
    }
    for (tensorflow::Node* node : found) {
      if (IsCompiled(node->attrs())) {
        events::compiled.Add();
      } else if (!IsHere(node)) {
        events::elsewhere.Add();
      } else if (!Serves(node)) {
        events::unsupported_product.Add();
      } else if (wider_) {
        events::wider_vectors.Add();
      } else {
        Take(node);
      }
    }
  }

 private:
  static bool Serves(const tensorflow::Node* node) {
    tensorflow::DataType type = tensorflow::DT_INVALID;
    std::string layout = "NHWC", padding = "VALID";
    std::vector<std::string> then;
    std::vector<std::int32_t> strides;  // Of convolutions.
    bool left = false, right = false;
    bool constant = false;  // The right matrix, which oneDNN then packs once.
    const auto read = [&](const char* name, auto* value) {
      TryGetNodeAttr(node->attrs(), name, value);
    };
    read("T", &type);
    read("transpose_a", &left);
    read("transpose_b", &right);
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
        (!left &&
         (begins("BiasAdd", 3) || (convolves && begins("FusedBatchNorm", kNormalisedInputs))) &&
         (then.size() == 1 || (then.size() == 2 && then[1] == "Relu")));
    return (kProductsAreFaster || convolves) && type == tensorflow::DT_FLOAT && !right &&
           layout == "NHWC" && padding != "EXPLICIT" && finished && !constant;
  }

  void Take(tensorflow::Node* node) {
    tensorflow::NodeDef original = node->def(), definition;
    original.clear_input();
    for (int i = 0; i < node->num_inputs(); ++i) original.add_input("input" + std::to_string(i));
    definition.set_name(node->name());
    definition.set_op(ProductOpOf(*node));
    definition.set_device(node->def().device());
    *definition.mutable_input() = node->def().input();
    (*definition.mutable_attr())[kOriginal].set_s(original.SerializeAsString());
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
  const bool wider_;  // oneDNN's vectors here: all is left to it.
};

class FuseProducts : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.partition_graphs == nullptr || !Wanted(kProducts)) return absl::OkStatus();
    const bool wider = !Wanted(kProducts, !HasWiderVectors());
    for (auto& [device, graph] : *options.partition_graphs) {
      FusingProducts(graph.get(), wider).Run();
    }
    return absl::OkStatus();
  }
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_FUSE_PRODUCTS_H_
