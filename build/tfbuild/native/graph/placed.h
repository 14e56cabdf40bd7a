// Tells which devices there are, and where TensorFlow has placed a node.

#ifndef TENSORWRIGHT_GRAPH_PLACED_H_
#define TENSORWRIGHT_GRAPH_PLACED_H_

#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_set.h"
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

// Whether all devices are known to be CPUs of this process. Before nodes are placed, a node may be
// meant for any device.
inline bool HasOnlyLocalCpus(const tensorflow::DeviceSet* devices) {
  if (devices == nullptr) return false;
  for (const auto* device : devices->devices()) {
    if (!device->IsLocal() || device->device_type() != tensorflow::DEVICE_CPU) return false;
  }
  return true;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_PLACED_H_
