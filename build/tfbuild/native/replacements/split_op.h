// Replaces the CPU implementation of Split by copies of rows. The stock kernel evaluates each
// output as an Eigen slice, and shares even outputs of a few kilobytes among threads.

#ifndef TENSORWRIGHT_REPLACEMENTS_SPLIT_OP_H_
#define TENSORWRIGHT_REPLACEMENTS_SPLIT_OP_H_

#define EIGEN_USE_THREADS

#include <algorithm>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tensorflow {

template <typename T, typename InputReshapedType, int NDims>
class SplitOpCPUImpl;

// Specialises the template for the only input type that occurs: the one that Tensor::shaped returns
// for a constant tensor.
template <typename T, int NDims>
class SplitOpCPUImpl<
    T,
    Eigen::TensorMap<Eigen::Tensor<const T, NDims, Eigen::RowMajor, Eigen::DenseIndex>,
                     Eigen::Aligned>,
    NDims> {
 public:
  template <typename Input, typename MakeSizes, typename Reshape>
  void operator()(OpKernelContext* context, const Input& input, const TensorShape& input_shape,
                  int32_t split_dim, Eigen::DenseIndex rows, Eigen::DenseIndex split_dim_size,
                  Eigen::DenseIndex inner, const MakeSizes& make_sizes, const Reshape& reshaped,
                  int32_t num_split, int64_t split_dim_output_size) const {
    TensorShape output_shape(input_shape);
    output_shape.set_dim(split_dim, split_dim_output_size);
    const auto& device = context->eigen_device<Eigen::ThreadPoolDevice>();
    const int64_t row = split_dim_output_size * inner;
    // Eigen's slices are faster for rows of less than a cache line.
    const bool short_rows = row * sizeof(T) < 64;
    const auto size = make_sizes(split_dim_output_size);
    Eigen::DSizes<Eigen::DenseIndex, NDims> first;
    absl::InlinedVector<T*, 8> to;
    for (int32_t i = 0; i < num_split; ++i) {
      Tensor* output = nullptr;
      OP_REQUIRES_OK(context, context->allocate_output(i, output_shape, &output));
      to.push_back(output->flat<T>().data());
      if (!short_rows || output->NumElements() == 0) continue;
      first[NDims - 2] = i * split_dim_output_size;
      auto shaped = reshaped(output, split_dim_output_size);
      if (output->NumElements() < 131072) {  // As in functor::Split.
        shaped = input.slice(first, size);
      } else {
        shaped.device(device) = input.slice(first, size);
      }
    }
    if (short_rows) return;
    // Copies consecutive rows of the input to the outputs in turn.
    const T* from = input.data();
    const double bytes = row * sizeof(T);
    device.parallelFor(rows * num_split, {bytes, bytes, 0}, [&](int64_t start, int64_t end) {
      int64_t at = start / num_split * row;
      int32_t i = start % num_split;
      for (int64_t piece = start; piece < end; ++piece) {
        std::copy_n(from + piece * row, row, to[i] + at);
        if (++i == num_split) {
          i = 0;
          at += row;
        }
      }
    });
  }
};

}  // namespace tensorflow

#endif  // TENSORWRIGHT_REPLACEMENTS_SPLIT_OP_H_
