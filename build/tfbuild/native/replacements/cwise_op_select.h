// SelectV2 as loops over rows of memory, in each of which an input goes on or stands still. The stock
// kernel broadcasts all three inputs with Eigen, also those that have the output's shape already.

#ifndef TENSORWRIGHT_REPLACEMENTS_CWISE_OP_SELECT_H_
#define TENSORWRIGHT_REPLACEMENTS_CWISE_OP_SELECT_H_

#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/framework/tensor_types.h"
#include "tensorwright/compute/sharing.h"

namespace tensorwright {

// An element's bytes, whatever type they are of: a loop for each size serves all types.
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

// A dimension of the output: its size, and how many elements the condition and the two choices go
// on from one to the next, 0 where they are broadcast.
struct Dimension {
  Index size;
  Index strides[3];
};
using Dimensions = absl::InlinedVector<Dimension, 8>;
constexpr Index kBlock = 16 * kAligned;  // elements

// Adds an output's dimension around those that are there (innermost first, without those of a single
// element), for inputs with `sizes` in it and `passed` elements within it. It becomes one with the
// last where every input goes on from row to row as it does within a row. So the innermost
// strides are 0 or 1.
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

// out[i] = cond[i] ? then[i] : otherwise[i], where what is single stands still. The output may be
// the memory of a choice, element by element, so no iteration depends on another.
template <bool kOneCond, bool kOneThen, bool kOneElse, class Word>
void Choose(Word* out, const bool* cond, const Word* then, const Word* otherwise, Index size) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (Index i = 0; i < size; ++i) {
    // Both are read whatever the condition says: a load that may not happen is not vectorized.
    const Word yes = then[kOneThen ? 0 : i], no = otherwise[kOneElse ? 0 : i];
    out[i] = cond[kOneCond ? 0 : i] ? yes : no;
  }
}

template <class Word>
using Chooser = void (*)(Word*, const bool*, const Word*, const Word*, Index);

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

// What stands for BCastSelectFunctor.
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

// The types that are copied by copying their bytes.
#define TENSORWRIGHT_SELECT(T)                                 \
  template <int NDIMS>                                         \
  struct BCastSelectFunctor<Eigen::ThreadPoolDevice, T, NDIMS> \
      : ::tensorwright::BCastSelect<T, NDIMS> {};
TF_CALL_POD_TYPES(TENSORWRIGHT_SELECT)
#undef TENSORWRIGHT_SELECT

}  // namespace functor
}  // namespace tensorflow

#endif  // TENSORWRIGHT_REPLACEMENTS_CWISE_OP_SELECT_H_
