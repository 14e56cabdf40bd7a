// Prints the work of the kernels of fused/products for the shapes in a file, for fit.py.
//
// The file has lines "op turned rows depth columns filters height width stride batch equation"
// (shapes.py). The first line of the output has the names of all kernels. Then, for each shape, a line has the
// kernel that runs with TENSORWRIGHT_PRODUCTS=always, its counts and oneDNN's (work.h), or "none"
// if no kernel can compute the shape.

#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "tensorwright/ops/products/work.h"

namespace tensorwright {
namespace {

void Print(KernelId kernel, const WorkPair& work) {
  std::cout << kKernelNames[static_cast<int>(kernel)];
  for (const Work& part : {work.ours, work.onednn}) {
    for (const double count : part.list()) std::cout << ' ' << count;
  }
  std::cout << '\n';
}

// Returns an axis with padding SAME.
Convolution::Axis CreateAxis(std::int64_t in, std::int64_t taps, std::int64_t stride) {
  Convolution::Axis axis = {in, (in + stride - 1) / stride, taps, stride};
  axis.before = std::max<std::int64_t>(axis.InputExtent(axis.out) - in, 0) / 2;
  return axis;
}

void PrintConvolution(const std::string& op, const Convolution& of) {
  const bool makes_inputs = op == "Conv2DBackpropInput",
             makes_filter = op == "Conv2DBackpropFilter";
  const WinogradKernels& kernels = makes_inputs   ? kInputGradient
                                   : makes_filter ? kFilterGradient
                                                  : kOutputs;
  const bool printed =
      (!makes_inputs || of.rows.stride == 1) &&
      WithScheme(makes_inputs ? of.ForInputGradient() : of, kernels,
                 [](auto, KernelId kernel, const WorkPair& work) { Print(kernel, work); });
  if (printed) return;
  if (makes_filter) {
    Print(KernelId::filter_gradient, CountFilterGradientWork(of));
  } else {
    std::cout << "none\n";
  }
}

void PrintContraction(const std::vector<ContractionAxis>& axes, KernelId kernel) {
  Contraction of;
  if (MakeContraction(axes, &of)) {
    Print(kernel, CountContractionWork(of, kernel));
  } else {
    std::cout << "none\n";
  }
}

// `turned` is 1 if the left matrices are transposed, 2 if the right ones are. `sizes` are those of the
// batch, rows, depth and columns.
void PrintProduct(bool is_single, std::int64_t turned, const Sizes& sizes) {
  const bool left = turned == 1, right = turned == 2;
  const KernelId kernel = GetProductKernel(!is_single, left, right);
  if (is_single) {
    const Contraction of = MakeProduct(sizes[1], sizes[2], sizes[3], left, right);
    return Print(kernel, CountContractionWork(of, kernel));
  }
  std::vector<ContractionAxis> axes;
  Sizes out;
  GetProductAxes({sizes[0], sizes[left ? 2 : 1], sizes[left ? 1 : 2]},
                 {sizes[0], sizes[right ? 3 : 2], sizes[right ? 2 : 3]}, left, right, &axes, &out);
  PrintContraction(axes, kernel);
}

// `sizes` are those of the labels a, b, c, d and e.
void PrintEinsum(const std::string& equation, const Sizes& sizes) {
  const std::size_t comma = equation.find(','), arrow = equation.find("->");
  const auto sizes_of = [&](std::size_t first, std::size_t last) {
    Sizes result;
    for (; first < last; ++first) result.push_back(sizes[equation[first] - 'a']);
    return result;
  };
  EinsumLabels labels;
  std::vector<ContractionAxis> axes;
  Sizes out;
  labels.Parse(equation);
  labels.GetAxes(sizes_of(0, comma), sizes_of(comma + 1, arrow), &axes, &out);
  PrintContraction(axes, KernelId::einsum);
}

}  // namespace
}  // namespace tensorwright

int main(int, char** arguments) {
  using namespace tensorwright;
  std::cout.precision(17);
  for (const char* name : kKernelNames) std::cout << name << ' ';
  std::cout << '\n';
  std::ifstream file(arguments[1]);
  std::string op, equation;
  std::int64_t turned, rows, depth, columns, filters, height, width, stride, batch;
  while (file >> op >> turned >> rows >> depth >> columns >> filters >> height >> width >> stride >>
         batch >> equation) {
    if (op == "Einsum") {
      PrintEinsum(equation, {batch, rows, depth, columns, filters});
    } else if (filters == 0) {
      PrintProduct(op == "MatMul", turned, {batch, rows, depth, columns});
    } else {
      PrintConvolution(op, {rows, columns, filters, CreateAxis(depth, height, stride),
                            CreateAxis(depth, width, stride)});
    }
  }
}
