// The graph pass that replaces matrix products, convolutions and their gradients with ops of this
// library (replaced_product.h), which have the same inputs and outputs.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_FUSE_PRODUCTS_H_
#define TENSORWRIGHT_OPS_PRODUCTS_FUSE_PRODUCTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorwright/graph/replaced_op.h"
#include "tensorwright/graph/switches.h"
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

// Whether the attributes of `node` are supported: float32, NHWC, no explicit padding, not both
// matrices transposed, the right one not constant, an einsum of two operands, and followed by nothing
// but a bias or, in a convolution, batch normalisation, and ReLU.
inline bool Serves(const tensorflow::Node& node) {
  tensorflow::DataType type = tensorflow::DT_INVALID;
  std::string layout = "NHWC", padding = "VALID";
  std::vector<std::string> then;
  std::vector<std::int32_t> strides;  // Only convolutions have strides.
  bool left = false, right = false;
  bool constant = false;  // If the right matrix is constant, oneDNN packs it only once.
  const auto read = [&](const char* name, auto* value) {
    TryGetNodeAttr(node.attrs(), name, value);
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
    return then[0] == with && node.num_inputs() == inputs;
  };
  const bool convolves = !strides.empty();
  const bool finished =
      then.empty() ||
      ((begins("BiasAdd", 3) || (convolves && begins("FusedBatchNorm", kNormalisedInputs))) &&
       (then.size() == 1 || (then.size() == 2 && then[1] == "Relu")));
  const bool is_complete = convolves || node.num_inputs() == (then.empty() ? 2 : 3);
  return (IsAnyContractionFaster() || convolves || AlwaysReplacesProducts()) &&
         type == tensorflow::DT_FLOAT && !(left && right) && layout == "NHWC" &&
         padding != "EXPLICIT" && finished && is_complete && !constant;
}

// Runs on the graphs of all partitions. If TENSORWRIGHT_FUSE names `products`, replaces them even
// if oneDNN uses wider vectors.
class FuseProducts : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.partition_graphs == nullptr || !IsFusionEnabled(kProducts)) return absl::OkStatus();
    const bool wider = !IsFusionEnabled(kProducts, !HasWiderVectors());
    const auto leave = [&](const tensorflow::Node& node) {
      return !Serves(node) ? &events::unsupported_product
             : wider       ? &events::wider_vectors
                           : nullptr;
    };
    for (auto& [device, graph] : *options.partition_graphs) {
      ReplaceNodes(*graph, FindReplacementOp, leave, events::products);
    }
    return absl::OkStatus();
  }
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_FUSE_PRODUCTS_H_
