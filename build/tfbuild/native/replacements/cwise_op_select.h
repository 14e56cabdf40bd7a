// Replaces the functor of SelectV2 by loops over rows of memory. In each row, an input either is
// contiguous or is a single element. The stock kernel broadcasts all three inputs with Eigen, even
// if they already have the output's shape.

#ifndef TENSORWRIGHT_REPLACEMENTS_CWISE_OP_SELECT_H_
#define TENSORWRIGHT_REPLACEMENTS_CWISE_OP_SELECT_H_

#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/framework/tensor_types.h"
#include "tensorwright/compute/sharing.h"

namespace tensorwright {

// The unsigned type of kBytes bytes. All element types of the same size share one loop.
template <int kBytes>
struct Bytes;
#define TENSORWRIGHT_BYTES(kBytes, T)          \
  template <>                                  \
  struct Bytes<kBytes> {                       \
    typedef T __attribute__((may_alias)) Type; \
  };
TENSORWRIGHT_BYTES(1, uint8_t)
TENSORWRIGHT_BYTES(2, uint16_t)
TENSORWRIGHT_BYTES(4, uint32_t)
TENSORWRIGHT_BYTES(8, uint64_t)
TENSORWRIGHT_BYTES(16, unsigned __int128)
#undef TENSORWRIGHT_BYTES

// A dimension of the output: its size, and the strides of condition, `then` and `otherwise` in
// elements. A stride is 0 if the input is broadcast.
struct Dimension {
  Index size;
  Index strides[3];
};
using Dimensions = absl::InlinedVector<Dimension, 8>;
constexpr Index kBlock = 16 * kAligned;  // Minimum number of elements of a thread's block.

// Adds a dimension of the output to `dimensions`, which are in order from the innermost. `sizes`
// are the sizes of the three inputs in this dimension, `passed` their numbers of elements in the
// inner ones; updates `passed`. Dimensions of size 1 are skipped. A dimension is merged with the
// previous one if one stride fits both for every input. So the innermost strides are 0 or 1.
inline void Add(Index size, const Index (&sizes)[3], Index (&passed)[3], Dimensions& dimensions) {
  if (size == 1) return;
  Dimension added{size, {}};
  bool goes_on = !dimensions.empty();
  for (int input = 0; input < 3; ++input) {
    added.strides[input] = sizes[input] == 1 ? 0 : passed[input];
    passed[input] *= sizes[input];
    goes_on = goes_on &&
              added.strides[input] == dimensions.back().strides[input] * dimensions.back().size;
  }
  if (goes_on) {
    dimensions.back().size *= size;
  } else {
    dimensions.push_back(added);
  }
}

// Computes out[i] = cond[i] ? then[i] : otherwise[i]. A template argument kOne... is true if that
// input has a single element. `out` may be `then` or `otherwise`, but not overlap them in another
// way, so no iteration depends on another.
template <bool kOneCond, bool kOneThen, bool kOneElse, class Word>
void Choose(Word* out, const bool* cond, const Word* then, const Word* otherwise, Index size) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (Index i = 0; i < size; ++i) {
    // Reads both, because compilers do not vectorise conditional loads.
    const Word yes = then[kOneThen ? 0 : i], no = otherwise[kOneElse ? 0 : i];
    out[i] = cond[kOneCond ? 0 : i] ? yes : no;
  }
}

template <class Word>
using Chooser = void (*)(Word*, const bool*, const Word*, const Word*, Index);

// Returns the loop for the innermost dimension.
template <class Word>
Chooser<Word> ChooserFor(const Dimension& row) {
  constexpr Chooser<Word> kChoosers[] = {
      Choose<true, true, true, Word>,   Choose<true, true, false, Word>,
      Choose<true, false, true, Word>,  Choose<true, false, false, Word>,
      Choose<false, true, true, Word>,  Choose<false, true, false, Word>,
      Choose<false, false, true, Word>, Choose<false, false, false, Word>,
  };
  return kChoosers[4 * row.strides[0] + 2 * row.strides[1] + row.strides[2]];
}

// Computes the output on the threads of the device. A thread splits its range of elements into
// rows.
template <class Word>
void Select(const Eigen::ThreadPoolDevice& device, const Dimensions& dimensions, Word* out,
            const bool* cond, const Word* then, const Word* otherwise) {
  const Dimension& row = dimensions.front();
  const auto choose = ChooserFor<Word>(row);
  Index size = 1;
  for (const Dimension& each : dimensions) size *= each.size;
  Over(device, size, kBlock, [&](Index first, Index last) {
    for (Index at = first; at < last;) {
      Index rest = at, from[3] = {0, 0, 0};
      for (const Dimension& each : dimensions) {
        for (int input = 0; input < 3; ++input) {
          from[input] += rest % each.size * each.strides[input];
        }
        rest /= each.size;
      }
      const Index count = std::min(row.size - at % row.size, last - at);
      choose(out + at, cond + from[0], then + from[1], otherwise + from[2], count);
      at += count;
    }
  });
}

// Replaces BCastSelectFunctor. Ignores the numbers of repetitions, which follow from the shapes.
template <typename T, int kDims>
struct BCastSelect {
  using Times = Eigen::array<Eigen::DenseIndex, kDims>;
  using In = typename tensorflow::TTypes<T, kDims>::ConstTensor;

  void operator()(const Eigen::ThreadPoolDevice& device,
                  typename tensorflow::TTypes<T, kDims>::Tensor out,
                  typename tensorflow::TTypes<bool, kDims>::ConstTensor cond, In then, In otherwise,
                  const Times&, const Times&, const Times&) const {
    using Word = typename Bytes<sizeof(T)>::Type;
    Dimensions dimensions;
    Index passed[3] = {1, 1, 1};
    for (int each = kDims - 1; each >= 0; --each) {
      const Index sizes[] = {cond.dimension(each), then.dimension(each), otherwise.dimension(each)};
      Add(out.dimension(each), sizes, passed, dimensions);
    }
    if (dimensions.empty()) dimensions.push_back({1, {1, 1, 1}});
    Select<Word>(device, dimensions, reinterpret_cast<Word*>(out.data()), cond.data(),
                 reinterpret_cast<const Word*>(then.data()),
                 reinterpret_cast<const Word*>(otherwise.data()));
  }
};

}  // namespace tensorwright

namespace tensorflow {
namespace functor {

template <typename Device, typename T, int NDIMS>
struct BCastSelectFunctor;

// Only types that can be copied as bytes.
#define TENSORWRIGHT_SELECT(T)                                 \
  template <int NDIMS>                                         \
  struct BCastSelectFunctor<Eigen::ThreadPoolDevice, T, NDIMS> \
      : ::tensorwright::BCastSelect<T, NDIMS> {};
TF_CALL_POD_TYPES(TENSORWRIGHT_SELECT)
#undef TENSORWRIGHT_SELECT

}  // namespace functor
}  // namespace tensorflow

#endif  // TENSORWRIGHT_REPLACEMENTS_CWISE_OP_SELECT_H_
