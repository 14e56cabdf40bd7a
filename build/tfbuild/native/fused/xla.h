// What XLA compiles, as the attributes of nodes and functions say it.

#ifndef TENSORWRIGHT_FUSED_XLA_H_
#define TENSORWRIGHT_FUSED_XLA_H_

#include "tensorflow/core/framework/attr_value.pb.h"

namespace tensorwright {

// XLA marks what it compiles by one of several attributes; what it does not has them too, false or
// empty. `attributes` are pairs of a name and an AttrValue.
template <typename Attributes>
bool IsCompiled(const Attributes& attributes) {
  for (const auto& [name, value] : attributes) {
    if (name.compare(0, 4, "_Xla") != 0 && name.compare(0, 4, "_xla") != 0) continue;
    const bool no = (value.value_case() == tensorflow::AttrValue::kB && !value.b()) ||
                    (value.value_case() == tensorflow::AttrValue::kS && value.s().empty());
    if (!no) return true;
  }
  return false;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_FUSED_XLA_H_
