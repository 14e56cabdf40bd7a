// Writes a table for ops.cc. Its loop becomes vector code, so that its object code shows which flags
// a tool of the build was compiled with.
#include <cstdio>

int main(int argc, char**) {
  float squares[64];
  float scale = static_cast<float>(argc);
  for (int i = 0; i < 64; ++i) squares[i] = scale * static_cast<float>(i * i);
  std::puts("static const float kTable[64] = {");
  for (float square : squares) std::printf("  %.1ff,\n", square);
  std::puts("};");
  return 0;
}
