// The kernels that are registered: a generated table, compiled by itself. Another selection is one
// small compile and a link; the kernels stay as they are.

#include "tensorwright/selection.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace tensorwright {
namespace {

struct Row {
  const char* op;
  const char* types;
};

#include "tensorwright/selected.inc"  // kSelected[], sorted

bool Before(const Row& one, const Row& other) {
  const int ops = std::strcmp(one.op, other.op);
  return ops != 0 ? ops < 0 : std::strcmp(one.types, other.types) < 0;
}

}  // namespace

bool Selected(const char* op, const char* types) {
  return std::binary_search(std::begin(kSelected), std::end(kSelected), Row{op, types}, Before);
}

}  // namespace tensorwright
