"""Records of measurements, which builds, wheels and benchmarks read."""
