// Prints the work of the kernels of fused/products for the shapes in a file, for fit.py.
//
// The file has lines "op turned rows depth columns filters height width stride" (shapes.py). The
// first line of the output has the names of all kernels. Then, for each shape, a line has the
// kernel that runs with TENSORWRIGHT_PRODUCTS=always, its counts and oneDNN's (work.h), or "none"
// if no kernel can compute the shape.

#include <fstream>
#include <iostream>
#include <string>

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

}  // namespace
}  // namespace tensorwright

int main(int, char** arguments) {
  using namespace tensorwright;
  std::cout.precision(17);
  for (const char* name : kKernelNames) std::cout << name << ' ';
  std::cout << '\n';
  std::ifstream file(arguments[1]);
  std::string op;
  std::int64_t turned, rows, depth, columns, filters, height, width, stride;
  while (file >> op >> turned >> rows >> depth >> columns >> filters >> height >> width >> stride) {
    if (op != "MatMul") {
      PrintConvolution(op, {rows, columns, filters, CreateAxis(depth, height, stride),
                            CreateAxis(depth, width, stride)});
    } else if (turned) {
      Print(KernelId::transposed_product, CountTransposedProductWork(rows, depth, columns));
    } else {
      Print(KernelId::product, CountProductWork(rows, depth, columns));
    }
  }
}
