// The kernels of fused/products, and the work that each of them does for a shape, beside the work
// of the oneDNN kernel that it replaces. The time of a kernel is predicted from these counts.

#ifndef TENSORWRIGHT_OPS_PRODUCTS_WORK_H_
#define TENSORWRIGHT_OPS_PRODUCTS_WORK_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "tensorwright/compute/convolution.h"
#include "tensorwright/compute/gemm.h"
#include "tensorwright/compute/matrix.h"
#include "tensorwright/ops/products/contraction.h"
#include "tensorwright/ops/products/winograd.h"

namespace tensorwright {

// Calls KERNEL(name) for each kernel. A kernel that serves several ops of TensorFlow has a name for
// each of them, because oneDNN's times differ. "product" is MatMul, "batch" BatchMatMul. "nn", "tn"
// and "nt" tell whether the left or the right matrix is transposed, as in BLAS. "square" is
// F(2x2, 3x3), "line" F(1x2, 1x3) and F(1x2, 1x5).
#define TENSORWRIGHT_PRODUCT_KERNELS(KERNEL) \
  KERNEL(product_nn)                         \
  KERNEL(product_tn)                         \
  KERNEL(product_nt)                         \
  KERNEL(batch_nn)                           \
  KERNEL(batch_tn)                           \
  KERNEL(batch_nt)                           \
  KERNEL(einsum)                             \
  KERNEL(filter_gradient)                    \
  KERNEL(square_outputs)                     \
  KERNEL(square_input_gradient)              \
  KERNEL(square_filter_gradient)             \
  KERNEL(line_outputs)                       \
  KERNEL(line_input_gradient)                \
  KERNEL(line_filter_gradient)

enum class KernelId {
#define TENSORWRIGHT_KERNEL_ID(name) name,
  TENSORWRIGHT_PRODUCT_KERNELS(TENSORWRIGHT_KERNEL_ID)
#undef TENSORWRIGHT_KERNEL_ID
};

inline constexpr const char* kKernelNames[] = {
#define TENSORWRIGHT_KERNEL_NAME(name) #name,
    TENSORWRIGHT_PRODUCT_KERNELS(TENSORWRIGHT_KERNEL_NAME)
#undef TENSORWRIGHT_KERNEL_NAME
};

// Returns the kernel of MatMul, or of BatchMatMul. Not both matrices may be transposed.
inline KernelId GetProductKernel(bool is_batch, bool transposes_left, bool transposes_right) {
  if (transposes_left) return is_batch ? KernelId::batch_tn : KernelId::product_tn;
  if (transposes_right) return is_batch ? KernelId::batch_nt : KernelId::product_nt;
  return is_batch ? KernelId::batch_nn : KernelId::product_nn;
}

// Counts that determine the time of a kernel. Numbers of elements include padding to tiles and
// vectors, and elements that are read or written several times.
struct Work {
  static constexpr int kCounts = 9;

  double calls;      // 1.
  double products;   // Multiplications.
  double inputs;     // Elements of the left matrix or of the images.
  double outputs;    // Elements of the product, or of the outputs or their gradient.
  double filters;    // Elements of the right matrix or of the filter.
  double uncached;   // Elements of it beyond the L2 cache, each time that they are read.
  double aliased;    // Multiplications that are slow because rows of a matrix share cache sets.
  double batch = 0;  // Products of a batch.
  double moved = 0;  // Elements that are transposed in memory.

  std::array<double, kCounts> list() const {
    return {calls, products, inputs, outputs, filters, uncached, aliased, batch, moved};
  }
};

// The work of a kernel and of the oneDNN kernel that it replaces.
struct WorkPair {
  Work ours, onednn;
};

// Returns `count` rounded up to a multiple of `unit`.
inline double RoundUp(std::int64_t count, std::int64_t unit) {
  return static_cast<double>((count + unit - 1) / unit * unit);
}

// Returns the number of `elements` that do not fit in 1 MiB, the L2 cache of many CPUs.
inline double CountUncached(double elements) {
  return std::max(elements - static_cast<double>(kCachedElements), 0.0);
}

// Returns `rows`, counting each row of tiles with fewer than four rows as four: with fewer sums,
// a core waits for the result of a multiply-add before it can start the next.
inline double CountTileRows(std::int64_t rows) {
  const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  return static_cast<double>(std::max(rows, 4 * tiles));
}

// Returns how much slower oneDNN's matrix product with AVX2 is if the rows of a matrix that it reads
// at each step have this many elements: 1 or 2 if many rows share cache sets, otherwise 0. oneDNN
// reads matrices in place, instead of packing them, if 1 / rows + 1 / columns is at least 0.0038
// (nocopy_checker_avx2 in src/cpu/x64/gemm/gemm_driver.cpp).
inline int CountAliases(std::int64_t rows, std::int64_t columns, std::int64_t elements) {
  if (1.0 / rows + 1.0 / columns < 0.0038) return 0;
  return (elements % 512 == 0) + (elements % 1024 == 0);
}

// The work of oneDNN's product of matrices of rows x depth and depth x columns.
inline Work CountOneDnnProductWork(std::int64_t rows, std::int64_t depth, std::int64_t columns,
                                   bool transposes_left, bool transposes_right) {
  const double m = rows, k = depth, n = columns;
  const int aliases = std::max(CountAliases(rows, columns, transposes_right ? depth : columns),
                               transposes_left ? CountAliases(rows, columns, rows) : 0);
  return {1, m * k * n, m * k, m * n, k * n, CountUncached(k * n), aliases * m * k * n};
}

// Returns the elements that stock's Einsum transposes: all of a tensor in which an axis of the batch
// is inside a matrix (ReduceOperand in tensorflow/core/kernels/linalg/einsum_op_impl.h).
inline double CountMoved(const Contraction& of) {
  const double m = of.rows.size, k = of.depth.size, n = of.columns.size,
               count = static_cast<double>(of.count());
  double moved = 0;
  const auto add = [&](std::int64_t ContractionAxis::* step, std::int64_t outer, double elements) {
    for (const ContractionAxis& axis : of.batch) {
      if (axis.*step > 0 && axis.*step < outer) {
        moved += elements;
        return;
      }
    }
  };
  add(&ContractionAxis::left, std::max(of.rows.left, of.depth.left), count * m * k);
  add(&ContractionAxis::right, std::max(of.depth.right, of.columns.right), count * k * n);
  add(&ContractionAxis::out, of.rows.out, count * m * n);
  return moved;
}

// Returns the number of columns, including padding to vectors. Without AVX-512, a last panel with one
// vector counts as one and a half: it has too few sums to hide the latency of multiply-adds.
inline double CountColumns(std::int64_t columns) {
  const bool is_slow = !kHasAvx512 && (columns - 1) % kPanel < kLanes;
  return RoundUp(columns, kLanes) + (is_slow ? kLanes / 2 : 0);
}

// The work of ContractionRun.
inline WorkPair CountContractionWork(const Contraction& of, KernelId kernel) {
  const double m = of.rows.size, k = of.depth.size, n = of.columns.size,
               count = static_cast<double>(of.count()), padded = CountColumns(of.columns.size),
               blocks = RoundUp(of.depth.size, kDepth) / kDepth;
  const Matrix a = {nullptr, of.rows.size, of.depth.size, of.rows.left, of.depth.left},
               b = {nullptr, of.depth.size, of.columns.size, of.depth.right, of.columns.right};
  const double packed_left = Gemm::PacksLeft(Gemm::CountPanels(b.columns), a) ? m * k : 0,
               packed_right = Gemm::PacksRight(a.rows, b) ? k * padded : 0;
  const Work ours = {1,
                     CountTileRows(of.rows.size) * k * padded * count,
                     packed_left * count,
                     m * padded * blocks * count,
                     packed_right * count,
                     CountUncached(k * padded),
                     0,
                     count};
  Work onednn =
      CountOneDnnProductWork(of.rows.size, of.depth.size, of.columns.size,
                             kernel == KernelId::product_tn || kernel == KernelId::batch_tn,
                             kernel == KernelId::product_nt || kernel == KernelId::batch_nt);
  for (double* each :
       {&onednn.products, &onednn.inputs, &onednn.outputs, &onednn.filters, &onednn.aliased}) {
    *each *= count;
  }
  onednn.batch = count;
  if (kernel == KernelId::einsum) onednn.moved = CountMoved(of);
  return {ours, onednn};
}

// The work of oneDNN's direct convolution and of its gradients. A vector has kLanes filters. Counting
// uncached elements did not make predictions better.
inline Work CountDirectWork(const Convolution& of) {
  // A convolution that computes the gradient of the inputs has zeros around its inputs, which are
  // not multiplied.
  const auto positions = [](const Convolution::Axis& axis) {
    return static_cast<double>(axis.stride > 1 ? axis.out : std::min(axis.in, axis.out));
  };
  const double images = of.images, channels = of.channels, filters = of.filters, taps = of.taps();
  const double outputs = images * of.rows.out * of.columns.out;
  return {1,
          images * positions(of.rows) * positions(of.columns) * taps * channels *
              RoundUp(of.filters, kLanes),
          images * of.rows.in * of.columns.in * channels,
          outputs * filters,
          taps * channels * filters,
          0,
          0};
}

// The work of FilterGradient.
inline WorkPair CountFilterGradientWork(const Convolution& of) {
  const double outputs = static_cast<double>(of.images * of.rows.out * of.columns.out),
               taps = of.taps(), filters = RoundUp(of.filters, kPanel);
  const double channels = CountTileRows(of.channels);
  const double inputs = static_cast<double>(of.images * of.rows.PackedExtent(of.rows.out) *
                                            of.columns.PackedExtent(of.columns.out));
  return {{1, outputs * taps * channels * filters, inputs * of.channels, outputs * filters,
           taps * of.channels * filters * (outputs / 256 + 1),
           CountUncached(taps * of.channels * filters), 0},
          CountDirectWork(of)};
}

// The work of WinogradOutputs and, nearly, of WinogradGradient, which computes the filter in blocks
// that fit in the L2 cache. WinogradOutputs reads the whole filter for each block of tiles.
template <class Scheme>
WorkPair CountWinogradWork(const Convolution& of, bool makes_filter) {
  const Tiles<Scheme> all(of);
  const std::int64_t passes = makes_filter ? 1 : all.blocks();
  const double tiles = static_cast<double>(all.count() * Scheme::kPositions),
               channels = static_cast<double>(of.channels), filters = RoundUp(of.filters, kPanel),
               transformed = Scheme::kPositions * channels * filters;
  return {{1, tiles * channels * filters, tiles * channels, tiles * filters, transformed,
           CountUncached(transformed) * static_cast<double>(passes), 0},
          CountDirectWork(of)};
}

// The kernels of Winograd convolution for one op.
struct WinogradKernels {
  KernelId square, line;
  bool makes_filter = false;
};
inline constexpr WinogradKernels kOutputs = {KernelId::square_outputs, KernelId::line_outputs},
                                 kInputGradient = {KernelId::square_input_gradient,
                                                   KernelId::line_input_gradient},
                                 kFilterGradient = {KernelId::square_filter_gradient,
                                                    KernelId::line_filter_gradient, true};

// Calls run(scheme, kernel, work) with the Winograd scheme that can compute the convolution.
// Returns false if there is none.
template <class Run>
bool WithScheme(const Convolution& of, const WinogradKernels& kernels, const Run& run) {
  const auto with = [&](auto scheme, KernelId kernel) {
    using Scheme = decltype(scheme);
    if (!Scheme::Serves(of)) return false;
    run(scheme, kernel, CountWinogradWork<Scheme>(of, kernels.makes_filter));
    return true;
  };
  return with(SquareTiles{}, kernels.square) || with(LineTiles<3>{}, kernels.line) ||
         with(LineTiles<5>{}, kernels.line);
}

}  // namespace tensorwright

#endif  // TENSORWRIGHT_OPS_PRODUCTS_WORK_H_
