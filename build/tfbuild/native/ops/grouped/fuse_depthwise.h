// The graph pass of fused/grouped that replaces depthwise convolutions and their gradients with ops
// of this library (depthwise_op.h), which have the same inputs and outputs.

#ifndef TENSORWRIGHT_OPS_GROUPED_FUSE_DEPTHWISE_H_
#define TENSORWRIGHT_OPS_GROUPED_FUSE_DEPTHWISE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorwright/graph/replaced_op.h"
#include "tensorwright/graph/switches.h"
#include "tensorwright/ops/grouped/call.h"
#include "tensorwright/ops/grouped/events.h"
#include "tensorwright/ops/grouped/fuse_grouped.h"

namespace tensorwright {
namespace {

// Returns the op that replaces `node`, or nullptr if there is none. The keys of the map are ops of
// TensorFlow and the ops by which oneDNN's rewriting replaces them.
const char* FindDepthwiseOp(const tensorflow::Node& node) {
  static const auto* known = new std::map<std::string, const char*>{
      {"DepthwiseConv2dNative", "_TensorwrightDepthwise"},
      {"_MklNativeDepthwiseConv2dNative", "_TensorwrightDepthwise"},
      {"_FusedDepthwiseConv2dNative", "_TensorwrightFusedDepthwise"},
      {"_MklNativeFusedDepthwiseConv2dNative", "_TensorwrightFusedDepthwise"},
      {"DepthwiseConv2dNativeBackpropInput", "_TensorwrightDepthwiseInputGradient"},
      {"_MklNativeDepthwiseConv2dNativeBackpropInput", "_TensorwrightDepthwiseInputGradient"},
      {"DepthwiseConv2dNativeBackpropFilter", "_TensorwrightDepthwiseFilterGradient"},
      {"_MklNativeDepthwiseConv2dNativeBackpropFilter", "_TensorwrightDepthwiseFilterGradient"},
  };
  const auto found = known->find(node.type_string());
  return found == known->end() ? nullptr : found->second;
}

// Whether the attributes of `node` are supported: float32, NHWC, no explicit padding, equal strides,
// no dilations, and followed by nothing but a bias and ReLU.
inline bool ServesDepthwise(const tensorflow::Node& node) {
  tensorflow::DataType type = tensorflow::DT_INVALID;
  TryGetNodeAttr(node.attrs(), "T", &type);
  std::vector<std::string> then;
  const bool is_fused = TryGetNodeAttr(node.attrs(), "fused_ops", &then);
  const bool finished =
      !is_fused || (node.num_inputs() == 3 && !then.empty() && then[0] == "BiasAdd" &&
                    (then.size() == 1 || (then.size() == 2 && then[1] == "Relu")));
  Value value = {ValueKind::kOutputs};
  return type == tensorflow::DT_FLOAT && finished && ReadConvolution(node.attrs(), &value) &&
         value.strides[1] == value.strides[2] && value.dilations == std::vector<std::int32_t>(4, 1);
}

// Runs on the graphs of all partitions.
class FuseDepthwise : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.partition_graphs == nullptr || !IsFusionEnabled(kGrouped)) return absl::OkStatus();
    const auto leave = [](const tensorflow::Node& node) {
      return ServesDepthwise(node) ? nullptr : &events::unsupported_depthwise;
    };
    for (auto& [device, graph] : *options.partition_graphs) {
      ReplaceNodes(*graph, FindDepthwiseOp, leave, events::depthwise);
    }
    return absl::OkStatus();
  }
};

}  // namespace
}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_GROUPED_FUSE_DEPTHWISE_H_
