// Where TensorFlow has placed a node.

#ifndef TENSORWRIGHT_GRAPH_PLACED_H_
#define TENSORWRIGHT_GRAPH_PLACED_H_

#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace tensorwright {

// Whether it is a CPU of a process that is in no cluster: passes are not told which devices are local.
inline bool IsHere(const tensorflow::Node* node) {
  tensorflow::DeviceNameUtils::ParsedName name;
  return tensorflow::DeviceNameUtils::ParseFullName(node->assigned_device_name(), &name) &&
         name.job == "localhost" && name.type == tensorflow::DEVICE_CPU;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_GRAPH_PLACED_H_
