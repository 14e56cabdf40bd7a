// Computes a contraction, in parts that threads can share.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_CONTRACTION_RUN_H_
#define TENSORWRIGHT_OPS_PRODUCTS_CONTRACTION_RUN_H_

#include <cstdint>

#include "tensorwright/compute/finish.h"
#include "tensorwright/compute/gemm.h"
#include "tensorwright/compute/matrix.h"
#include "tensorwright/ops/products/contraction.h"

namespace tensorwright {

// A part is a block of one product of the batch. Threads can compute different parts at the same
// time. The number of threads does not change the result.
class ContractionRun {
 public:
  // `left` and `right` are the tensors of the contraction, in this order. `finish` is for the columns
  // of a contraction with one product.
  ContractionRun(const Contraction& of, std::int64_t threads, const float* left, const float* right,
                 const Finish& finish, float* out)
      : of_(of), left_(left), right_(right), finish_(finish), out_(out) {
    // Several parts per thread, so that threads that start late find some. Blocks stay nearly square,
    // because each thread packs what its blocks read.
    const std::int64_t count = of.count();
    while (threads > 1 && count * down_ * across_ < 2 * threads) {
      const bool has_rows = tiles() >= 2 * down_, has_columns = panels() >= 2 * across_;
      const bool is_tall = of.rows.size * across_ >= of.columns.size * down_;
      if (has_rows && (is_tall || !has_columns)) {
        ++down_;
      } else if (has_columns) {
        ++across_;
      } else {
        break;
      }
    }
  }

  std::int64_t parts() const { return of_.count() * down_ * across_; }

  // Computes the parts [first, last).
  void Compute(std::int64_t first, std::int64_t last) const {
    for (; first < last; ++first) {
      const std::int64_t column = first % across_, row = first / across_ % down_;
      std::int64_t product = first / across_ / down_;
      const float *left = left_, *right = right_;
      float* out = out_;
      for (const ContractionAxis& axis : of_.batch) {
        const std::int64_t position = product % axis.size;
        product /= axis.size;
        left += position * axis.left;
        right += position * axis.right;
        out += position * axis.out;
      }
      const Matrix a = {left, of_.rows.size, of_.depth.size, of_.rows.left, of_.depth.left},
                   b = {right, of_.depth.size, of_.columns.size, of_.depth.right,
                        of_.columns.right};
      const auto first_row = [&](std::int64_t part) {
        return part == down_ ? of_.rows.size : tiles() * part / down_ * kTileRows;
      };
      Gemm(a, b, finish_, out, of_.rows.out)
          .Compute({first_row(row), first_row(row + 1), panels() * column / across_,
                    panels() * (column + 1) / across_});
    }
  }

 private:
  std::int64_t tiles() const { return (of_.rows.size + kTileRows - 1) / kTileRows; }
  std::int64_t panels() const { return Gemm::CountPanels(of_.columns.size); }

  const Contraction& of_;
  const float *const left_, *const right_;
  const Finish finish_;
  float* const out_;
  std::int64_t down_ = 1, across_ = 1;  // Blocks of one product, along rows and columns.
};

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_CONTRACTION_RUN_H_
