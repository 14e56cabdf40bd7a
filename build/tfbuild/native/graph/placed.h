// Tells where TensorFlow has placed a node.

#ifndef TENSORWRIGHT_GRAPH_PLACED_H_
#define TENSORWRIGHT_GRAPH_PLACED_H_

#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tensorwright {

// Whether the node is on a CPU of this process. Passes are not told which devices are local, so
// this is false for all devices of a cluster, even this process's own.
inline bool IsOnLocalCpu(const tensorflow::Node* node) {
  tensorflow::DeviceNameUtils::ParsedName name;
  return tensorflow::DeviceNameUtils::ParseFullName(node->assigned_device_name(), &name) &&
         name.job == "localhost" && name.type == tensorflow::DEVICE_CPU;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_PLACED_H_
