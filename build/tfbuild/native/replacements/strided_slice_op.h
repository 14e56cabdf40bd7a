// Replaces the kernels of StridedSlice, its gradient and its assignment by copies of rows. Eigen's
// strided slice, which the stock kernels use, finds each element by divisions. This header defines
// the three templates that strided_slice_op.cc calls and strided_slice_op_inst_*.cc define, and
// DoCopy of inplace_ops.cc. So strided_slice_op.cc needs none of these sources, and all ranks share
// one loop.

#ifndef TENSORWRIGHT_REPLACEMENTS_STRIDED_SLICE_OP_H_
#define TENSORWRIGHT_REPLACEMENTS_STRIDED_SLICE_OP_H_

#define EIGEN_USE_THREADS

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/kernels/dense_update_functor.h"
#include "tensorflow/core/kernels/inplace_ops_functor.h"
#include "tensorflow/core/kernels/strided_slice_op.h"
#include "tensorflow/core/kernels/strided_slice_op_impl.h"

namespace tensorwright {

using Sizes = absl::Span<const int64_t>;

// One axis of a slice: its number of elements, and their strides in the whole tensor and in the
// part, the tensor that the slice is copied to or from. A stride of 0 in the part is a broadcast.
struct Axis {
  int64_t count, whole, part;
};

// The order in which the elements of a slice are copied: row by row.
struct Walk {
  int64_t first = 0;  // Offset of the first element in the whole tensor.
  Axis row = {1, 1, 1};
  absl::InlinedVector<Axis, 8> outer;  // The axes over the rows, innermost first.
  int64_t rows = 1;                    // The number of rows.
};

// Returns the walk over a slice of `size` elements per axis. `part` is the shape of the other
// tensor, with 1 for each axis along which it is broadcast. Adjacent axes are merged if one stride
// fits both, in the whole and in the part.
inline Walk MakeWalk(const ::tensorflow::TensorShape& whole, Sizes begin, Sizes strides, Sizes size,
                     Sizes part) {
  Walk walk;
  absl::InlinedVector<Axis, 8> axes;
  int64_t in_whole = 1, in_part = 1;
  for (int axis = whole.dims() - 1; axis >= 0; --axis) {
    walk.first += begin[axis] * in_whole;
    const Axis next = {size[axis], strides[axis] * in_whole, part[axis] == 1 ? 0 : in_part};
    in_whole *= whole.dim_size(axis);
    in_part *= part[axis];
    if (next.count == 1) continue;
    if (!axes.empty() && next.whole == axes.back().count * axes.back().whole &&
        next.part == axes.back().count * axes.back().part) {
      axes.back().count *= next.count;
    } else {
      axes.push_back(next);
    }
  }
  if (axes.empty()) return walk;
  walk.row = axes.front();
  walk.outer.assign(axes.begin() + 1, axes.end());
  for (const Axis& axis : walk.outer) walk.rows *= axis.count;
  return walk;
}

// Calls visit(offset in the whole, offset in the part) for each of the rows [from, to).
template <typename Visit>
void ForRows(const Walk& walk, int64_t from, int64_t to, Visit visit) {
  absl::InlinedVector<int64_t, 8> at(walk.outer.size());
  int64_t whole = walk.first, part = 0, rest = from;
  for (size_t i = 0; i < at.size(); ++i) {
    at[i] = rest % walk.outer[i].count;
    rest /= walk.outer[i].count;
    whole += at[i] * walk.outer[i].whole;
    part += at[i] * walk.outer[i].part;
  }
  for (int64_t row = from; row < to; ++row) {
    visit(whole, part);
    for (size_t i = 0; i < at.size(); ++i) {
      whole += walk.outer[i].whole;
      part += walk.outer[i].part;
      if (++at[i] < walk.outer[i].count) break;
      whole -= at[i] * walk.outer[i].whole;
      part -= at[i] * walk.outer[i].part;
      at[i] = 0;
    }
  }
}

// Copies `count` elements with the given strides. Uses memmove only for rows of at least a cache
// line; for shorter ones, the call takes longer than the copy.
template <typename T>
void CopyRow(T* to, int64_t to_step, const T* from, int64_t from_step, int64_t count) {
  if (to_step == 1 && from_step == 1 && count * sizeof(T) >= 64) {
    std::copy_n(from, count, to);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i * to_step] = from[i * from_step];
  }
}

// Copies a slice of `whole` to `part`.
template <typename T>
void CopyFromSlice(const Eigen::ThreadPoolDevice& device, const Walk& walk, const T* whole,
                   T* part) {
  const double bytes = walk.row.count * sizeof(T);
  device.parallelFor(walk.rows, {bytes, bytes, 0}, [&](int64_t from, int64_t to) {
    ForRows(walk, from, to, [&](int64_t in_whole, int64_t in_part) {
      CopyRow(part + in_part, walk.row.part, whole + in_whole, walk.row.whole, walk.row.count);
    });
  });
}

// Copies `part` to a slice of `whole`.
template <typename T>
void CopyIntoSlice(const Eigen::ThreadPoolDevice& device, const Walk& walk, const T* part,
                   T* whole) {
  const double bytes = walk.row.count * sizeof(T);
  device.parallelFor(walk.rows, {bytes, bytes, 0}, [&](int64_t from, int64_t to) {
    ForRows(walk, from, to, [&](int64_t in_whole, int64_t in_part) {
      CopyRow(whole + in_whole, walk.row.whole, part + in_part, walk.row.part, walk.row.count);
    });
  });
}

// Fills a tensor with zeros, or with default values if its type cannot be copied as bytes.
template <typename T>
void Clear(const Eigen::ThreadPoolDevice& device, ::tensorflow::Tensor* tensor) {
  auto flat = tensor->flat<T>();
  if (!::tensorflow::DataTypeCanUseMemcpy(tensor->dtype())) {
    ::tensorflow::functor::InitOutput<T, 1, Eigen::ThreadPoolDevice>::run(device, flat);
    return;
  }
  device.parallelFor(flat.size(), {0, sizeof(T), 0}, [&](int64_t from, int64_t to) {
    std::memset(static_cast<void*>(flat.data() + from), 0, (to - from) * sizeof(T));
  });
}

}  // namespace tensorwright

namespace tensorflow {

template <>
inline Status functor::DoCopy(const CPUDevice& device, const Tensor& x, Tensor* y) {
  switch (x.dtype()) {
#define CASE(type)                                   \
  case DataTypeToEnum<type>::value:                  \
    y->flat<type>().device(device) = x.flat<type>(); \
    return OkStatus();
    TF_CALL_NUMBER_TYPES(CASE);
    TF_CALL_bool(CASE);
    TF_CALL_tstring(CASE);
#undef CASE
    default: return errors::InvalidArgument("Unsupported data type: ", DataTypeString(x.dtype()));
  }
}

template <typename Device, typename T, int NDIM>
void HandleStridedSliceCase(OpKernelContext* context, const gtl::ArraySlice<int64_t>& begin,
                            const gtl::ArraySlice<int64_t>& end,
                            const gtl::ArraySlice<int64_t>& strides,
                            const TensorShape& processing_shape, bool is_simple_slice,
                            Tensor* result) {
  const Tensor& whole = context->input(0);
  const auto size = processing_shape.dim_sizes();
  tensorwright::CopyFromSlice(context->eigen_device<Device>(),
                              tensorwright::MakeWalk(whole.shape(), begin, strides, size, size),
                              whole.flat<T>().data(), result->flat<T>().data());
}

template <typename Device, typename T, int NDIM>
void HandleStridedSliceGradCase(OpKernelContext* context, const gtl::ArraySlice<int64_t>& begin,
                                const gtl::ArraySlice<int64_t>& end,
                                const gtl::ArraySlice<int64_t>& strides,
                                const TensorShape& processing_shape, bool is_simple_slice,
                                Tensor* result) {
  const Device& device = context->eigen_device<Device>();
  tensorwright::Clear<T>(device, result);
  const Tensor& part = context->input(4);
  if (part.NumElements() == 0) return;
  const auto size = processing_shape.dim_sizes();
  tensorwright::CopyIntoSlice(device,
                              tensorwright::MakeWalk(result->shape(), begin, strides, size, size),
                              part.flat<T>().data(), result->flat<T>().data());
}

template <typename Device, typename T, int NDIM>
void HandleStridedSliceAssignCase<Device, T, NDIM>::operator()(
    OpKernelContext* context, const gtl::ArraySlice<int64_t>& begin,
    const gtl::ArraySlice<int64_t>& end, const gtl::ArraySlice<int64_t>& strides,
    const StridedSliceAssignBCast& bcast, Tensor* result) {
  absl::InlinedVector<int64_t, 8> size;
  for (int axis = 0; axis < NDIM; ++axis) {
    size.push_back(bcast.reshape()[axis] * bcast.bcast()[axis]);
  }
  tensorwright::CopyIntoSlice(
      context->eigen_device<Device>(),
      tensorwright::MakeWalk(result->shape(), begin, strides, size, bcast.reshape()),
      context->input(4).flat<T>().data(), result->flat<T>().data());
}

}  // namespace tensorflow

#endif  // TENSORWRIGHT_REPLACEMENTS_STRIDED_SLICE_OP_H_
