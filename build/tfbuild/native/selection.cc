// The generated table of the kernels to register. It is a source file of its own, so that another
// selection needs only one small compile and a link; the kernels are not compiled again.

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

#include "tensorwright/selected.inc"  // The table kSelected[], sorted.

// Orders rows by op, then by types.
bool Before(const Row& one, const Row& other) {
  const int ops = std::strcmp(one.op, other.op);
  return ops != 0 ? ops < 0 : std::strcmp(one.types, other.types) < 0;
}

}  // namespace

bool IsSelected(const char* op, const char* types) {
  return std::binary_search(std::begin(kSelected), std::end(kSelected), Row{op, types}, Before);
}

}  // namespace tensorwright
