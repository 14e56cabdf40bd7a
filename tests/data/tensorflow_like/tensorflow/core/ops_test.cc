extern "C" double like_reduce_sum(const float* values, long size);

int main() {
  const float values[] = {1, 2, 3};
  return like_reduce_sum(values, 3) == 6 ? 0 : 1;
}
