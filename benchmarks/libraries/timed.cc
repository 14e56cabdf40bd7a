// Times one product or convolution of one library on one thread; see README.md.
//
// Compiled once per library: ours (-DOURS), oneDNN (-DDNNL), libxsmm (-DXSMM), and any BLAS.

#include <ctime>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#if defined(OURS)
#include "tensorwright/ops/products/filter_gradient.h"
#include "tensorwright/ops/products/winograd_gradient.h"
#include "tensorwright/ops/products/winograd_outputs.h"
#include "tensorwright/ops/products/winograd.h"
#include "tensorwright/compute/product.h"
#elif defined(DNNL)
#include "oneapi/dnnl/dnnl.hpp"
#elif defined(XSMM)
#include "libxsmm.h"
#else
extern "C" void cblas_sgemm(int, int, int, int, int, int, float, const float*, int, const float*,
                            int, float, float*, int);
#endif

namespace {

using Call = std::function<void()>;

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

std::vector<float> Drawn(std::int64_t size) {
  std::vector<float> values(size);
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = (state >> 8) * (2.0f / (1 << 24)) - 1.0f;
  }
  return values;
}

// out[m, n] = a[m, k] b[k, n]; if `transposed`, a is stored as [k, m], as in the weight gradient
// of a dense layer.
Call Product(std::int64_t m, std::int64_t k, std::int64_t n, bool transposed, const float* a,
             const float* b, float* out) {
#if defined(OURS)
  if (transposed) {
    const tensorwright::Convolution::Axis lone = {1, 1, 1};
    const tensorwright::FilterGradient gradient({k, m, n, lone, lone}, a, b, out, nullptr);
    const auto parts = tensorwright::SplitIntoParts(gradient.of(), 1);
    return [=] {
      for (const auto& part : parts) gradient.Compute(part);
    };
  }
  const tensorwright::Product product({a, m, k, k, 1}, {b, k, n, n, 1}, {}, out);
  return [=] { product.Compute(0, product.panels()); };
#elif defined(DNNL)
  using dnnl::memory;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto plain = memory::format_tag::ab, is_rotated = memory::format_tag::ba;
  const auto type = memory::data_type::f32;
  const memory::desc left({m, k}, type, transposed ? is_rotated : plain),
      right({k, n}, type, plain), to({m, n}, type, plain);
  const dnnl::matmul multiply(dnnl::matmul::primitive_desc(engine, left, right, to));
  const memory source(left, engine, const_cast<float*>(a)),
      weights(right, engine, const_cast<float*>(b)), result(to, engine, out);
  dnnl::stream stream(engine);
  return [=]() mutable {
    multiply.execute(stream,
                     {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, result}});
    stream.wait();
  };
#elif defined(XSMM)
  // libxsmm generates code for small products, so this multiplies block by block. libxsmm reads
  // matrices in column-major order.
  constexpr int kBlock = 64;
  return [=] {
    const int ldb = n, lda = transposed ? m : k, ldc = n;
    const int flags = transposed ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
    const float one = 1, zero = 0;
    for (int row = 0; row < m; row += kBlock) {
      for (int column = 0; column < n; column += kBlock) {
        for (int from = 0; from < k; from += kBlock) {
          const int rows = std::min<int>(kBlock, m - row),
                    columns = std::min<int>(kBlock, n - column),
                    depth = std::min<int>(kBlock, k - from);
          const auto multiply = libxsmm_smmdispatch(columns, rows, depth, &ldb, &lda, &ldc, &one,
                                                    from == 0 ? &zero : &one, &flags, nullptr);
          if (multiply == nullptr) std::abort();
          multiply(b + from * n + column, transposed ? a + from * m + row : a + row * k + from,
                   out + row * n + column);
        }
      }
    }
  };
#else
  constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
  return [=] {
    cblas_sgemm(kRowMajor, transposed ? kTransposed : kPlain, kPlain, m, n, k, 1, a,
                transposed ? m : k, b, n, 0, out, n);
  };
#endif
}

// 3x3, stride 1, same padding. Inputs and outputs are NHWC, filters are HWIO.
struct Shape {
  std::int64_t images, size, channels, filters;

  std::int64_t inputs() const { return images * size * size * channels; }
  std::int64_t outputs() const { return images * size * size * filters; }
  std::int64_t taps() const { return 9 * channels * filters; }
};

#if defined(OURS)
using tensorwright::SquareTiles;

Call Filtered(const tensorwright::Convolution& of, bool is_rotated, const float* in,
              const float* filter, float* out) {
  using Outputs = tensorwright::WinogradOutputs<SquareTiles>;
  const auto room = std::make_shared<std::vector<float>>(Outputs::TransformedSize(of));
  return [=] {
    const Outputs run(of, in, filter, is_rotated, {}, room->data(), out);
    run.TransformFilters(0, run.lines());
    run.Compute(0, run.blocks());
  };
}

Call Convolution(const Shape& shape, const std::string& what, float* in, float* filter,
                 float* out) {
  const tensorwright::Convolution::Axis axis = {shape.size, shape.size, 3, 1, 1, 1};
  const tensorwright::Convolution of = {shape.images, shape.channels, shape.filters, axis, axis};
  if (what == "outputs") return Filtered(of, false, in, filter, out);
  if (what == "inputs") return Filtered(of.ForInputGradient(), true, out, filter, in);
  using Gradient = tensorwright::WinogradGradient<SquareTiles>;
  const auto room = std::make_shared<std::vector<float>>(Gradient::SumsSize(of));
  return [=] {
    const Gradient run(of, 1, in, out, room->data(), filter, nullptr);
    run.Compute(0, run.parts());
    run.Finish(0, run.lines());
  };
}
#elif defined(DNNL)
// Each call converts the filter to the library's layout or back, because each training step
// changes it.
Call Convolution(const Shape& shape, const std::string& what, float* in, float* filter,
                 float* out) {
  using dnnl::memory;
  using Tag = memory::format_tag;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto type = memory::data_type::f32;
  const auto [images, size, channels, filters] = shape;
  const memory::desc inputs({images, channels, size, size}, type, Tag::nhwc),
      outputs({images, filters, size, size}, type, Tag::nhwc),
      plain({filters, channels, 3, 3}, type, Tag::hwio),
      any({filters, channels, 3, 3}, type, Tag::any);
  const auto direct = dnnl::algorithm::convolution_auto;
  const memory::dims one = {1, 1};
  const dnnl::convolution_forward::primitive_desc forward(
      engine, dnnl::prop_kind::forward_training, direct, inputs, any, outputs, one, one, one);
  const memory source(inputs, engine, in), result(outputs, engine, out),
      given(plain, engine, filter);
  dnnl::stream stream(engine);
  if (what == "filter") {
    const dnnl::convolution_backward_weights::primitive_desc made(engine, direct, inputs, any,
                                                                  outputs, one, one, one, forward);
    const memory own(made.diff_weights_desc(), engine);
    const dnnl::convolution_backward_weights run(made);
    const dnnl::reorder back(own, given);
    return [=]() mutable {
      run.execute(
          stream,
          {{DNNL_ARG_SRC, source}, {DNNL_ARG_DIFF_DST, result}, {DNNL_ARG_DIFF_WEIGHTS, own}});
      back.execute(stream, const_cast<memory&>(own), const_cast<memory&>(given));
      stream.wait();
    };
  }
  if (what == "inputs") {
    const dnnl::convolution_backward_data::primitive_desc made(engine, direct, inputs, any, outputs,
                                                               one, one, one, forward);
    const memory own(made.weights_desc(), engine);
    const dnnl::convolution_backward_data run(made);
    const dnnl::reorder pack(given, own);
    return [=]() mutable {
      pack.execute(stream, const_cast<memory&>(given), const_cast<memory&>(own));
      run.execute(
          stream,
          {{DNNL_ARG_DIFF_DST, result}, {DNNL_ARG_WEIGHTS, own}, {DNNL_ARG_DIFF_SRC, source}});
      stream.wait();
    };
  }
  const memory own(forward.weights_desc(), engine);
  const dnnl::convolution_forward run(forward);
  const dnnl::reorder pack(given, own);
  return [=]() mutable {
    pack.execute(stream, const_cast<memory&>(given), const_cast<memory&>(own));
    run.execute(stream, {{DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, own}, {DNNL_ARG_DST, result}});
    stream.wait();
  };
}
#else
Call Convolution(const Shape&, const std::string&, float*, float*, float*) {
  std::fputs("this library has no convolutions\n", stderr);
  std::exit(2);
}
#endif

}  // namespace

// Usage: SECONDS product M K N [t], or SECONDS outputs|inputs|filter IMAGES SIZE CHANNELS FILTERS.
// Prints the CPU time of one call in milliseconds (the mean of the faster half of the calls), and a
// sum of the results.
int main(int count, char** words) {
  const double seconds = std::atof(words[1]);
  const std::string what = words[2];
  std::int64_t of[4];
  for (int i = 0; i < 4 && i + 3 < count; ++i) of[i] = std::atoll(words[i + 3]);
  std::vector<float> left, right, out;
  Call call;
  if (what == "product") {
    const auto [m, k, n] = std::tuple(of[0], of[1], of[2]);
    left = Drawn(m * k), right = Drawn(k * n), out = Drawn(m * n);
    call = Product(m, k, n, count > 6, left.data(), right.data(), out.data());
  } else {
    const Shape shape = {of[0], of[1], of[2], of[3]};
    left = Drawn(shape.inputs()), right = Drawn(shape.taps()), out = Drawn(shape.outputs());
    call = Convolution(shape, what, left.data(), right.data(), out.data());
  }
  for (int i = 0; i < 3; ++i) call();
  std::vector<double> times;
  for (const double end = CpuSeconds() + seconds; CpuSeconds() < end || times.size() < 4;) {
    const double start = CpuSeconds();
    call();
    times.push_back(CpuSeconds() - start);
  }
  std::sort(times.begin(), times.end());
  const std::size_t half = times.size() / 2;
  double sum = 0, check = 0;
  for (std::size_t i = 0; i < half; ++i) sum += times[i];
  const auto& computed = what == "inputs" ? left : what == "filter" ? right : out;
  for (const float value : computed) check += value < 0 ? -value : value;
  std::printf("%.6f %.6g\n", 1e3 * sum / half, check);
}
