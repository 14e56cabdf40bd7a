// A loop that compilers turn into vector code. Which instructions it gets shows the flags of this file.
extern "C" void xnn_vmul(const float* a, const float* b, float* out, long size) {
  for (long i = 0; i < size; ++i) out[i] = a[i] * b[i];
}
