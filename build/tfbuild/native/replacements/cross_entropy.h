// Replaces the functors of SoftmaxCrossEntropyWithLogits and its sparse variant. These
// functors compute the loss and its gradient row by row, with stock's operations in the same order.
// A row stays in the cache, and each exponential is computed once. The stock functors pass over the
// whole matrix five or six times and compute each exponential twice; the sparse one also calls a
// generator twice per element.

#ifndef TENSORWRIGHT_REPLACEMENTS_CROSS_ENTROPY_H_
#define TENSORWRIGHT_REPLACEMENTS_CROSS_ENTROPY_H_

#ifndef EIGEN_USE_THREADS
#define EIGEN_USE_THREADS
#endif

#include <type_traits>
#include <vector>

#include "tensorflow/core/framework/bounds_check.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor_types.h"
#include "tensorflow/core/kernels/sparse_xent_op.h"
#include "tensorflow/core/kernels/xent_op.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace tensorwright {

// A row of a matrix, without a copy.
template <typename T>
using RowView = Eigen::TensorMap<Eigen::Tensor<T, 1, Eigen::RowMajor, Eigen::DenseIndex>>;

// Returns the value of a reduction over all elements.
template <typename Reduction>
auto ValueOf(const Reduction& reduction) {
  using T = std::remove_const_t<typename Reduction::Scalar>;
  const Eigen::TensorFixedSize<T, Eigen::Sizes<>, Eigen::RowMajor> value = reduction;
  return value();
}

// Calls range(first, last) for ranges of rows of a matrix of logits, on the threads of the device.
template <typename T, typename Range>
void ParallelForRows(const Eigen::ThreadPoolDevice& device, Eigen::Index rows, Eigen::Index columns,
                     const Range& range) {
  const double bytes = static_cast<double>(columns * sizeof(T));
  constexpr double kCycles = 8;  // Per logit: an exponential, two sums, a maximum, a division.
  device.parallelFor(rows, {bytes, bytes, kCycles * static_cast<double>(columns)}, range);
}

// Returns a row of a matrix that is broadcast to `columns` columns. If the matrix has only one row,
// returns that row. If it has only one column, fills `room` with its element and returns a view of
// `room`.
template <typename T>
RowView<const T> BroadcastRow(const typename ::tensorflow::TTypes<T>::ConstMatrix& matrix,
                              Eigen::Index row, Eigen::Index columns, std::vector<T>& room) {
  const T* from = matrix.data() + (matrix.dimension(0) == 1 ? 0 : row) * matrix.dimension(1);
  if (matrix.dimension(1) == columns) return {from, columns};
  room.assign(columns, *from);
  return {room.data(), columns};
}

}  // namespace tensorwright

namespace tensorflow {
namespace functor {

// Sparse labels: `labels` has the index of the true class of each row. `backprop` may alias
// `logits`.
template <typename T, typename Index>
struct SparseXentEigenImpl<Eigen::ThreadPoolDevice, T, Index> {
  static void Compute(OpKernelContext* context, typename TTypes<T>::ConstMatrix logits,
                      typename TTypes<Index>::ConstVec labels, typename TTypes<T>::Vec /*scratch*/,
                      typename TTypes<T>::Vec loss, typename TTypes<T>::Matrix backprop) {
    const Eigen::Index rows = logits.dimension(0), columns = logits.dimension(1);
    const auto one_row = [&](Eigen::Index row) {
      const tensorwright::RowView<const T> in(logits.data() + row * columns, columns);
      tensorwright::RowView<T> out(backprop.data() + row * columns, columns);  // May alias `in`.
      // Another thread may have changed the label since it was checked. Read it once and check
      // again.
      const Index label = internal::SubtleMustCopy(labels(row));
      if (!FastBoundsCheck(label, columns)) {
        loss(row) = Eigen::NumTraits<T>::quiet_NaN();
        out.setConstant(loss(row));
        return;
      }
      const T most = tensorwright::ValueOf(in.maximum());
      const T own = in(label) - most;
      out = (in - most).exp();
      const T sum = tensorwright::ValueOf(out.sum());
      loss(row) = Eigen::numext::log(sum) - own;
      out = out / sum;
      out(label) -= T(1);
    };
    tensorwright::ParallelForRows<T>(context->eigen_device<Eigen::ThreadPoolDevice>(), rows,
                                     columns, [&](Eigen::Index first, Eigen::Index last) {
                                       for (; first < last; ++first) one_row(first);
                                     });
  }
};

// Dense labels: `labels` has a probability for each class. Logits and labels may be broadcast.
// `backprop` may alias `logits`.
template <typename T>
struct XentEigenImpl<Eigen::ThreadPoolDevice, T> {
  static void Compute(const Eigen::ThreadPoolDevice& device,
                      const Eigen::DSizes<Eigen::DenseIndex, 2>& shape,
                      const Eigen::array<Eigen::DenseIndex, 2>& /*logits_bcast*/,
                      const Eigen::array<Eigen::DenseIndex, 2>& /*labels_bcast*/,
                      typename TTypes<T>::ConstMatrix logits,
                      typename TTypes<T>::ConstMatrix labels,
                      typename TTypes<T>::Matrix /*scratch*/, typename TTypes<T>::Vec loss,
                      typename TTypes<T>::Matrix backprop) {
    const Eigen::Index columns = shape[1];
    const auto range = [&](Eigen::Index first, Eigen::Index last) {
      std::vector<T> raised(columns), all_logits, all_labels;
      tensorwright::RowView<T> exp(raised.data(), columns);
      for (Eigen::Index row = first; row < last; ++row) {
        const auto in = tensorwright::BroadcastRow<T>(logits, row, columns, all_logits);
        const auto share = tensorwright::BroadcastRow<T>(labels, row, columns, all_labels);
        tensorwright::RowView<T> out(backprop.data() + row * columns, columns);  // May alias `in`.
        const T most = tensorwright::ValueOf(in.maximum());
        out = in - most;
        exp = out.exp();
        const T sum = tensorwright::ValueOf(exp.sum());
        loss(row) = tensorwright::ValueOf((share * (-out + Eigen::numext::log(sum))).sum());
        out = exp / sum - share;
      }
    };
    tensorwright::ParallelForRows<T>(device, shape[0], columns, range);
  }
};

}  // namespace functor
}  // namespace tensorflow

#endif  // TENSORWRIGHT_REPLACEMENTS_CROSS_ENTROPY_H_
