// Contractions of two tensors: matrix products, batches of them, and einsums of two operands. No
// operand is transposed in memory.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_CONTRACTION_H_
#define TENSORWRIGHT_OPS_PRODUCTS_CONTRACTION_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tensorwright {

// An axis of a contraction: its size, and the elements between its positions in each tensor. The
// step is 0 in a tensor that does not have the axis.
struct ContractionAxis {
  std::int64_t size, left, right, out;
};

// A contraction as a batch of matrix products: for each position of `batch`,
//
//   out = left right,   rows x columns = rows x depth by depth x columns.
//
// The columns of `out` are contiguous.
struct Contraction {
  ContractionAxis rows, depth, columns;
  std::vector<ContractionAxis> batch;
  bool is_swapped = false;  // Whether `left` is the second operand.

  std::int64_t count() const {
    std::int64_t count = 1;
    for (const ContractionAxis& axis : batch) count *= axis.size;
    return count;
  }
};

// Returns the contraction of a product of matrices.
inline Contraction MakeProduct(std::int64_t rows, std::int64_t depth, std::int64_t columns,
                               bool transposes_left, bool transposes_right) {
  Contraction product;
  product.rows = {rows, transposes_left ? 1 : depth, 0, columns};
  product.depth = {depth, transposes_left ? rows : 1, transposes_right ? 1 : columns, 0};
  product.columns = {columns, 0, transposes_right ? depth : 1, 1};
  return product;
}

// Merges each axis with the next one where all tensors have the positions of both at equal
// distances. Axes are sorted by decreasing step in `out`, or in `left` if `by_left`.
inline std::vector<ContractionAxis> MergeAxes(std::vector<ContractionAxis> axes, bool by_left) {
  std::sort(axes.begin(), axes.end(), [&](const ContractionAxis& a, const ContractionAxis& b) {
    return by_left ? a.left > b.left : a.out > b.out;
  });
  std::vector<ContractionAxis> merged;
  for (const ContractionAxis& axis : axes) {
    const auto adjoins = [&](std::int64_t outer, std::int64_t inner) {
      return outer == inner * axis.size;
    };
    if (!merged.empty() && adjoins(merged.back().left, axis.left) &&
        adjoins(merged.back().right, axis.right) && adjoins(merged.back().out, axis.out)) {
      merged.back() = {merged.back().size * axis.size, axis.left, axis.right, axis.out};
    } else {
      merged.push_back(axis);
    }
  }
  return merged;
}

// Sets `*contraction` from axes in any order. Returns false if it is not a batch of matrix products
// with contiguous columns: if an axis is summed in one operand only, if the summed axes cannot be
// merged to one, or if the last axis of `out` is in both operands.
inline bool MakeContraction(const std::vector<ContractionAxis>& axes, Contraction* contraction) {
  std::vector<ContractionAxis> rows, columns, depths, batch;
  for (const ContractionAxis& axis : axes) {
    if (axis.size == 1) continue;
    if (axis.out == 0) {
      if (axis.left == 0 || axis.right == 0) return false;
      depths.push_back(axis);
    } else {
      (axis.right == 0 ? rows : axis.left == 0 ? columns : batch).push_back(axis);
    }
  }
  rows = MergeAxes(std::move(rows), false);
  columns = MergeAxes(std::move(columns), false);
  depths = MergeAxes(std::move(depths), true);
  batch = MergeAxes(std::move(batch), false);
  contraction->is_swapped = !rows.empty() && rows.back().out == 1;
  if (contraction->is_swapped) {
    std::swap(rows, columns);
    for (auto* list : {&rows, &columns, &depths, &batch}) {
      for (ContractionAxis& axis : *list) std::swap(axis.left, axis.right);
    }
  }
  if (depths.size() > 1 || columns.empty() || columns.back().out != 1) return false;
  contraction->depth = depths.empty() ? ContractionAxis{1, 0, 0, 0} : depths[0];
  contraction->columns = columns.back();
  columns.pop_back();
  // The rows of one product: the longest axis. All other axes are in the batch.
  const auto longest = std::max_element(
      rows.begin(), rows.end(),
      [](const ContractionAxis& a, const ContractionAxis& b) { return a.size < b.size; });
  contraction->rows = {1, 0, 0, 0};
  if (longest != rows.end()) {
    contraction->rows = *longest;
    rows.erase(longest);
  }
  batch.insert(batch.end(), rows.begin(), rows.end());
  batch.insert(batch.end(), columns.begin(), columns.end());
  contraction->batch = std::move(batch);
  return true;
}

// Sizes of the axes of a tensor, outermost first.
using Sizes = std::vector<std::int64_t>;

// The labels of an einsum with two operands.
class EinsumLabels {
 public:
  // Reads an equation such as "abc,cde->abde". Returns false for equations with one operand, with
  // "...", or with a label twice in one tensor.
  bool Parse(const std::string& equation) {
    const std::size_t comma = equation.find(','), arrow = equation.find("->");
    if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) return false;
    left_ = equation.substr(0, comma);
    right_ = equation.substr(comma + 1, arrow - comma - 1);
    out_ = equation.substr(arrow + 2);
    for (std::string labels : {left_, right_, out_}) {
      std::sort(labels.begin(), labels.end());
      const bool repeats = std::adjacent_find(labels.begin(), labels.end()) != labels.end();
      if (repeats || labels.find_first_of("., ") != std::string::npos) return false;
    }
    return true;
  }

  // Sets `*axes` and the sizes of the result. Returns false if the sizes of the operands do not match
  // the equation, or each other.
  bool GetAxes(const Sizes& left, const Sizes& right, std::vector<ContractionAxis>* axes,
               Sizes* out) const {
    if (left.size() != left_.size() || right.size() != right_.size()) return false;
    const auto size_of = [](const std::string& labels, const Sizes& sizes, char label) {
      const std::size_t at = labels.find(label);
      return at == std::string::npos ? std::int64_t{-1} : sizes[at];
    };
    for (const char label : out_) {
      const std::int64_t size = size_of(left_, left, label);
      out->push_back(size < 0 ? size_of(right_, right, label) : size);
      if (out->back() < 0) return false;
    }
    std::string all = left_ + right_;
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    for (const char label : all) {
      const std::int64_t first = size_of(left_, left, label),
                         second = size_of(right_, right, label);
      if (first >= 0 && second >= 0 && first != second) return false;
      axes->push_back({std::max(first, second), StepOf(left_, left, label),
                       StepOf(right_, right, label), StepOf(out_, *out, label)});
    }
    return true;
  }

 private:
  // Returns the elements between positions of the axis `label`, or 0 if the tensor does not have it.
  static std::int64_t StepOf(const std::string& labels, const Sizes& sizes, char label) {
    const std::size_t at = labels.find(label);
    if (at == std::string::npos) return 0;
    std::int64_t step = 1;
    for (std::size_t i = at + 1; i < sizes.size(); ++i) step *= sizes[i];
    return step;
  }

  std::string left_, right_, out_;
};

// Sets the axes and the sizes of the result of a batch of matrix products. The last two axes of each
// operand are a matrix, which can be transposed. The others are broadcast, as in BatchMatMulV2.
// Returns false if the sizes do not match.
inline bool GetProductAxes(const Sizes& left, const Sizes& right, bool transposes_left,
                           bool transposes_right, std::vector<ContractionAxis>* axes, Sizes* out) {
  if (left.size() < 2 || right.size() < 2) return false;
  const std::size_t batch = std::max(left.size(), right.size()) - 2;
  const auto padded = [&](const Sizes& sizes) {
    Sizes result(batch + 2 - sizes.size(), 1);
    result.insert(result.end(), sizes.begin(), sizes.end());
    return result;
  };
  const Sizes a = padded(left), b = padded(right);
  const std::int64_t rows = a[batch + transposes_left], depth = a[batch + 1 - transposes_left],
                     columns = b[batch + 1 - transposes_right];
  if (b[batch + transposes_right] != depth) return false;
  const Contraction product = MakeProduct(rows, depth, columns, transposes_left, transposes_right);
  *axes = {product.rows, product.depth, product.columns};
  std::int64_t left_step = rows * depth, right_step = depth * columns, out_step = rows * columns;
  out->assign(batch + 2, 1);
  (*out)[batch] = rows;
  (*out)[batch + 1] = columns;
  for (std::size_t i = batch; i-- > 0;) {
    if (a[i] != b[i] && a[i] != 1 && b[i] != 1) return false;
    const std::int64_t size = a[i] == 1 ? b[i] : a[i];
    axes->push_back({size, a[i] == 1 ? 0 : left_step, b[i] == 1 ? 0 : right_step, out_step});
    (*out)[i] = size;
    left_step *= a[i];
    right_step *= b[i];
    out_step *= size;
  }
  return true;
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_CONTRACTION_H_
