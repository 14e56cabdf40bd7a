// SelectV2 where condition and choices are of one shape or single values, as in tf.where(mask, x, 0.0)
// and in dropout: a loop over memory. The stock kernel broadcasts all three with Eigen, also those
// that are of the output's shape already.

#ifndef TENSORWRIGHT_IMPROVED_CWISE_OP_SELECT_H_
#define TENSORWRIGHT_IMPROVED_CWISE_OP_SELECT_H_

#include "elementwise.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/framework/tensor_types.h"

namespace tensorwright {

// What a choice gives for an element: its own value, or the only one.
template <bool kSingle, class T>
EIGEN_STRONG_INLINE T At(const T* from, Index element) {
  return kSingle ? *from : from[element];
}

// out[i] = cond[i] ? then[i] : otherwise[i]. The output may be the memory of a choice, element by
// element, so no iteration depends on another.
template <bool kOneCond, bool kOneThen, bool kOneElse, class T>
void Choose(T* out, const bool* cond, const T* then, const T* otherwise, Index first, Index last) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (Index i = first; i < last; ++i) {
    // Both are read whatever the condition says: a load that may not happen is not vectorized.
    const T yes = At<kOneThen>(then, i), no = At<kOneElse>(otherwise, i);
    out[i] = At<kOneCond>(cond, i) ? yes : no;
  }
}

template <class T>
using Chooser = void (*)(T*, const bool*, const T*, const T*, Index, Index);

template <class T>
Chooser<T> ChooserFor(bool one_cond, bool one_then, bool one_else) {
  constexpr Chooser<T> kChoosers[] = {
      Choose<false, false, false, T>, Choose<false, false, true, T>, Choose<false, true, false, T>,
      Choose<false, true, true, T>,   Choose<true, false, false, T>, Choose<true, false, true, T>,
      Choose<true, true, false, T>,   Choose<true, true, true, T>,
  };
  return kChoosers[4 * one_cond + 2 * one_then + one_else];
}

}  // namespace tensorwright

namespace tensorflow {
namespace functor {

template <typename Device, typename T, int NDIMS>
struct BCastSelectFunctor;
template <typename Device, typename T, int NDIMS>
struct BCastSelectFunctorBase;

}  // namespace functor
}  // namespace tensorflow

namespace tensorwright {

// What stands for BCastSelectFunctor: the loop where it can, else Eigen's broadcasts.
template <typename T, int kDims>
struct BCastSelect {
  using Device = Eigen::ThreadPoolDevice;
  using Times = Eigen::array<Eigen::DenseIndex, kDims>;
  using In = typename tensorflow::TTypes<T, kDims>::ConstTensor;

  void operator()(const Device& device, typename tensorflow::TTypes<T, kDims>::Tensor out,
                  typename tensorflow::TTypes<bool, kDims>::ConstTensor cond, In then,
                  In otherwise, const Times& cond_times, const Times& then_times,
                  const Times& else_times) const {
    const Index size = out.size();
    const auto simple = [size](Index each) { return each == size || each == 1; };
    if (!simple(cond.size()) || !simple(then.size()) || !simple(otherwise.size())) {
      tensorflow::functor::BCastSelectFunctorBase<Device, T, kDims>()(
          device, out, cond, then, otherwise, cond_times, then_times, else_times);
      return;
    }
    const auto choose =
        ChooserFor<T>(cond.size() != size, then.size() != size, otherwise.size() != size);
    const Eigen::TensorOpCost cost(1 + 2 * sizeof(T), sizeof(T), 1, true,
                                   Eigen::internal::packet_traits<float>::size);
    Over(device, size, cost, [&](Index first, Index last) {
      choose(out.data(), cond.data(), then.data(), otherwise.data(), first, last);
    });
  }
};

}  // namespace tensorwright

namespace tensorflow {
namespace functor {

// The types that are copied by copying their bytes.
#define TENSORWRIGHT_SELECT(T)                            \
  template <int NDIMS>                                    \
  struct BCastSelectFunctor<Eigen::ThreadPoolDevice, T, NDIMS> \
      : ::tensorwright::BCastSelect<T, NDIMS> {};
TF_CALL_POD_TYPES(TENSORWRIGHT_SELECT)
#undef TENSORWRIGHT_SELECT

}  // namespace functor
}  // namespace tensorflow

#endif  // TENSORWRIGHT_IMPROVED_CWISE_OP_SELECT_H_
